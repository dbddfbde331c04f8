"""Acting: a command is checked against the fleet as it is now, and its outcome is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.control.act import Actor
from mark.control.launcher import Launcher
from mark.control.memory_store import MemoryStore
from mark.control.ports import Result
from mark.control.snapshot import Outcome
from mark.control.views import Limits
from mark.domain.command import Command, Drain, Launch, Resume, Stop, Switch, Terminate, Warm
from mark.domain.errors import CapacityError, LostLease, RefusalScope
from mark.domain.fleet import Phase
from tests.control.control_fakes import ON_DEMAND, SPOT_A, FakeCloud, FakeFunctions, ManualClock, resolved

OD = ON_DEMAND.name


class Bench:
    def __init__(self, *, functions: bool = True, most: int = 3) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.cloud, self.leads = FakeCloud(self.clock), True
        launcher = Launcher(resolved(), self.cloud, self.clock, self.store, Limits(most, 100.0), 7)
        self.functions = FakeFunctions() if functions else None
        self.actor = Actor(self.cloud, self.functions, self.store, launcher, lambda: self.leads)

    def act(self, *commands: Command) -> list[Outcome]:
        return list(self.actor.act(0.0, commands, substitute=False))

    def calls(self) -> list[str]:
        return [call[0] for call in self.cloud.calls]


@pytest.mark.parametrize(
    ("command", "phase"),
    [
        (Terminate("not needed", 0.0, OD, 1), Phase.READY),
        (Drain("not needed", 0.0, OD, 1), Phase.DRAINING),
        (Stop("its queue is empty", 0.0, OD, 1), Phase.READY),
        (Resume("bridges", 0.0, OD, 1), Phase.READY),
    ],
)
def test_a_command_that_does_not_fit_the_fleet_is_dropped(command: Command, phase: Phase) -> None:
    """An instance that finished booting in between may serve a request, so it is not terminated."""
    bench = Bench()
    bench.act(Launch("needed", 0.0, OD, 1))
    bench.cloud.boot()
    if phase is Phase.DRAINING:
        bench.cloud.drain(1)
    before = len(bench.cloud.calls)
    (outcome,) = bench.act(command)
    assert (outcome.done, outcome.text) == (False, f"dropped: it is {phase} by now")
    assert len(bench.cloud.calls) == before
    assert bench.store.journal[-1][2] == outcome.text


def test_what_is_gone_is_not_terminated_again() -> None:
    bench = Bench()
    (outcome,) = bench.act(Terminate("its queue is empty", 0.0, OD, 1))
    assert (outcome.text, outcome.result) == ("dropped: it is gone by now", Result.DROPPED)
    assert bench.calls() == []


def test_nothing_is_done_after_the_lease_has_ended() -> None:
    bench = Bench()
    bench.leads = False
    with pytest.raises(LostLease):
        bench.act(Launch("needed", 0.0, OD, 1))
    assert (bench.calls(), bench.store.journal) == ([], [])


def test_a_launch_obeys_the_limits_of_the_moment() -> None:
    bench = Bench(most=3)
    first, second = bench.act(Launch("needed", 0.0, OD, 2), Launch("needed", 0.0, OD, 2))
    assert (first.done, first.started) == (True, (1, 2))
    assert (second.done, second.refused, second.started) == (False, False, (3,))
    assert second.text == "1 of 2: max_instances 3 is reached"
    bench.act(Launch("needed", 0.0, OD, 2))
    assert bench.store.results == [(Result.DONE, 2), (Result.PART, 1), (Result.LIMIT, 0)]


def test_a_refused_launch_is_an_outcome() -> None:
    bench = Bench()
    bench.cloud.fail = {OD: CapacityError("out")}
    (outcome,) = bench.act(Launch("needed", 0.0, OD, 2))
    assert (outcome.refused, outcome.started, outcome.planned) == (True, (), OD)


def test_one_releases_refusal_does_not_keep_others_from_launching() -> None:
    """Only the refused release is not asked for again in the same round."""
    bench = Bench()
    gone = CapacityError("InvalidAMIID.NotFound: it is gone", RefusalScope.EVERYTHING)
    bench.cloud.fail = {OD: gone}
    other = SPOT_A.name
    candidate, serving = Launch("tries b", 0.0, OD, 1, release="b"), Launch("needed", 0.0, other, 1, release="a")
    first, second = bench.act(candidate, serving, replace(candidate, offer=other))
    assert (first.whole_release, first.refused, first.put_off) == (True, False, ())
    assert second.done
    assert [outcome for _, _, outcome in bench.store.journal] == [
        str(gone), "done", "dropped: launches of its release were refused just now",
    ]  # fmt: skip


def test_environments_that_are_warm_already_are_not_worth_a_line() -> None:
    bench = Bench()
    assert [o.text for o in bench.act(Warm("misses cost", 0.0, 0), Warm("misses cost", 0.0, 2))] == [
        "done",
        "done, 2 started",
    ]
    assert len(bench.store.journal) == 1


def test_a_service_without_functions_warms_nothing() -> None:
    (outcome,) = Bench(functions=False).act(Warm("misses cost", 0.0, 2))
    assert (outcome.done, outcome.text) == (False, "there are no functions")


@pytest.mark.parametrize(
    "second",
    [
        Switch("the release that serves", 0.0, "b"),
        Warm("as many as there may be", 0.0, 2),
        Launch("needed", 0.0, OD, 1),
        Terminate("not needed", 0.0, OD, 1),
    ],
    ids=lambda command: command.verb,
)
def test_a_lease_that_ends_between_two_commands_ends_the_round(second: Command) -> None:
    """The lease is asked before each command, because a round may take longer than a term."""
    bench = Bench()
    bench.act(Launch("needed", 0.0, OD, 1))
    acting = bench.actor.act(0.0, [Switch("the release that serves", 0.0, "a"), second], substitute=False)
    assert next(acting).done
    bench.leads = False
    before = list(bench.cloud.calls)
    with pytest.raises(LostLease):
        next(acting)
    assert bench.functions is not None
    assert (bench.functions.switched, bench.functions.warmed) == (["a"], [])
    assert bench.cloud.calls == before
