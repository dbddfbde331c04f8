"""24 hours by the minute: stored, cut, and shown in as many steps as requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.history import MINUTES, HalfHour, Minute, MinuteHistory, history_view, next_day_of
from mark.control.memory_store import MemoryStore


def minute(rps: float | None = 1.0, **more: int) -> Minute:
    counts = {"requests": 60, "in_time": 59, "by_functions": 6} | more
    return Minute(rps, 10.0, 0.5, instances={"a": 2}, **counts)


def test_it_survives_the_process_and_forgets_after_a_day() -> None:
    """The store has one value per hour, so that no value grows without end."""
    store = MemoryStore()
    history = MinuteHistory(store)
    for number in range(2000):
        history.add(number, minute(float(number)))
    assert set(history.rows()) == set(range(2000 - MINUTES, 2000))
    assert MinuteHistory(store).rows() == history.rows()
    assert max(len(store.get(f"history/{k}") or ()) for k in range(25)) == 60


def test_a_pause_of_days_leaves_nothing_old() -> None:
    """The minutes kept before the pause are over a day old."""
    store = MemoryStore()
    MinuteHistory(store).add(10, minute())
    history = MinuteHistory(store)
    history.add(10_000, minute())
    assert set(history.rows()) == {10_000}
    assert set(MinuteHistory(store).rows()) == {10_000}


def test_minutes_of_a_clock_that_was_ahead_are_dropped() -> None:
    """Otherwise the page would show that time, and no half hour would be added until then."""
    store = MemoryStore()
    MinuteHistory(store).add(600, minute())
    history = MinuteHistory(store)
    for number in range(90):
        history.add(number, minute())
    assert list(history.rows()) == list(range(90))
    assert list(history.half_hours()) == [0, 1, 2]
    for number in (40, 41):
        history.add(number, minute(7.0))
    assert list(history.rows()) == list(range(42))
    assert list(history.half_hours()) == [0]


def test_history_steps_are_means_and_shares_unknown_without_data() -> None:
    """Four minutes in two steps; the first minute is missing."""
    rows = {1: minute(3.0), 2: minute(None, requests=0, in_time=0, by_functions=0), 3: minute(5.0, in_time=30)}
    view = history_view(rows, 4 / 60, 2, start_unix_s=1000.0, minute_s=60.0)
    assert (view.start_unix_s, view.step_s) == (1000.0, 120.0)
    assert view.rps == (3.0, 5.0)
    assert view.capacity_rps == (10.0, 10.0)
    assert view.attainment == (59 / 60, 0.5)
    assert view.overflow_share == (0.1, 0.1)
    assert view.instances == {"a": (2, 2)}
    before = history_view(rows, 8 / 60, 8, start_unix_s=1000.0, minute_s=60.0)
    assert before.start_unix_s == 1000.0 - 4 * 60.0
    assert before.rps == (None, None, None, None, None, 3.0, None, 5.0)
    assert before.instances["a"][:5] == (None,) * 5
    assert before.attainment[6] is None


@given(st.sets(st.integers(0, 3000), max_size=20), st.floats(0.01, 48.0), st.integers(1, 2000))
def test_never_more_points_than_asked_for_and_all_equally_long(numbers: set[int], hours: float, points: int) -> None:
    """This holds for any stored minutes."""
    view = history_view({n: minute() for n in numbers}, hours, points, start_unix_s=0.0, minute_s=60.0)
    lengths = {len(view.rps), len(view.capacity_rps), len(view.attainment), *map(len, view.instances.values())}
    assert len(lengths) == 1
    assert 1 <= len(view.rps) <= points
    assert len(view.rps) * view.step_s >= min(hours, 24.0) * 3600.0 * 0.999
    if numbers:
        assert view.start_unix_s + len(view.rps) * view.step_s == pytest.approx((max(numbers) + 1) * 60.0)


def halves(rows: Mapping[int, Minute]) -> dict[int, HalfHour]:
    history = MinuteHistory(MemoryStore())
    for number, row in rows.items():
        history.add(number, row)
    return history.half_hours()


def test_next_day_costs_what_the_last_24_hours_did() -> None:
    """Half a dollar an hour, and a cent for each of six calls a minute."""
    found = next_day_of(halves({n: minute() for n in range(90, 90 + MINUTES)}), 0.02, 0.01)
    assert found is not None
    assert found.usd.expected == pytest.approx(24 * 0.5 + MINUTES * 6 * 0.01)
    assert not found.usd.calibrated
    assert found.promise is not None
    assert not found.promise.calibrated
    every_other = next_day_of(halves({n: minute() for n in range(89, 90 + MINUTES, 2)}), 0.02, 0.01)
    assert every_other is not None
    assert every_other.usd.expected == pytest.approx(found.usd.expected)  # unobserved minutes cost as the others do
    late = next_day_of(halves({n: minute(in_time=50) for n in range(MINUTES)}), 0.02, 0.01)
    assert late is not None
    assert late.promise is not None
    assert late.promise.probability < 0.1 < found.promise.probability


def test_next_day_needs_24_hours() -> None:
    assert next_day_of({}, 0.02, 0.0) is None
    assert next_day_of(halves({n: minute() for n in range(MINUTES - 1)}), 0.02, 0.0) is None
    assert next_day_of(halves({n: minute() for n in range(600, 600 + MINUTES // 2)}), 0.02, 0.0) is None


def test_next_day_is_calibrated_by_the_bills_of_past_days() -> None:
    """After a week there are eleven past windows. Bills that change from day to day make the interval wide."""
    store = MemoryStore()
    history = MinuteHistory(store)
    for number in range(7 * MINUTES):
        usd_per_hour = 0.5 if number // MINUTES % 2 else 1.0
        history.add(number, replace(minute(), usd_per_hour=usd_per_hour))
    assert MinuteHistory(store).half_hours() == history.half_hours()
    found = next_day_of(history.half_hours(), 0.02, 0.0)
    assert found is not None
    assert found.usd.calibrated
    assert found.usd.past_windows == 11
    assert found.usd.low < 12.01 < 24.0 < found.usd.high


def test_half_hours_are_kept_for_45_days_and_unobserved_ones_left_out() -> None:
    store = MemoryStore()
    history = MinuteHistory(store)
    for number in range(30):  # 14 minutes are too few
        if number < 14:
            history.add(number, minute())
    history.add(40, minute())
    assert history.half_hours() == {}
    for number in range(45, 60):
        history.add(number, minute())
    assert set(history.half_hours()) == {1}
    assert replace(history.half_hours()[1], usd=0.0) == HalfHour(16, 1.0, 0.0, 960, 944, 96)
    assert history.half_hours()[1].usd == pytest.approx(16 * 0.5 / 60)
    far = 60 * MINUTES
    for number in range(far, far + 30):
        history.add(number, minute())
    assert set(history.half_hours()) == {far // 30}
    assert set(MinuteHistory(store).half_hours()) == {far // 30}


def test_a_new_release_sums_up_the_minutes_that_an_older_one_kept() -> None:
    store = MemoryStore()
    for hour in range(24):
        store.put(f"history/{hour}", {n: minute() for n in range(60 * hour, 60 * hour + 60)})
    history = MinuteHistory(store)
    history.add(MINUTES, minute())
    assert history.half_hours()[0].minutes == 29  # the first minute is older than 24 hours
    assert set(history.half_hours()) == set(range(48))
