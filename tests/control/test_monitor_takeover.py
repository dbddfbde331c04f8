"""The SLO monitor across a take-over: its whole state is in the store, and the next controller continues from it."""

from __future__ import annotations

from typing import Any

import pytest
from mark_infra.store.codec import decode, encode

from mark.control.controller import Controller, Leadership
from mark.control.launcher import Intent
from mark.control.memory_store import MemoryStore
from mark.control.monitor import MonitorState
from mark.control.ports import RecentAnswers
from mark.domain.errors import LostLease, StoreError
from mark.planning.planner import Policy
from mark.testing.fakes import ScriptedPlanner
from tests.control.control_fakes import ON_DEMAND, Bench

OD = ON_DEMAND.name
BROKEN, HALF, KEPT = RecentAnswers(1000, 900), RecentAnswers(1000, 950), RecentAnswers(1000, 1000)
REASON = "SLO monitor"


class WrittenStore(MemoryStore):
    """Keeps text, as a table does, so a get never returns the object that was put."""

    def get(self, key: str) -> Any | None:
        text = super().get(key)
        return None if text is None else decode(text)

    def put(self, key: str, value: Any) -> None:
        super().put(key, encode(value))


def monitored() -> Bench:
    """Return a bench on which the promise is broken and the monitor launched a second instance at second 65."""
    bench = Bench(ScriptedPlanner(monitors_slo=True, replans=True))
    bench.store = WrittenStore()
    bench.controller = bench.controller_again()
    bench.tick({OD: 1})
    bench.cloud.boot()
    bench.telemetry.latest = BROKEN
    bench.fast()
    assert rescues(bench) == [65.0]
    return bench


def rescues(bench: Bench) -> list[float]:
    """Return the times at which the monitor launched."""
    return [at_s for at_s, command, _ in bench.store.journal if command.reason.startswith(REASON)]


def take_over(bench: Bench) -> None:
    """Let another process lead, which has the cloud and the stored values."""
    before = bench.controller.state.monitor
    bench.controller = bench.controller_again()
    assert bench.controller.state.monitor == before
    assert bench.controller.state.monitor is not before


def test_the_next_controller_does_not_rescue_again_within_the_pause() -> None:
    """Without it each restart during a trouble would buy one more."""
    bench = monitored()
    for _ in range(4):
        take_over(bench)
        bench.fast()
        bench.tick({OD: 1})  # the rescue stays, although the plan does not want it
    assert bench.clock.t_s < 65.0 + 300.0
    assert rescues(bench) == [65.0]
    assert bench.cloud.fleet().live() == {OD: 2}


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (HALF, MonitorState(370.0, 2, 300.0, 0.05)),  # it helped: one more
        (BROKEN, MonitorState(370.0, 0, 600.0, 0.1)),  # it did not: it ends, and the pause is twice as long
        (KEPT, MonitorState(65.0, 0, 300.0, 0.1, 1)),  # over; the number that was enough is known
    ],
    ids=["helped", "no help", "over"],
)
def test_a_take_over_within_a_pause_changes_nothing_after_it(
    seen: RecentAnswers, found: MonitorState, taken_over: bool
) -> None:
    bench = monitored()
    bench.clock.t_s = 365.0
    if taken_over:
        take_over(bench)
    bench.telemetry.latest = seen
    bench.fast()
    got = bench.controller.state.monitor
    assert (got.launched_s, got.extra, got.pause_s, got.enough) == (
        found.launched_s, found.extra, found.pause_s, found.enough,
    )  # fmt: skip
    assert got.late == pytest.approx(found.late)
    bench.tick({OD: 1})
    assert bench.cloud.fleet().live() == {OD: 1 + found.extra}


def test_trouble_that_returns_after_a_take_over_is_kept_longer() -> None:
    """The number that was enough the last time, and its duration, come from the previous leader."""
    bench = monitored()
    bench.clock.t_s, bench.telemetry.latest = 365.0, KEPT
    bench.fast()
    take_over(bench)
    bench.tick()  # the rescued instances of the first leader are drained
    bench.telemetry.latest = BROKEN
    bench.fast()
    assert rescues(bench) == [65.0, 435.0]
    assert bench.controller.state.monitor.pause_s == 600.0
    take_over(bench)
    bench.clock.t_s = 435.0 + 590.0
    bench.fast()
    assert rescues(bench) == [65.0, 435.0]
    assert bench.controller.state.monitor.extra_at(bench.clock.t_s) == 1


def test_a_rescue_that_was_not_stored_is_made_next_round() -> None:
    """The store is written first: if that fails, nothing is launched, so no launch may be remembered."""
    bench = Bench(ScriptedPlanner(monitors_slo=True, replans=True))
    bench.telemetry.latest = BROKEN
    put = bench.store.put

    def fails(key: str, value: object) -> None:
        raise StoreError("a hiccup")

    bench.store.put = fails  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        bench.fast()
    bench.store.put = put  # type: ignore[method-assign]
    assert bench.controller.state.monitor == MonitorState()
    bench.fast()
    assert rescues(bench) == [10.0]


def test_without_the_lease_no_launch_is_repeated() -> None:
    """The leader may know that this launch was refused, and have bought another offer."""
    bench = Bench()
    bench.store.put("intents", (Intent("t", 0.0, OD, 3, False, OD, "needed"),))
    policy = Policy(bench.planner, bench.resolved, bouncers=True)
    other = Controller(
        policy, None, bench.cloud, None, bench.clock, bench.store, bench.telemetry,
        leadership=Leadership(lasts=lambda: False),
    )  # fmt: skip
    bench.clock.t_s = 5.0
    with pytest.raises(LostLease):
        other.fast()
    assert not bench.cloud.instances
