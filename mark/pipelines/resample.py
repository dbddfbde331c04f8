"""Other traffic of the same kind: block bootstrap of a sample's arrivals with what their queries call."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from mark.domain.errors import BadInput
from mark.pipelines.estimate import QuerySample


def resampled(sample: QuerySample, rng: np.random.Generator, *, block: int | None = None) -> QuerySample:
    """As many queries, drawn as blocks of successive ones, each with the gap before it and what it calls.

    Blocks keep bursts and what correlates between neighbours (circular block bootstrap of Politis and Romano, 1992);
    `block` queries long, the square root of their number unless given. Raises BadInput for a block of none.
    """
    queries = len(sample.arrivals_s)
    block = max(1, round(math.sqrt(queries))) if block is None else block
    if block < 1:
        raise BadInput("has one query at least", "block", block)
    order = np.argsort(sample.arrivals_s, kind="stable")
    gaps_s = np.diff(sample.arrivals_s[order], prepend=sample.arrivals_s[order[0]])
    gaps_s[0] = gaps_s[1:].mean() if queries > 1 else 0.0  # the first comes after a gap, too, where it is not first
    starts = rng.integers(queries, size=-(-queries // block))
    drawn = ((starts[:, None] + np.arange(block)) % queries).ravel()[:queries]
    return QuerySample(np.cumsum(gaps_s[drawn]), sample.calls[order[drawn]])


def miss_limit(miss_shares: list[float], confidence: float) -> float:
    """What the miss share of as much new traffic stays below with this confidence, by those of K resamples.

    Resamples differ from the sample as the sample does from its law, and new traffic differs from that law as much once
    more. So it is a one-sided prediction limit with twice the variance: mean + t(K - 1) x deviation x sqrt(2 + 1/K), as
    if shares were normal. Of one value alone it is that value.
    """
    n = len(miss_shares)
    if n < 2:
        return miss_shares[0]
    spread = float(np.std(miss_shares, ddof=1)) * math.sqrt(2.0 + 1.0 / n)
    return float(np.mean(miss_shares)) + float(stdtrit(n - 1, confidence)) * spread
