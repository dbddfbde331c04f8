"""Which offers a service may buy and can use."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, Infeasible
from mark.domain.offer import Catalog, Market
from mark.domain.profile import Profile, ProfileRow
from mark.domain.service import Commitment, ResolvedService, ServiceConfig, SloMonitorSettings
from mark.domain.slo import Slo
from mark.planning.resolve import affordable, choose_function, committed_of, function_size, profile_of, resolve
from mark.profiling.table import load_profiles

DAY = load_catalog("aws-2019")
PROFILES = load_profiles()


def deployed(service: ServiceConfig, catalog: Catalog = DAY) -> ResolvedService:
    return resolve(service, catalog, PROFILES)


def with_slo(service: ServiceConfig, rt_max_ms: float) -> ServiceConfig:
    return replace(service, slo=Slo(rt_max_ms / 1e3, 0.98))


def test_offers_are_those_wanted_with_a_profile_ordered_by_name() -> None:
    found = deployed(load_service("inception-v3"))
    assert [offer.name for offer in found.offers] == [
        "c5.2xlarge/on-demand", "c5.4xlarge/on-demand", "c5.large/on-demand", "c5.xlarge/on-demand",
        "p2.xlarge/on-demand",
    ]  # fmt: skip
    assert [c.profile.instance for c in found.candidates] == [offer.instance for offer in found.offers]
    assert dict(found.skipped)["c5.9xlarge"] == "no profile of inception-v3"
    assert found.profiles.keys() == PROFILES["inception-v3"].keys()


def test_zones_and_markets_of_a_type_share_its_candidate() -> None:
    both = replace(load_service("inception-v3"), markets=(Market.SPOT, Market.ON_DEMAND), instances=("p2.xlarge",))
    found = deployed(both)
    assert len(found.offers) == 5
    assert all(c is found.candidates[0] for c in found.candidates)


def test_a_burstable_is_planned_at_full_speed() -> None:
    found = deployed(replace(load_service("inception-v3"), markets=(Market.BURSTABLE,)))
    medium = found.candidates[found.index("t2.medium/burstable")]
    assert medium.capacity_rps == pytest.approx(1e3 / 140.37)


def test_a_type_too_slow_is_skipped_with_its_time() -> None:
    found = deployed(load_service("opennmt-ende"))
    assert dict(found.skipped)["c5.large"] == "one request takes 2180.0 ms, RT_max is 1400 ms"
    assert found.candidates[found.index("p2.xlarge/on-demand")].policy.n_batch == 7


def test_retired_types_and_patterns_without_a_match_are_named() -> None:
    service = replace(load_service("inception-v3"), instances=("c5.*", "p2.xlarge", "c9.*"))
    skipped = dict(deployed(service, load_catalog("aws-2026")).skipped)
    assert skipped["p2.xlarge"] == "retired in aws-2026"
    assert skipped["c9.*"] == "matches nothing in aws-2026"


def test_a_function_slower_than_the_slo_is_still_resolved() -> None:
    use = deployed(load_service("inception-v3")).function
    assert use is not None
    assert (use.warm_s, use.cold_s, use.basis) == (0.38, 2.86, "measured")
    slow = deployed(load_service("opennmt-ende")).function
    assert slow is not None
    assert slow.warm_s == 3.1
    assert deployed(replace(load_service("nasnet"), functions=())).function is None


def test_no_more_environments_than_the_money_pays_for() -> None:
    """An environment that is busy for an hour runs 9,474 requests of 380 ms, each billed as 400 ms: 0.187 $."""
    for usd_per_hour, concurrency in ((math.inf, 1000), (200.0, 1000), (20.0, 107), (0.1, 1)):
        service = replace(load_service("inception-v3"), max_function_usd_per_hour=usd_per_hour)
        use = deployed(service).function
        assert use is not None
        assert use.offer.concurrency == concurrency
    exactly = use.usd_per_request / use.warm_s * 3600.0 * 3.0
    assert use.environments_for(exactly) == 3


def test_a_function_without_a_profile_is_skipped() -> None:
    found = deployed(replace(load_service("nasnet"), functions=("lambda:1024",)))
    assert found.function is None
    assert dict(found.skipped)["lambda:1024"] == "no profile of nasnet"
    with pytest.raises(BadInput, match="lambda:9999"):
        deployed(replace(load_service("nasnet"), functions=("lambda:9999",)))


def test_the_cheapest_function_in_time_is_chosen() -> None:
    sized = load_service("inception-v3-2026")
    today, by_type = load_catalog("aws-2026"), PROFILES["inception-v3-2026"]
    for rt_max_ms, functions, size in [
        (600, ("lambda:*",), "lambda:3008"),  # 380 ms, for the fewest GB-seconds
        (300, ("lambda:*",), "lambda:5120"),  # 268 ms
        (200, ("lambda:*",), "lambda:10240"),  # 171 ms
        (100, ("lambda:*",), "lambda:3008"),  # every function is late: the cheapest
        (300, ("lambda:10240", "lambda:3008"), "lambda:10240"),
        (300, ("lambda:3008",), "lambda:3008"),
    ]:
        service = replace(with_slo(sized, rt_max_ms), functions=functions)
        chosen, passed_over = choose_function(service, today, by_type)
        assert chosen is not None
        assert (chosen.offer.name, function_size(service, today, by_type)) == (size, size)
        profiled = {"lambda:3008", "lambda:5120", "lambda:10240"}
        assert passed_over.keys() | {size} == (profiled if "lambda:*" in functions else set(functions))
    found = deployed(replace(with_slo(sized, 300), functions=("lambda:*",)), today)
    why = dict(found.skipped)
    assert (why["lambda:3008"], why["lambda:10240"]) == ("too slow", "dearer than lambda:5120")


def test_a_size_that_is_not_sold_is_passed_over() -> None:
    chosen, passed_over = choose_function(
        replace(load_service("inception-v3"), functions=("lambda:*",)), DAY, PROFILES["inception-v3-2026"]
    )
    assert chosen is not None
    assert chosen.offer.name == "lambda:3008"
    assert passed_over == dict.fromkeys(["lambda:5120", "lambda:10240"], "functions have 128 to 3008 MB")


def test_a_cheaper_processor_is_taken_where_it_was_measured() -> None:
    today, of_model = load_catalog("aws-2026"), dict(PROFILES["inception-v3-2026"])
    either = replace(load_service("inception-v3-2026"), functions=("lambda:*", "lambda-arm64:*"))
    chosen, passed_over = choose_function(either, today, of_model)
    assert chosen is not None
    assert not chosen.offer.arm64
    assert passed_over["lambda-arm64:*"].startswith("no profile of")
    measured = of_model | {"lambda-arm64:3008": replace(of_model["lambda:3008"], instance="lambda-arm64:3008")}
    chosen, passed_over = choose_function(either, today, measured)
    assert chosen is not None
    assert chosen.offer.name == "lambda-arm64:3008"
    assert passed_over["lambda:3008"] == "dearer than lambda-arm64:3008"
    x86, _ = choose_function(replace(either, functions=("lambda:3008",)), today, measured)
    assert x86 is not None
    asked = 2e-7  # a request's own price
    assert (chosen.usd_per_request - asked) / (x86.usd_per_request - asked) == pytest.approx(0.8, rel=1e-4)


def test_without_a_profile_the_first_named_function_runs() -> None:
    named = replace(load_service("nasnet"), functions=("lambda:*", "lambda:2048", "lambda:1024"))
    assert function_size(named, DAY, {}) == "lambda:2048"
    assert function_size(replace(named, functions=("lambda:*",)), DAY, {}) is None
    assert choose_function(replace(named, functions=("lambda:*",)), DAY, {}) == (
        None,
        {"lambda:*": "no profile of nasnet"},
    )


def test_an_unknown_model_says_which_are_known() -> None:
    with pytest.raises(BadInput, match=r"known: inception-resnet-v2, inception-v3.*: resnet"):
        deployed(replace(load_service("nasnet"), model="resnet"))


def test_an_infeasible_slo_names_the_closest_offer() -> None:
    with pytest.raises(Infeasible, match=r"RT_max 100 ms.*closest is p2\.xlarge with 188\.0 ms"):
        deployed(with_slo(load_service("nasnet"), 100))
    with pytest.raises(Infeasible, match=r"closest is lambda:3008 with 380\.0 ms"):
        deployed(replace(with_slo(load_service("inception-v3"), 100), instances=("m5.*",)))
    with pytest.raises(Infeasible, match="no type it may buy has a profile"):
        deployed(replace(load_service("inception-v3"), instances=("m5.*",), functions=()))


def test_functions_alone_may_serve_when_they_are_fast_enough() -> None:
    alone = deployed(replace(load_service("inception-v3"), instances=("m5.*",)))
    assert alone.offers == ()
    assert alone.function is not None


def test_a_sagemaker_type_has_its_ec2_profile() -> None:
    of_model: dict[str, Profile] = PROFILES["inception-v3"]
    assert profile_of(of_model, "ml.p2.xlarge") is of_model["p2.xlarge"]
    assert profile_of(of_model, "ml.m5.large") is None
    found = deployed(replace(load_service("inception-v3"), markets=(Market.SAGEMAKER,), instances=("ml.p2.*",)))
    assert [offer.name for offer in found.offers] == ["ml.p2.xlarge/sagemaker"]


def test_what_the_slo_monitor_launches_must_be_for_sale() -> None:
    service = load_service("opennmt-ende")
    for instance, reason in (("c5.large", "one request takes 2180.0 ms"), ("m5.large", "the service may not buy it")):
        wanted = replace(service, slo_monitor=SloMonitorSettings(instance=instance))
        with pytest.raises(BadInput, match=rf"\[slo_monitor\] instance: {reason}.*{instance}"):
            deployed(wanted)
    assert deployed(replace(service, slo_monitor=SloMonitorSettings(instance="p2.xlarge"))).offers


def committing(*committed: Commitment) -> ResolvedService:
    return deployed(replace(load_service("inception-v3"), committed=committed))


def test_committed_instances_are_paid_together() -> None:
    found = committing(Commitment("c5.large", 4, 0.05), Commitment("p2.xlarge", 2))
    assert found.committed == {"c5.large/on-demand": 4, "p2.xlarge/on-demand": 2}
    assert found.committed_usd_per_hour == pytest.approx(4 * 0.05 + 2 * 0.9 * (1.0 - 0.338))


def test_a_commitment_that_cannot_serve_is_paid_and_named() -> None:
    found = committing(Commitment("c5.9xlarge", 1, 1.0))
    assert found.committed_usd_per_hour == 1.0
    assert dict(found.skipped)["c5.9xlarge"] == "no profile of inception-v3; 1 committed, paid for nothing"


def test_a_commitment_covers_a_burstable_in_unlimited_mode() -> None:
    service, catalog = load_service("inception-v3"), load_catalog("aws-2026")
    counts, usd_per_hour = committed_of(replace(service, committed=(Commitment("t3.large", 2),)), catalog)
    assert counts == {"t3.large/burstable": 2}
    assert usd_per_hour == pytest.approx(2 * 0.0832 * (1.0 - 0.338))
    with pytest.raises(BadInput, match=r"sells no such type on demand: t2\.large"):
        committed_of(replace(service, committed=(Commitment("t2.large", 2),)), catalog)


def test_a_commitment_to_what_is_not_sold_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"\[fleet.committed\]: aws-2019 sells no such type on demand: c5.huge"):
        committing(Commitment("c5.huge", 1))


@pytest.mark.usefixtures("coarse_late_shares")
def test_promise_that_a_tail_breaks_alone_names_the_highest_share() -> None:
    """24 ms on average and 75 at p99 are within 80 ms for 99.27 % of the requests: 99.5 % is out of reach."""
    profiles = {"m": {"c5.large": Profile("m", "c5.large", (ProfileRow(1, 24.0, 75.0),))}}
    asked = replace(
        load_service("inception-v3"), model="m", functions=(), instances=("c5.large",), slo=Slo(0.08, 0.995)
    )
    with pytest.raises(Infeasible, match=r"closest is c5.large, where at most 99.27 % take less than RT_max"):
        resolve(asked, load_catalog("aws-2019"), profiles)
    kept = resolve(replace(asked, slo=Slo(0.08, 0.98)), load_catalog("aws-2019"), profiles)
    assert kept.candidates[0].late_shares is not None


LARGE = replace(load_service("inception-v3"), instances=("c5.large", "c5.xlarge"), functions=(), source="low.toml")


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (
            {"min_instances": 3, "max_usd_per_hour": 0.25},
            "pays for less than min_instances = 3 (c5.large/on-demand, the cheapest, costs 0.085 $/h): "
            "raise it to 0.255 or lower min_instances: 0.25",
        ),
        (
            {"min_instances": 0, "max_usd_per_hour": 0.08},
            "pays for less than one instance, and no function answers in time (c5.large/on-demand, the cheapest, costs "
            "0.085 $/h): raise it to 0.085: 0.08",
        ),
        (
            {"warm_pool": 4, "max_usd_per_hour": 0.3},
            "pays for less than warm_pool = 4 (c5.large/on-demand, the cheapest, costs 0.085 $/h): "
            "raise it to 0.34 or lower warm_pool: 0.3",
        ),
    ],
)
def test_budget_below_what_the_fleet_needs_is_refused(low: dict[str, float], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        affordable(deployed(replace(LARGE, **low)))  # type: ignore[arg-type]
    assert str(refused.value) == f"low.toml [fleet] max_usd_per_hour: {said}"


@pytest.mark.parametrize(
    "enough",
    [
        {"min_instances": 3, "max_usd_per_hour": 0.255},  # binary: 3 x 0.085 is more than 0.255
        {"min_instances": 0, "max_usd_per_hour": 0.01, "functions": ("lambda:3008",)},  # functions alone may answer
        {"warm_pool": 4, "max_usd_per_hour": 0.34},
        {"warm_pool": 4, "max_usd_per_hour": 0.1, "markets": (Market.SPOT,)},  # nothing that a pool may hold
    ],
)
def test_budget_of_just_the_fleet_is_enough(enough: dict[str, float]) -> None:
    found = deployed(replace(LARGE, **enough))  # type: ignore[arg-type]
    assert affordable(found) is found
