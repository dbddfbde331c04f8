"""Rank items for a head. Of a whole table, only items that may be among the best get exact scores and variances."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.explore import CandidateScores, RankedPlaces, best, ranked, spread
from mark.personal.features import HeadFeatures
from mark.personal.head import Head, sigmoid
from mark.personal.item_means import ItemMeans
from mark.personal.settings import GREEDY, SQUARED, THOMPSON, PersonalSettings
from mark.personal.table import ItemTable
from mark.personal.top import INDEXED_FROM, NearItems, asked_of_index, best_by_bound

# Thompson sampling draws among `_SHORTLIST` items of a table: of the `_SHORTLIST_OF` items with the highest bounds,
# those with the highest score plus three standard deviations.
_SHORTLIST, _SHORTLIST_OF, _SHORTLIST_SIGMAS = 256, 2048, 3.0


class HeadRanking:
    """Ranks by the policy of `[personal] explore`; without `draw` the ranking is greedy.

    `noise` is the variance of a reward around its prediction. The means of items may change between two rankings.
    """

    def __init__(
        self, settings: PersonalSettings, table: ItemTable | None, features: HeadFeatures, means: ItemMeans
    ) -> None:
        self._explore, self._squared = settings.explore, settings.loss == SQUARED
        self._given_table, self._features, self._means = table, features, means

    def of_items(
        self,
        head: Head,
        noise: float,
        k: int,
        draw: np.random.Generator | None,
        slots: IntArray,
        vectors: NDArray[np.floating],
    ) -> RankedPlaces:
        """Return the first `k` of items with these slots and vectors, by their position among these."""
        return ranked(self._explore, self._candidates(head, noise, slots, vectors), k, draw)

    def of_table(
        self,
        head: Head,
        noise: float,
        k: int,
        draw: np.random.Generator | None,
        exclude: Collection[str],
        near: NearItems | None,
    ) -> RankedPlaces:
        """Return the first `k` of the whole table without the excluded items, by their numbers.

        A greedy ranking of a large table asks the index `near`, if there is one.
        """
        table, explore, biases = self._table, self._explore, self._features.biases
        excluded = [table.numbers[name] for name in exclude if name in table.numbers]
        k = min(k, len(table) - len(set(excluded)))
        explores = draw is not None and (explore.policy != GREEDY or explore.share > 0.0)
        if not explores and near is not None and len(table) > INDEXED_FROM:
            asked = asked_of_index(k) + len(excluded)
            query = head.weights[1:] if biases else head.weights
            found = np.setdiff1d(near.near(query, asked), excluded)
            if len(found) >= k:
                return ranked(explore, self._of_numbers(head, noise, found), k, None, found)
        above = self._means.above_center_of_first(len(table))
        values = (table.vectors @ head.weights[biases:].astype(np.float32)).astype(np.float64) + self._features.offset
        if biases:
            values += head.weights[0] + head.weights[1] * above
        values[excluded] = -np.inf
        if not explores:
            # float32 may swap items that are equal to seven digits, so a few more are scored exactly.
            found = best(values, k + len(excluded) + 8)
            found = found[values[found] > -np.inf]
            return ranked(explore, self._of_numbers(head, noise, found), k, None, found)
        found = self._may_be_best(head, noise, k, values, above)
        pool = np.flatnonzero(values > -np.inf) if explore.share else None
        return ranked(explore, self._of_numbers(head, noise, found), k, draw, found, pool)

    def index_rows(self) -> NDArray[np.float32]:
        """Return the rows of an index for `near`: the items' means if heads use them, then the vectors of the table."""
        if not self._features.biases:
            return self._table.vectors
        above = self._means.above_center_of_first(len(self._table)).astype(np.float32)
        return np.concatenate((above[:, None], self._table.vectors), axis=1)

    @property
    def _table(self) -> ItemTable:
        assert self._given_table is not None
        return self._given_table

    def _of_numbers(self, head: Head, noise: float, numbers: IntArray) -> CandidateScores:
        return self._candidates(head, noise, numbers, self._table.vectors[numbers])

    def _candidates(self, head: Head, noise: float, slots: IntArray, vectors: NDArray[np.floating]) -> CandidateScores:
        matrix = self._features.matrix(slots, vectors)
        values = matrix @ head.weights + self._features.offset
        by_item = self._by_item(noise, self._means.variances(slots))
        return CandidateScores(values, noise * head.variances(matrix), by_item)

    def _by_item(self, noise: float, variances: FloatArray) -> FloatArray:
        """Scale variances of items' means, which are for noise of variance 1, to the present noise or to logits."""
        if self._squared:
            return noise * variances
        share = sigmoid(self._means.center)
        return variances / (share * (1.0 - share))

    def _may_be_best(self, head: Head, noise: float, k: int, values: FloatArray, above: FloatArray) -> IntArray:
        """Return the items of the table that the policy ranks first: `k`, or a shortlist if it draws."""
        table, explore = self._table, self._explore
        draws = explore.policy == THOMPSON
        alpha = explore.alpha * (_SHORTLIST_SIGMAS if draws else 1.0)
        # The variance of the prior is a bound, because observations only lower it.
        precision = self._features.by_item.precision
        by_vector = table.squares / precision[-1]
        by_key = by_vector
        if self._features.biases:
            # The biases' variance is known exactly, and the deviation of a sum is at most the sum of the deviations.
            (constant, _), (both, mean) = head.inverse[:2, :2]  # only the lower triangle is kept
            by_biases = np.maximum(0.0, constant + above * (2.0 * both + above * mean))
            by_key = by_vector + 1.0 / precision[0] + above**2 / precision[1]
            by_key = np.minimum(by_key, (np.sqrt(by_vector) + np.sqrt(by_biases)) ** 2)
        by_item = self._by_item(noise, self._means.variances_of_first(len(table)))
        bounds = values + alpha * spread(explore.policy, CandidateScores(values, noise * by_key, by_item))

        def exact(numbers: IntArray) -> FloatArray:
            found = self._of_numbers(head, noise, numbers)
            return np.where(values[numbers] > -np.inf, found.values + alpha * spread(explore.policy, found), -np.inf)

        # Draws need no exact shortlist, and an exact one would need the variances of most items.
        first, most = (max(k, _SHORTLIST), max(k, _SHORTLIST_OF)) if draws else (k, None)
        numbers, scores = best_by_bound(bounds, exact, first, most)
        return numbers[scores > -np.inf]
