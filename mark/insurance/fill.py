"""The time that a coding group stays open for queries, chosen so that parity instances keep up."""

from __future__ import annotations

import math

from mark.insurance.insurance_settings import MOST_PARITY_LOAD

_HALVINGS = 60  # of an interval: enough for the last bits of a float


def least_fill_s(k: int, queries_rps: float, capacity_rps: float) -> float:
    """Return the shortest fill with which parity calls/s are at most `MOST_PARITY_LOAD` of the capacity.

    `capacity_rps` is that of the ready instances of one parity model. The fill is 0 if every query may be a group of
    its own, and infinite if even full groups are too many. After a minute without queries the rate is unknown; the fill
    then keeps groups that are not full within the load at any rate.
    """
    most_rps = MOST_PARITY_LOAD * capacity_rps
    if most_rps <= 0.0:
        return math.inf
    if queries_rps <= 0.0:
        return 1.0 / most_rps
    if queries_rps < most_rps:
        return 0.0
    # A group opens, stays open for E[open], and the next query, after 1 / queries_rps, opens another one.
    open_s = 1.0 / most_rps - 1.0 / queries_rps
    if open_s >= (k - 1) / queries_rps:
        return math.inf
    low_s, high_s = 0.0, open_s
    while _mean_open_s(k, queries_rps, high_s) < open_s:
        low_s, high_s = high_s, 2.0 * high_s
    for _ in range(_HALVINGS):
        middle_s = 0.5 * (low_s + high_s)
        if _mean_open_s(k, queries_rps, middle_s) < open_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s


def mean_group(k: int, queries_rps: float, fill_s: float | None) -> float:
    """Return the mean number of queries in a group. With a fill chosen by the load (None) groups count as full."""
    if fill_s is None or math.isinf(fill_s) or queries_rps <= 0.0:
        return float(k)
    return 1.0 + queries_rps * _mean_open_s(k, queries_rps, fill_s)


def _mean_open_s(k: int, queries_rps: float, fill_s: float) -> float:
    """Return E[min(fill, time of k - 1 further Poisson arrivals)], by Erlang's law."""
    queries = queries_rps * fill_s  # expected within the fill
    term = math.exp(-queries)
    below = [0.0]  # of n: the probability of fewer than n arrivals within the fill
    for n in range(k):
        below.append(below[-1] + term)
        term *= queries / (n + 1)
    return (k - 1) / queries_rps * (1.0 - below[k]) + fill_s * below[k - 1]
