"""Accounts of departures against plain counts of the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.kernel.accounting import Accounting
from mark.kernel.departures import BY_FUNCTION, REFUSED, Departures, buffer

RT_MAX_S = 0.5
END_S = 300.0

Row = tuple[float, float, int]  # arrival, latency, slot
answers = st.tuples(st.floats(0.0, END_S), st.floats(1e-3, 10.0), st.sampled_from([0, 7, BY_FUNCTION]))
refusals = st.tuples(st.floats(0.0, END_S), st.just(np.inf), st.just(REFUSED))


def departures(rows: list[Row]) -> Departures:
    out = buffer(len(rows), False)
    out.rows[0] = len(rows)
    for place, (arrival_s, latency_s, slot) in enumerate(rows):
        out.arrival_s[place], out.latency_s[place], out.slot[place] = arrival_s, latency_s, slot
    return out


def accounts(*parts: list[Row], recent: int = 5) -> Accounting:
    result = Accounting(rt_max_s=RT_MAX_S, end_s=END_S, fine_s=0.7, recent=recent)
    for part in parts:
        result.add(departures(part))
    return result


@given(st.lists(answers | refusals, max_size=60))
def test_accounts_equal_plain_counts(rows: list[Row]) -> None:
    seen = accounts(rows)
    arrival_s, latency_s, slot = (np.array([row[i] for row in rows]) for i in range(3))
    answered, good = slot != REFUSED, latency_s <= RT_MAX_S + 1e-6
    assert (seen.answered, seen.rejected) == (answered.sum(), (~answered).sum())
    assert seen.by_functions == (slot == BY_FUNCTION).sum()
    assert seen.late == (answered & ~good).sum()
    assert seen.recent() == (min(5, len(rows)), good[-5:].sum())
    for counts, weights in zip(seen.minutes(), (np.ones(len(rows)), good, slot == BY_FUNCTION), strict=True):
        minute = (arrival_s // 60.0).astype(int)
        np.testing.assert_array_equal(counts, np.bincount(minute, weights=weights, minlength=len(counts)))
    assert seen.fine_counts().sum() == len(rows)
    if answered.any():
        assert seen.latency_max_s() == latency_s[answered].max()
        assert seen.latency_mean_s() == sum(latency_s[answered].tolist()) / answered.sum()
        assert seen.latency_quantile_s(0.5) == pytest.approx(
            np.quantile(latency_s[answered], 0.5, method="inverted_cdf"), rel=1e-3
        )


@given(st.lists(answers | refusals, max_size=40), st.integers(0, 40))
def test_rows_may_come_in_any_number_of_parts(rows: list[Row], cut: int) -> None:
    """The bytes are the same, because even the order of floating-point sums is."""
    whole, parted = accounts(rows), accounts(rows[:cut], [], rows[cut:])
    for one, other in zip(whole.arrays, parted.arrays, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_refused_requests_have_no_latency() -> None:
    seen = accounts([(1.0, np.inf, REFUSED), (2.0, 0.25, 0)])
    assert seen.latency_mean_s() == seen.latency_max_s() == 0.25
    assert seen.ccdf()[1].tolist() == [0.0]


def test_only_the_most_recent_departures_count_as_recent() -> None:
    late, good = (1.0, 2.0, 0), (1.0, 0.1, 0)
    assert accounts([good] * 3, [late] * 2, recent=3).recent() == (3, 1)
    assert accounts([late], [good], recent=3).recent() == (2, 1)
