"""Rank items, explore those with uncertain scores, and return the propensity of each place.

`greedy` ranks by scores, `linucb` adds the uncertainty of the key's head, `item` adds that and the uncertainty of the
item's own mean, and `thompson` draws scores. Places are filled one after the other. A propensity is the probability of
an item for its place, given the places before.
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
    """The numbers of the shown candidates in the order of places, with the propensity of each."""

    numbers: IntArray
    propensities: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class CandidateScores:
    """Scores to rank by, and the variances that come from the key's head and from the items' means."""

    values: FloatArray
    by_key: FloatArray
    by_item: FloatArray


def spread(policy: str, scores: CandidateScores) -> FloatArray:
    """Return the standard deviations that a policy adds to the scores after multiplying them by `alpha`."""
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
    """Return the first `k` places. Without `draw` the ranking is greedy, and each propensity is 1.

    `scores` belong to the candidates with these `numbers`. `pool` has the numbers of all candidates, if `scores` has
    only some of them. Thompson sampling makes 64 rankings by independent normal draws for each candidate, and each
    place takes a random one of them, so that propensities are exact, given these rankings.
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
    """Fill each place from a random row of `scores`, or with the probability `share` uniformly from the pool."""
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
    """Return the numbers of the `k` highest scores, the highest first; of equal scores the lower number first."""
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
