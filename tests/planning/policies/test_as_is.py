from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from mark.domain.cron import cron_schedule
from mark.domain.errors import BadInput
from mark.domain.fleet import Fleet
from mark.domain.offer import Market
from mark.domain.scaler import CronWindow
from mark.domain.service import AsIsPolicy, ResolvedService
from mark.planning.planner import PlanningContext
from mark.planning.policies.as_is import as_is
from tests.planning.build import Minutes, load, resolved, sold

SMALL = "small/on-demand"


def running(own: AsIsPolicy | None) -> ResolvedService:
    return resolved(
        sold("small", 0.2), sold("ml.small", 0.3, Market.SAGEMAKER), latencies_ms={"small": 100.0}, as_is=own
    )


def started(own: AsIsPolicy, rate_rps: float) -> Minutes:
    policy = as_is(running(own), load(rate_rps))
    play = Minutes(policy.planner, policy.resolved)
    play.first(PlanningContext(0.0, policy.resolved, Fleet(()), last_minute_rps=rate_rps, first=True))
    return play


@pytest.mark.parametrize("kind", ["fixed", "asg", "hpa", "keda", "knative", "ray"])
def test_fleet_is_bought_in_the_services_markets(kind: str) -> None:
    own = AsIsPolicy(kind, "small")
    offers = (sold("small", 0.2), sold("small", 0.05, Market.SPOT, "a"))
    both = resolved(*offers, latencies_ms={"small": 100.0}, as_is=own)
    spot = replace(both, service=replace(both.service, markets=(Market.SPOT,)))
    assert [offer.name for offer in as_is(both, load(20.0)).resolved.offers] == [SMALL]
    assert [offer.name for offer in as_is(spot, load(20.0)).resolved.offers] == ["small/spot/a"]
    with pytest.raises(BadInput, match=r"is sold as on-demand, not as spot; small/on-demand names that offer: small"):
        as_is(replace(spot, catalog=replace(spot.catalog, offers=offers[:1])), load(20.0))


def test_an_auto_scaling_group_tracks_cpu() -> None:
    """Three minutes at full CPU double a group with a target of one half, and no more: CPU ends at one."""
    play = started(AsIsPolicy("asg", "small", target=0.5), 20.0)
    busy = {"utilization": {SMALL: 1.0}}
    assert [play.minute(400.0, **busy)[SMALL] for _ in range(3)] == [4, 4, 8]


def test_cpu_is_reckoned_from_load_where_it_is_not_measured() -> None:
    """CPU is load over capacity, and at most one."""
    play = started(AsIsPolicy("asg", "small", target=0.5), 20.0)
    assert [play.minute(400.0)[SMALL] for _ in range(3)] == [4, 4, 8]


def test_a_pod_autoscaler_sees_cpu_only() -> None:
    """Unlike `reactive`, it does not see the queue beyond full CPU."""
    play = started(AsIsPolicy("hpa", "small", target=0.8), 32.0)
    assert play.ready == {SMALL: 4}
    assert play.minute(400.0, utilization={SMALL: 1.0}) == {SMALL: 5}


@pytest.mark.parametrize(
    ("kind", "every_s", "first"), [("hpa", 15.0, 8), ("keda", 15.0, 8), ("knative", 5.0, 4), ("ray", 5.0, 4)]
)
def test_a_scaler_without_a_target_has_its_document_s(kind: str, every_s: float, first: int) -> None:
    """The load is 40 requests/s on instances of ten. KEDA documents no target, so half of the capacity is used."""
    own = AsIsPolicy(kind, "small")
    assert started(own, 40.0).ready == {SMALL: first}
    assert as_is(running(own), load(40.0)).every_s == every_s


def test_schedule_without_a_date_is_refused() -> None:
    window = CronWindow(cron_schedule("0 8 * * *"), cron_schedule("0 9 * * *"), 6, ZoneInfo("UTC"))
    with pytest.raises(BadInput, match=r"begins: a schedule needs the time .* because the trace has no dates"):
        started(AsIsPolicy("cron", "small", windows=(window,)), 40.0)


def test_an_endpoint_keeps_the_users_target_and_bounds() -> None:
    """Target in requests per instance and minute, minimum and maximum from the service file."""
    play = started(AsIsPolicy("sagemaker", "ml.small", target=60.0, min_instances=2, max_instances=5), 1.0)
    assert play.ready == {"ml.small/sagemaker": 2}
    assert [play.minute(100.0)["ml.small/sagemaker"] for _ in range(3)] == [2, 2, 5]


def test_a_fixed_fleet_is_its_minimum() -> None:
    """`kind = fixed` holds `min` instances."""
    assert started(AsIsPolicy("fixed", "small", min_instances=7), 1.0).ready == {SMALL: 7}


@pytest.mark.parametrize("kind", ["asg", "hpa", "keda", "knative", "ray", "cron", "sagemaker", "fixed"])
def test_as_is_policies_have_neither_bouncers_nor_functions(kind: str) -> None:
    """The user's system is simulated without additions."""
    policy = as_is(running(AsIsPolicy(kind, "small")), load(1.0))
    assert not policy.bouncers
    assert policy.resolved.function is None


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (None, r"\[policy\]"),
        (AsIsPolicy("magic", "small"), "magic"),
        (AsIsPolicy("asg", "small", target=50.0), "utilisation"),
        (AsIsPolicy("sagemaker", "small", target=0.0), "above zero"),
        (AsIsPolicy("ray", "small", target=0.0), r"\[policy\] target: must be above zero"),
        (AsIsPolicy("hpa", "unknown"), "unknown"),
    ],
)
def test_what_cannot_be_simulated_is_bad_input(own: AsIsPolicy | None, says: str) -> None:
    """The line names the file's key or value."""
    with pytest.raises(BadInput, match=says):
        as_is(running(own), load(1.0))
