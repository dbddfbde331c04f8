"""The observations of one key: a row each, and beyond some rows the sums that ridge regression needs of them.

Only rows with a vector and without an item are added to the sums: the mean of an item still moves, and with it the row.
Rows of the last hour are kept as rows, so that a deletion that arrives late removes exactly the rows before it.
"""

from __future__ import annotations

import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.personal.item_means import NO_ITEM

PACKED_AFTER_S = 3600.0
_LEAST_PACKED = 32  # rows; fewer take less memory than their sums
_ROW_BYTES, _KEY_BYTES = 23, 850


@dataclass(slots=True, eq=False)
class PackedRows:
    """Sums of rows without an item, where z is the vector behind a constant of 1."""

    gram: FloatArray  # of z z'; its corner counts the rows
    moment: FloatArray  # of z times the reward; its first number is the sum of rewards
    oldest_s: float = math.inf
    newest_s: float = -math.inf

    @staticmethod
    def empty(dimension: int) -> PackedRows:
        return PackedRows(np.zeros((dimension + 1, dimension + 1)), np.zeros(dimension + 1))

    def copy(self) -> PackedRows:
        return PackedRows(self.gram.copy(), self.moment.copy(), self.oldest_s, self.newest_s)

    @property
    def rows(self) -> int:
        return round(float(self.gram[0, 0]))

    @property
    def memory_bytes(self) -> int:
        return self.gram.nbytes + self.moment.nbytes + 200

    def add(self, vectors: FloatArray, rewards: FloatArray, times: float = 1.0) -> None:
        """Add rows; with `times = -1` take them out."""
        extended = np.concatenate((np.ones((len(rewards), 1)), vectors), axis=1)
        self.gram += times * (extended.T @ extended)
        self.moment += times * (extended.T @ rewards)

    def merge(self, other: PackedRows, times: float = 1.0) -> None:
        """Add the rows of other sums; with `times = -1` take them out."""
        self.gram += times * other.gram
        self.moment += times * other.moment


@dataclass(frozen=True, slots=True, eq=False)
class RowArrays:
    """Rows as arrays, and the sums of the rows that are packed."""

    slots: IntArray
    rewards: FloatArray
    vectors: FloatArray  # (rows, 0) where vectors come from a table
    packed: PackedRows | None = None


class FrozenRows(NamedTuple):
    """The first `rows` observations of a key, while more are added.

    The arrays are those of `KeyRows`, because it appends to them, and removes rows by replacing them.
    """

    rows: int
    dimension: int
    slots: array[int]
    rewards: array[float]
    times: array[float]
    vectors: array[float]
    judged: int
    squares: float
    packed: PackedRows | None

    def to_bytes(self, name: Callable[[int], str | None]) -> bytes:
        """The observations with the names of their items."""
        rows = self.rows
        said: dict[str, Any] = {
            "items": [name(slot) for slot in self.slots[:rows]],
            "rewards": self.rewards[:rows].tolist(),
            "times": self.times[:rows].tolist(),
            "vectors": _text(self.vectors[: rows * self.dimension]),
            "judged": [self.judged, self.squares],
        }
        if self.packed is not None:
            sums = self.packed
            said["packed"] = [_text(sums.gram), _text(sums.moment), sums.oldest_s, sums.newest_s]
        return orjson.dumps(said)


class KeyRows:
    """Observations of a key. `dimension` is that of the vectors in the rows, 0 where they come from a table.

    `judged` and `squares` are the count and the sum of squared errors of predictions before their reward was known.
    """

    __slots__ = (
        *("_dimension", "_pack_at", "_rewards", "_slots", "_times", "_vectors"),
        *("judged", "newest_s", "packed", "squares"),
    )

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._slots, self._rewards, self._times = array("i"), array("d"), array("d")
        self._vectors = array("f")
        self.packed: PackedRows | None = None
        self.newest_s = -math.inf
        self._pack_at = max(_LEAST_PACKED, dimension) + 1
        self.judged, self.squares = 0, 0.0

    @property
    def count(self) -> int:
        """All observations, packed ones included."""
        return len(self._rewards) + (self.packed.rows if self.packed is not None else 0)

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes, roughly."""
        each = _ROW_BYTES + 4 * self._dimension
        return _KEY_BYTES + each * len(self._rewards) + (self.packed.memory_bytes if self.packed is not None else 0)

    def add(self, slot: int, reward: float, at_s: float, vector: NDArray[np.float32] | None) -> None:
        """Add an observation. `vector` is needed where `dimension` is not 0."""
        self._slots.append(slot)
        self._rewards.append(reward)
        self._times.append(at_s)
        if self._dimension:
            assert vector is not None
            self._vectors.frombytes(vector.tobytes())
        self.newest_s = max(self.newest_s, at_s)

    def arrays(self) -> RowArrays:
        """All observations."""
        slots = np.array(self._slots, dtype=np.int64)
        vectors = np.array(self._vectors, dtype=np.float64).reshape(len(slots), self._dimension)
        return RowArrays(slots, np.array(self._rewards, dtype=np.float64), vectors, self.packed)

    def pack(self) -> None:
        """Add older rows without an item to the sums, where that takes less memory."""
        rows, least = len(self._rewards), max(_LEAST_PACKED, self._dimension)
        if not self._dimension or rows < self._pack_at:
            return
        times = np.array(self._times)
        old = (np.array(self._slots) == NO_ITEM) & (times < self.newest_s - PACKED_AFTER_S)
        if old.sum() > least:
            if self.packed is None:
                self.packed = PackedRows.empty(self._dimension)
            found = self.arrays()
            self.packed.add(found.vectors[old], found.rewards[old])
            self.packed.oldest_s = min(self.packed.oldest_s, float(times[old].min()))
            self.packed.newest_s = max(self.packed.newest_s, float(times[old].max()))
            self._keep(~old, found)
        # Rows that stay are looked at again only after their number has grown, which keeps an observation cheap.
        self._pack_at = len(self._rewards) + max(least, len(self._rewards) // 4)

    def drop(self, until_s: float) -> RowArrays:
        """Remove the observations until this time, and return them. Sums that hold one of them are removed whole."""
        found = self.arrays()
        gone = np.array(self._times) <= until_s
        packed = self.packed if self.packed is not None and self.packed.oldest_s <= until_s else None
        if packed is not None:
            self.packed = None
        self._keep(~gone, found)
        return RowArrays(found.slots[gone], found.rewards[gone], found.vectors[gone], packed)

    def _keep(self, kept: BoolArray, found: RowArrays) -> None:
        times = np.array(self._times)[kept]
        self._slots = array("i", found.slots[kept].astype(np.int32).tobytes())
        self._rewards = array("d", found.rewards[kept].tobytes())
        self._times = array("d", times.tobytes())
        self._vectors = array("f", found.vectors[kept].astype(np.float32).tobytes())
        packed_s = self.packed.newest_s if self.packed is not None else -math.inf
        self.newest_s = max(packed_s, float(times.max(initial=-math.inf)))

    def to_bytes(self, name: Callable[[int], str | None]) -> bytes:
        """The observations with the names of their items."""
        return self.freeze().to_bytes(name)

    def freeze(self) -> FrozenRows:
        """The observations so far, for another thread. Packed sums are copied, because they change in place."""
        packed = None if self.packed is None else self.packed.copy()
        parts = self._slots, self._rewards, self._times, self._vectors
        return FrozenRows(len(self._rewards), self._dimension, *parts, self.judged, self.squares, packed)

    @staticmethod
    def of_bytes(data: bytes, dimension: int, slot: Callable[[str | None], int]) -> KeyRows:
        """The observations that `to_bytes` wrote. Raises ValueError."""
        try:
            said = orjson.loads(data)
            found = KeyRows(dimension)
            found._slots = array("i", map(slot, said["items"]))
            found._rewards, found._times = array("d", said["rewards"]), array("d", said["times"])
            found._vectors = array("f", b64decode(said["vectors"], validate=True))
            found.judged, found.squares = int(said["judged"][0]), float(said["judged"][1])
            if "packed" in said:
                gram, moment, oldest_s, newest_s = said["packed"]
                sums = np.frombuffer(b64decode(gram, validate=True)).reshape(dimension + 1, dimension + 1).copy()
                products = np.frombuffer(b64decode(moment, validate=True)).reshape(dimension + 1).copy()
                found.packed = PackedRows(sums, products, float(oldest_s), float(newest_s))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no rows of a key ({error})") from None
        rows = len(found._rewards)
        lengths = (len(found._slots), len(found._times), len(found._vectors))
        if lengths != (rows, rows, rows * dimension):
            raise ValueError("the rows of a key have parts of different lengths")
        newest_s = found.packed.newest_s if found.packed is not None else -math.inf
        found.newest_s = max([newest_s, *found._times])
        return found


def _text(values: array[float] | FloatArray) -> str:
    return b64encode(values.tobytes()).decode()
