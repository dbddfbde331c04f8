"""The SLO monitor: when and what it buys, and when it waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mark.control.monitor import MonitorState, SloMonitor, default_offer
from mark.control.ports import RecentAnswers
from mark.domain.offer import Market
from mark.domain.service import SloMonitorSettings
from mark.domain.slo import Slo
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, offer, resolved

MONITOR = SloMonitor(Slo(0.6, 0.98), "c5.large/on-demand", 0.085)
PAPERS = SloMonitor(Slo(0.6, 0.98), "c5.large/on-demand", 0.085, backs_off=False)
ALL_LATE = RecentAnswers(1000, 0)


@pytest.mark.parametrize(
    ("recent", "launches"),
    [
        (RecentAnswers(1000, 980), 0),  # exactly the promise
        (RecentAnswers(1000, 979), 1),
        (RecentAnswers(180, 170), 0),  # 3.6 misses are allowed, and ten may be chance
        (RecentAnswers(180, 167), 1),
        (RecentAnswers(1, 0), 0),
        (RecentAnswers(4, 0), 1),
        (RecentAnswers(0, 0), 0),
    ],
)
def test_it_launches_one_when_the_promise_is_broken_beyond_chance(recent: RecentAnswers, launches: int) -> None:
    """Of M = 1,000 requests fewer than SL_min are in time, so L = 1; for fewer requests three standard deviations
    count.
    """
    commands, _ = MONITOR.check(0.0, recent, MonitorState())
    assert [c.count for c in commands] == [1] * launches


@pytest.mark.parametrize(("missed", "launches"), [(20, 0), (31, 0), (59, 0), (60, 1)])
def test_monitor_expects_clustered_misses_of_a_sound_fleet(missed: int, launches: int) -> None:
    """20 of 1,000 requests may be late, give or take 8.9; four times that and four are chance."""
    commands, _ = MONITOR.check(0.0, RecentAnswers(1000, 1000 - missed), MonitorState(), clustering=4.0)
    assert len(commands) == launches


def _run(monitor: SloMonitor, late: Callable[[float, int], float], until_s: int = 4 * 3600) -> dict[int, int]:
    """Return the additional instances by the time of each launch. `late` gives the share of misses."""
    state, launches = MonitorState(), {}
    for now_s in range(0, until_s, 5):
        share = late(now_s, state.extra)
        commands, state = monitor.check(float(now_s), RecentAnswers(1000, round(1000 * (1.0 - share))), state)
        if commands:
            launches[now_s] = state.extra_at(now_s)
    return launches


def test_window_count_and_pause_are_settings() -> None:
    tuned = SloMonitor(
        Slo(0.6, 0.98), "c5.large/on-demand", 0.085, SloMonitorSettings(100, 3, pause_s=60.0), backs_off=False
    )
    assert list(_run(tuned, lambda now_s, extra: 1.0, 185)) == [0, 60, 120, 180]
    (launch,), state = tuned.check(0.0, RecentAnswers(100, 97), MonitorState())  # the window is full
    assert (launch.count, launch.usd_per_hour, state.extra_at(59.0)) == (3, pytest.approx(0.255), 3)
    assert MONITOR.check(0.0, RecentAnswers(100, 97), MonitorState())[0] == ()


def test_the_paper_s_launches_every_five_minutes() -> None:
    """A launch needs time to take effect."""
    assert list(_run(PAPERS, lambda now_s, extra: 1.0, 905)) == [0, 300, 600, 900]


def test_what_helps_is_done_again_until_it_is_enough() -> None:
    """Each instance takes a third of the misses away."""
    launches = _run(MONITOR, lambda now_s, extra: max(0.0, 0.3 - 0.1 * extra) if now_s < 1200 else 0.0)
    assert launches == {0: 1, 300: 2, 600: 3, 905: 3}  # the number that was enough before is launched in one step


def test_a_rescue_that_does_not_help_backs_off() -> None:
    """More instances do not help a model that became slow: in the end there is at most one launch an hour."""
    launches = _run(MONITOR, lambda now_s, extra: 0.5)
    assert set(launches.values()) == {1}
    gaps = np.diff(list(launches))
    assert (gaps[1:] >= gaps[:-1]).all()
    assert gaps[-1] >= 3600


def test_a_rescue_that_helped_is_kept_longer_next_time() -> None:
    """When the plan drops it, the misses return: otherwise there is a launch and an end every five minutes."""
    launches = _run(MONITOR, lambda now_s, extra: 0.1 if extra == 0 else 0.0)
    assert len(launches) <= 7
    assert set(launches.values()) == {1}


def test_a_trouble_after_a_long_calm_is_a_new_one() -> None:
    """Its pause is as long as a first one."""
    _, state = MONITOR.check(7200.0, ALL_LATE, MonitorState(0.0, 0, 3600.0, 1.0))
    assert state == MonitorState(7200.0, 1, 300.0, 1.0, offer=ON_DEMAND.name)


def test_the_reason_is_in_figures() -> None:
    """The journal shows attainment and promise."""
    (command,), _ = MONITOR.check(0.0, RecentAnswers(1000, 951), MonitorState())
    assert str(command) == (
        "launch 1 c5.large/on-demand, +0.09 $/h: "
        "SLO monitor: 95.1 % of the last 1000 requests within 600 ms, promised 98.0 %"
    )


def test_it_buys_c5_large_on_demand_else_the_cheapest() -> None:
    """T is c5.large where it meets the SLO, on-demand before spot; otherwise the cheapest offer."""
    big = offer("p2.xlarge", usd_per_hour=0.9)
    assert default_offer(resolved(BURSTABLE, SPOT_A, ON_DEMAND, big)) is ON_DEMAND
    assert default_offer(resolved(SPOT_A, big)) is SPOT_A
    of = resolved(BURSTABLE, ON_DEMAND, big)
    of = replace(of, service=replace(of.service, slo_monitor=SloMonitorSettings(instance="p2.xlarge")))
    assert default_offer(of) is big
    assert default_offer(resolved(offer("c5.4xlarge", usd_per_hour=0.68), big)).instance == "c5.4xlarge"
    assert default_offer(resolved(offer("p2.xlarge", Market.SPOT, 0.27, zone="a"), big)) is big
