"""Roll-outs: new ones are ready before old ones go, what does worse is taken back, and no limit is broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.ports import ReleaseCounts
from mark.control.rollout import Rollout, RolloutStage, trouble, worse
from mark.domain.errors import LimitError
from mark.domain.fleet import Instance, Phase
from mark.domain.service import ResolvedService, RolloutSettings
from mark.domain.slo import Slo
from tests.control.control_fakes import ON_DEMAND, Bench, offer, resolved

LARGE = ON_DEMAND.name
OTHER = offer("c5.xlarge", usd_per_hour=0.17)
BOOT_S = 100.0
SLO = Slo(0.6, 0.98)


def serving(max_instances: int = 200, warm_pool: int = 0, settings: RolloutSettings | None = None) -> ResolvedService:
    plain = resolved(ON_DEMAND, OTHER, max_instances=max_instances, min_instances=1)
    own = replace(plain.service, warm_pool=warm_pool, rollout=settings or RolloutSettings(canary_s=60.0))
    return replace(plain, service=own)


class Rolling(Bench):
    """A controller whose fleet takes BOOT_S to boot and answers 10 requests/s an instance.

    `ill` says what is wrong with a release: "boot", "errors", "late", "slow" or "mute". What is ready is noted second
    by second as (wanted by the plan, ready).
    """

    def __init__(self, where: ResolvedService | None = None, wanted: int = 4, other: int = 0) -> None:
        super().__init__(where=where or serving(), release="a")
        self.wanted = {LARGE: wanted, **({OTHER.name: other} if other else {})}
        self.ill: dict[str, str] = {}
        self.seen: list[tuple[int, int]] = []
        self.most = 0
        self.planner.wanted = self.wanted
        self.run(240.0)

    def deploy(self, release: str) -> None:
        """A new controller, with a new release."""
        self.release = release
        self.controller = self.controller_again()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 5.0)):
            self._world()
            self.clock.t_s += 5.0
            self.controller.fast()
            if self.clock.t_s % 60.0 == 0.0:
                self.controller.tick()
            running = [i for i in self.cloud.instances.values() if i.phase is not Phase.STOPPED]
            self.most = max(self.most, len(running))
            self.seen.append((sum(self.planner.wanted.values()), sum(i.phase is Phase.READY for i in running)))

    def _world(self) -> None:
        cloud = self.cloud
        for n, i in list(cloud.instances.items()):
            ill = self.ill.get(i.release, "")
            if i.phase is Phase.PENDING and self.clock.t_s - i.launched_s >= BOOT_S:
                if ill == "boot":
                    del cloud.instances[n]
                elif ill == "hangs":
                    cloud.instances[n] = replace(i, ready_s=i.launched_s + BOOT_S)  # when it was expected to be
                else:
                    cloud.instances[n] = replace(i, phase=Phase.READY, ready_s=self.clock.t_s)
            elif i.phase is Phase.READY:
                if ill == "mute" and i.silent_s is None:
                    cloud.instances[n] = replace(i, silent_s=self.clock.t_s)
                self._answer(i, 50, ill)

    def _answer(self, i: Instance, count: int, ill: str) -> None:
        by_offer = self.telemetry.by_release.setdefault(i.release, {})
        by_offer[i.offer] = by_offer.get(i.offer, ReleaseCounts()) + ReleaseCounts(
            count, count // 2 if ill == "late" else 0, count if ill == "errors" else 0, 2.0 if ill == "slow" else 1.0
        )

    def releases(self) -> Counter[str]:
        return Counter(i.release for i in self.cloud.instances.values())

    @property
    def rollout(self) -> Rollout:
        assert self.controller.state.rollout is not None
        return self.controller.state.rollout


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
    assert min(ready - planned for planned, ready in world.seen) >= 0
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
    ],
)
def test_a_bad_release_is_stopped_at_the_canary(ill: str, why: str) -> None:
    """It never has more than its canaries, and the one before serves as if nothing had been."""
    world = Rolling(serving(settings=RolloutSettings(canary_s=300.0)), wanted=8)
    world.ill["b"] = ill
    world.seen.clear()
    world.deploy("b")
    most = 0
    for _ in range(720):
        world.run(5.0)
        most = max(most, world.releases()["b"])
    assert most == 1
    assert world.rollout.release == "a"
    assert world.rollout.refused == ("b",)
    assert why in trouble(world.rollout, "b")
    assert world.releases() == {"a": 8}
    assert min(ready - planned for planned, ready in world.seen) >= 0


def test_errors_of_a_canary_stay_within_the_error_budget() -> None:
    """Of an hour: two percent of what comes in it may be lost."""
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
    assert min(ready - planned for planned, ready in world.seen) >= 0


def test_a_rollback_is_asked_for_and_lasts() -> None:
    world = Rolling()
    world.deploy("b")
    world.run(1800.0)
    assert world.releases() == {"b": 4}
    world.seen.clear()
    world.controller.roll_back()
    world.run(BOOT_S + 20.0)  # all at once
    assert world.releases() == {"a": 4}
    world.deploy("b")  # the controller is replaced, and nothing else
    world.run(600.0)
    assert world.releases() == {"a": 4}
    assert trouble(world.rollout, "b") == "release b is not served, but a: it was taken back"
    world.controller.roll_out_again()
    world.run(2400.0)
    assert world.releases() == {"b": 4}
    assert min(ready - planned for planned, ready in world.seen) >= 0


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
    world.store.put("state", None)
    world.ill["b"] = "boot"
    world.deploy("b")  # what was before is forgotten
    world.run(10.0)
    world.controller.roll_back()
    assert trouble(world.rollout, "b") == "release b: it was taken back, and there is no release to go back to"
    world.deploy("c")
    world.run(2400.0)
    assert world.releases() == {"c": 4}


def test_a_forgotten_fleet_is_replaced_all_the_same() -> None:
    """The store lost its state: what has another release goes, though nothing can be compared."""
    world = Rolling()
    world.store.put("state", None)
    world.deploy("b")
    world.seen.clear()
    world.run(1800.0)
    assert world.releases() == {"b": 4}
    assert min(ready - planned for planned, ready in world.seen) >= 0


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
    assert min(ready - planned for planned, ready in world.seen) >= 0


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
    assert min(ready - planned for planned, ready in world.seen) >= 0


def test_what_is_not_sold_any_more_leaves_last() -> None:
    """It serves until its replacement is ready, counts for the limits, and is gone then."""
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
    """One at a time, each once what took the last one's place is ready."""
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
    """The plan that the controller finds names what may not be bought any more."""
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
    for n, i in world.cloud.instances.items():
        world.cloud.instances[n] = replace(i, silent_s=world.clock.t_s)
    world.run(25.0)
    for n, i in world.cloud.instances.items():
        world.cloud.instances[n] = replace(i, silent_s=None)
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
    """Misses raise the plan to the limit: the way back is not to wait for that."""
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


def counts(requests: int, errors: int = 0, misses: int = 0, each_s: float = 1.0) -> dict[str, ReleaseCounts]:
    return {LARGE: ReleaseCounts(requests, misses, errors, requests * each_s)}


@pytest.mark.parametrize(
    ("new", "old", "bad"),
    [
        (counts(20, errors=20), counts(10_000), True),
        (counts(10_000, errors=1), counts(10_000), False),
        (counts(5, errors=4), counts(10_000), False),  # too few to say
        (counts(1000, errors=50), counts(1000, errors=50), False),  # both are ill
        (counts(1000, misses=19), counts(100_000), False),  # within the promise
        (counts(1000, misses=60), counts(100_000), True),
        (counts(500, misses=250), counts(0), True),  # nothing to compare with but the promise
        (counts(2000, each_s=2.0), counts(2000, each_s=1.0), True),
        (counts(2000, each_s=1.2), counts(2000, each_s=1.0), False),
        (counts(0), counts(10_000), False),
    ],
)
def test_worse_is_more_than_chance_explains(
    new: dict[str, ReleaseCounts], old: dict[str, ReleaseCounts], *, bad: bool
) -> None:
    assert bool(worse(new, old, SLO)) is bad


@given(st.integers(1, 100_000), st.floats(0.0, 0.3), st.integers(1, 10))
def test_equal_shares_are_never_worse(requests: int, share: float, times: int) -> None:
    one = counts(requests, round(share * requests), round(share * requests))
    many = counts(times * requests, times * round(share * requests), times * round(share * requests))
    assert worse(one, many, SLO) == ""
