"""24 hours by the minute: stored, cut, and shown in as many steps as requested."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.history import MINUTES, Minute, MinuteHistory, history_view, next_day_of
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


def test_next_day_costs_what_the_last_24_hours_did() -> None:
    """Half a dollar an hour, and a cent for each of six calls a minute."""
    found = next_day_of({n: minute() for n in range(100, 100 + MINUTES)}, 0.02, 0.01)
    assert found is not None
    assert found.usd.expected == pytest.approx(24 * 0.5 + MINUTES * 6 * 0.01)
    assert not found.usd.calibrated
    assert found.promise is not None
    assert not found.promise.calibrated
    late = next_day_of({n: minute(in_time=50) for n in range(MINUTES)}, 0.02, 0.01)
    assert late is not None
    assert late.promise is not None
    assert late.promise.probability < 0.1 < found.promise.probability


def test_next_day_needs_24_hours() -> None:
    assert next_day_of({}, 0.02, 0.0) is None
    assert next_day_of({n: minute() for n in range(MINUTES - 1)}, 0.02, 0.0) is None
    assert next_day_of({n: minute() for n in range(600, 600 + MINUTES // 2)}, 0.02, 0.0) is None
