"""The compiled draws follow their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from mark.traffic.traces import draw


def generator(seed: int, index: int) -> np.uint64:
    return np.uint64(draw.stream(np.uint64(seed), index, 0))


def poissons(mean: float, number: int, seed: int = 1) -> NDArray[np.float64]:
    return np.array([draw.poisson(generator(seed, i), mean)[0] for i in range(number)], dtype=np.float64)


@pytest.mark.parametrize("mean", [1e-6, 0.01, 0.7, 9.99, 10.01, 37.5, 2048.0, 1e5, 1e7])
def test_poisson_has_its_mean_and_variance(mean: float) -> None:
    number = 20_000
    drawn = poissons(mean, number)
    assert abs(drawn.mean() - mean) < 5.0 * math.sqrt(mean / number)
    # The variance of the sample variance of a Poisson law is about (mean + 2 mean^2) / n.
    assert abs(drawn.var() - mean) < 5.0 * math.sqrt((mean + 2.0 * mean * mean) / number) + 1e-9


@pytest.mark.parametrize("mean", [0.5, 4.0, 9.5, 10.5, 25.0, 120.0])
def test_poisson_has_its_distribution(mean: float) -> None:
    number = 30_000
    drawn = poissons(mean, number, seed=2)
    counts = np.arange(int(mean + 8.0 * math.sqrt(mean)) + 10)
    expected = number * np.array([math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in counts])
    usual = expected >= 10.0
    observed = np.array([np.count_nonzero(drawn == k) for k in counts])
    # All rare counts are one cell.
    cells = np.append((observed[usual] - expected[usual]) ** 2 / expected[usual], 0.0)
    rest = number - expected[usual].sum()
    cells[-1] = (number - observed[usual].sum() - rest) ** 2 / max(rest, 1.0)
    freedom = len(cells) - 1
    assert cells.sum() < freedom + 5.0 * math.sqrt(2.0 * freedom)


@pytest.mark.parametrize("mean", [3.0, 11.0, 400.0, 30_000.0])
def test_arrivals_are_sorted_and_uniform_within_their_bin(mean: float) -> None:
    bins = max(1, int(60_000 / mean))
    starts = np.arange(0.0, bins * 7.0, 7.0)
    out = np.empty(200_000)
    rows = draw.Bins(starts, starts + 7.0, np.full(bins, mean), 7.0)
    n, row, _, reached = draw.draw_bins(rows, 1.0, np.uint64(3), 0, 0, 0.0, bins * 7.0, out)
    times = out[:n]
    assert (row, reached) == (bins, bins * 7.0)
    assert np.all(np.diff(times) >= 0.0)
    assert abs(n - mean * bins) < 5.0 * math.sqrt(mean * bins)
    places = np.sort(times % 7.0) / 7.0
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand.
    assert np.abs(places - (np.arange(n) + 0.5) / n).max() < 1.95 / math.sqrt(n)


def test_neighbouring_bins_and_seeds_draw_independently() -> None:
    """A weak mix of seed and index would show as correlated counts."""
    by_bin = np.array([[draw.poisson(generator(s, i), 50.0)[0] for i in range(4000)] for s in (0, 1)])
    for a, b in ((by_bin[0, :-1], by_bin[0, 1:]), (by_bin[0], by_bin[1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5.0 / math.sqrt(len(a))


def test_a_draw_goes_on_after_a_full_buffer() -> None:
    starts = np.arange(20.0)
    rows = draw.Bins(starts, starts + 1.0, np.full(20, 3000.0), 1.0)
    whole = np.empty(100_000)
    n, *_ = draw.draw_bins(rows, 1.0, np.uint64(5), 0, 0, 0.0, 20.0, whole)
    pieces, row, part, low = [], 0, 0, 0.0
    while low < 20.0:
        out = np.empty(draw.ROOM)
        k, row, part, low = draw.draw_bins(rows, 1.0, np.uint64(5), row, part, low, 20.0, out)
        pieces.append(out[:k])
    assert len(pieces) > 5
    np.testing.assert_array_equal(np.concatenate(pieces), whole[:n])


def test_gamma_gaps_have_their_mean_and_cv() -> None:
    for cv in (0.3, 1.0, 4.0):
        out = np.empty(400_000)
        n, _, _ = draw.gamma_arrivals(generator(1, 0), 0.0, 1e9, 10.0, cv, 10.0, cv, 0.0, 0.0, out)
        gaps = np.diff(out[:n])
        assert abs(gaps.mean() * 10.0 - 1.0) < 5.0 * cv / math.sqrt(n)
        assert abs(gaps.std() / gaps.mean() / cv - 1.0) < 0.05
