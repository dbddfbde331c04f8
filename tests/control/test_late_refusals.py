"""Late refusals: an instance that the cloud ends before it ever ran was refused; its boot did not fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control import boots
from mark.control.comparison import Comparison
from mark.control.late_refusals import NEWS_S, late_refusals
from mark.control.rollout import FAILED_BOOTS, Rollout, RolloutStage, rolled
from mark.domain.errors import CapacityError, RefusalScope
from mark.domain.fleet import EndedAtLaunch, Fleet, Instance, Phase
from mark.domain.service import RolloutSettings
from mark.domain.slo import Slo
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, Bench
from tests.control.test_controller import reading
from tests.control.test_rollout import LARGE, OTHER, Rolling

OD, A, B = ON_DEMAND.name, SPOT_A.name, SPOT_B.name
OFFERS = (ON_DEMAND, SPOT_A, SPOT_B, BURSTABLE)
VOLUMES = CapacityError("Client.VolumeLimitExceeded: 50 TiB", RefusalScope.MARKET)
FULL = CapacityError("Server.InsufficientInstanceCapacity: none left")


def ended(number: int, offer: str = A, reason: str = "full", **more: object) -> EndedAtLaunch:
    return EndedAtLaunch(number, offer, 0.0, reason, **more)  # type: ignore[arg-type]


def fleet(*refused: EndedAtLaunch, there: tuple[Instance, ...] = ()) -> Fleet:
    return Fleet(there, (), refused)


def test_those_of_a_launch_are_one_refusal() -> None:
    outcomes, known = late_refusals((), fleet(ended(1), ended(2), ended(3, B)), 9.0, OFFERS)
    assert [(o.command.offer, o.command.count) for o in outcomes if o.command.verb == "launch"] == [(A, 2), (B, 1)]
    assert outcomes[0].text == "the cloud ended #1, #2 before they ran: full"
    assert outcomes[1].text == "the cloud ended #3 before it ran: full"
    assert all(one.refused and not one.done and not one.started for one in outcomes)
    assert known == (1, 2, 3)


def test_how_much_is_refused_is_what_its_scope_says() -> None:
    ((outcome,), _) = late_refusals((), fleet(ended(1, scope=RefusalScope.MARKET)), 9.0, OFFERS)
    assert outcome.put_off == (A, B)


def test_old_refusals_and_those_of_unsold_offers_are_no_news() -> None:
    """A controller without memory finds an hour of old refusals."""
    assert late_refusals((), fleet(ended(1)), NEWS_S - 1.0, OFFERS)[0]
    assert late_refusals((), fleet(ended(1)), NEWS_S, OFFERS) == ((), (1,))
    assert late_refusals((), fleet(ended(1, "m1.large/spot/a")), 1.0, OFFERS) == ((), (1,))


@given(st.lists(st.sets(st.integers(1, 9))))
def test_each_is_told_once_and_kept_while_the_cloud_shows(looks: list[set[int]]) -> None:
    known: tuple[int, ...] = ()
    before: set[int] = set()
    for shown in looks:
        outcomes, known = late_refusals(known, fleet(*map(ended, sorted(shown))), 1.0, OFFERS)
        assert sum(one.command.count for one in outcomes) == len(shown - before)  # type: ignore[union-attr]
        assert set(known) == shown
        before = shown


@given(st.integers(0, 8), st.integers(0, 8))
def test_only_what_was_not_refused_counts_as_a_failed_boot(gone: int, refused: int) -> None:
    """Refusals, however many, condemn neither an offer nor a release."""
    numbers = range(1, gone + refused + 1)
    pending = tuple(Instance(n, OD, Phase.PENDING, 0.0, release="b") for n in numbers)
    after = fleet(*(ended(n, OD) for n in numbers[gone:]))
    seen = boots.seen(boots.seen({}, 0.0, Fleet(pending), 5.0, ()), 5.0, after, 10.0, ())
    assert seen.get(OD, boots.Boots()).failed == min(gone, boots.IN_A_ROW)

    rollout: Rollout | None = Rollout("a", RolloutStage.CANARY, candidate="b", comparison=Comparison())
    for look in (Fleet(pending), after):
        rollout = rolled(rollout, "b", look, {}, 5.0, Slo(0.6, 0.98), RolloutSettings(), planned=1)
    assert rollout is not None
    assert ("b" in rollout.refused) == (gone >= FAILED_BOOTS)
    if gone < FAILED_BOOTS:
        assert rollout.failed == ({OD: gone} if gone else {})


@pytest.mark.parametrize("seen_pending", [False, True])
def test_between_ticks_something_else_is_launched_at_once(seen_pending: bool) -> None:
    """The journal has the reason once, and the offer is put off, whether or not the instance was seen to boot."""
    bench = reading(A, OD)
    bench.cloud.ends = {} if seen_pending else {A: FULL}
    bench.tick()
    if seen_pending:
        bench.fast()
        for number in list(bench.cloud.instances):
            bench.cloud.end_at_launch(number, FULL)
    for _ in range(3):
        bench.fast()
    assert bench.journal() == [
        (f"launch 2 {A}", "done"),
        (f"launch 2 {A}", f"the cloud ended #1, #2 before they ran: {FULL}"),
        (f"launch 2 {OD}", "done"),
    ]
    assert bench.cloud.fleet().live() == {OD: 2}
    state = bench.controller.state
    assert state.beliefs[A].refusals == 1
    assert all(one.failed == 0 for one in state.boots.values())
    bench.controller = bench.controller_again(bench.controller._predictor)
    bench.fast()
    assert len(bench.journal()) == 3, "another controller knows it as well"


def test_a_tick_plans_without_it() -> None:
    bench = reading(A, OD)
    bench.cloud.ends = {A: FULL}
    bench.tick()
    bench.tick(at_s=bench.clock.t_s + 10.0)
    assert bench.cloud.fleet().live() == {OD: 2}
    assert len(bench.planner.contexts) == 2, "once a tick"


def test_a_quota_of_volumes_puts_markets_off_when_refused_twice() -> None:
    bench = reading(A, B, OD)
    bench.cloud.ends = {A: VOLUMES, B: VOLUMES}
    bench.tick()
    for _ in range(3):
        bench.fast()
    assert bench.cloud.fleet().live() == {OD: 2}
    beliefs = bench.controller.state.beliefs
    assert min(beliefs[A].refusals, beliefs[B].refusals) >= 1
    assert [call[1] for call in bench.cloud.calls] == [A, B, OD]


def test_a_quota_of_volumes_condemns_no_release() -> None:
    """A canary may be refused any number of times; once there is room it is tried as usual."""
    world = Rolling(wanted=4)
    world.cloud.ends = dict.fromkeys((LARGE, OTHER.name), VOLUMES)
    world.deploy("b")
    world.run(1200.0)
    assert len(world.cloud.ended) > FAILED_BOOTS
    assert (world.rollout.release, world.rollout.refused, world.rollout.failed) == ("a", (), {})
    assert world.releases() == {"a": 4}
    assert not any(one.failed for one in world.controller.state.boots.values())
    world.cloud.ends = {}
    world.run(1200.0)
    assert world.releases() == {"b": 4}


def test_without_a_second_plan_the_next_tick_tries_again() -> None:
    bench = Bench()
    bench.cloud.ends = {A: FULL}
    bench.tick({A: 1})
    bench.fast()
    assert len(bench.cloud.calls) == 1
    bench.cloud.ends = {}
    bench.tick()
    assert bench.cloud.fleet().live() == {A: 1}
