"""Mean rewards of items, learned online and shrunk toward the mean of all rewards.

The state is a count and a sum for each item, so the order of observations does not matter, and the rows of a deleted
key can be subtracted. Items are numbered ("slots") in the order of their first mention.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.settings import SQUARED

NO_ITEM = -1  # the slot of an observation that names no item
_SHRINK = 5.0  # every item's mean begins with so many observations of the mean of all rewards
_UNSEEN = 3.0  # every item's variance begins with so many observations
_SLOT_BYTES = 150  # with the name


class ItemMeans:
    """Counts and sums of rewards, by item and in all. With the logistic loss, means are logits of shrunk rates."""

    def __init__(self, loss: str = SQUARED, names: Iterable[str] = ()) -> None:
        self._squared = loss == SQUARED
        self.names = list(names)
        self._slots = {name: at for at, name in enumerate(self.names)}
        room = max(64, len(self.names))
        self._counts, self._sums = np.zeros(room), np.zeros(room)
        self.count, self._sum = 0.0, 0.0

    @property
    def memory_bytes(self) -> int:
        """The memory of the means, roughly."""
        return self._counts.nbytes + self._sums.nbytes + _SLOT_BYTES * len(self.names)

    def find(self, name: str) -> int:
        """Return the slot of an item, `NO_ITEM` for an unknown one."""
        return self._slots.get(name, NO_ITEM)

    def slot(self, name: str | None) -> int:
        """Return the slot of an item; a new name gets a new slot."""
        if name is None:
            return NO_ITEM
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = len(self.names)
            self.names.append(name)
            if slot == len(self._counts):
                self._counts = np.concatenate((self._counts, np.zeros(slot)))
                self._sums = np.concatenate((self._sums, np.zeros(slot)))
        return slot

    def name(self, slot: int) -> str | None:
        """Return the name of a slot; None for `NO_ITEM`."""
        return None if slot == NO_ITEM else self.names[slot]

    def add(self, slot: int, reward: float) -> None:
        """Count a reward."""
        self.count += 1.0
        self._sum += reward
        if slot != NO_ITEM:
            self._counts[slot] += 1.0
            self._sums[slot] += reward

    def change(self, slots: IntArray, rewards: FloatArray, times: float = 1.0) -> None:
        """Count rewards of these slots; with `times = -1` subtract them."""
        self.change_total(float(len(rewards)), float(rewards.sum()), times)
        named = slots != NO_ITEM
        np.add.at(self._counts, slots[named], times)
        np.add.at(self._sums, slots[named], times * rewards[named])
        # Without this, the rounding error of removed rewards would stay as the mean of an item without rewards.
        self._sums[self._counts == 0.0] = 0.0

    def change_total(self, count: float, total: float, times: float = 1.0) -> None:
        """Count rewards without an item, given by their number and sum."""
        self.count += times * count
        self._sum = self._sum + times * total if self.count else 0.0

    @property
    def center(self) -> float:
        """The mean of all rewards, as a logit with the logistic loss; 0 before the first reward."""
        if self._squared:
            return self._sum / self.count if self.count else 0.0
        return _logit(self._rate)

    @property
    def _rate(self) -> float:
        return min(1.0, max(0.0, self._sum + 0.5) / (self.count + 1.0))

    def above_center(self, slots: IntArray) -> FloatArray:
        """Return the shrunk mean of each item minus `center`; 0 for `NO_ITEM`."""
        return np.where(slots == NO_ITEM, 0.0, self._above(self._counts[slots], self._sums[slots]))

    def above_center_of_first(self, count: int) -> FloatArray:
        """Return `above_center` of the slots below `count`, in half of the time."""
        return self._above(self._counts[:count], self._sums[:count])

    def _above(self, counts: FloatArray, sums: FloatArray) -> FloatArray:
        found: FloatArray
        if self._squared:
            found = (sums - counts * self.center) / (counts + _SHRINK)
        else:
            rate = self._rate
            share = np.clip((sums + _SHRINK * rate) / (counts + _SHRINK), 1e-9, 1.0 - 1e-9)
            found = np.log(share / (1.0 - share)) - _logit(rate)
        return found

    def above_center_of(self, slot: int) -> float:
        """Return `above_center` of one slot, in a tenth of the time."""
        if slot == NO_ITEM:
            return 0.0
        if not self._squared:
            return float(self.above_center(np.array([slot]))[0])
        count = float(self._counts[slot])
        return (float(self._sums[slot]) - count * self.center) / (count + _SHRINK)

    def variances(self, slots: IntArray) -> FloatArray:
        """Return the variance of each item's mean, 1 / (n + 3), for noise of variance 1; `NO_ITEM` counts as new."""
        return 1.0 / (self.counts(slots) + _UNSEEN)

    def variances_of_first(self, count: int) -> FloatArray:
        """Return `variances` of the slots below `count`."""
        found: FloatArray = 1.0 / (self._counts[:count] + _UNSEEN)
        return found

    def counts(self, slots: IntArray) -> FloatArray:
        """Return the number of rewards of each item."""
        return np.where(slots == NO_ITEM, 0.0, self._counts[slots])

    def sums(self, slots: IntArray) -> FloatArray:
        """Return the sum of each item's rewards."""
        return np.where(slots == NO_ITEM, 0.0, self._sums[slots])


def _logit(rate: float) -> float:
    rate = min(1.0 - 1e-9, max(1e-9, rate))
    return float(np.log(rate / (1.0 - rate)))
