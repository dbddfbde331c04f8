"""Roll-outs: new instances are ready before old ones leave, worse releases are taken back, and limits hold."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mark.cloud.machine import InstanceLife
from mark.control.boots import Boots
from mark.control.comparison import Comparison
from mark.control.controller import Controller
from mark.control.headroom import Limit
from mark.control.ports import Launched, RecentAnswers, ReleaseCounts
from mark.control.rollout import STALL_S, Rollout, RolloutStage, replaceable, rolled, trouble, unbought
from mark.control.shared_limits import limited
from mark.control.views import Limits
from mark.domain.errors import CapacityError, CloudError, LimitError, NotFoundError, RefusalScope, ThrottledError
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.service import ResolvedService, RolloutSettings
from mark.domain.slo import Slo
from mark.planning.planner import Policy
from mark.testing.fakes import RampPredictor, ScriptedPlanner
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, Bench, offer, resolved

LARGE = ON_DEMAND.name
OTHER = offer("c5.xlarge", usd_per_hour=0.17)
BOOT_S = 100.0


def serving(max_instances: int = 200, warm_pool: int = 0, settings: RolloutSettings | None = None) -> ResolvedService:
    plain = resolved(ON_DEMAND, OTHER, max_instances=max_instances, min_instances=1)
    own = replace(plain.service, warm_pool=warm_pool, rollout=settings or RolloutSettings(canary_s=60.0))
    return replace(plain, service=own)


class Rolling(Bench):
    """A controller whose fleet takes BOOT_S to boot and answers 10 requests/s an instance.

    `ill` says how a release is defective. A request takes `busy_s` of a worker, by offer, and one in ten is late from
    `crowd_s` on, whatever the release. Every five seconds (wanted by the plan, ready) is noted. A tick comes `round_s`
    after the fast round before it.
    """

    round_s = 0.0

    def __init__(
        self,
        where: ResolvedService | None = None,
        wanted: int = 4,
        other: int = 0,
        planner: ScriptedPlanner | None = None,
    ) -> None:
        super().__init__(planner, where=where or serving(), release="a")
        self.wanted = {LARGE: wanted, **({OTHER.name: other} if other else {})}
        self.ill: dict[str, str] = {}
        self.busy_s = {o.name: 0.02 for o in (ON_DEMAND, OTHER, SPOT_A, SPOT_B, BURSTABLE)}
        self.crowd_s = math.inf
        self.seen: list[tuple[int, int]] = []
        self.most = 0
        self.planner.wanted = self.wanted
        self.run(240.0)

    def controller_again(self, predictor: Any = None) -> Controller:
        forecasts = RampPredictor() if self.planner.needs_forecast else None
        return super().controller_again(predictor or forecasts)

    def deploy(self, release: str) -> None:
        """Start a new controller, with a new release."""
        self.release = release
        self.controller = self.controller_again()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 5.0)):
            self._world()
            self.clock.t_s = 5.0 * (self.clock.t_s // 5.0) + 5.0
            self.controller.fast()
            if self.clock.t_s % 60.0 == 0.0:
                self.clock.t_s += self.round_s
                self.controller.tick()
            running = [i for i in self.cloud.instances.values() if i.phase is not Phase.STOPPED]
            self.most = max(self.most, len(running))
            self.seen.append((sum(self.planner.wanted.values()), sum(i.phase is Phase.READY for i in running)))

    def unwatched(self, seconds: float) -> None:
        """Let the world go on without a controller."""
        for _ in range(round(seconds / 5.0)):
            self.clock.t_s += 5.0
            self._world()

    def until(self, stage: RolloutStage) -> None:
        for _ in range(720):
            if self.rollout.stage is stage:
                return
            self.run(5.0)
        raise AssertionError(f"{self.rollout.stage} for an hour, not {stage}")

    def always_enough(self) -> bool:
        """Return whether the ready instances were never fewer than planned."""
        return min(ready - planned for planned, ready in self.seen) >= 0

    def _world(self) -> None:
        cloud = self.cloud
        for n, i in cloud.instances.items():
            ill = self.ill.get(i.release, "")
            if i.phase is Phase.PENDING and self.clock.t_s - i.launched_s >= BOOT_S:
                if self._never_boots(i, ill):
                    del cloud.lives[n]
                elif ill == "hangs":
                    cloud.lives[n].expected_s = i.launched_s + BOOT_S
                else:
                    cloud.serve(n)
            elif i.phase is Phase.READY:
                if ill == "mute" and i.silent_s is None:
                    cloud.lives[n].fall_silent(self.clock.t_s)
                self._answer(i, 50, ill)

    def _never_boots(self, i: Instance, ill: str) -> bool:
        if ill == "boots once":
            return any(o.release == i.release and o.phase is Phase.READY for o in self.cloud.instances.values())
        return ill == "boot" or (ill == "boot of one type" and i.offer == OTHER.name)

    def _answer(self, i: Instance, count: int, ill: str) -> None:
        if ill == "unreached":
            return
        late = count // 2 if ill == "late" else count // 10 if self.clock.t_s >= self.crowd_s else 0
        busy_s = count * self.busy_s[i.offer] * (2.0 if ill == "slow" else 1.0)
        by_functions = count * 4 // 5 if ill == "overflow" else 0
        by_offer = self.telemetry.by_release.setdefault(i.release, {})
        by_offer[i.offer] = by_offer.get(i.offer, ReleaseCounts()) + ReleaseCounts(
            count, late, count if ill == "errors" else 0, busy_s, by_functions
        )

    def releases(self) -> Counter[str]:
        return Counter(i.release for i in self.cloud.instances.values())

    @property
    def rollout(self) -> Rollout:
        assert self.controller.state.rollout is not None
        return self.controller.state.rollout


def test_a_canary_is_tried_with_what_can_be_had() -> None:
    """The plan's only type serves, but has no more capacity, so the trial would wait for it."""
    world = Rolling()
    world.cloud.fail, world.seen = {LARGE: CapacityError("out")}, []
    world.deploy("b")
    world.until(RolloutStage.CANARY)
    world.until(RolloutStage.ROLLING)
    assert [call[1:3] for call in world.cloud.calls if call[:2] == ("launch", OTHER.name)] == [(OTHER.name, 1)]
    assert world.always_enough()


def test_the_first_release_is_simply_launched() -> None:
    world = Rolling()
    assert world.releases() == {"a": 4}
    assert world.rollout.stage is RolloutStage.DONE


@pytest.mark.parametrize("wanted", [1, 4, 13])
def test_new_ones_are_ready_before_old_ones_go(wanted: int) -> None:
    world = Rolling(wanted=wanted)
    world.seen.clear()
    world.deploy("b")
    world.run(60.0)
    assert world.rollout.stage is RolloutStage.CANARY
    assert world.releases() == {"a": wanted, "b": 1}
    world.run(2400.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": wanted}
    assert max(context.fleet.live().total() for context in world.planner.contexts) == wanted
    assert world.always_enough()
    assert world.most <= wanted + max(1, -(-wanted // 4))


def test_the_same_release_again_changes_nothing() -> None:
    world = Rolling()
    calls = len(world.cloud.calls)
    world.deploy("a")
    world.run(600.0)
    assert len(world.cloud.calls) == calls


@pytest.mark.parametrize(
    ("ill", "why"),
    [
        ("boot", "3 instances of it in a row ended before they served"),
        ("errors", "answers are errors"),
        ("late", "late or refused"),
        ("slow", "2.0 times the worker time"),
        ("mute", "none of its 1 instances answers any more"),
        ("overflow", "left to functions"),
        ("unreached", "no requests reach its instances"),
    ],
)
def test_a_bad_release_is_stopped_at_the_canary(ill: str, why: str) -> None:
    """It never has more than its canaries, and the release before serves as usual."""
    world = Rolling(serving(settings=RolloutSettings(canary_s=300.0)), wanted=8)
    world.ill["b"] = ill
    world.seen.clear()
    world.deploy("b")
    most = 0
    for _ in range(1000):
        world.run(5.0)
        most = max(most, world.releases()["b"])
    assert most == 1
    assert world.rollout.release == "a"
    assert world.rollout.refused == ("b",)
    assert why in trouble(world.rollout, "b")
    assert world.releases() == {"a": 8}
    assert world.always_enough()


def test_errors_of_a_canary_stay_within_the_error_budget() -> None:
    """The budget of an hour: two percent of its requests may be lost."""
    world = Rolling(wanted=4)
    world.ill["b"] = "errors"
    world.deploy("b")
    world.run(3600.0)
    errors = world.telemetry.by_release["b"][LARGE].errors
    requests = sum(one[LARGE].requests for one in world.telemetry.by_release.values())
    assert 0 < errors <= 0.02 * requests / 10


def test_a_release_that_turns_bad_while_rolling_is_taken_back() -> None:
    world = Rolling(wanted=8)
    world.deploy("b")
    while world.rollout.stage is not RolloutStage.ROLLING:
        world.run(5.0)
    world.run(150.0)
    assert world.releases()["b"] >= 2
    world.ill["b"] = "late"
    world.seen.clear()
    world.run(900.0)
    assert world.releases() == {"a": 8}
    assert world.rollout.refused == ("b",)
    assert world.always_enough()


def test_a_rollback_is_asked_for_and_lasts() -> None:
    world = Rolling()
    world.deploy("b")
    world.run(1800.0)
    assert world.releases() == {"b": 4}
    world.seen.clear()
    world.controller.roll_back()
    world.run(BOOT_S + 20.0)  # all in one step
    assert world.releases() == {"a": 4}
    world.deploy("b")  # only the controller is replaced
    world.run(600.0)
    assert world.releases() == {"a": 4}
    assert trouble(world.rollout, "b") == "release b is not served, but a: it was taken back"
    world.controller.roll_out_again()
    world.run(2400.0)
    assert world.releases() == {"b": 4}
    assert world.always_enough()


def test_a_third_release_replaces_a_stopped_one() -> None:
    world = Rolling()
    world.ill["b"] = "errors"
    world.deploy("b")
    world.run(900.0)
    world.deploy("c")
    world.run(2400.0)
    assert world.releases() == {"c": 4}
    assert world.rollout.before == "a"


def test_without_a_release_before_there_is_no_way_back() -> None:
    world = Rolling()
    world.controller.roll_back()
    world.run(300.0)
    assert world.rollout == Rollout("a")
    assert world.releases() == {"a": 4}
    forget(world)
    world.cloud.lives.clear()
    world.ill["b"] = "boot"
    world.deploy("b")  # the release before is forgotten
    world.run(10.0)
    world.controller.roll_back()
    assert trouble(world.rollout, "b") == "release b: it was taken back, and there is no release to go back to"
    world.deploy("c")
    world.run(2400.0)
    assert world.releases() == {"c": 4}


def forget(world: Rolling) -> None:
    """Drop the stored state and roll-out."""
    world.store.put("state", None)
    world.store.put("rollout", None)


def test_a_forgotten_fleet_is_replaced_all_the_same() -> None:
    """The new release is tried first, compared with the release that most of the fleet runs."""
    world = Rolling()
    forget(world)
    world.deploy("b")
    world.seen.clear()
    world.run(60.0)
    assert (world.rollout.stage, world.rollout.release) == (RolloutStage.CANARY, "a")
    world.run(1800.0)
    assert world.releases() == {"b": 4}
    assert world.always_enough()


def test_another_version_remembers_what_serves_and_what_was_refused() -> None:
    """It cannot read the rest of the state."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.run(2400.0)
    world.ill["c"] = world.ill["d"] = "errors"
    world.deploy("c")
    world.run(900.0)
    assert world.rollout.refused == ("c",)
    world.store.put("state", None)
    world.seen.clear()
    world.deploy("d")
    world.run(900.0)
    assert (world.rollout.release, world.rollout.before, world.rollout.refused) == ("b", "a", ("c", "d"))
    assert world.releases() == {"b": 8}
    assert world.always_enough()


def test_another_version_goes_on_rolling() -> None:
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(60.0)
    world.store.put("state", None)
    world.deploy("b")
    world.run(5.0)
    assert (world.rollout.stage, world.rollout.before) == (RolloutStage.ROLLING, "a")
    world.ill["b"] = "late"
    world.run(1200.0)
    assert world.releases() == {"a": 8}


def test_at_a_limit_it_waits_and_says_so() -> None:
    world = Rolling(serving(max_instances=4))
    world.seen.clear()
    world.deploy("b")
    world.run(900.0)
    assert world.releases() == {"a": 4}
    assert trouble(world.rollout, "b") == "roll-out of release b waits: max_instances 4 is reached"
    assert "LimitError" not in world.controller.failures
    world.planner.wanted = {LARGE: 3}
    world.run(3600.0)
    assert world.releases() == {"b": 3}
    assert "LimitError" not in world.controller.failures
    assert world.most == 4
    assert world.always_enough()


def test_without_canaries_it_waits_at_a_limit_too() -> None:
    world = Rolling(serving(max_instances=4, settings=RolloutSettings(canary_share=0.0)))
    world.deploy("b")
    world.run(300.0)
    assert world.releases() == {"a": 4}
    assert trouble(world.rollout, "b") == "roll-out of release b waits: max_instances 4 is reached"
    assert "LimitError" not in world.controller.failures
    world.planner.wanted = {LARGE: 3}
    world.run(900.0)
    assert world.releases() == {"b": 3}


def test_the_warm_pool_keeps_no_old_release() -> None:
    world = Rolling(serving(warm_pool=3))
    world.planner.wanted = {LARGE: 1}
    world.run(300.0)
    assert sum(i.phase is Phase.STOPPED for i in world.cloud.instances.values()) == 3
    stops = [call for call in world.cloud.calls if call[0] == "stop"]
    world.planner.wanted = {LARGE: 2}
    world.deploy("b")
    world.run(2400.0)
    assert world.releases() == {"b": 2}
    assert [call for call in world.cloud.calls if call[0] == "stop"] == stops


def test_the_plan_may_change_meanwhile() -> None:
    world = Rolling(wanted=6)
    world.deploy("b")
    for wanted in (6, 9, 3, 3, 7, 2, 2, 5, 5, 5):
        world.planner.wanted = {LARGE: wanted}
        world.run(300.0)
    assert world.releases() == {"b": 5}
    assert world.rollout.stage is RolloutStage.DONE


def test_instances_of_two_types_are_all_replaced() -> None:
    world = Rolling(wanted=4, other=2)
    world.seen.clear()
    world.deploy("b")
    world.run(3600.0)
    assert world.releases() == {"b": 6}
    assert Counter(i.offer for i in world.cloud.instances.values()) == {LARGE: 4, OTHER.name: 2}
    assert world.always_enough()


def rescued() -> Rolling:
    """Return a world where twelve of one type are planned and the SLO monitor added one of the other."""
    world = Rolling(wanted=0, other=12, planner=ScriptedPlanner(monitors_slo=True))
    del world.wanted[LARGE]
    world.telemetry.latest = RecentAnswers(1000, 900)
    world.run(180.0)
    world.telemetry.latest = RecentAnswers(1000, 1000)
    world.seen.clear()
    return world


def test_a_rescue_that_is_not_planned_is_replaced_too() -> None:
    """The monitor may keep its instances for an hour, and without this the roll-out would not end before."""
    world = rescued()
    world.deploy("b")
    state = world.controller.state
    world.controller.state = replace(state, monitor=replace(state.monitor, pause_s=7200.0))
    world.run(3600.0)
    assert Counter(i.offer for i in world.cloud.instances.values()) == {LARGE: 1, OTHER.name: 12}
    assert set(world.releases()) == {"b"}
    assert world.rollout.stage is RolloutStage.DONE
    assert world.always_enough()


def test_what_is_not_sold_any_more_leaves_last() -> None:
    """It serves until its replacement is ready, counts for the limits, and is then terminated."""
    world = Rolling()
    world.cloud.unsold.add(LARGE)
    world.planner.wanted = {OTHER.name: 2}
    ready: list[int] = []
    for _ in range(60):
        world.run(5.0)
        ready.append(sum(i.phase is Phase.READY for i in world.cloud.instances.values()))
    assert min(ready) == 2
    assert {i.offer for i in world.cloud.instances.values()} == {OTHER.name}


def test_what_leaves_counts_for_the_limits() -> None:
    world = Rolling(serving(max_instances=5))
    world.cloud.unsold.add(LARGE)
    world.planner.wanted = {OTHER.name: 2}
    world.run(900.0)
    assert world.most == 5
    assert {i.offer for i in world.cloud.instances.values()} == {OTHER.name}


def test_what_leaves_makes_room_where_there_is_none() -> None:
    """Instances leave one at a time, each after the replacement of the last one is ready."""
    world = Rolling(serving(max_instances=4))
    world.cloud.unsold.add(LARGE)
    world.planner.wanted = {OTHER.name: 4}
    world.seen.clear()
    world.run(3600.0)
    assert world.most == 4
    assert min(ready for _, ready in world.seen) == 3
    assert Counter(i.offer for i in world.cloud.instances.values()) == {OTHER.name: 4}


def test_what_leaves_is_not_kept_for_a_plan_of_nothing() -> None:
    world = Rolling()
    world.cloud.unsold.add(LARGE)
    world.resolved = replace(world.resolved, service=replace(world.resolved.service, min_instances=0))
    world.deploy("a")
    world.planner.wanted = {}
    world.run(180.0)
    assert not world.cloud.instances


def test_a_revert_ends_the_trial_and_nothing_else() -> None:
    """The release that serves is deployed again while another one is tried."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.run(120.0)
    assert world.releases() == {"a": 8, "b": 1}
    world.deploy("a")
    world.run(300.0)
    assert world.rollout == Rollout("a")
    assert world.releases() == {"a": 8}
    assert world.most <= 10


def test_another_release_and_other_types_at_once() -> None:
    """The stored plan names offers that may not be bought any more."""
    world = Rolling()
    world.cloud.unsold.add(LARGE)
    world.resolved = replace(
        resolved(OTHER, min_instances=1), service=replace(serving().service, rollout=RolloutSettings(canary_s=60.0))
    )
    world.deploy("b")
    world.planner.wanted = {OTHER.name: 2}
    ready: list[int] = []
    for _ in range(120):
        world.run(5.0)
        ready.append(sum(i.phase is Phase.READY for i in world.cloud.instances.values()))
    assert world.releases() == {"b": 2}
    assert min(ready) == 2


def test_a_release_that_boots_nowhere_is_taken_back() -> None:
    """The boots of all offers fail for a while, so that offers are tried in turn."""
    rollout = Rollout("b", RolloutStage.ROLLING, before="a", comparison=Comparison())
    for number, of in enumerate((LARGE, OTHER.name, SPOT_A.name), 1):
        booting = Fleet((Instance(number, of, Phase.PENDING, 0.0, release="b"),))
        for fleet in (booting, Fleet(())):
            assert rollout.release == "b"
            found = rolled(rollout, "b", fleet, {}, 60.0 * number, Slo(0.6, 0.98), RolloutSettings(), planned=4)
            assert found is not None
            rollout = found
    assert (rollout.release, rollout.refused) == ("a", ("b",))


def test_boots_that_hang_are_failed_boots() -> None:
    """The controller ends them itself, after the boot timeout."""
    world = Rolling(wanted=4)
    world.ill["b"] = "hangs"
    world.deploy("b")
    world.run(4 * 3600.0)
    assert world.rollout.refused == ("b",)
    assert world.releases() == {"a": 4}


def test_a_network_that_fails_condemns_no_release() -> None:
    world = Rolling(wanted=4)
    world.deploy("b")
    world.run(130.0)
    assert world.releases()["b"] == 1
    for life in world.cloud.lives.values():
        life.silent_s = world.clock.t_s
    world.run(25.0)
    for life in world.cloud.lives.values():
        life.silent_s = None
    world.run(2400.0)
    assert world.releases() == {"b": 4}


def test_a_refused_canary_is_not_asked_for_every_few_seconds() -> None:
    world = Rolling(wanted=4)
    world.cloud.fail[LARGE] = LimitError("VcpuLimitExceeded")
    world.deploy("b")
    before = len(world.cloud.calls)
    world.run(600.0)
    assert len(world.cloud.calls) - before <= 2 * 10
    assert trouble(world.rollout, "b") == "roll-out of release b waits: VcpuLimitExceeded"
    world.cloud.fail.clear()
    world.run(2400.0)
    assert world.releases() == {"b": 4}


def test_a_bad_release_makes_room_at_a_limit() -> None:
    """Misses raise the plan to the limit, and the way back must not wait for that."""
    world = Rolling(serving(max_instances=6), wanted=4)
    world.deploy("b")
    world.run(1800.0)
    assert world.releases() == {"b": 4}
    world.planner.wanted = {LARGE: 6}
    world.run(300.0)
    world.controller.roll_back()
    world.run(3600.0)
    assert world.releases() == {"a": 6}
    assert world.most == 6


def test_room_at_a_limit_is_made_share_by_share() -> None:
    """A draining instance stays for a while.

    Without this, another share left every five seconds until nothing served.
    """
    world = Rolling(serving(max_instances=8), wanted=6)
    world.deploy("b")
    world.run(2400.0)
    world.planner.wanted = {LARGE: 8}
    world.run(300.0)
    world.seen.clear()
    world.controller.roll_back()
    world.cloud.fail["terminate"] = CloudError("not yet")
    world.run(60.0)
    assert sum(i.phase is Phase.DRAINING for i in world.cloud.instances.values()) == 2
    world.cloud.fail.clear()
    world.run(1200.0)
    assert world.releases() == {"a": 8}
    assert min(ready for _, ready in world.seen) == 6
    assert world.most == 8


def test_a_refused_release_makes_room_for_a_third_one() -> None:
    """That is deployed at the limit before anything of the one before the refused one serves again."""
    world = Rolling(serving(max_instances=6), wanted=4)
    world.deploy("b")
    world.run(1800.0)
    world.planner.wanted = {LARGE: 6}
    world.run(300.0)
    world.controller.roll_back()
    world.run(10.0)
    assert world.releases() == {"a": 2, "b": 4}
    world.deploy("c")
    world.run(1800.0)
    assert world.rollout.refused == ("b",)
    assert world.releases() == {"c": 6}
    assert world.most == 6


def test_a_refused_release_makes_room_for_a_canary() -> None:
    """The way back stalls without capacity, and a third release is deployed; the plan is at the limit."""
    world = Rolling(serving(max_instances=8), wanted=6)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(250.0)
    world.ill["b"], world.planner.wanted = "errors", {LARGE: 8}
    world.cloud.fail = {LARGE: CapacityError("out"), OTHER.name: CapacityError("out")}
    world.run(1100.0)
    assert world.rollout.refused == ("b",)
    world.deploy("c")
    world.until(RolloutStage.CANARY)
    assert world.releases()["b"] > 1
    world.cloud.fail.clear()
    world.run(3600.0)
    assert world.releases()["b"] == 0
    assert world.releases()["c"] > 1
    assert world.most == 8


def bridged(world: Rolling) -> None:
    """Let an instance be reclaimed and a standby serve in its place, with more load than the others can serve."""
    world.telemetry.rps = 60.0
    world.cloud.interrupt(next(n for n, i in world.cloud.instances.items() if not i.standby))
    world.run(300.0)
    assert [i.phase for i in world.cloud.instances.values() if i.standby] == [Phase.READY]


def with_a_standby() -> Rolling:
    world = Rolling(replace(resolved(ON_DEMAND, BURSTABLE, min_instances=1), service=serving().service))
    world.planner.standbys = {BURSTABLE.name: 1}
    world.run(300.0)
    return world


def test_a_roll_out_ends_though_an_old_standby_bridges() -> None:
    """The planned instances are ready without it, and functions take the remaining requests."""
    world = with_a_standby()
    bridged(world)
    world.deploy("b")
    world.run(2400.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": 5}


def test_a_standby_of_a_bad_release_bridges_no_longer() -> None:
    world = with_a_standby()
    world.deploy("b")
    world.run(2400.0)
    assert world.releases() == {"b": 5}
    bridged(world)
    world.controller.roll_back()
    world.run(900.0)
    assert world.rollout.stage is RolloutStage.DONE
    assert world.releases() == {"a": 5}


def test_a_roll_out_goes_on_in_another_zone() -> None:
    """The planned offer has no capacity for hours, and stays the plan; equivalent instances serve well."""
    where = replace(resolved(SPOT_A, SPOT_B, min_instances=1), service=serving().service)
    world = Rolling(where, wanted=0, planner=ScriptedPlanner(needs_forecast=True, replans=True))
    world.planner.wanted = {SPOT_A.name: 4}
    world.run(240.0)
    world.cloud.fail = {SPOT_A.name: CapacityError("out")}
    world.seen.clear()
    world.deploy("b")
    world.run(3600.0)
    assert Counter((i.release, i.offer) for i in world.cloud.instances.values()) == {("b", SPOT_B.name): 4}
    assert world.rollout.stage is RolloutStage.DONE
    assert world.always_enough()


def test_a_roll_out_waits_for_spot_and_buys_nothing_dearer() -> None:
    """Waiting costs the serving release nothing, while on-demand that counts as spot would stay for good."""
    where = replace(resolved(SPOT_A, ON_DEMAND, min_instances=1), service=serving().service)
    world = Rolling(where, wanted=0, planner=ScriptedPlanner(needs_forecast=True, replans=True))
    world.planner.wanted = {SPOT_A.name: 4}
    world.run(240.0)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.cloud.fail = {SPOT_A.name: CapacityError("out")}
    world.run(1800.0)
    world.cloud.fail = {}
    world.run(1800.0)
    assert Counter((i.release, i.offer) for i in world.cloud.instances.values()) == {("b", SPOT_A.name): 4}


def test_a_throttled_launch_of_a_refused_release_is_given_up() -> None:
    """Otherwise it would be launched half a minute later and then terminated."""
    world = Rolling(serving(settings=RolloutSettings(canary_share=0.0, surge_share=0.5)), wanted=4)
    world.deploy("b")
    world.run(10.0)
    world.cloud.fail = {LARGE: ThrottledError("later")}
    world.run(110.0)
    assert world.controller._launcher.unsure(standby=False)
    world.controller.roll_back()
    world.cloud.fail = {}
    tried: list[str] = []
    launch = world.cloud.launch

    def noting(offer: str, count: int, token: str, **more: Any) -> Launched:
        tried.append(more["release"])
        return launch(offer, count, token, **more)

    world.cloud.launch = noting
    world.run(900.0)
    assert set(tried) == {"a"}
    assert world.releases() == {"a": 4}


def test_a_throttled_spike_is_over_in_a_roll_out() -> None:
    """Launches beyond the limit of a roll-out would be useless."""
    world = Rolling(serving(), wanted=2)
    world.deploy("b")
    world.until(RolloutStage.CANARY)
    world.run(120.0)
    world.cloud.fail = {LARGE: ThrottledError("later")}
    world.planner.wanted = {LARGE: 12}
    world.run(60.0)
    assert world.controller._launcher.unsure(standby=False)[LARGE] > 2
    world.planner.wanted = {LARGE: 2}
    world.run(60.0)
    world.cloud.fail = {}
    most = 0
    for _ in range(60):
        world.run(5.0)
        most = max(most, len(world.cloud.instances))
    assert most == 3, "one more than wanted"


@pytest.mark.parametrize("other", [False, True])
def test_boots_that_were_not_watched_condemn_no_release(other: bool) -> None:
    """They served while the service was paused, or until another controller took over, and were taken back."""
    world = Rolling(serving(settings=RolloutSettings(canary_s=60.0, surge_share=0.5)), wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(10.0)
    lose_ready(world, "b")
    world.run(10.0)
    assert len(world.rollout.booting) >= 3
    world.unwatched(300.0)
    lose_ready(world, "b")
    if other:
        world.deploy("b")
    world.run(2400.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": 8}


def lose_ready(world: Rolling, release: str) -> None:
    """Let the cloud take back all serving instances of the release."""
    left = {n: i for n, i in world.cloud.lives.items() if (i.release, i.phase) != (release, Phase.READY)}
    assert len(left) < len(world.cloud.lives)
    world.cloud.lives = left


def test_ends_without_an_answer_condemn_no_release() -> None:
    """The booting instances are not needed any more; they are gone although the calls that ended them failed."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.planner.wanted = {LARGE: 8, OTHER.name: 3}
    world.run(60.0)
    world.planner.wanted = {LARGE: 8}
    world.cloud.fail["terminate"] = CloudError("no answer in time")
    world.cloud.calls.clear()
    for _ in range(12):
        world.run(5.0)
        for number in {call[1] for call in world.cloud.calls if call[0] == "terminate"}:
            world.cloud.lives.pop(number, None)
    assert sum(call[0] == "terminate" for call in world.cloud.calls) >= 3
    world.cloud.fail.clear()
    world.run(1800.0)
    assert world.rollout == Rollout("b", before="a")


@pytest.mark.parametrize("gone", [True, False])
def test_a_release_whose_image_is_gone_is_taken_back(gone: bool) -> None:
    """Lost instances would not be replaced otherwise. If the account refuses every release, the release stays."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    launch = world.cloud.launch

    def fails(offer: str, count: int, token: str, **more: Any) -> Launched:
        if gone and more["release"] == "b":
            raise NotFoundError("no image")
        if not gone:
            raise CapacityError("not allowed", RefusalScope.EVERYTHING)
        return launch(offer, count, token, **more)

    world.cloud.launch = fails
    for number in sorted(world.cloud.instances)[:3]:
        del world.cloud.lives[number]
    world.run(900.0)
    world.cloud.launch = launch
    world.run(1800.0)
    served = "release b is not served, but a: nothing of it can be launched: no image" if gone else ""
    assert trouble(world.rollout, "b") == served
    assert world.releases() == ({"a": 8} if gone else {"b": 8})
    if gone:  # mended
        world.controller.roll_out_again()
        world.run(3600.0)
        assert world.releases() == {"b": 8}


def test_a_canary_makes_room_for_lower_limits() -> None:
    """A canary is kept beside the plan during its trial, but not beyond the service's new limits."""
    where = serving(settings=RolloutSettings(canary_s=3600.0))
    world = Rolling(where, wanted=4)
    world.deploy("b")
    world.run(300.0)
    assert world.releases() == {"a": 4, "b": 1}
    world.resolved = limited(where, Limits(4, 100.0))
    world.controller.use(Policy(world.planner, world.resolved, bouncers=True))
    world.run(120.0)
    assert world.releases() == {"a": 4}


@pytest.mark.parametrize(("ill", "within_s"), [("boot", 300.0), ("hangs", 780.0)])
def test_a_bad_release_does_not_hold_back_the_one_before(ill: str, within_s: float) -> None:
    """All instances were lost, and the new release boots nowhere.

    Hanging instances are terminated only after the verdict.
    """
    world = Rolling(wanted=8)
    world.ill["b"] = ill
    world.cloud.lives.clear()
    world.deploy("b")
    world.run(within_s)
    assert world.releases() == {"a": 8}


def test_boots_that_hang_do_not_hold_up_what_mends_them() -> None:
    """They are needed, and belong to a release that was never seen to boot."""
    world = Rolling(serving(max_instances=8), wanted=8)
    world.cloud.lives.clear()
    world.ill["a"] = "hangs"
    world.run(60.0)
    world.deploy("b")
    world.run(240.0)
    assert sum(i.phase is Phase.READY for i in world.cloud.instances.values()) == 8


def test_a_first_release_that_is_gone_is_asked_for_seldom() -> None:
    """There is no release to go back to, so each verdict would restart the pauses."""
    world = Rolling(wanted=4)
    world.controller.state = replace(
        world.controller.state, rollout=Rollout("a", RolloutStage.ROLLING, comparison=Comparison())
    )
    world.cloud.lives.clear()
    asked: list[float] = []

    def gone(offer: str, count: int, token: str, **more: Any) -> Launched:
        asked.append(world.clock.t_s)
        raise NotFoundError("no image")

    world.cloud.launch = gone
    world.run(3600.0)
    assert len(asked) <= 16


def test_a_canary_is_tried_with_what_boots() -> None:
    """Boots of the planned offer failed in a row, and its next trial comes after a pause."""
    world = Rolling(wanted=4)
    world.controller.state = replace(world.controller.state, boots={LARGE: Boots(failed=8, failed_s=world.clock.t_s)})
    world.controller.keep()
    world.deploy("b")
    world.run(120.0)
    assert [i.offer for i in world.cloud.instances.values() if i.release == "b"] == [OTHER.name]


def test_what_is_silent_takes_the_place_of_nothing() -> None:
    rolling = Rollout("b", RolloutStage.ROLLING, "a")
    old = [Instance(n, LARGE, Phase.READY, 0.0, release="a") for n in (1, 2)]
    new = Instance(3, LARGE, Phase.READY, 100.0, release="b")
    assert replaceable(rolling, 2, [*old, new]) == old[:1]
    assert replaceable(rolling, 2, [*old, replace(new, silent_s=300.0)]) == []
    silent = replace(old[1], silent_s=300.0)
    assert replaceable(rolling, 1, [old[0], silent, new])[:1] == [silent], "what does not answer goes first"


def test_needed_boots_of_the_release_before_go_on() -> None:
    """The plan has grown during the trial, and the new release may get no capacity."""
    rolling = Rollout("b", RolloutStage.ROLLING, "a")
    ready = [Instance(n, LARGE, Phase.READY, 0.0, release="a" if n else "b") for n in range(5)]
    booting = [Instance(n, LARGE, Phase.PENDING, 0.0, release="a") for n in range(5, 9)]
    assert replaceable(rolling, 8, [*ready, *booting]) == booting[3:]
    assert replaceable(replace(rolling, back=True), 8, [*ready, *booting]) == booting
    assert replaceable(replace(rolling, before="c"), 8, [*ready, *booting]) == booting


def test_a_canary_in_another_zone_is_compared_all_the_same() -> None:
    """The fleet's zone has no more of its type. The time of a request does not depend on the zone."""
    zones = resolved(SPOT_A, SPOT_B, min_instances=1)
    world = Rolling(replace(zones, service=replace(zones.service, rollout=RolloutSettings(canary_s=300.0))), wanted=0)
    world.planner.wanted = world.wanted = {SPOT_A.name: 4}
    world.run(240.0)
    world.cloud.fail, world.ill = {SPOT_A.name: CapacityError("out")}, {"b": "slow"}
    world.deploy("b")
    world.until(RolloutStage.CANARY)
    world.run(120.0)
    assert {(i.release, i.offer) for i in world.cloud.instances.values()} == {("a", SPOT_A.name), ("b", SPOT_B.name)}
    world.run(240.0)
    assert world.rollout.refused == ("b",)
    assert world.rollout.reason.startswith("a request takes 2.0 times the worker time")


@pytest.mark.parametrize("ill", ["errors", "late"])
def test_a_canary_whose_type_is_gone_is_compared_with_others(ill: str) -> None:
    """The last old instance of its type is reclaimed while the canary boots, so its answers no longer compare."""
    types = resolved(OTHER, SPOT_A, SPOT_B, min_instances=1)
    world = Rolling(replace(types, service=replace(types.service, rollout=RolloutSettings(canary_s=300.0))), wanted=0)
    world.planner.wanted = world.wanted = {OTHER.name: 4, SPOT_A.name: 1}
    world.run(240.0)
    world.cloud.fail, world.ill = {one: CapacityError("out") for one in world.wanted}, {"b": ill}
    world.deploy("b")
    while not world.releases()["b"]:
        world.run(5.0)
    world.planner.wanted = {OTHER.name: 4}
    world.cloud.lives = {n: i for n, i in world.cloud.lives.items() if i.offer_name != SPOT_A.name}
    assert {(i.release, i.offer) for i in world.cloud.instances.values()} == {("a", OTHER.name), ("b", SPOT_B.name)}
    world.run(600.0)
    assert world.rollout.refused == ("b",)


@pytest.mark.parametrize("gone", ["refused", "never boots"])
def test_a_rescue_that_cannot_be_replaced_condemns_no_release(gone: str) -> None:
    """Its offer has no capacity or no longer boots with any release, so the rescued instance is replaced last."""
    world = rescued()
    if gone == "refused":
        world.cloud.fail = {LARGE: CapacityError("out")}
    world.deploy("b")
    state = world.controller.state
    world.controller.state = replace(state, monitor=replace(state.monitor, pause_s=7200.0))
    for _ in range(500):
        if gone == "never boots":
            for n, i in list(world.cloud.instances.items()):
                if i.phase is Phase.PENDING and i.offer == LARGE and world.clock.t_s - i.launched_s > BOOT_S / 2:
                    del world.cloud.lives[n]
        world.run(5.0)
    assert world.rollout == Rollout("b", before="a")
    assert set(world.releases()) == {"b"}
    assert world.always_enough()


@pytest.mark.parametrize("other_busy_s", [0.004, 0.001])
def test_a_mix_of_types_makes_no_release_dearer(other_busy_s: float) -> None:
    world = Rolling(wanted=5, other=3)
    world.busy_s = {LARGE: 0.02, OTHER.name: other_busy_s}
    world.seen.clear()
    world.deploy("b")
    world.run(3600.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": 8}
    assert world.always_enough()


@pytest.mark.parametrize("stage", [RolloutStage.CANARY, RolloutStage.ROLLING])
def test_a_crowd_condemns_no_release(stage: RolloutStage) -> None:
    """Both releases are late equally often: when the canary has just begun to serve, or when most are new."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(stage)
    world.run(115.0)
    world.crowd_s = world.clock.t_s
    world.seen.clear()
    world.run(3600.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.always_enough()


def test_requests_that_become_dearer_for_all_condemn_no_release() -> None:
    world = Rolling(serving(settings=RolloutSettings(canary_s=300.0)), wanted=8)
    world.deploy("b")
    world.run(105.0)
    world.busy_s = {LARGE: 0.04}
    world.run(3600.0)
    assert world.rollout == Rollout("b", before="a")


def test_counters_that_begin_anew_condemn_no_release() -> None:
    """Another controller takes over in the middle, whose telemetry has counted nothing yet."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(60.0)
    world.telemetry.by_release.clear()
    world.deploy("b")
    world.run(1800.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": 8}


def test_a_canary_without_requests_says_what_it_waits_for() -> None:
    world = Rolling(wanted=8)
    world.ill["b"] = "unreached"
    world.deploy("b")
    world.run(240.0)
    waits = "no requests reach its instances, though the others get them"
    assert trouble(world.rollout, "b") == f"roll-out of release b waits: {waits}"
    world.ill.clear()
    world.run(1200.0)
    assert world.rollout == Rollout("b", before="a")


def test_another_controller_does_not_pass_a_canary_without_requests() -> None:
    """It takes over when the trial is nearly over, and has counted nothing yet."""
    world = Rolling(wanted=8)
    world.ill["b"] = "unreached"
    world.deploy("b")
    while world.rollout.since_s == math.inf:
        world.run(5.0)
    world.run(55.0)
    world.telemetry.by_release.clear()
    world.deploy("b")
    world.run(1800.0)
    assert world.releases() == {"a": 8}
    assert world.rollout.refused == ("b",)


def test_a_service_without_requests_gets_its_release() -> None:
    world = Rolling(wanted=8)
    world.ill["a"] = world.ill["b"] = "unreached"
    world.deploy("b")
    world.run(3600.0)
    assert world.releases() == {"b": 8}


def with_other_types(world: Rolling, wanted: int, settings: RolloutSettings | None = None) -> None:
    """Let the next release be bought only of a type other than the serving one."""
    world.cloud.unsold.add(LARGE)
    service = serving(settings=settings).service
    world.resolved = replace(resolved(OTHER, min_instances=1), service=service)
    world.planner.wanted = {OTHER.name: wanted}


@pytest.mark.parametrize("ill", ["boot", "errors", "late"])
def test_a_bad_release_with_other_types_is_taken_back(ill: str) -> None:
    """The roll-out is not done while no instance of it serves."""
    world = Rolling(wanted=8)
    with_other_types(world, 8)
    world.ill["b"] = ill
    world.seen.clear()
    world.deploy("b")
    world.run(5.0)
    assert world.rollout.stage is RolloutStage.CANARY
    most = 0
    for _ in range(500):
        world.run(5.0)
        most = max(most, world.releases()["b"])
        if world.rollout.refused:
            break
    assert most == 1
    assert world.rollout.refused == ("b",)
    world.run(10.0)
    assert world.releases()["b"] == 0, "at once, and not when others have booted"
    world.run(600.0)
    assert Counter((i.release, i.offer) for i in world.cloud.instances.values()) == {("a", OTHER.name): 8}
    assert world.always_enough()


@pytest.mark.parametrize("wanted", [1, 8])
def test_a_release_with_other_types_is_tried_before_others_leave(wanted: int) -> None:
    world = Rolling(wanted=8)
    with_other_types(world, wanted)
    world.seen.clear()
    world.deploy("b")
    world.run(195.0)
    assert world.rollout.since_s < math.inf
    assert world.releases() == {"a": 8, "b": 1}, "nothing is launched to be replaced at once"
    world.run(900.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": wanted}
    assert world.always_enough()


def test_a_roll_out_is_not_done_while_unsold_instances_serve() -> None:
    """There is no trial: when the first new instances serve, the old ones still do."""
    world = Rolling(wanted=8)
    with_other_types(world, 8, RolloutSettings(canary_share=0.0))
    world.seen.clear()
    world.deploy("b")
    world.run(5.0)
    world.until(RolloutStage.DONE)
    assert world.releases() == {"b": 8}
    assert world.always_enough()


def test_a_stray_instance_says_nothing_of_what_serves() -> None:
    """An old instance turns up long after the roll-out, and the model fails for another reason."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.run(2400.0)
    by_release = world.telemetry.by_release
    by_release["b"][LARGE] += ReleaseCounts(100_000, 8_000, 0, 2_000.0)
    world.planner.wanted = {LARGE: 9}
    world.run(60.0)
    world.cloud.lives[999] = InstanceLife(999, LARGE, world.clock.t_s, release="a")  # needed for a while
    world.cloud.serve(999)
    world.run(20.0)
    assert world.releases() == {"a": 1, "b": 9}
    world.seen.clear()
    world.ill["b"] = "errors"
    world.run(600.0)
    assert world.rollout == Rollout("b", before="a")
    assert world.releases() == {"b": 9}
    assert min(ready for _, ready in world.seen) >= 8


def test_a_canary_is_asked_for_though_another_offer_is_refused() -> None:
    """That launch fails once a minute, a moment after the roll-out was looked at."""
    world = Rolling(wanted=8)
    world.round_s = 0.2
    world.cloud.fail[OTHER.name] = LimitError("VcpuLimitExceeded")
    world.planner.wanted = {LARGE: 8, OTHER.name: 1}
    world.run(120.0)
    world.deploy("b")
    world.run(60.0)
    del world.cloud.lives[next(n for n, i in world.cloud.instances.items() if i.release == "b")]
    world.run(3600.0)
    assert world.releases() == {"b": 8}


def test_a_refusal_does_not_put_off_what_waits_already() -> None:
    rolling = Rollout("b", RolloutStage.ROLLING, "a")
    first = unbought(rolling, "b", "out of it", 100.0)
    assert first is not None
    again = unbought(first, "b", "out of it", 150.0)
    assert again == first
    assert unbought(rolling, "a", "out of it", 100.0) == rolling


def test_a_release_that_fails_on_one_type_is_taken_back() -> None:
    world = Rolling(wanted=5, other=3)
    world.ill["b"] = "boot of one type"
    world.seen.clear()
    world.deploy("b")
    world.run(3600.0)
    assert world.rollout.refused == ("b",)
    assert f"ended before they served, of {OTHER.name}" in world.rollout.reason
    assert world.releases() == {"a": 8}
    assert world.always_enough()


def test_what_makes_no_progress_does_not_hold_up_its_mend() -> None:
    world = Rolling(wanted=8)
    world.ill["b"] = "boots once"
    world.seen.clear()
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(STALL_S)
    assert world.rollout.stage is RolloutStage.ROLLING
    world.deploy("c")
    world.run(3600.0)
    assert world.releases() == {"c": 8}
    assert world.always_enough()


def test_a_revert_ends_a_roll_out_at_once() -> None:
    """The release before is deployed again during a roll-out, and becomes its target.

    The release that was rolled out then is the one before.
    """
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(120.0)
    there = world.releases()["b"]
    assert 1 < there < 8
    world.seen.clear()
    world.deploy("a")
    world.run(BOOT_S + 20.0)
    assert world.rollout == Rollout("a", before="b")
    assert world.releases() == {"a": 8}
    assert world.always_enough()
    world.controller.roll_back()
    world.run(BOOT_S + 20.0)
    assert world.releases() == {"b": 8}


def test_a_stopped_release_leaves_the_way_back_as_it_was() -> None:
    world = Rolling()
    world.deploy("b")
    world.run(2400.0)
    world.ill["c"] = "errors"
    world.deploy("c")
    world.run(900.0)
    assert (world.rollout.release, world.rollout.before) == ("b", "a")


def test_only_what_was_deployed_last_is_taken_back() -> None:
    """A third release waits for the second one's roll-out to be over."""
    world = Rolling(wanted=8)
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.deploy("c")
    world.controller.roll_back()
    assert world.rollout.newest == "b"
    assert world.rollout.refused == ()


def test_old_instances_are_ended_for_room_at_limits_only() -> None:
    """On the way back, the last old instance was added by the SLO monitor, of a type that is not planned."""
    world = Rolling(wanted=0, other=8, planner=ScriptedPlanner(monitors_slo=True))
    world.planner.wanted = {OTHER.name: 8}
    world.deploy("b")
    world.run(2400.0)
    world.telemetry.latest = RecentAnswers(1000, 500)
    world.run(10.0)
    world.telemetry.latest = RecentAnswers(1000, 1000)
    world.run(120.0)
    assert Counter(i.offer for i in world.cloud.instances.values())[LARGE] == 1
    world.seen.clear()
    world.controller.roll_back()
    for _ in range(120):
        world.run(5.0)
        assert not isinstance(world.rollout.waits, Limit)
    assert not any("at the limit" in str(command) for _, command, _ in world.store.journal)
    assert world.always_enough()


def test_a_paused_service_says_that_its_roll_out_waits() -> None:
    rollout = Rollout("a")
    assert trouble(rollout, "b", paused=True) == "roll-out of release b waits: the service is paused"
    assert trouble(rollout, "a", paused=True) == ""


def test_a_release_begun_on_the_way_back_can_be_left() -> None:
    """No instance is left, so it rolls out without a trial.

    If it does not boot either, the release before is launched.
    """
    back = Rollout("a", RolloutStage.ROLLING, refused=("b",), back=True)
    found = rolled(back, "c", Fleet(()), {}, 5.0, Slo(0.6, 0.98), RolloutSettings(), planned=2)
    assert found is not None
    assert (found.release, found.before, found.refused) == ("c", "a", ("b",))


def test_what_served_is_the_way_back_and_no_stray() -> None:
    """An old instance turns up long after the roll-out; then all are lost, and another release is deployed."""
    settings, slo = RolloutSettings(), Slo(0.6, 0.98)
    served = Instance(1, LARGE, Phase.READY, 0.0, release="b")
    stray = Instance(2, LARGE, Phase.PENDING, 0.0, release="a")
    found = rolled(Rollout("b", before="a"), "b", Fleet((served, stray)), {}, 5.0, slo, settings, planned=1)
    assert found is not None
    assert found.stage is RolloutStage.ROLLING
    found = rolled(found, "c", Fleet(()), {}, 10.0, slo, settings, planned=1)
    assert found is not None
    assert (found.release, found.before) == ("c", "b")
