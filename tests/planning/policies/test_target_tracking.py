from __future__ import annotations

from typing import Any

import pytest

from mark.domain.errors import BadInput
from mark.domain.fleet import Fleet
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext
from mark.planning.policies.target_tracking import sagemaker_policy, sagemaker_types, target_tracking
from tests.planning.build import Minutes, forecast, load, resolved, sold


def endpoint(model: str = "some-model", **changes: Any) -> ResolvedService:
    """Return an endpoint on which ml.p2.xlarge is cheaper batched.

    ml.c5.xlarge (10 requests/s, target 300 a minute) is cheaper unbatched.
    """
    return resolved(
        sold("ml.c5.xlarge", 0.2, Market.SAGEMAKER),
        sold("ml.p2.xlarge", 1.0, Market.SAGEMAKER),
        sold("ml.t2.medium", 0.01, Market.SAGEMAKER),
        sold("t2.medium", 0.05, Market.BURSTABLE),
        sold("c5.xlarge", 0.15),
        latencies_ms={"c5.xlarge": 100.0, "p2.xlarge": 40.0, "t2.medium": 100.0},
        batch={"p2.xlarge": (8, 100.0)},
        model=model,
        **changes,
    )


def started(rate_rps: float) -> Minutes:
    policy = target_tracking("target-tracking", endpoint(), load(rate_rps))
    play = Minutes(policy.planner, policy.resolved)
    play.first(PlanningContext(0.0, policy.resolved, Fleet(()), last_minute_rps=rate_rps, first=True))
    return play


C5 = "ml.c5.xlarge/sagemaker"


def test_the_first_fleet_holds_the_first_minute_at_half_load() -> None:
    """Over-provision factor 2: 20 requests/s need four instances of 10, from forecast, observation or expectation."""
    policy = target_tracking("target-tracking", endpoint(), load(float("nan"), 20.0))
    for known in ({}, {"last_minute_rps": 20.0}, {"last_minute_rps": 90.0, "forecast": forecast(20.0)}):
        plan, _ = policy.planner.plan(
            PlanningContext(0.0, policy.resolved, Fleet(()), first=True, **known),  # type: ignore[arg-type]
            policy.planner.begin(),
        )
        assert plan.counts == {C5: 4}


def test_three_points_above_the_target_scale_out() -> None:
    """Two high minutes do nothing; the third sets desired = ceil(n x metric / target)."""
    play = started(20.0)
    assert [play.minute(41.0)[C5] for _ in range(3)] == [4, 4, 9]


def test_a_low_point_between_high_ones_resets_the_alarm() -> None:
    """The three points must be consecutive."""
    play = started(20.0)
    assert [play.minute(rate)[C5] for rate in (41.0, 41.0, 20.0, 41.0, 41.0)] == [4] * 5


def test_no_second_scale_out_within_the_cool_down() -> None:
    """For 300 s after scaling out the alarm does nothing; booting instances count as desired, not as in service."""
    play = started(20.0)
    wanted = [play.minute(rate)[C5] for rate in (30.0, 30.0, 30.0, 60.0, 60.0, 60.0, 60.0, 60.0)]
    assert wanted == [4, 4, 6, 6, 6, 6, 6, 12]


def test_an_alarm_that_adds_nothing_begins_no_cool_down() -> None:
    """Boots of ten minutes: six are enough for 30 requests/s until 60 come in the ninth minute."""
    play = started(20.0)
    play.boot = 10
    wanted = [play.minute(rate)[C5] for rate in [30.0] * 8 + [60.0]]
    assert wanted == [4, 4, 6, 6, 6, 6, 6, 6, 12]


def test_fifteen_points_below_nine_tenths_scale_in() -> None:
    """At 0.9 x target nothing ever happens; below it the 15th minute scales in."""
    play = started(20.0)
    assert {play.minute(18.0)[C5] for _ in range(30)} == {4}
    wanted = [play.minute(9.0)[C5] for _ in range(15)]
    assert wanted == [4] * 14 + [2]


def test_one_instance_stays() -> None:
    """The minimum is one, also without any load."""
    play = started(20.0)
    assert [play.minute(0.0)[C5] for _ in range(16)][-1] == 1


def test_a_minute_without_observation_is_no_point() -> None:
    """In a gap the alarms neither count nor forget."""
    play = started(20.0)
    assert [play.minute(rate)[C5] for rate in (41.0, 41.0, None, 41.0)] == [4, 4, 4, 9]


def test_the_endpoint_has_no_bouncer_functions_or_batches() -> None:
    """The resolved service is SageMaker's: one ml type, unbatched, with the catalogue's boot, without our limits."""
    own = endpoint("inception-v3", max_instances=2)
    policy = target_tracking("target-tracking", own, load(1e4))
    altered = policy.resolved
    assert not policy.bouncers
    assert altered.function is None
    assert [offer.name for offer in altered.offers] == ["ml.p2.xlarge/sagemaker"]
    assert altered.candidates[0].policy.n_batch == 1
    assert altered.offers[0] in own.catalog.offers
    plan, _ = policy.planner.plan(PlanningContext(0.0, altered, Fleet(()), first=True), policy.planner.begin())
    assert plan.counts == {"ml.p2.xlarge/sagemaker": 800}
    assert altered.service.max_instances > 800
    assert any("inferred" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("model", "instance"), [("nasnet", "ml.c5.xlarge"), ("inception-v3", "ml.p2.xlarge"), ("mine", "ml.c5.xlarge")]
)
def test_the_type_is_the_papers_or_the_cheapest(model: str, instance: str) -> None:
    """The paper's four models use the types its bills point to, others the cheapest per unbatched request."""
    policy = target_tracking("target-tracking", endpoint(model), load(1.0))
    assert policy.resolved.offers[0].instance == instance


def test_the_best_endpoint_batches() -> None:
    """`target-tracking-best` takes the cheapest admissible type with batching, and tracks its batched capacity."""
    policy = target_tracking("target-tracking-best", endpoint(), load(400.0))
    plan, _ = policy.planner.plan(PlanningContext(0.0, policy.resolved, Fleet(()), first=True), policy.planner.begin())
    assert plan.counts == {"ml.p2.xlarge/sagemaker": 10}
    assert not policy.bouncers


def test_burstable_endpoints_are_not_ranked() -> None:
    """ml.t2 would look cheapest by far, at a speed it holds for half an hour."""
    ranked = [offer.instance for offer, _ in sagemaker_types(endpoint(), batched=False)]
    assert ranked == ["ml.c5.xlarge", "ml.p2.xlarge"]


def test_a_type_missing_from_the_catalogue_is_bad_input() -> None:
    """One line says which catalogue lacks which type, or that the service has no profile."""
    with pytest.raises(BadInput, match=r"ml\.x1"):
        sagemaker_policy(endpoint(), "ml.x1", False)
    nothing = resolved(sold("c5.xlarge", 0.15), latencies_ms={"c5.xlarge": 100.0})
    with pytest.raises(BadInput, match="no SageMaker type"):
        target_tracking("target-tracking", nothing, load(1.0))
