"""Bootstrapped traffic is of the same kind, and the limit is the textbook's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from mark.domain.errors import BadInput
from mark.planning.graphs.estimate import QuerySample
from mark.planning.graphs.resample import _students_t, miss_limit, resampled
from tests.planning.graphs.planned import traffic


def test_one_query_stays_one_query() -> None:
    made = resampled(QuerySample(np.array([7.0]), np.array([[2, 0]])), np.random.default_rng(0))
    assert (made.arrivals_s.tolist(), made.calls.tolist()) == ([0.0], [[2, 0]])


def test_rate_spread_and_calls_are_kept_on_average() -> None:
    sample = traffic(4000, 50.0, 2.0, (1.0, 0.3), seed=1)
    rng = np.random.default_rng(2)
    made = [resampled(sample, rng) for _ in range(40)]
    gaps_s = np.diff(sample.arrivals_s)
    assert np.mean([np.diff(one.arrivals_s).mean() for one in made]) == pytest.approx(gaps_s.mean(), rel=0.02)
    assert np.mean([np.diff(one.arrivals_s).std() for one in made]) == pytest.approx(gaps_s.std(), rel=0.03)
    assert np.mean([one.calls[:, 1].mean() for one in made]) == pytest.approx(sample.calls[:, 1].mean(), rel=0.03)
    assert len({one.arrivals_s[-1] for one in made}) == len(made)
    assert all((np.diff(one.arrivals_s) >= 0.0).all() for one in made)


def test_neighbours_stay_together() -> None:
    """Calls that alternate in runs of a hundred still do, except at the borders of blocks."""
    sample = QuerySample(np.arange(2000.0), (np.arange(2000) // 100 % 2)[:, None])
    made = resampled(sample, np.random.default_rng(3), block=50)
    assert np.count_nonzero(np.diff(made.calls[:, 0])) <= 2000 / 50 * 1.5
    alone = resampled(sample, np.random.default_rng(3), block=1)
    assert np.count_nonzero(np.diff(alone.calls[:, 0])) > 700


def test_a_block_of_none_is_bad_input() -> None:
    with pytest.raises(BadInput, match="block"):
        resampled(traffic(10, 1.0, 1.0, (1.0,), 0), np.random.default_rng(0), block=0)


def test_the_limit_is_of_a_value_with_twice_the_variance() -> None:
    """Mean 3, deviation 1.5811, t(4; 0.9) 1.5332: 3 + 1.5811 x 1.5332 x sqrt(2.2)."""
    assert miss_limit([1.0, 2.0, 3.0, 4.0, 5.0], 0.9) == pytest.approx(6.5956, abs=1e-3)
    assert miss_limit([0.25], 0.9) == 0.25
    assert miss_limit([0.5] * 4, 0.99) == 0.5


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 19, 20, 199])
def test_quantiles_of_students_law_are_scipys(degrees: int) -> None:
    for share in (0.01, 0.5, 0.75, 0.95, 0.999):
        assert _students_t(degrees, share) == pytest.approx(float(stdtrit(degrees, share)), rel=1e-9, abs=1e-12)
    assert _students_t(degrees, 1.0) == math.inf


@pytest.mark.untraced
def test_new_traffic_is_below_the_limit_as_often_as_said() -> None:
    """The means of samples of a normal law: one sample is resampled, and another is judged."""
    rng = np.random.default_rng(4)
    below = []
    for _ in range(2000):
        sample = rng.normal(size=100)
        resamples = [float(rng.choice(sample, 100).mean()) for _ in range(20)]
        below.append(rng.normal(size=100).mean() <= miss_limit(resamples, 0.9))
    assert np.mean(below) == pytest.approx(0.9, abs=0.02)
