"""A command begins only while its controller leads."""

from __future__ import annotations

import math

import pytest

from mark.control.controller import Controller, Leadership
from mark.control.led_ports import LedCloud
from mark.control.memory_store import MemoryStore
from mark.domain.errors import LostLease
from mark.domain.fleet import Fleet
from mark.planning.planner import Policy
from mark.testing.fakes import FakeCloud, FakeTelemetry, ManualClock, ScriptedPlanner
from tests.control.control_fakes import ON_DEMAND, resolved


class SlowCloud(FakeCloud):
    """A cloud whose term ends during the last of `looks` reads."""

    looks = math.inf

    def fleet(self) -> Fleet:
        self.looks -= 1
        return super().fleet()


def test_after_the_term_it_reads_and_sends_nothing() -> None:
    cloud, leads = FakeCloud(ManualClock()), [True]
    led = LedCloud(cloud, lambda: leads[0])
    (number,) = led.launch(ON_DEMAND.name, 1, "a").numbers
    sent = list(cloud.calls)
    leads[0] = False
    for command in (led.drain, led.terminate, led.stop, led.resume):
        with pytest.raises(LostLease):
            command(number)
    with pytest.raises(LostLease):
        led.launch(ON_DEMAND.name, 1, "b")
    assert cloud.calls == sent
    assert (led.fleet(), led.notices()) == (cloud.fleet(), ())


def test_a_look_outlasting_the_term_precedes_no_command() -> None:
    """A decision is checked against the fleet right before its command: that look may take long."""
    clock, planner = ManualClock(), ScriptedPlanner()
    cloud = SlowCloud(clock)
    controller = Controller(
        Policy(planner, resolved(ON_DEMAND), bouncers=True), None, cloud, None, clock, MemoryStore(), FakeTelemetry(),
        leadership=Leadership(lasts=lambda: cloud.looks > 0),
    )  # fmt: skip
    planner.wanted = {ON_DEMAND.name: 2}
    controller.tick()
    cloud.boot()
    clock.t_s, planner.wanted, cloud.looks = 60.0, {ON_DEMAND.name: 1}, 2
    sent = list(cloud.calls)
    with pytest.raises(LostLease):
        controller.tick()
    assert (cloud.looks, cloud.calls) == (0, sent)
