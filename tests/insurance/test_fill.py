"""The shortest fill by the rate of queries: against groups that are formed of drawn arrivals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mark.insurance.fill import least_fill_s, mean_group


def groups_per_query(k: int, queries_rps: float, fill_s: float) -> float:
    arrivals_s = np.cumsum(np.random.default_rng(0).exponential(1.0 / queries_rps, 200_000)).tolist()
    at = groups = 0
    while at < len(arrivals_s):
        until_s, groups, first = arrivals_s[at] + fill_s, groups + 1, at
        while at < len(arrivals_s) and at - first < k and arrivals_s[at] <= until_s:
            at += 1
    return groups / len(arrivals_s)


@pytest.mark.parametrize(("k", "share"), [(2, 0.6), (2, 0.9), (4, 0.3), (4, 0.8), (8, 0.5)])
def test_groups_take_the_load_that_parity_instances_may_have(k: int, share: float) -> None:
    """`share` of the queries is the rate of calls that they may take."""
    queries_rps = 50.0
    fill_s = least_fill_s(k, queries_rps, share * queries_rps / 0.7)
    assert groups_per_query(k, queries_rps, fill_s) == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("fill_s", [0.0, 0.02, 0.2])
def test_groups_are_as_large_as_counted(fill_s: float) -> None:
    assert mean_group(4, 50.0, fill_s) == pytest.approx(1.0 / groups_per_query(4, 50.0, fill_s), rel=0.01)


@pytest.mark.parametrize("fill_s", [None, math.inf])
def test_groups_are_full_where_they_wait(fill_s: float | None) -> None:
    assert mean_group(4, 50.0, fill_s) == 4.0


def test_every_query_is_a_group_where_capacity_is_ample() -> None:
    assert least_fill_s(4, 50.0, 50.0 / 0.69) == 0.0


@pytest.mark.parametrize("queries_rps", [1.0, 20.0, 50.0, 500.0])
def test_unknown_rate_drowns_no_parity_instance(queries_rps: float) -> None:
    """At any rate, calls of groups that are not full need little more than 0.7 of the parity instances' capacity."""
    capacity_rps, k = 20.0, 4
    calls_rps = queries_rps * groups_per_query(k, queries_rps, least_fill_s(k, 0.0, capacity_rps))
    assert calls_rps <= max(0.7 * capacity_rps, queries_rps / k) * 1.25


def test_groups_wait_to_be_full_where_capacity_is_short() -> None:
    assert least_fill_s(4, 50.0, 12.5 / 0.71) == math.inf
    assert least_fill_s(4, 50.0, 0.0) == math.inf
    assert least_fill_s(4, 0.0, 0.0) == math.inf
