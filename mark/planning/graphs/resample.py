"""Other traffic of the same kind: block bootstrap of a sample's arrivals with the calls of their queries."""

from __future__ import annotations

import math

import numpy as np

from mark.domain.errors import BadInput
from mark.planning.graphs.estimate import QuerySample


def resampled(sample: QuerySample, rng: np.random.Generator, *, block: int | None = None) -> QuerySample:
    """Draw as many queries, as blocks of successive ones, each with the gap before it and its calls.

    Blocks keep bursts and correlations between neighbours (circular block bootstrap of Politis and Romano, 1992). A
    block has `block` queries, the square root of their number by default. Raises BadInput for a block without a query.
    """
    queries = len(sample.arrivals_s)
    block = max(1, round(math.sqrt(queries))) if block is None else block
    if block < 1:
        raise BadInput("has one query at least", "block", block)
    order = np.argsort(sample.arrivals_s, kind="stable")
    gaps_s = np.diff(sample.arrivals_s[order], prepend=sample.arrivals_s[order[0]])
    gaps_s[0] = gaps_s[1:].mean() if queries > 1 else 0.0  # the first query needs a gap too, if drawn behind others
    starts = rng.integers(queries, size=-(-queries // block))
    drawn = ((starts[:, None] + np.arange(block)) % queries).ravel()[:queries]
    return QuerySample(np.cumsum(gaps_s[drawn]), sample.calls[order[drawn]])


def new_traffic(sample: QuerySample, rng: np.random.Generator) -> QuerySample:
    """Return a resample of a resample: as far from the sample as new traffic is.

    The sample differs from the law behind it, and new traffic differs from that law as much again. Misses rise steeply
    where a stage is nearly full, so that the second step has to be simulated and cannot be added as a variance.
    """
    return resampled(resampled(sample, rng), rng)


def miss_limit(miss_shares: list[float], confidence: float) -> float:
    """Return the limit that the miss share of as much new traffic stays below, by the shares of K `new_traffic`.

    A one-sided prediction limit, mean + t(K - 1) x deviation x sqrt(2 + 1/K), and at least the greatest of the shares.
    The variance of the second step counts once more, because searches pick the choices that resamples flatter, and
    shares are skewed. The limit of a single share is that share.
    """
    n = len(miss_shares)
    if n < 2:
        return miss_shares[0]
    spread = float(np.std(miss_shares, ddof=1)) * math.sqrt(2.0 + 1.0 / n)
    return max(float(np.mean(miss_shares)) + _students_t(n - 1, confidence) * spread, max(miss_shares))


def _students_t(degrees: int, share: float) -> float:
    """Return the quantile of Student's t by halving the angle atan(t / sqrt(degrees)): its law is a finite sum of
    that.
    """
    if share >= 1.0:
        return math.inf
    if share < 0.5:
        return -_students_t(degrees, 1.0 - share)
    odd = degrees % 2
    low, high = 0.0, 0.5 * math.pi  # of the angle
    while low < (angle := 0.5 * (low + high)) < high:
        cosine = math.cos(angle)
        term, total = cosine if odd else 1.0, 0.0
        for power in range(1 + odd, degrees, 2):
            total += term
            term *= cosine * cosine * power / (power + 1)
        within = math.sin(angle) * total
        reached = (angle + within) / math.pi if odd else 0.5 * within
        low, high = (angle, high) if 0.5 + reached < share else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def least_limit(queries: int, confidence: float) -> float:
    """Return the share of late queries that a sample of `queries` without a late one cannot exclude for as many new
    ones.

    If k + 1 of 2 x N exchangeable queries are late, all of them are in the new half in one of 2^(k + 1) cases.
    """
    return min(1.0, (math.ceil(-math.log2(1.0 - confidence)) - 1) / queries) if confidence < 1.0 else 1.0
