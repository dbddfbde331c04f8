"""The SLO monitor: when it buys, what it buys, and when it waits."""

from __future__ import annotations

import pytest

from mark.control.monitor import MonitorState, SloMonitor, default_offer
from mark.control.ports import RecentAnswers
from mark.domain.offer import Market
from mark.domain.slo import Slo
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, offer, resolved

MONITOR = SloMonitor(Slo(0.6, 0.98), "c5.large/on-demand", 0.085)


@pytest.mark.parametrize(
    ("recent", "launches"),
    [
        (RecentAnswers(1000, 980), 0),  # exactly the promise
        (RecentAnswers(1000, 979), 1),
        (RecentAnswers(999, 0), 0),  # no full window yet
        (RecentAnswers(0, 0), 0),
    ],
)
def test_it_launches_one_when_a_full_window_missed_the_promise(recent: RecentAnswers, launches: int) -> None:
    """M = 1,000 requests, fewer than SL_min in time, L = 1."""
    commands, _ = MONITOR.check(0.0, recent, MonitorState())
    assert [c.count for c in commands] == [1] * launches


def test_five_minutes_lie_between_two_launches() -> None:
    """A launch needs its time to help."""
    state, at = MonitorState(), []
    for now_s in range(0, 905, 5):
        commands, state = MONITOR.check(float(now_s), RecentAnswers(1000, 0), state)
        at += [now_s] * len(commands)
    assert at == [0, 300, 600, 900]


def test_the_reason_is_in_figures() -> None:
    """The journal shows attainment and promise."""
    (command,), _ = MONITOR.check(0.0, RecentAnswers(1000, 951), MonitorState())
    assert str(command) == (
        "launch 1 c5.large/on-demand, +0.09 $/h: "
        "SLO monitor: 95.1% of the last 1000 requests within 600 ms, promised 98.0%"
    )


def test_it_buys_c5_large_on_demand_else_the_cheapest() -> None:
    """T is c5.large where it meets the SLO, on-demand before spot; otherwise the cheapest offer."""
    big = offer("p2.xlarge", usd_per_hour=0.9)
    assert default_offer(resolved(BURSTABLE, SPOT_A, ON_DEMAND, big)) is ON_DEMAND
    assert default_offer(resolved(SPOT_A, big)) is SPOT_A
    assert default_offer(resolved(offer("c5.4xlarge", usd_per_hour=0.68), big)).instance == "c5.4xlarge"
    assert default_offer(resolved(offer("p2.xlarge", Market.SPOT, 0.27, zone="a"), big)) is big
