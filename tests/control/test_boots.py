"""Boots that fail are tried one at a time, with doubling pauses, until one succeeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.boots import IN_A_ROW, LONGEST_PAUSE_S, PAUSE_S, Boots
from mark.control.health import BOOT_S
from mark.domain.command import Drain, Launch
from mark.domain.fleet import Fleet, Instance, Phase
from tests.control.control_fakes import ON_DEMAND, Bench

OD = ON_DEMAND.name
HELD_BACK = Boots((), IN_A_ROW, 100.0)


def fleet(*phases: tuple[int, Phase], doomed: int = 0) -> Fleet:
    gone_s = {doomed: 9.0}
    return Fleet(tuple(Instance(n, OD, phase, 0.0, 0.0, gone_s.get(n)) for n, phase in phases))


PENDING, READY = Phase.PENDING, Phase.READY


def test_what_is_gone_before_it_is_ready_failed() -> None:
    boots = Boots().seen(fleet((1, PENDING), (2, PENDING), (3, READY)), 5.0)
    assert boots.booting == (1, 2)
    boots = boots.seen(fleet((3, READY)), 10.0)
    assert (boots.booting, boots.failed, boots.failed_s) == ((), 2, 10.0)


def test_one_that_becomes_ready_clears_the_count() -> None:
    boots = Boots((1, 2), 5, 3.0).seen(fleet((1, READY)), 10.0)
    assert boots.failed == 0


@pytest.mark.parametrize("seen", [fleet((1, PENDING), doomed=1), fleet((1, Phase.DRAINING))])
def test_what_leaves_for_another_reason_did_not_fail(seen: Fleet) -> None:
    """Announced as interrupted, or ended by us."""
    assert Boots((1,)).seen(seen, 5.0).seen(fleet(), 10.0).failed == 0
    assert Boots((1,)).without(1).seen(fleet(), 10.0).failed == 0


def test_a_timeout_counts_once() -> None:
    boots = Boots((1, 2)).timed_out({1}, 600.0)
    assert boots == Boots((2,), 1, 600.0)
    assert boots.timed_out({1}, 605.0) is boots


def test_an_unchanged_fleet_leaves_the_same_object() -> None:
    boots = Boots().seen(fleet((1, PENDING)), 5.0)
    assert boots.seen(fleet((1, PENDING)), 10.0) is boots


def test_one_instance_is_tried_after_the_pause() -> None:
    commands = [Launch("a", 0.17, OD, 2), Drain("b", -0.085, OD, 9), Launch("c", 0.085, OD, 1)]
    assert Boots((), IN_A_ROW - 1, 100.0).allowed(commands, 100.0) == commands
    assert HELD_BACK.allowed(commands, 100.0 + PAUSE_S - 1.0) == [commands[1]]
    assert HELD_BACK.allowed(commands, 100.0 + PAUSE_S) == [Launch("a", 0.085, OD, 1), commands[1]]
    assert Boots((7,), IN_A_ROW, 100.0).allowed(commands, 1e6) == [commands[1]], "one boots"


@given(st.integers(0, 10_000))
def test_pauses_double_up_to_an_hour(failed: int) -> None:
    pause_s = Boots((), failed, 0.0).pause_s()
    assert bool(pause_s) == bool(Boots((), failed, 0.0).trouble()) == (failed >= IN_A_ROW)
    if failed > IN_A_ROW:
        assert pause_s == min(2.0 * Boots((), failed - 1, 0.0).pause_s(), LONGEST_PAUSE_S)


def test_a_release_that_never_boots_is_not_a_full_fleet() -> None:
    """Ten are wanted for three hours, and each instance ends itself 30 s after its launch."""
    bench = Bench()
    launched = 0
    for _ in range(180):
        bench.tick({OD: 10})
        launched += len(bench.cloud.instances)
        for _ in range(6):
            bench.fast()
        bench.cloud.instances.clear()
        bench.fast()
    assert launched <= 10 + 10, "ten at once, then one after 1, 2, 4 ... minutes"
    assert "boots failed in a row" in bench.controller.state.boots.trouble()


def test_a_release_that_is_mended_comes_back() -> None:
    bench = Bench()
    bench.tick({OD: 5})
    bench.fast()
    bench.cloud.instances.clear()
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
    instances = bench.cloud.instances
    for n, i in list(instances.items()):
        instances[n] = Instance(n, i.offer, i.phase, i.launched_s, i.launched_s + 60.0)
    bench.fast()
    bench.clock.t_s += BOOT_S
    bench.fast()
    assert bench.controller.state.boots.failed == 3
