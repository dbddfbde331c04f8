"""The vector that a head weighs: a constant, the item's mean, then the item's own vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.head import Head, HeadPrior, logistic, ridge
from mark.personal.item_means import ItemMeans
from mark.personal.key_rows import PackedRows, RowArrays
from mark.personal.settings import SQUARED, PersonalSettings
from mark.personal.table import ItemTable

# The precision of the constant and of the item's mean, as a part of `ridge`.
_BIAS_RIDGE = 0.5
_BIASES = 2


class HeadFeatures:
    """Makes the vectors that heads weigh, and heads from rows. Vectors change with the means of items."""

    def __init__(self, settings: PersonalSettings, table: ItemTable | None, dimension: int, means: ItemMeans) -> None:
        self._table, self._means = table, means
        self._squared = settings.loss == SQUARED
        self.biases = _BIASES if settings.bias else 0
        self.dimension = self.biases + dimension
        weights, precision = np.zeros(self.dimension), np.full(self.dimension, settings.ridge)
        precision[: self.biases] *= _BIAS_RIDGE
        if self.biases:
            weights[1] = 1.0  # a new key gives an item the item's own mean
        self.by_item = HeadPrior(weights, precision)

    @property
    def offset(self) -> float:
        """The constant added to `weights . vector`: the mean of all rewards if heads have biases, else 0."""
        return self._means.center if self.biases else 0.0

    def matrix(self, slots: IntArray, vectors: NDArray[np.floating]) -> FloatArray:
        """Return the vector that heads weigh for each item, as rows."""
        found = np.empty((len(slots), self.dimension))
        if self.biases:
            found[:, 0] = 1.0
            found[:, 1] = self._means.above_center(slots)
        found[:, self.biases :] = vectors
        return found

    def row(self, slot: int, vector: NDArray[np.floating] | None) -> FloatArray:
        """Return the vector that heads weigh for one item; without `vector` the table has the item's own vector."""
        if vector is None:
            assert self._table is not None
            vector = self._table.vectors[slot]
        found = np.empty(self.dimension)
        if self.biases:
            found[0] = 1.0
            found[1] = self._means.above_center_of(slot)
        found[self.biases :] = vector
        return found

    def head(self, prior: HeadPrior, rows: RowArrays) -> Head:
        """Return the head after these rows. Items that the table lacks are left out."""
        slots, rewards, vectors = rows.slots, rows.rewards, rows.vectors
        if self._table is not None:
            known = slots < len(self._table)
            slots, rewards = slots[known], rewards[known]
            vectors = self._table.vectors[slots].astype(np.float64)
        matrix, offset = self.matrix(slots, vectors), self.offset
        if not self._squared:
            return logistic(prior, matrix, offset, rewards)
        if rows.packed is None:
            return ridge(prior, matrix, rewards - offset)
        return ridge(prior, matrix, rewards - offset, *self._sums(rows.packed))

    def fitting_all(self, unnamed: PackedRows) -> HeadPrior:
        """Return the prior whose weights fit the observations of all keys together.

        With a table it fits the mean rewards of items, weighted by their counts. Otherwise it fits `unnamed`, the sums
        of all rows without an item, because rows with an item have no sums.
        """
        if self._table is None:
            nothing = np.empty((0, self.dimension))
            found = ridge(self.by_item, nothing, np.empty(0), *self._sums(unnamed))
            return HeadPrior(found.weights, self.by_item.precision)
        slots = np.flatnonzero(self._means.counts(np.arange(len(self._table))))
        counts = self._means.counts(slots)
        rewards = self._means.sums(slots) / counts
        matrix = self.matrix(slots, self._table.vectors[slots])
        if self._squared:
            scale = np.sqrt(counts)
            found = ridge(self.by_item, matrix * scale[:, None], (rewards - self.offset) * scale)
        else:
            found = logistic(self.by_item, matrix, self.offset, rewards, counts)
        return HeadPrior(found.weights, self.by_item.precision)

    def _sums(self, packed: PackedRows) -> tuple[FloatArray, FloatArray]:
        """Return the sums for the vectors that heads weigh, in which rows without an item have 0 as the item's mean."""
        if not self.biases:
            return packed.gram[1:, 1:], packed.moment[1:]
        places = np.r_[0, self.biases : self.dimension]
        gram, moment = np.zeros((self.dimension, self.dimension)), np.zeros(self.dimension)
        gram[np.ix_(places, places)] = packed.gram
        moment[places] = packed.moment - self.offset * packed.gram[0]
        return gram, moment
