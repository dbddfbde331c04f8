"""The search for the price of a late request: the highest point of a concave function over many decades."""

from __future__ import annotations

import numpy as np
import pytest

from mark.planning.bounds.late_price import best_late_price


def steps(prices: np.ndarray, requests: np.ndarray, at: float) -> tuple[float, float]:
    """Return the cost if each group of requests is served for its price, or left over at `at` each."""
    return float((requests * np.minimum(prices, at)).sum()), float(requests[prices > at].sum())


@pytest.mark.parametrize("seed", range(20))
def test_search_finds_the_best_price(seed: int) -> None:
    rng = np.random.default_rng(seed)
    prices, requests = 10.0 ** rng.uniform(-7.0, 0.0, 200), rng.uniform(1.0, 9.0, 200)
    late = float(rng.uniform(0.001, 0.3) * requests.sum())
    best = max(steps(prices, requests, float(price))[0] - price * late for price in prices)
    found = best_late_price(lambda price: steps(prices, requests, price), late, 1.0, 40)
    assert found.value == pytest.approx(best, rel=1e-3)
    assert found.value <= best * (1.0 + 1e-12)


def test_without_late_requests_the_highest_price_is_best() -> None:
    found = best_late_price(lambda price: (price, 1.0), 0.0, 7.0, 40)
    assert (found.usd, found.value) == (7.0, 7.0)


def test_more_left_over_than_may_be_late_keeps_the_highest_price() -> None:
    found = best_late_price(lambda price: (5.0 * price, 5.0), 2.0, 7.0, 40, first=1.0)
    assert (found.usd, found.value) == (7.0, 21.0)
