"""The handler's decisions on a notice and after it; the controller's tests carry them out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mark.control.interruption import ROUND_S, InterruptionHandler, instead_of
from mark.domain.command import Command
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.offer import Market
from mark.planning.market.spot import LEAVE_S
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, offer, resolved

SMALL = offer("t2.small", Market.BURSTABLE, 0.023)
HANDLER = InterruptionHandler(resolved(ON_DEMAND, SPOT_A, SPOT_B, BURSTABLE, SMALL))  # 10 requests/s each
LAST_S = LEAVE_S + 0.6 + ROUND_S  # before the loss, RT_max being 0.6 s


def doomed(number: int, phase: Phase = Phase.READY) -> Instance:
    return Instance(number, SPOT_A.name, phase, 0.0, interruption_at_s=120.0)


def ready(number: int, of: str = SPOT_A.name, **more: object) -> Instance:
    return Instance(number, of, Phase.READY, 0.0, **more)  # type: ignore[arg-type]


def notice(number: int) -> Notice:
    return Notice(number, SPOT_A.name, 0.0, 120.0)


def standby(number: int, of: str) -> Instance:
    return Instance(number, of, Phase.STOPPED, 0.0, standby=True)


def resumed(number: int) -> Instance:
    return Instance(number, SMALL.name, Phase.PENDING, 0.0, standby=True, resumed=True)


def said(commands: tuple[Command, ...]) -> list[str]:
    return [str(c).split(",")[0] for c in commands]


def test_standbys_make_up_for_the_lost_capacity_cheapest_first() -> None:
    """Three standbys have the capacity of each of two lost instances: the two cheapest are resumed.

    The lost instances still serve.
    """
    fleet = Fleet((doomed(1), doomed(2), standby(3, BURSTABLE.name), standby(4, SMALL.name), standby(5, SMALL.name)))
    assert said(HANDLER.on_notices((notice(1), notice(2)), fleet, {SPOT_A.name: 2}, {}, 0.0)) == [
        "resume #4 t2.small/burstable", "resume #5 t2.small/burstable",
        "launch 2 c5.large/spot/a", "warm 8 function environments",
    ]  # fmt: skip


def test_small_standbys_bridge_a_large_instance_together() -> None:
    """Three standbys of 10 requests/s replace one instance of 25."""
    of = resolved(SPOT_A, SMALL)
    large = replace(of.candidates[0], capacity_rps=25.0)
    handler = InterruptionHandler(replace(of, candidates=(large, of.candidates[1])))
    fleet = Fleet((doomed(1), *(standby(n, SMALL.name) for n in range(2, 7))))
    commands = handler.on_notices((notice(1),), fleet, {}, {}, 0.0)
    assert [c.verb for c in commands] == ["resume", "resume", "resume", "warm"]


def test_a_round_that_failed_has_bridged_already() -> None:
    """The notice is answered again, and the standby that was already resumed is enough."""
    since = replace(resumed(2), launched_s=5.0)
    fleet = Fleet((doomed(1), since, standby(3, SMALL.name)))
    assert said(HANDLER.on_notices((notice(1),), fleet, {}, {}, 10.0)) == ["warm 4 function environments"]
    before = Fleet((doomed(1), replace(since, launched_s=-5.0), standby(3, SMALL.name)))
    assert said(HANDLER.on_notices((notice(1),), before, {}, {}, 10.0))[0] == "resume #3 t2.small/burstable"


def test_what_is_on_its_way_out_leaves_no_gap() -> None:
    """A draining instance that is interrupted needs no replacement."""
    assert HANDLER.on_notices((notice(1),), Fleet((doomed(1, Phase.DRAINING),)), {SPOT_A.name: 1}, {}, 0.0) == ()


def test_an_instance_that_still_boots_leaves_no_load_to_functions() -> None:
    """It is terminated and replaced, but it served no load that functions would have to take."""
    fleet = Fleet((doomed(1, Phase.PENDING), standby(2, SMALL.name)))
    assert [c.verb for c in HANDLER.on_notices((notice(1),), fleet, {SPOT_A.name: 1}, {}, 0.0)] == ["drain", "launch"]


def test_the_replacement_of_a_stand_in_is_what_was_planned() -> None:
    """A stand-in for on-demand is lost, so the planned offer is asked for again."""
    commands = HANDLER.on_notices((notice(1),), Fleet((doomed(1),)), {ON_DEMAND.name: 1}, {1: ON_DEMAND.name}, 0.0)
    assert [c.offer for c in commands if c.verb == "launch"] == [ON_DEMAND.name]


@pytest.mark.parametrize(("now_s", "leaves"), [(0.0, False), (119.9 - LAST_S, False), (120.1 - LAST_S, True)])
def test_a_doomed_instance_drains_just_before_its_end(now_s: float, leaves: bool) -> None:
    """Its two minutes are paid; it drains a look, RT_max and five seconds before its end."""
    assert said(HANDLER.leave(Fleet((doomed(1), ready(2))), now_s, {}, 0.0)) == (
        ["drain #1 c5.large/spot/a"] if leaves else []
    )


@pytest.mark.parametrize(
    ("serving", "planned", "arriving_rps", "stay"),
    [
        (0, 2, 0.0, 2),  # two planned, none ready
        (1, 2, 0.0, 1),
        (2, 2, 0.0, 0),
        (2, 2, 35.0, 2),  # more arrives than the plan's 20 requests/s
        (2, 0, 0.0, 0),
    ],
)
def test_standbys_bridge_until_ready_capacity_covers_plan_and_arrivals(
    serving: int, planned: int, arriving_rps: float, stay: int
) -> None:
    """10 requests/s each; the doomed and the standbys themselves do not count as ready."""
    bridging = [ready(n, SMALL.name, standby=True) for n in (7, 8)]
    fleet = Fleet((doomed(1), *(ready(n) for n in range(2, 2 + serving)), *bridging))
    commands = HANDLER.leave(fleet, 0.0, {SPOT_A.name: planned}, arriving_rps)
    assert said(commands) == [f"drain #{n} t2.small/burstable" for n in (7, 8)][stay:]


@pytest.mark.parametrize(
    ("serving", "planned", "standing", "resumed"),
    [
        (1, 2, (), 1),
        (1, 2, (resumed(9),), 0),  # it makes up for it
        (0, 2, (replace(resumed(9), launched_s=-1.0),), 1),  # it bridges another instance, which has ended
        (0, 3, (resumed(9),), 0),  # the rest of the plan is launched
        (1, 2, (replace(resumed(9), resumed=False),), 1),  # it boots for the first time, and will be stopped
        (2, 2, (), 0),  # the planned instances are ready without the doomed one
        (0, 4, (), 1),  # no more than is lost: the rest of the plan is launched
    ],
)
def test_a_standby_that_was_still_stopping_is_resumed_later(
    serving: int, planned: int, standing: tuple[Instance, ...], resumed: int
) -> None:
    """At the notice the standby could not be started, because it was still stopping after the last loss."""
    stopping = [replace(standby(n, SMALL.name), stopped_s=15.0) for n in (7, 8)]
    fleet = Fleet((doomed(1), *(ready(n) for n in range(2, 2 + serving)), *stopping, *standing))
    assert "resume" not in [c.verb for c in HANDLER.on_notices((notice(1),), fleet, {}, {}, 10.0)]
    assert HANDLER.bridge(fleet, 10.0, {SPOT_A.name: planned}, 0.0) == []
    assert (
        said(tuple(HANDLER.bridge(fleet, 15.0, {SPOT_A.name: planned}, 0.0)))
        == ["resume #7 t2.small/burstable"] * resumed
    )


def test_nothing_is_bridged_that_is_not_taken_back() -> None:
    """An instance that is silent or boots served nothing, so a launch replaces it."""
    silent = ready(1, interruption_at_s=math.inf)
    booting = doomed(2, Phase.PENDING)
    assert HANDLER.bridge(Fleet((silent, booting, standby(7, SMALL.name))), 0.0, {SPOT_A.name: 2}, 0.0) == []


def test_a_stopped_standby_needs_no_credits() -> None:
    """It gets new ones at its start."""
    spent = replace(standby(7, SMALL.name), credits=0.0)
    assert len(HANDLER.bridge(Fleet((doomed(1), spent)), 0.0, {SPOT_A.name: 1}, 0.0)) == 1


def test_a_standby_without_credits_is_sent_back() -> None:
    """It would serve at a fifth of its speed; the other stays."""
    tired, fresh = (ready(n, SMALL.name, standby=True, credits=c) for n, c in ((1, 0.5), (2, 20.0)))
    assert said(HANDLER.leave(Fleet((tired, fresh)), 0.0, {SPOT_A.name: 1}, 0.0)) == ["drain #1 t2.small/burstable"]


def test_other_zones_come_before_on_demand_and_never_another_type() -> None:
    """The order of trial when the market is out."""
    where = resolved(offer("m5.large"), ON_DEMAND, SPOT_A, SPOT_B)
    assert instead_of(SPOT_B, where) == [SPOT_A, ON_DEMAND]
    assert instead_of(ON_DEMAND, where) == []
