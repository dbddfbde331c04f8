"""The least that was seen lately, against a list of all values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.serving.conductor.least import LeastSeen


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(1e-6, 1e3)), min_size=1, max_size=40))
def test_it_is_the_least_of_this_and_the_last_period(seen: list[tuple[float, float]]) -> None:
    least = LeastSeen(10.0)
    assert least.value == 0.0
    now_s, began_s = 0.0, -10.0
    periods: list[list[float]] = [[]]
    for pause_s, value in seen:
        now_s += pause_s
        if now_s >= began_s + 10.0:
            began_s = now_s
            periods.append([])
        periods[-1].append(value)
        least.observe(value, now_s)
        assert least.value == min([*periods[-2], *periods[-1]])
