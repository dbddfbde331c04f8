"""The wall clock in control seconds."""

from __future__ import annotations

import pytest
from mark_infra.telemetry.clock import WallClock


class Wall:
    """A wall clock and a monotonic one; only the first can be set."""

    def __init__(self) -> None:
        self.unix, self.ticks = 1_700_000_100.0, 50.0

    def pass_s(self, seconds: float) -> None:
        self.unix, self.ticks = self.unix + seconds, self.ticks + seconds

    def clock(self, scale: float = 1.0) -> WallClock:
        return WallClock(1_700_000_000.0, scale, unix_s=lambda: self.unix, monotonic=lambda: self.ticks)


def test_a_restarted_clock_goes_on_from_the_same_origin() -> None:
    """The process that counted first may have ended."""
    wall = Wall()
    clock = wall.clock()
    assert clock.now_s() == 100.0
    wall.pass_s(20.0)
    assert clock.now_s() == 120.0 == wall.clock().now_s()


def test_it_never_goes_back_when_the_wall_clock_is_set() -> None:
    """Within a process the monotonic clock counts."""
    wall = Wall()
    clock = wall.clock()
    wall.unix -= 3600.0
    wall.pass_s(1.0)
    assert clock.now_s() == 101.0


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_a_wall_clock_step_does_not_move_noted_times(step_s: float, scale: float) -> None:
    wall = Wall()
    clock = wall.clock(scale)
    noted_s = wall.ticks
    wall.unix += step_s
    wall.pass_s(2.0)
    assert clock.now_s() - clock.at_monotonic_s(noted_s) == 2.0 * scale


def test_an_origin_in_the_future_is_now() -> None:
    """The wall clock was set back between two processes."""
    wall = Wall()
    wall.unix = 1_600_000_000.0
    assert wall.clock().now_s() == 0.0


def test_control_seconds_scale_and_unix_times_convert_both_ways() -> None:
    """Ten control seconds a second."""
    wall = Wall()
    clock = wall.clock(10.0)
    assert clock.now_s() == 1000.0
    assert clock.at_s(wall.unix) == 1000.0
    assert clock.unix_s(1000.0) == wall.unix
    assert clock.at_s(1_699_999_999.0) == -10.0


@pytest.mark.parametrize("step_s", [-60.0, 3600.0])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_new_clock_begins_at_the_wall_clocks_time(step_s: float, scale: float) -> None:
    """A process that began under a wrong clock is right in its next term; noted times stay as long ago as they were."""
    wall = Wall()
    noted_s = wall.ticks
    wall.unix += step_s
    wall.pass_s(2.0)
    clock = wall.clock(scale)
    assert clock.now_s() == clock.at_s(wall.unix) == (102.0 + step_s) * scale
    assert clock.now_s() - clock.at_monotonic_s(noted_s) == 2.0 * scale
    wall.pass_s(1.0)
    assert clock.now_s() == (103.0 + step_s) * scale
