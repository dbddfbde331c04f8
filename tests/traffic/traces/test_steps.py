"""Steps between rows: summaries, changes of the clocks, counters."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces.steps import Rising, are_sums_so_far, check_clocks, is_summary, rising, unfolded
from mark.traffic.traces.times import TimeForm, as_times

T0 = 1_777_629_600.0
# UTC, some hours before.
AUTUMN = {"Europe/Berlin": datetime(2026, 10, 24, 23), "America/New_York": datetime(2026, 11, 1, 2)}
SPRING = {"Europe/Berlin": datetime(2026, 3, 28, 22), "America/New_York": datetime(2026, 3, 8, 3)}


def clocks(zone: str, begin: datetime, step_s: float, rows: int) -> list[str]:
    """Return the local times of a zone, a step apart."""
    utc = [begin.replace(tzinfo=ZoneInfo("UTC")) + timedelta(seconds=step_s * i) for i in range(rows)]
    return [at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S") for at in utc]


def test_rows_of_a_summary_are_told_from_requests() -> None:
    random = Random(3)
    minutes = (T0 + 60.0 * np.arange(100)).astype(np.float64)
    wandering = minutes + np.array([random.uniform(-5, 5) for _ in range(100)])
    requests = T0 + np.cumsum(np.array([random.expovariate(1 / 60) for _ in range(100)]))
    whole = np.floor(T0 + np.cumsum(np.array([random.expovariate(1.0) for _ in range(1000)])))
    assert is_summary(minutes)
    assert is_summary(minutes[::-1])
    assert is_summary(np.delete(minutes, [3, 40, 41]))
    assert is_summary(wandering)
    assert is_summary(np.append(minutes, minutes[-10:]))  # exports that overlap
    assert not is_summary(requests.astype(np.float64))
    assert not is_summary(whole.astype(np.float64))  # a log of whole seconds, a request a second


@pytest.mark.parametrize("zone", AUTUMN)
@pytest.mark.parametrize("step_s", [60, 900, 1800, 3600])
@pytest.mark.parametrize("newest_first", [False, True])
def test_an_hour_that_comes_twice_is_two_hours(zone: str, step_s: float, newest_first: bool) -> None:
    rows = clocks(zone, AUTUMN[zone], step_s, int(8 * 3600 / step_s))
    rows = rows[::-1] if newest_first else rows
    naive, local = as_times("t", rows), as_times("t", rows, TimeForm(zone=zone))
    assert naive is not None
    assert local is not None
    seconds, note = unfolded(naive.seconds, "t")
    for times in (seconds, local.seconds):
        assert np.ptp(np.abs(np.diff(times))) == 0.0
    assert note.endswith(f"as in {zone}")
    assert local.known.min() == AUTUMN[zone].replace(tzinfo=ZoneInfo("UTC")).timestamp()


@pytest.mark.parametrize("zone", SPRING)
@pytest.mark.parametrize("step_s", [60, 1800, 3600])
def test_an_hour_that_is_left_out_is_asked_for(zone: str, step_s: float) -> None:
    rows = clocks(zone, SPRING[zone], step_s, int(8 * 3600 / step_s))
    naive, local = as_times("t", rows), as_times("t", rows, TimeForm(zone=zone))
    assert naive is not None
    assert local is not None
    with pytest.raises(BadInput, match="time_zone"):
        unfolded(naive.seconds, "t")
    assert np.ptp(np.diff(local.seconds)) == 0.0


def test_a_gap_at_any_other_time_is_a_gap() -> None:
    times = np.delete(T0 + 60.0 * np.arange(300), slice(100, 160))
    seconds, note = unfolded(times, "t")
    assert (note, seconds is times) == ("", True)


def test_requests_over_a_change_of_the_clocks_are_asked_for() -> None:
    for begin, what in ((AUTUMN["Europe/Berlin"], "set back"), (SPRING["Europe/Berlin"], "set forward")):
        times = as_times("t", clocks("Europe/Berlin", begin, 17.3, 2000))
        assert times is not None
        with pytest.raises(BadInput, match=f"{what}.*time_zone"):
            check_clocks(times.seconds, "t")


def test_a_clock_that_its_zone_does_not_have_is_refused() -> None:
    with pytest.raises(BadInput, match="does not have"):
        as_times("t", ["2026-03-29 01:30", "2026-03-29 02:30"], TimeForm(zone="Europe/Berlin"))
    with pytest.raises(BadInput, match="comes twice"):
        as_times("t", [f"2026-10-25 0{i // 2}:{i % 2 * 3}0" for i in range(8)], TimeForm(zone="Europe/Berlin"))


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        (900_000 + np.cumsum(600 + np.arange(40) % 7), Rising.SURELY),
        (np.cumsum(600 + np.arange(40) % 7), Rising.PERHAPS),  # or a load test
        (1000 + np.arange(40), Rising.NO),  # a line by hand
        (600 * np.arange(1, 41), Rising.PERHAPS),
        (1000 + np.arange(40) % 7, Rising.NO),
        (np.array([5, 6, 8]), Rising.NO),
        (0.5 + np.cumsum(np.arange(40)), Rising.NO),
    ],
)
def test_a_counter_is_known_by_its_values(counts: np.ndarray, wanted: Rising) -> None:
    assert rising(counts.astype(np.float64)) is wanted


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ([1, 2, 2, 3, 5, 5, 8, 9, 9, 9, 11, 12, 12, 14, 14, 15, 16, 16, 18, 20], True),
        ([0, 0, 1, 3, 3, 4, 6, 7, 7, 7, 8, 10, 11, 11, 13, 14, 16, 16, 17, 17, 19], True),
        ([100] * 30 + [200] * 30 + [500] * 30, False),  # levels that last
        (list(range(60)), False),  # a line by hand
        ([round(100 * 1.02**i) for i in range(60)], False),  # growth
        ([1, 2, 2, 3, 5, 4, 8, 9, 9, 7, 11, 12], False),
        ([3, 1, 4], False),
    ],
)
def test_sums_so_far_are_told_from_growing_counts(counts: list[int], wanted: bool) -> None:
    assert are_sums_so_far(np.array(counts, dtype=np.float64)) is wanted
