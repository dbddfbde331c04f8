from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from mark.domain.cron import cron_schedule
from mark.domain.fleet import Fleet
from mark.domain.scaler import CronWindow, HpaSettings, KedaSettings, KpaSettings, RaySettings
from mark.planning.planner import PlanningContext
from mark.planning.policies.pod_scaler import (
    HpaRule,
    KedaToZero,
    KpaRule,
    KpaToZero,
    PodScaler,
    RayRule,
    Rule,
    Scaled,
)
from mark.planning.policies.target_tracking import Metric
from tests.planning.build import fleet, usual

SMALL = "small/on-demand"


class Played:
    """A scaler round by round; replicas are ready immediately unless `ready` gives their number."""

    def __init__(self, rule: Rule, **changes: object) -> None:
        settings: dict[str, object] = {"min_instances": 1, "max_instances": 100, **changes}
        self.scaler = PodScaler("as-is", SMALL, rule, 10.0, 0.0, **settings)  # type: ignore[arg-type]
        self.memory: Scaled = self.scaler.begin()
        self.now_s, self.count = 0.0, 0

    def first(self, rate_rps: float) -> int:
        return self._plan(PlanningContext(0.0, usual(), Fleet(()), last_minute_rps=rate_rps, first=True))

    def round(self, *, ready: int | None = None, floor: int = 0, rate_rps: float | None = 0.0, **seen: object) -> int:
        self.now_s += self.scaler.rule.every_s
        there = self.count if ready is None else ready
        running = fleet({SMALL: there}, {SMALL: self.count - there})
        context = PlanningContext(self.now_s, usual(), running, last_minute_rps=rate_rps, **seen)  # type: ignore[arg-type]
        return self._plan(context, floor)

    def _plan(self, context: PlanningContext, floor: int = 0) -> int:
        plan, self.memory = self.scaler.plan_above(context, self.memory, floor)
        self.count = plan.counts.get(SMALL, 0)
        return self.count


def keda() -> HpaRule:
    return HpaRule(HpaSettings(), 5.0, 10.0)


def test_keda_divides_the_rate_by_its_threshold() -> None:
    """At 5 requests/s a replica, 40 requests/s need eight, whatever their capacity or utilisation."""
    played = Played(keda())
    assert played.first(20.0) == 4
    assert played.round(rate_rps=40.0) == 8
    assert played.round(rate_rps=43.9) == 8  # within a tenth


def measured(utilisation: float) -> Metric:
    return lambda context, offer, in_service: utilisation


def test_hpa_counts_booting_pods_as_idle_before_it_adds_more() -> None:
    played = Played(HpaRule(HpaSettings(), 0.5, 10.0, measured(1.0)))
    played.count = 4
    assert played.round(ready=4) == 8
    assert played.round(ready=4) == 8


@pytest.mark.parametrize(
    ("settings", "seen", "count"),
    [
        (KpaSettings(), {"in_flight": 28}, 4),
        (KpaSettings(metric="rps"), {"windows_rps": np.array([1.0, 28.0])}, 4),
        (KpaSettings(target_utilization_percentage=100.0), {"in_flight": 28}, 3),
    ],
)
def test_knative_holds_seven_tenths_of_its_target_a_replica(
    settings: KpaSettings, seen: dict[str, object], count: int
) -> None:
    """28 requests, in flight or each second, against a target of ten."""
    played = Played(KpaRule(settings, 10.0, 0.1, 10.0))
    played.count = 3
    assert played.round(**seen) == count  # type: ignore[arg-type]


def test_knative_begins_with_what_a_steady_rate_needs() -> None:
    """The number follows Little's law, and is never less than the rate needs."""
    assert Played(KpaRule(KpaSettings(), 0.5, 0.07, 10.0)).first(60.0) == 12
    assert Played(KpaRule(KpaSettings(), 100.0, 0.07, 10.0)).first(60.0) == 6
    assert Played(RayRule(RaySettings(), 0.5, 0.1, 10.0)).first(60.0) == 12


def test_ray_waits_for_its_delay_and_averages_over_its_look_back() -> None:
    """Eight ongoing requests want four replicas of two, 30 s after they were first seen."""
    played = Played(RayRule(RaySettings(), 2.0, 0.1, 10.0))
    played.count = 2
    played.memory = Scaled(played.scaler.rule.begin(), 2)
    assert [played.round(in_flight=8) for _ in range(7)] == [2, 2, 2, 2, 2, 2, 4]
    # Five of six samples are still old ones.
    assert played.round(in_flight=0) == 4
    assert played.memory.rule[0][-6:] == (8, 8, 8, 8, 8, 0)


@pytest.mark.parametrize(
    "rule",
    [keda(), KpaRule(KpaSettings(), 10.0, 0.1, 10.0), RayRule(RaySettings(), 2.0, 0.1, 10.0)],
    ids=["keda", "knative", "ray"],
)
def test_nothing_observed_changes_nothing(rule: Rule) -> None:
    """Gaps and missing metrics scale nothing."""
    played = Played(rule)
    played.first(20.0)
    before = played.count
    assert [played.round(rate_rps=None, in_flight=0) for _ in range(200)] == [before] * 200


def test_schedule_is_one_more_trigger_of_keda() -> None:
    """KEDA takes the highest wish: six replicas from eight to nine, more where the rate wants more."""
    window = CronWindow(cron_schedule("0 8 * * *"), cron_schedule("0 9 * * *"), 6, ZoneInfo("UTC"))
    times: dict[str, object] = {"windows": (window,), "begins": datetime(2026, 1, 5, 7, 59, tzinfo=UTC)}
    played = Played(keda(), **times)
    assert played.first(5.0) == 1
    assert [played.round(rate_rps=5.0) for _ in range(4)] == [1, 1, 1, 5]
    assert played.round(rate_rps=5.0) == 6
    assert played.round(rate_rps=50.0) == 10
    alone = Played(HpaRule(HpaSettings(), None, 10.0), **times, min_instances=2)
    assert alone.first(500.0) == 2
    assert [alone.round(rate_rps=500.0) for _ in range(4)] == [2, 2, 2, 6]
    # After the end it falls, but not before the stabilisation window has passed.
    counts = [alone.round(rate_rps=500.0) for _ in range(4 * 70)]
    assert counts[4 * 59 + 10] == 6
    assert counts[-1] == 2


@pytest.mark.parametrize("rule", [keda(), KpaRule(KpaSettings(), 10.0, 0.1, 10.0)], ids=["keda", "knative"])
def test_floor_raises_the_count_up_to_the_user_s_maximum(rule: Rule) -> None:
    played = Played(rule, max_instances=9)
    played.first(20.0)
    assert played.round(rate_rps=20.0, in_flight=1, floor=7) == 7
    assert played.round(rate_rps=20.0, in_flight=1, floor=12) == 9


def keda_to_zero(target: float | None = 5.0, **changes: float) -> KedaToZero:
    settings = KedaSettings(**changes)
    return KedaToZero(HpaRule(settings, target, 10.0), settings)


def test_keda_keeps_one_replica_for_its_cooldown_and_then_none() -> None:
    """The HPA may take all but one at once here; the last replica goes at the first poll after more than 300 s."""
    played = Played(keda_to_zero(stabilization_window_s=0.0), min_instances=0)
    assert played.first(20.0) == 4
    assert played.round(rate_rps=20.0) == 4
    counts = [played.round(rate_rps=0.0) for _ in range(24)]
    assert counts == [1] * 21 + [0] * 3


def test_keda_starts_one_replica_at_the_first_poll_that_sees_a_request() -> None:
    played = Played(keda_to_zero(), min_instances=0)
    assert played.first(0.0) == 0
    assert [played.round(rate_rps=rate_rps) for rate_rps in (0.0, 30.0, 30.0)] == [0, 0, 1]
    assert played.round(ready=0, rate_rps=30.0) == 5  # the HPA adds at most four in 15 s


def test_keda_is_not_active_below_its_activation_threshold() -> None:
    played = Played(keda_to_zero(activation_threshold=2.0), min_instances=0)
    played.first(0.0)
    assert {played.round(rate_rps=2.0) for _ in range(8)} == {0}
    assert 1 in [played.round(rate_rps=2.1) for _ in range(2)]


def test_schedule_and_floor_start_replicas_from_zero() -> None:
    window = CronWindow(cron_schedule("0 8 * * *"), cron_schedule("0 9 * * *"), 6, ZoneInfo("UTC"))
    begins = datetime(2026, 1, 5, 7, 59, 30, tzinfo=UTC)
    played = Played(keda_to_zero(None), min_instances=0, windows=(window,), begins=begins)
    assert played.first(0.0) == 0
    assert [played.round() for _ in range(4)] == [0, 0, 1, 5]
    above = Played(keda_to_zero(), min_instances=0)
    above.first(0.0)
    assert above.round(floor=3) == 3
    assert above.round(floor=0) >= 1  # the cooldown of a trigger that was active


def test_knative_has_no_pod_after_a_stable_window_without_requests() -> None:
    played = Played(KpaToZero(KpaRule(KpaSettings(), 10.0, 0.1, 10.0)), min_instances=0)
    assert played.first(20.0) == 2
    assert played.round(in_flight=14) == 2
    counts = [played.round(in_flight=0) for _ in range(14)]
    assert counts[10] >= 1
    assert counts[12:] == [0, 0]


def test_knative_keeps_its_last_pod_for_the_retention_period() -> None:
    kept = KpaToZero(KpaRule(KpaSettings(scale_to_zero_pod_retention_period_s=30.0), 10.0, 0.1, 10.0))
    played = Played(kept, min_instances=0)
    played.first(5.0)
    counts = [played.round(in_flight=0) for _ in range(8)]
    assert counts == [1] * 6 + [0] * 2


def test_knative_starts_pods_for_the_requests_that_its_activator_holds() -> None:
    """Four requests/s that nobody answers are 20 after 5 s and 40 after 10 s; a replica holds seven."""
    played = Played(KpaToZero(KpaRule(KpaSettings(), 10.0, 0.1, 10.0)), min_instances=0)
    assert played.first(0.0) == 0
    assert played.round(in_flight=0, windows_rps=np.zeros(12)) == 0
    assert played.round(ready=0, in_flight=0, windows_rps=np.full(12, 4.0)) == 3
    assert played.round(ready=0, in_flight=0, windows_rps=np.full(12, 4.0)) == 6  # 40 in the panic window
    assert played.round(ready=6, in_flight=4, windows_rps=np.full(12, 4.0)) >= 3
