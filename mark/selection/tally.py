"""Discounted sums of losses, by candidate and by context, which all selection policies read.

Each fact carries a stamp: its number among the facts of its context that its writer knew. A fact weighs
`discount ** (newest stamp - stamp)`, so the sums are the same in any order of arrival.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# A candidate that was observed: its place, its loss, and the probability with which it was asked.
Observed = tuple[int, float, float]

_COLUMNS = 3  # of each candidate: count, loss, weighted
_HEAD = 3  # before them: the newest stamp, the number of facts, and the newest stamp among the facts of all contexts
_PER_BUCKET = 16  # mean number of contexts in a hash bucket of a full store


class Sums(NamedTuple):
    """Sums over the facts of one context, by candidate.

    `counts` are discounted numbers of observed losses, `losses` their sums (each loss is 0 to 1), and `weighted` the
    sums of loss / propensity, which estimate the loss that a candidate would have had on every query.
    """

    counts: Sequence[float]
    losses: Sequence[float]
    weighted: Sequence[float]

    def mean(self, candidate: int, prior: float = 0.5, prior_count: float = 1.0) -> float:
        """Return the mean loss of a candidate, shrunk towards `prior` as if observed `prior_count` times."""
        return (self.losses[candidate] + prior * prior_count) / (self.counts[candidate] + prior_count)


class LossTally:
    """The sums of one context with `candidates` models. Each later fact multiplies a fact's weight by `discount`.

    Each fact replaces `sums` by a new object, so that a query keeps the sums that it began with.
    """

    __slots__ = ("_discount", "facts", "newest", "sums")

    def __init__(self, candidates: int, discount: float) -> None:
        if not 0.0 < discount <= 1.0:
            raise ValueError("a discount is above 0 and 1 at most")
        self._discount = discount
        self.newest, self.facts = 0, 0
        zeros = [0.0] * candidates
        self.sums = Sums(zeros, zeros, zeros)

    def add(self, stamp: int, observed: Sequence[Observed]) -> None:
        """Add a fact."""
        values, weight = [*self.sums.counts, *self.sums.losses, *self.sums.weighted], 1.0
        n = len(self.sums.counts)
        if stamp > self.newest:
            values = _faded(values, self._discount ** (stamp - self.newest))
            self.newest = stamp
        else:
            weight = self._discount ** (self.newest - stamp)
        _put(values, 0, n, weight, observed)
        self.facts += 1
        self.sums = Sums(values[:n], values[n : 2 * n], values[2 * n :])

    def dump(self) -> list[float]:
        """Return the tally as a row: newest stamp, number of facts, then the columns."""
        return [self.newest, self.facts, *self.sums.counts, *self.sums.losses, *self.sums.weighted]

    def load(self, row: Sequence[float]) -> None:
        """Replace the sums with those of a row. Raises ValueError for another number of candidates."""
        n = len(self.sums.counts)
        newest, facts, *values = row
        if len(values) != _COLUMNS * n:
            raise ValueError("the sums are of another number of candidates")
        self.newest, self.facts = int(newest), int(facts)
        self.sums = Sums(values[:n], values[n : 2 * n], values[2 * n :])


class Tallies:
    """The sums of many contexts, which are named by 64-bit digests of their keys.

    Beyond `most` contexts, a new one replaces the context in its hash bucket whose last fact is the oldest. Processes
    may then remember different contexts, but differ in nothing else. A million contexts with five candidates take
    182 MB.
    """

    def __init__(self, candidates: int, discount: float, most: int = 1_000_000) -> None:
        if not 0.0 < discount <= 1.0:
            raise ValueError("a discount is above 0 and 1 at most")
        self.candidates, self.discount, self.most = candidates, discount, most
        self._width = _COLUMNS * candidates + _HEAD
        self._buckets = 1 << max(0, most // _PER_BUCKET - 1).bit_length()
        # By bucket: the contexts' digests, and their rows one after another. With a dictionary, keys and places would
        # take more than half of the memory.
        self._tags: list[array[int] | None] = [None] * self._buckets
        self._rows: list[array[float] | None] = [None] * self._buckets
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def facts(self, context: int) -> int:
        """Return the number of facts of a context."""
        row = self._row(context)
        return 0 if row is None else int(row[1])

    def sums(self, context: int) -> Sums | None:
        """Return the sums of a context; None if it has no facts."""
        row, n = self._row(context), self.candidates
        if row is None:
            return None
        values = row.tolist()
        return Sums(values[_HEAD : _HEAD + n], values[_HEAD + n : _HEAD + 2 * n], values[_HEAD + 2 * n :])

    def add(self, context: int, stamp: int, stamp_all: int, observed: Sequence[Observed]) -> None:
        """Add a fact. `stamp_all` is its stamp among the facts of all contexts."""
        rows, at = self._place(context)
        if rows is None:
            rows, at = self._new(context)
        width = self._width
        values, weight = rows[at : at + width].tolist(), 1.0
        if stamp > values[0]:
            newest, facts, newest_all, *sums = values
            values = [stamp, facts, newest_all, *_faded(sums, self.discount ** (stamp - newest))]
        else:
            weight = self.discount ** (values[0] - stamp)
        values[1] += 1.0
        values[2] = max(values[2], stamp_all)
        _put(values, _HEAD, self.candidates, weight, observed)
        rows[at : at + width] = array("d", values)

    def dump(self) -> bytes:
        """Return all contexts as bytes, little-endian: their number in 8 bytes, the digests, then the rows."""
        parts = [self._count.to_bytes(8, "little")]
        parts += [_little(one) for one in self._tags if one is not None]
        parts += [_little(one) for one in self._rows if one is not None]
        return b"".join(parts)

    def load(self, data: bytes | memoryview, places: Sequence[int | None], theirs: int) -> None:
        """Replace all contexts by those of a dump with `theirs` candidates. Raises ValueError for damaged data.

        `places` gives the place of each candidate in the dump; None means that it begins without facts.
        """
        count, width = int.from_bytes(data[:8], "little"), _COLUMNS * theirs + _HEAD
        if len(data) != 8 + 8 * count * (1 + width):
            raise ValueError("the sums of contexts are cut short")
        tags = np.frombuffer(data, "<u8", count, 8)
        rows = np.frombuffer(data, "<f8", count * width, 8 + 8 * count).reshape(count, width)
        if not np.isfinite(rows).all():
            raise ValueError("the sums of contexts are no finite numbers")
        if count > self.most:  # of a process with a higher limit
            kept = np.sort(np.argsort(rows[:, 2], kind="stable")[count - self.most :])
            tags, rows, count = tags[kept], rows[kept], self.most
        if list(places) != list(range(theirs)):
            rows = _moved(rows, places, theirs)
        bucket = (tags & np.uint64(self._buckets - 1)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        tags, rows, bucket = tags[order], rows[order], bucket[order]
        self._tags, self._rows = [None] * self._buckets, [None] * self._buckets
        first = 0
        for last in [*np.flatnonzero(np.diff(bucket)) + 1, count] if count else []:
            at = int(bucket[first])
            own_tags, own_rows = array("Q"), array("d")
            own_tags.frombytes(tags[first:last].astype(np.uint64).tobytes())
            own_rows.frombytes(rows[first:last].astype(np.float64).tobytes())
            self._tags[at], self._rows[at] = own_tags, own_rows
            first = last
        self._count = count

    def _row(self, context: int) -> array[float] | None:
        rows, at = self._place(context)
        return None if rows is None else rows[at : at + self._width]

    def _place(self, context: int) -> tuple[array[float] | None, int]:
        """Return the rows that include the context's, and where its row begins; None if it has no row."""
        bucket = context & (self._buckets - 1)
        tags = self._tags[bucket]
        if tags is None:
            return None, 0
        try:
            return self._rows[bucket], tags.index(context) * self._width
        except ValueError:
            return None, 0

    def _new(self, context: int) -> tuple[array[float], int]:
        bucket, width = context & (self._buckets - 1), self._width
        tags, rows = self._tags[bucket] or array("Q"), self._rows[bucket] or array("d")
        if self._count >= self.most and tags:
            at = min(range(len(tags)), key=lambda one: (rows[one * width + 2], tags[one]))
            rows[at * width : (at + 1) * width] = array("d", bytes(8 * width))
            tags[at] = context  # last, because another thread may ask how many facts a context has
            return rows, at * width
        # New arrays, because arrays that grow take a sixteenth more than they need.
        rows = self._rows[bucket] = rows + array("d", bytes(8 * width))
        self._tags[bucket] = tags + array("Q", (context,))
        self._count += 1
        return rows, len(tags) * width


def _faded(values: list[float], by: float) -> list[float]:
    return values if by == 1.0 else [by * one for one in values]


def _put(values: list[float], first: int, n: int, weight: float, observed: Sequence[Observed]) -> None:
    for candidate, loss, propensity in observed:
        at = first + candidate
        values[at] += weight
        if loss:
            values[at + n] += weight * loss
            values[at + 2 * n] += weight * loss / propensity


def _moved(rows: npt.NDArray[np.float64], places: Sequence[int | None], theirs: int) -> npt.NDArray[np.float64]:
    """Return the rows with the candidates at their `places`; new candidates have zeros."""
    found = np.zeros((len(rows), _HEAD + _COLUMNS * len(places)))
    found[:, :_HEAD] = rows[:, :_HEAD]
    for candidate, at in enumerate(places):
        if at is not None:
            for column in range(_COLUMNS):
                found[:, _HEAD + column * len(places) + candidate] = rows[:, _HEAD + column * theirs + at]
    return found


def _little(values: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def discount_of(half_life: float) -> float:
    """Return the discount that halves a fact's weight over `half_life` later facts; 1 if that is infinite."""
    discount: float = 0.5 ** (1.0 / half_life)
    return discount
