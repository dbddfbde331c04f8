"""Boots that fail are tried one at a time, with doubling pauses, until one succeeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.boots import (
    IN_A_ROW,
    LOOKS_S,
    Boots,
    allowed,
    ended,
    seen,
    trouble,
)
from mark.control.health import BOOT_S
from mark.domain.backoff import BOOTS
from mark.domain.command import Drain, Launch
from mark.domain.fleet import Fleet, Instance, Phase
from tests.control.control_fakes import ON_DEMAND, SPOT_A, Bench

OD, OTHER = ON_DEMAND.name, SPOT_A.name
PENDING, READY = Phase.PENDING, Phase.READY
HELD_BACK = Boots(failed=IN_A_ROW, failed_s=100.0)


def instances(*phases: tuple[int, Phase], doomed: int = 0) -> list[Instance]:
    gone_s = {doomed: 9.0}
    return [Instance(n, OD, phase, 0.0, 0.0, gone_s.get(n)) for n, phase in phases]


def test_what_is_gone_before_it_is_ready_failed() -> None:
    boots = Boots().seen(instances((1, PENDING), (2, PENDING), (3, READY)), 5.0, ())
    assert boots.booting == (1, 2)
    boots = boots.seen(instances((3, READY)), 10.0, ())
    assert (boots.booting, boots.failed, boots.failed_s) == ((), 2, 10.0)


@pytest.mark.parametrize("each_s", [0.0, 5.0])
def test_many_that_fail_together_pause_as_one(each_s: float) -> None:
    """Thirteen boots that fail in one bad minute, together or one after the other, cause no pause of an hour."""
    boots = Boots(booting=tuple(range(13)))
    left = range(0) if each_s == 0.0 else range(12, 0, -1)
    for number, pending in enumerate(left):
        boots = boots.seen(instances(*((n, PENDING) for n in range(pending))), each_s * number, ())
    boots = boots.seen([], 60.0, ())
    assert boots.failed <= IN_A_ROW + 1
    assert boots.until_s <= 60.0 + 2.0 * BOOTS.first_s
    assert replace(boots, booting=(14,)).seen([], 90.0, ()).failed == boots.failed + 1


def test_one_that_became_ready_since_clears_the_count() -> None:
    ready = [Instance(1, OD, READY, 4.0, 8.0)]
    assert Boots(failed=5, failed_s=3.0).seen(ready, 10.0, ()).failed == 0
    assert Boots(failed=5, failed_s=9.0).seen(ready, 10.0, ()).failed == 5


def test_a_standby_that_was_stopped_has_booted() -> None:
    """A standby is never ready: it is stopped after its set-up."""
    boots = Boots(booting=(1,), failed=5, failed_s=9.0).seen(instances((1, Phase.STOPPED)), 10.0, ())
    assert boots.failed == 0
    assert replace(boots, failed=5).seen(instances((1, Phase.STOPPED)), 15.0, ()).failed == 5


@pytest.mark.parametrize("then", [instances((1, PENDING), doomed=1), instances((1, Phase.DRAINING))])
def test_what_leaves_for_another_reason_did_not_fail(then: list[Instance]) -> None:
    """They were interrupted with a notice, or we ended them."""
    assert Boots((1,)).seen(then, 5.0, ()).seen([], 10.0, ()).failed == 0
    assert ended({OD: Boots((1,))}, OD, 1) == {OD: Boots()}


def test_a_timeout_counts_once() -> None:
    """Its end may be refused any number of times."""
    boots = Boots((1, 2))
    for at_s in (600.0, 605.0, 610.0):
        boots = boots.seen(instances((1, PENDING), (2, PENDING)), at_s, {1})
    assert boots == Boots((2,), (1,), 1, 600.0)
    assert boots.seen(instances((2, PENDING)), 615.0, ()).failed == 1


def test_of_a_time_without_looks_nothing_is_concluded() -> None:
    """A controller that was away or paused does not know how its launches ended."""
    boots = {OD: Boots((1, 2, 3), failed=1, failed_s=5.0)}
    assert seen(boots, 100.0, Fleet(()), 100.0 + LOOKS_S, ())[OD].failed == IN_A_ROW
    assert seen(boots, 100.0, Fleet(()), 101.0 + LOOKS_S, ())[OD].failed == 1


def test_one_of_an_offer_is_tried_after_the_pause() -> None:
    commands = [
        Launch("a", 0.17, OD, 2),
        Drain("b", -0.085, OD, 9),
        Launch("c", 0.085, OD, 1),
        Launch("d", 1, OTHER, 5),
    ]
    assert allowed({OD: Boots(failed=IN_A_ROW - 1)}, commands, 100.0) == commands
    assert allowed({OD: HELD_BACK}, commands, 100.0 + BOOTS.first_s - 1.0) == [commands[1], commands[3]]
    one = Launch("a", 0.085, OD, 1)
    assert allowed({OD: HELD_BACK}, commands, 100.0 + BOOTS.first_s) == [one, commands[1], commands[3]]
    assert allowed({OD: replace(HELD_BACK, booting=(7,))}, commands, 1e6) == [commands[1], commands[3]], "one boots"


@given(st.integers(0, 10_000))
def test_pauses_double_up_to_an_hour(failed: int) -> None:
    boots = Boots(failed=failed, failed_s=0.0)
    assert boots.held_back == bool(trouble({OD: boots})) == (failed >= IN_A_ROW)
    if failed > IN_A_ROW:
        assert boots.until_s == min(2.0 * Boots(failed=failed - 1, failed_s=0.0).until_s, BOOTS.longest_s)


def test_a_release_that_never_boots_is_not_a_full_fleet() -> None:
    """Ten are wanted for three hours, and each instance ends itself 30 s after its launch."""
    bench = Bench()
    launched = 0
    for _ in range(180):
        bench.tick({OD: 10})
        launched += len(bench.cloud.instances)
        for _ in range(6):
            bench.fast()
        bench.cloud.lives.clear()
        bench.fast()
    assert launched <= 10 + 10, "ten at once, then one after 1, 2, 4 ... minutes"
    assert launched >= 13, "it is tried again"
    assert "of c5.large/on-demand" in trouble(bench.controller.state.boots)


def test_what_cannot_be_launched_keeps_what_would_end_for_it() -> None:
    """Four of one offer serve; the plan wants another instead, which is held back."""
    bench = Bench()
    bench.tick({OD: 4})
    bench.cloud.boot()
    bench.fast()
    held = {OTHER: Boots(failed=IN_A_ROW, failed_s=bench.clock.t_s + 55.0)}
    bench.controller.state = replace(bench.controller.state, boots=held)
    bench.tick({OTHER: 4})
    bench.fast()
    assert [i.phase for i in bench.cloud.instances.values()] == [READY] * 4


def test_a_release_that_is_mended_comes_back() -> None:
    bench = Bench()
    bench.tick({OD: 5})
    bench.fast()
    bench.cloud.lives.clear()
    bench.fast()
    for _ in range(10):
        bench.tick({OD: 5})
        bench.fast()
        bench.cloud.boot()
        bench.fast()
    assert [i.phase for i in bench.cloud.instances.values()] == [READY] * 5


def test_what_exceeds_the_timeout_counts() -> None:
    bench = Bench()
    bench.tick({OD: 3})
    for life in bench.cloud.lives.values():
        life.expected_s = life.launched_s + 60.0
    bench.fast()
    bench.clock.t_s += BOOT_S
    bench.fast()
    assert bench.controller.state.boots[OD].failed == 3


def test_a_held_back_offer_is_unavailable_to_the_planner() -> None:
    bench = Bench()
    bench.tick({OD: 1})
    held = {OD: Boots(failed=IN_A_ROW, failed_s=bench.clock.t_s + 55.0)}
    bench.controller.state = replace(bench.controller.state, boots=held)
    bench.tick({OD: 1})
    assert bench.planner.contexts[-1].beliefs[OD].until_s == held[OD].until_s
    assert OD not in bench.controller.state.beliefs, "the market refused nothing"
