"""Quantiles from buckets agree with the drawn values, as far as the bounds allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.telemetry.latency_quantile import latency_quantile_s

from mark.serving.backend.metrics import SECONDS, Histogram


def within(latencies_s: list[float]) -> list[float]:
    histogram = Histogram(SECONDS)
    for latency_s in latencies_s:
        histogram.observe(latency_s)
    return [count for _, count in histogram.buckets()]


@given(st.lists(st.floats(0.0, 60.0), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(latencies_s: list[float], quantile: float) -> None:
    true_s = float(np.quantile(latencies_s, quantile, method="inverted_cdf"))
    bounds = (0.0, *SECONDS)
    high = next(n for n, bound in enumerate(bounds) if true_s <= bound and n > 0)
    found_s = latency_quantile_s(within(latencies_s), quantile)
    assert found_s is not None
    assert bounds[high - 1] <= found_s <= bounds[high]


def test_answers_of_a_bucket_are_spread_evenly() -> None:
    assert latency_quantile_s(within([0.2] * 100), 0.5) == pytest.approx(0.205)
    assert latency_quantile_s(within([0.05] * 50 + [5.0] * 50), 0.5) == pytest.approx(0.063)
    assert latency_quantile_s(within([0.05] * 49 + [5.0] * 51), 0.99) == pytest.approx(4.0 + 2.3 * 50 / 51)


def test_what_is_above_all_bounds_counts_as_the_last() -> None:
    assert latency_quantile_s(within([0.1, 100.0, 100.0]), 0.99) == 60.0


@pytest.mark.parametrize("unknown", [[], [0.0] * (len(SECONDS) + 1), [1.0, 2.0]])
def test_without_answers_there_is_no_quantile(unknown: list[float]) -> None:
    assert latency_quantile_s(unknown, 0.5) is None
