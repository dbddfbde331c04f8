"""What the handler decides on a notice; the controller's tests show it carried out."""

from __future__ import annotations

from control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, deployment, offer

from mark.control.interruption import Bridge, InterruptionHandler, instead_of
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.offer import Market

SMALL = offer("t2.small", Market.BURSTABLE, 0.023)
HANDLER = InterruptionHandler(deployment(ON_DEMAND, SPOT_A, SPOT_B, BURSTABLE, SMALL))


def doomed(number: int, phase: Phase = Phase.READY) -> Instance:
    return Instance(number, SPOT_A.name, phase, 0.0, doomed_s=120.0)


def notice(number: int) -> Notice:
    return Notice(number, SPOT_A.name, 0.0, 120.0)


def standby(number: int, of: str) -> Instance:
    return Instance(number, of, Phase.STOPPED, 0.0, standby=True)


def test_as_many_standbys_as_lost_instances_cheapest_first() -> None:
    """Two lost, three standbys: the two cheapest are resumed."""
    fleet = Fleet((doomed(1), doomed(2), standby(3, BURSTABLE.name), standby(4, SMALL.name), standby(5, SMALL.name)))
    commands, bridges = HANDLER.on_notices((notice(1), notice(2)), fleet, {SPOT_A.name: 2}, {})
    assert [str(c).split(",")[0] for c in commands] == [
        "drain #1 c5.large/spot/a", "drain #2 c5.large/spot/a",
        "resume #4 t2.small/burstable", "resume #5 t2.small/burstable",
        "launch 2 c5.large/spot/a", "warm 8 function environments",
    ]  # fmt: skip
    assert bridges == (Bridge(4, SPOT_A.name), Bridge(5, SPOT_A.name))


def test_what_is_on_its_way_out_leaves_no_gap() -> None:
    """A draining instance that is interrupted needs nothing."""
    assert HANDLER.on_notices((notice(1),), Fleet((doomed(1, Phase.DRAINING),)), {SPOT_A.name: 1}, {}) == ((), ())


def test_an_instance_that_still_boots_leaves_no_load_to_functions() -> None:
    """It is replaced, but nothing has to be warmed for it."""
    commands, _ = HANDLER.on_notices((notice(1),), Fleet((doomed(1, Phase.PENDING),)), {SPOT_A.name: 1}, {})
    assert [c.verb for c in commands] == ["drain", "launch"]


def test_the_replacement_of_a_stand_in_is_what_was_planned() -> None:
    """Bought for an on-demand instance, lost: the planned offer is asked for again."""
    commands, _ = HANDLER.on_notices((notice(1),), Fleet((doomed(1),)), {ON_DEMAND.name: 1}, {1: ON_DEMAND.name})
    assert [c.offer for c in commands if c.verb == "launch"] == [ON_DEMAND.name]


def test_other_zones_come_before_on_demand_and_never_another_type() -> None:
    """The order of trial when the market is out."""
    where = deployment(offer("m5.large"), ON_DEMAND, SPOT_A, SPOT_B)
    assert instead_of(SPOT_B, where) == [SPOT_A, ON_DEMAND]
    assert instead_of(ON_DEMAND, where) == []
