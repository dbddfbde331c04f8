"""The share of answers in time, from buckets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mark.traffic.prometheus.answers import PromAnswer, PromSeries
from mark.traffic.prometheus.latency import in_time_share

TIMES_S = np.array([60.0, 120.0, 180.0])


def answer(**buckets: list[float]) -> PromAnswer:
    """Cumulative rates by bound, as le_100 is 100, at TIMES_S."""
    return PromAnswer(
        tuple(
            PromSeries({"le": name.removeprefix("le_").replace("inf", "+Inf")}, TIMES_S, np.array(values))
            for name, values in buckets.items()
        )
    )


@pytest.mark.parametrize(
    ("bound", "share"),
    [(100.0, 0.5), (200.0, 0.9), (150.0, 0.7), (50.0, 0.25), (300.0, 0.9), (0.0, 0.0)],
)
def test_share_lies_between_the_bounds_of_the_buckets(bound: float, share: float) -> None:
    """Beyond the last finite bound nothing is known to be in time."""
    found = in_time_share(answer(le_200=[9.0] * 3, le_inf=[10.0] * 3, le_100=[5.0] * 3), bound, TIMES_S)
    assert found.tolist() == pytest.approx([share] * 3)


def test_minute_without_answers_has_no_share() -> None:
    found = in_time_share(answer(le_100=[0.0, 1.0, 1.0], le_inf=[0.0, 2.0, 1.0]), 100.0, TIMES_S)
    np.testing.assert_array_equal(found, [math.nan, 0.5, 1.0])


def test_bucket_that_is_missing_at_a_time_leaves_the_share_unknown() -> None:
    part = PromSeries({"le": "100"}, TIMES_S[:1], np.array([1.0]))
    whole = PromSeries({"le": "+Inf"}, TIMES_S, np.array([2.0, 2.0, 2.0]))
    np.testing.assert_array_equal(in_time_share(PromAnswer((part, whole)), 100.0, TIMES_S), [0.5, math.nan, math.nan])


@pytest.mark.parametrize("buckets", [{}, {"le_100": [1.0] * 3}, {"le_what": [1.0] * 3}])
def test_histogram_without_all_answers_has_no_share(buckets: dict[str, list[float]]) -> None:
    assert np.isnan(in_time_share(answer(**buckets), 100.0, TIMES_S)).all()


def test_buckets_that_fall_by_rounding_are_no_negative_share() -> None:
    found = in_time_share(answer(le_100=[5.0000001] * 3, le_200=[5.0] * 3, le_inf=[5.0] * 3), 150.0, TIMES_S)
    assert found.tolist() == [1.0] * 3
