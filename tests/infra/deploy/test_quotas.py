"""The account quotas that limits may need, the quotas that it has, and which functions get a reservation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy import quotas
from mark_infra.deploy.quotas import FUNCTIONS, family, needed, read, reservations

from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.report.quotas import QuotaLine, quota_report
from tests.infra.conftest import REGION as MOTO_REGION
from tests.infra.conftest import MotoServer
from tests.infra.deploy.stubbed import StubbedSession
from tests.planning.build import resolved, sold, usual
from tests.studies.report.test_simulate_report import plain

ON_DEMAND, SPOT = "vCPUs on demand (standard)", "vCPUs on spot (standard)"
USE = usual().function
assert USE is not None
ENVIRONMENT_USD = USE.usd_per_request / USE.warm_s * 3600.0  # an hour


def service(name: str = "test", **changes: Any) -> ResolvedService:
    """Return a service with types of 2 vCPUs at 0.1 and 0.04 $/h, and one with a GPU."""
    of = resolved(
        sold("c5.large", 0.1), sold("c5.large", 0.04, Market.SPOT, "eu-west-1a"), sold("g5.xlarge", 1.0),
        latencies_ms={"c5.large": 100.0, "g5.xlarge": 10.0},
        **changes,
    )  # fmt: skip
    return replace(of, service=replace(of.service, name=name))


def by_what(lines: list[QuotaLine]) -> dict[str, int]:
    return {line.what: line.needed for line in lines}


@pytest.mark.parametrize(
    ("instance", "found"),
    [
        *(("c5.large", "standard"), ("t4g.small", "standard"), ("im4gn.large", "standard"), ("i3.large", "standard")),
        *(("g5.xlarge", "G and VT"), ("gr6.4xlarge", "G and VT"), ("vt1.3xlarge", "G and VT"), ("p5.48xlarge", "P")),
        *(("inf2.xlarge", "Inf"), ("x2iedn.large", "X"), ("f2.6xlarge", "F"), ("trn1.2xlarge", None)),
        *(("hpc7g.4xlarge", None), ("u-3tb1.56xlarge", None), ("dl1.24xlarge", None)),
    ],
)
def test_types_count_against_their_family(instance: str, found: str | None) -> None:
    assert family(instance) == found


def test_p5_counts_by_itself_on_spot_only() -> None:
    for instance, found in (
        ("p5.48xlarge", "P5"),
        ("p5en.48xlarge", "P5"),
        ("p4d.24xlarge", "P"),
        ("c5.large", "standard"),
    ):
        assert family(instance, spot=True) == found
    assert family("p5en.48xlarge") == "P"


def test_every_type_of_todays_catalogue_has_a_family() -> None:
    today = open_service(RunRequest(trace="", service="inception-v3-2026")).catalog
    instances = {o.instance for o in today.offers if o.market is not Market.SAGEMAKER}
    assert [name for name in instances if family(name) is None] == []


def test_limits_of_count_and_money_bound_what_is_needed() -> None:
    """The need is by market and family, over all services; the controller has 2 vCPUs."""
    few, poor = service("few", max_instances=3), service("poor", max_usd_per_hour=0.35)
    assert by_what(needed([few])) == {ON_DEMAND: 2 + 6, SPOT: 6, "vCPUs on demand (G and VT)": 6, FUNCTIONS: 3000}
    assert by_what(needed([poor])) == {ON_DEMAND: 2 + 7, SPOT: 17, "vCPUs on demand (G and VT)": 0, FUNCTIONS: 3000}
    both = needed([few, poor])
    assert by_what(both)[ON_DEMAND] == 2 + 6 + 7
    assert next(line for line in both if line.what == SPOT).services == ("few", "poor")


def test_functions_need_what_their_money_pays_for() -> None:
    lines = needed([service(max_function_usd_per_hour=10.0 * ENVIRONMENT_USD)])
    assert by_what(lines)[FUNCTIONS] == 10
    without = replace(service(), function=None)
    assert FUNCTIONS not in by_what(needed([without]))


def quota(value: float) -> dict[str, Any]:
    return {"Quota": {"Value": value}}


def test_quotas_are_the_accounts_own_else_the_default() -> None:
    aws, said = StubbedSession(), list[str]()
    lines = [QuotaLine("a", "L-1216C47A", 10, None, ("s",)), QuotaLine("f", "L-B99A9384", 5, None, ("s",))]
    aws.answers("service-quotas", "get_service_quota", quota(32.0), {"ServiceCode": "ec2", "QuotaCode": "L-1216C47A"})
    asked = {"ServiceCode": "lambda", "QuotaCode": "L-B99A9384"}
    aws.refuses("service-quotas", "get_service_quota", "NoSuchResourceException", asked)
    aws.answers("service-quotas", "get_aws_default_service_quota", quota(1000.0), asked)
    assert [line.allowed for line in read(aws.gate(), lines, said.append)] == [32, 1000]
    assert aws.all_asked()
    assert said == []


def test_what_is_too_small_is_said() -> None:
    aws, said = StubbedSession(), list[str]()
    aws.answers("service-quotas", "get_service_quota", quota(5.0))
    lines = read(aws.gate(), [QuotaLine(SPOT, "L-34B43A08", 3000, None, ("a", "b"))], said.append)
    assert said == [
        f"a, b may need 3,000 {SPOT}, the account has 5: ask AWS for more (quota L-34B43A08), or lower the limits"
    ]
    shown = plain(quota_report([*lines, QuotaLine("else", "L-1", 1, None, ("a",))]))
    assert "too small" in shown
    assert "unknown" in shown


def test_quotas_that_may_not_be_read_are_one_line() -> None:
    """After that no call is made."""
    aws, said = StubbedSession(), list[str]()
    aws.refuses("service-quotas", "get_service_quota", "AccessDeniedException")
    lines = read(aws.gate(), needed([service()]), said.append)
    assert {line.allowed for line in lines} == {None}
    assert said == ["the account's quotas are not known: AccessDeniedException: no"]


def functions(allowed: int | None) -> list[QuotaLine]:
    return [QuotaLine(FUNCTIONS, "L-B99A9384", 1, allowed, ("s",))]


def test_reservations_leave_room_for_other_functions() -> None:
    """100 of the quota, else of 1,000, stay free. Small functions come first; one without a reservation is named."""
    small, large, free = (
        service(name, max_function_usd_per_hour=usd)
        for name, usd in (("a", 300.0 * ENVIRONMENT_USD), ("b", 700.0 * ENVIRONMENT_USD), ("c", math.inf))
    )
    for allowed in (1000, None):
        said: list[str] = []
        assert reservations([large, free, small], functions(allowed), said.append) == {"a": 300, "b": None, "c": None}
        assert [line.split(":")[0] for line in said] == ["b"]
    assert reservations([large, free, small], functions(1100), lambda _: None) == {"a": 300, "b": 700, "c": None}


def test_what_others_have_reserved_cannot_be_reserved_again() -> None:
    of = service("a.b", max_function_usd_per_hour=300.0 * ENVIRONMENT_USD)
    aws, said = StubbedSession(), list[str]()
    limit = {"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 150}
    for present, room in (({"ReservedConcurrentExecutions": 250}, 400), ({}, 150)):
        aws.answers("lambda", "get_account_settings", {"AccountLimit": limit})
        aws.answers("lambda", "get_function_concurrency", present, {"FunctionName": "mark_a-b-overflow"})
        assert quotas.unreserved(aws.gate(), "mark", [of], said.append) == room
    assert said == []
    assert reservations([of], functions(1000), said.append, 400) == {"a.b": 300}
    assert reservations([of], functions(1000), said.append, 150) == {"a.b": None}
    assert said[0].startswith("a.b: 300 environments of its function cannot be reserved, of 150 that are free 100 stay")


def test_functions_are_named_as_terraform_does() -> None:
    assert quotas.function_name("mark", "a.b_c") == "mark_a-b-c-overflow"
    assert quotas.function_name("mark", "x" * 40) == f"mark_{'x' * 23}-47372a7b-overflow"


def test_a_first_deployment_has_reserved_nothing() -> None:
    of = service(max_function_usd_per_hour=300.0 * ENVIRONMENT_USD)
    aws = StubbedSession()
    aws.answers("lambda", "get_account_settings", {"AccountLimit": {"UnreservedConcurrentExecutions": 900}})
    aws.refuses("lambda", "get_function_concurrency", "ResourceNotFoundException")
    assert quotas.unreserved(aws.gate(), "mark", [of], lambda _: None) == 900
    assert quotas.unreserved(StubbedSession().gate(), "mark", [service()], lambda _: None) is None, "AWS is not asked"


def test_an_emulation_that_knows_no_reservations_is_told(moto: MotoServer) -> None:
    said: list[str] = []
    of = service(max_function_usd_per_hour=300.0 * ENVIRONMENT_USD)
    gate = Gate(Site("mark", MOTO_REGION, "dynamodb:none"), options=moto.options)
    assert quotas.unreserved(gate, "mark", [of], said.append) is None
    assert [line.split(":")[0] for line in said] == ["the account's reserved concurrency is not known"]


def test_a_reservation_of_all_there_is_would_limit_nothing() -> None:
    said: list[str] = []
    of = service(max_function_usd_per_hour=20.0 * ENVIRONMENT_USD)
    assert reservations([of], functions(10), said.append) == {"test": None}
    assert said == []


def test_codes_are_all_different() -> None:
    codes = list(quotas._CODES.values())
    assert len(set(codes)) == len(codes) == 13
