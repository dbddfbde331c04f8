"""Slow periods of an instance, told by the batches that it serves."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.pace import LONGEST_GAP_S, Pace


def test_time_between_batches_counts_by_half_where_they_differ() -> None:
    pace = Pace()
    for started_s, ratio in [(0.0, 1.0), (1.0, 1.1), (2.0, 3.0), (4.0, 3.0), (5.0, 1.0), (6.0, 1.0)]:
        pace.observe(started_s, ratio)
    assert (pace.calm_s, pace.slow_s, pace.periods) == (3.0, 3.0, 1)


def test_gap_without_batches_counts_for_neither() -> None:
    pace = Pace()
    for started_s, ratio in [(0.0, 3.0), (1.0, 3.0), (1.0 + 1.01 * LONGEST_GAP_S, 1.0)]:
        pace.observe(started_s, ratio)
    assert (pace.calm_s, pace.slow_s, pace.periods) == (0.0, 1.0, 0)


def test_batch_of_another_worker_that_began_earlier_changes_nothing() -> None:
    pace = Pace()
    for started_s, ratio in [(0.0, 1.0), (2.0, 1.0), (1.0, 9.0), (3.0, 1.0)]:
        pace.observe(started_s, ratio)
    assert (pace.calm_s, pace.slow_s, pace.periods) == (3.0, 0.0, 0)


@pytest.mark.untraced
@pytest.mark.parametrize(("batches_rps", "periods"), [(0.5, 2_000), (8.0, 400)])
def test_mean_slow_period_is_found_at_any_load(batches_rps: float, periods: int) -> None:
    """5 % of the time slow, for 20 s in the mean: batches come at random, few or many in each period."""
    rng, pace = np.random.default_rng(0), Pace()
    ends_s = np.cumsum(rng.exponential([[380.0, 20.0]], (periods, 2)).ravel())
    starts_s = np.cumsum(rng.exponential(1.0 / batches_rps, int(ends_s[-1] * batches_rps)))
    slow = np.searchsorted(ends_s, starts_s) % 2
    for started_s, is_slow in zip(starts_s.tolist(), slow.tolist(), strict=True):
        pace.observe(started_s, 3.0 if is_slow else 1.0)
    assert pace.slow_s / (pace.slow_s + pace.calm_s) == pytest.approx(0.05, rel=0.1)
    assert pace.slow_s / pace.periods == pytest.approx(20.0, rel=0.15)
