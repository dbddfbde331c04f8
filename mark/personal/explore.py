"""Rank items so that items are shown that may be better than they look, and say how probable each place was.

A policy ranks by scores: `greedy` as they are, `linucb` with the uncertainty of the key's head added, `item` with that
and the uncertainty of the item's own mean, `thompson` by draws. The places are filled one after the other, and a
propensity is the probability of an item for its place, given the places before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.settings import GREEDY, ITEM, THOMPSON, Exploration

_DRAWS = 64
_BLOCK = 64


@dataclass(frozen=True, slots=True, eq=False)
class RankedPlaces:
    """The numbers of the shown candidates, the first place first, with the propensity of each."""

    numbers: IntArray
    propensities: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class CandidateScores:
    """Scores to rank by, and their variances because of the key's head and of the items' means."""

    values: FloatArray
    by_key: FloatArray
    by_item: FloatArray


def spread(policy: str, scores: CandidateScores) -> FloatArray:
    """The standard deviations that a policy adds to the scores, each times `alpha`."""
    if policy == GREEDY:
        return np.zeros(len(scores.values))
    return np.sqrt(scores.by_key + scores.by_item) if policy == ITEM else np.sqrt(scores.by_key)


def ranked(
    explore: Exploration,
    scores: CandidateScores,
    k: int,
    draw: np.random.Generator | None,
    numbers: IntArray | None = None,
    pool: IntArray | None = None,
) -> RankedPlaces:
    """The first `k` places. Without `draw` the answer is greedy, and each propensity is 1.

    Scores are of the candidates with these `numbers`. `pool` has the numbers of all candidates, where a policy needs
    the scores of some only. Thompson's scores are independent normal draws, one for each candidate. Each place takes a
    random one of 64 such rankings, so that the propensities, given these rankings, are exact.
    """
    values = scores.values
    numbers = np.arange(len(values)) if numbers is None else numbers
    k = min(k, len(numbers))
    if draw is None:
        return RankedPlaces(numbers[best(values, k)], np.ones(k))
    added = explore.alpha * spread(explore.policy, scores)
    if explore.policy != THOMPSON and not explore.share:  # nothing is drawn
        return RankedPlaces(numbers[best(values + added, k)], np.ones(k))
    if explore.policy == THOMPSON:
        by_ranking = values + added * draw.standard_normal((_DRAWS, len(values)))
    else:
        by_ranking = (values + added)[None, :]
    return _filled(by_ranking, numbers, numbers if pool is None else pool, explore.share, k, draw)


def _filled(
    scores: FloatArray, numbers: IntArray, pool: IntArray, share: float, k: int, draw: np.random.Generator
) -> RankedPlaces:
    """Each place filled by a random row of `scores`, and a `share` of the places uniformly from the pool."""
    columns = {int(number): at for at, number in enumerate(numbers)}
    taken: dict[int, float] = {}
    for place in range(k):
        firsts = scores.argmax(axis=1)
        free = len(pool) - place
        if share and draw.random() < share:
            chosen = int(pool[draw.integers(len(pool))])
            while chosen in taken:
                chosen = int(pool[draw.integers(len(pool))])
        else:
            chosen = int(numbers[firsts[draw.integers(len(scores))]])
        column = columns.get(chosen)
        by_policy = 0.0 if column is None else float((firsts == column).mean())
        taken[chosen] = share / free + (1.0 - share) * by_policy
        if column is not None:
            scores[:, column] = -np.inf
    return RankedPlaces(np.array(list(taken), dtype=np.int64), np.array(list(taken.values())))


def best(scores: NDArray[np.floating], k: int) -> IntArray:
    """The numbers of the `k` highest scores, the highest first; of equal ones the lower number first."""
    count = len(scores)
    k = min(k, count)
    found = np.arange(count)
    if k > 0 and count > 2 * _BLOCK * k:
        # The k-th highest maximum of blocks is no higher than the k-th highest score, and is found ten times sooner.
        maxima = np.maximum.reduceat(scores, np.arange(0, count, _BLOCK))
        found = np.flatnonzero(scores >= np.partition(maxima, len(maxima) - k)[len(maxima) - k])
    elif k < count:
        found = np.flatnonzero(scores >= np.partition(scores, count - k)[count - k]) if k else found[:0]
    order: IntArray = found[np.lexsort((found, -scores[found]))[:k]]
    return order
