"""Find the best items of a table: exactly by upper bounds, if exact scores cost much, or nearly by an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.extras import module_of
from mark.personal.explore import best

# An exact search of so many items takes 0.1 ms, so an index of fewer items would save nothing.
INDEXED_FROM = 10_000
_LEAST_ASKED, _ASKED_TIMES = 300, 30  # candidates from an index: enough for a recall of 0.98 at 100,000 items
_FIRST_STEP = 64


class NearItems(Protocol):
    """An index of item vectors, in which each vector begins with the item's mean if heads use means."""

    def near(self, query: FloatArray, count: int) -> IntArray:
        """Return the numbers of about the `count` items with the greatest inner product, in any order."""
        ...


class UsearchItems:
    """An HNSW graph (usearch) of `vectors`; building takes a second for 1,000 to 2,000 rows.

    Raises BadInput if usearch is not installed.
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        usearch = module_of("usearch.index", "[personal] table")
        self._index: Any = usearch.Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
        self._index.add(np.arange(len(vectors)), vectors, threads=1)

    def near(self, query: FloatArray, count: int) -> IntArray:
        found = self._index.search(query.astype(np.float32), count)
        return np.asarray(found.keys, dtype=np.int64)


_fits: type[NearItems] = UsearchItems


def asked_of_index(k: int) -> int:
    """Return the number of candidates to ask an index for, to find `k` items."""
    return max(_LEAST_ASKED, _ASKED_TIMES * k)


def best_by_bound(
    bounds: FloatArray, exact: Callable[[IntArray], FloatArray], k: int, most: int | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the `k` items with the highest exact scores, and these scores. No score may be above its bound.

    Scores are computed in the order of bounds, until no other item can be among the best, or until there are `most`
    scores.
    """
    step = max(k, _FIRST_STEP)
    order = best(bounds, step)
    found, scores = np.empty(0, dtype=np.int64), np.empty(0)
    begin = 0
    while begin < (len(bounds) if most is None else min(most, len(bounds))):
        if begin >= len(order):
            step *= 2
            order = best(bounds, min(len(bounds), 4 * step))
        if len(found) >= k and bounds[order[begin]] <= np.partition(scores, len(scores) - k)[len(scores) - k]:
            break
        part = order[begin : begin + step]
        found, scores = np.concatenate((found, part)), np.concatenate((scores, exact(part)))
        begin += len(part)
    first = best(scores, k)
    return found[first], scores[first]
