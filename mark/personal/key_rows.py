"""The observations of one key: a row for each, or for many older ones the sums that ridge regression needs.

Only rows with a vector and without an item are packed into sums, because the mean of an item still moves, and with it
the vector that heads weigh. Rows of the last hour stay rows, so that a late deletion removes exactly older rows.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.personal.item_means import NO_ITEM

PACKED_AFTER_S = 3600.0
SAVED, USED = 1, 2  # the store has all rows; they were used since eviction last passed them
_COPIED_BYTES = 4096  # from this size on rows are appended in place
_LEAST_PACKED = 32  # rows; fewer take less memory than their sums
_ROW_BYTES, _KEY_BYTES = 21, 300  # measured: 709 bytes for a key with 20 rows of a table
_ROW = Struct("<idd")  # the beginning of a record


@dataclass(slots=True, eq=False)
class PackedRows:
    """Sums over rows without an item, where z is a constant of 1 followed by the row's vector."""

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
        """Add rows; with `times = -1` subtract them."""
        extended = np.concatenate((np.ones((len(rewards), 1)), vectors), axis=1)
        self.gram += times * (extended.T @ extended)
        self.moment += times * (extended.T @ rewards)

    def merge(self, other: PackedRows, times: float = 1.0) -> None:
        """Add other sums; with `times = -1` subtract them."""
        self.gram += times * other.gram
        self.moment += times * other.moment


@dataclass(frozen=True, slots=True, eq=False)
class RowArrays:
    """Rows as arrays, and the sums of packed rows."""

    slots: IntArray
    rewards: FloatArray
    vectors: FloatArray  # (rows, 0) if vectors come from a table
    packed: PackedRows | None = None


@cache
def _record(dimension: int) -> np.dtype[np.void]:
    """Return the layout of a row in memory. One buffer for a key takes a third less than an array for each field."""
    return np.dtype([("slot", "<i4"), ("reward", "<f8"), ("at_s", "<f8"), ("vector", "<f4", (dimension,))])


class FrozenRows(NamedTuple):
    """The first `rows` observations of a key, unaffected by later changes.

    It shares the buffer of `KeyRows`, which only appends to a buffer, and replaces it to remove rows.
    """

    rows: int
    dimension: int
    buffer: bytes | bytearray
    judged: int
    squares: float
    packed: PackedRows | None

    def records(self) -> NDArray[np.void]:
        """Return the observations, with the fields slot, reward, at_s and vector."""
        record = _record(self.dimension)
        return np.frombuffer(bytes(self.buffer[: self.rows * record.itemsize]), dtype=record)

    def to_bytes(self, name: Callable[[int], str | None]) -> bytes:
        """Return the observations with the names of their items, as JSON."""
        rows = self.records()
        said: dict[str, Any] = {
            "items": [name(slot) for slot in rows["slot"].tolist()],
            "rewards": rows["reward"].tolist(),
            "times": rows["at_s"].tolist(),
            "vectors": _text(rows["vector"]),
            "judged": [self.judged, self.squares],
        }
        if self.packed is not None:
            sums = self.packed
            said["packed"] = [_text(sums.gram), _text(sums.moment), sums.oldest_s, sums.newest_s]
        return orjson.dumps(said)


class KeyRows:
    """Observations of a key. `dimension` is the length of the vectors in the rows, 0 if vectors come from a table.

    `judged` and `squares` are the number and the sum of squared errors of predictions made before their rewards.
    """

    __slots__ = ("_buffer", "_dimension", "judged", "packed", "squares", "state")

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        # Bytes take a fifth less memory than a bytearray, but each new row copies them.
        self._buffer: bytes | bytearray = b""
        self.packed: PackedRows | None = None
        self.judged, self.squares = 0, 0.0
        self.state = 0  # SAVED, USED or both: one number, because a million keys may be in memory

    @property
    def _rows(self) -> int:
        return len(self._buffer) // (_ROW.size + 4 * self._dimension)

    @property
    def newest_s(self) -> float:
        """The time of the newest observation."""
        packed_s = self.packed.newest_s if self.packed is not None else -math.inf
        return max(packed_s, float(self._records()["at_s"].max(initial=-math.inf)))

    def is_before(self, at_s: float) -> bool:
        """Return whether all observations are from before this time."""
        if self._buffer:  # for most keys the last row decides, which is quick to read
            last = len(self._buffer) - _ROW.size - 4 * self._dimension
            if _ROW.unpack_from(self._buffer, last)[2] >= at_s:
                return False
        return self.newest_s < at_s

    @property
    def count(self) -> int:
        """The number of all observations, packed ones included."""
        return self._rows + (self.packed.rows if self.packed is not None else 0)

    @property
    def memory_bytes(self) -> int:
        """The memory of the rows, roughly."""
        each = _ROW_BYTES + 4 * self._dimension + self._dimension // 4
        return _KEY_BYTES + each * self._rows + (self.packed.memory_bytes if self.packed is not None else 0)

    def add(self, slot: int, reward: float, at_s: float, vector: NDArray[np.float32] | None) -> None:
        """Add an observation. `vector` is needed unless `dimension` is 0."""
        row = _ROW.pack(slot, reward, at_s)
        if self._dimension:
            assert vector is not None
            row += vector.tobytes()
        if len(self._buffer) >= _COPIED_BYTES and isinstance(self._buffer, bytes):
            self._buffer = bytearray(self._buffer)
        self._buffer += row

    def arrays(self) -> RowArrays:
        """Return all observations."""
        rows = self._records()
        slots, vectors = rows["slot"].astype(np.int64), rows["vector"].astype(np.float64)
        return RowArrays(slots, rows["reward"].copy(), vectors, self.packed)

    def _records(self) -> NDArray[np.void]:
        """Return a view of the rows in the buffer, which cannot grow while the view exists."""
        return np.frombuffer(self._buffer, dtype=_record(self._dimension))

    def pack(self) -> None:
        """Pack older rows without an item into the sums, if that takes less memory."""
        if not self._dimension:
            return
        least, count = max(_LEAST_PACKED, self._dimension), self._rows
        # Look at the rows again only after their number has grown by an eighth, which keeps an observation cheap.
        if count <= least or (count - least - 1) % max(least, 1 << (count.bit_length() - 3)):
            return
        newest_s, rows = self.newest_s, self._records()
        times = rows["at_s"].copy()
        old = (rows["slot"] == NO_ITEM) & (times < newest_s - PACKED_AFTER_S)
        del rows
        if old.sum() > least:
            if self.packed is None:
                self.packed = PackedRows.empty(self._dimension)
            found = self.arrays()
            self.packed.add(found.vectors[old], found.rewards[old])
            self.packed.oldest_s = min(self.packed.oldest_s, float(times[old].min()))
            self.packed.newest_s = max(self.packed.newest_s, float(times[old].max()))
            self._keep(~old)

    def drop(self, until_s: float) -> RowArrays:
        """Remove and return the observations until this time. Sums that hold one of them are removed whole."""
        found = self.arrays()
        gone = self._records()["at_s"] <= until_s
        packed = self.packed if self.packed is not None and self.packed.oldest_s <= until_s else None
        if packed is not None:
            self.packed = None
        self._keep(~gone)
        return RowArrays(found.slots[gone], found.rewards[gone], found.vectors[gone], packed)

    def _keep(self, kept: BoolArray) -> None:
        self._buffer = self._records()[kept].tobytes()

    def to_bytes(self, name: Callable[[int], str | None]) -> bytes:
        """Return the observations with the names of their items, as JSON."""
        return self.freeze().to_bytes(name)

    def freeze(self) -> FrozenRows:
        """Return the present observations, for another thread. Sums are copied, because they change in place."""
        packed = None if self.packed is None else self.packed.copy()
        return FrozenRows(self._rows, self._dimension, self._buffer, self.judged, self.squares, packed)

    @staticmethod
    def of_bytes(data: bytes, dimension: int, slot: Callable[[str | None], int]) -> KeyRows:
        """Read observations that `to_bytes` wrote. Raises ValueError."""
        try:
            said = orjson.loads(data)
            found = KeyRows(dimension)
            slots, rewards, times = [*map(slot, said["items"])], said["rewards"], said["times"]
            vectors = np.frombuffer(b64decode(said["vectors"], validate=True), dtype="<f4")
            count = len(slots)
            if (len(rewards), len(times), len(vectors)) != (count, count, count * dimension):
                raise ValueError("the rows of a key have parts of different lengths")
            rows = np.zeros(count, dtype=_record(dimension))
            rows["slot"], rows["reward"], rows["at_s"] = slots, rewards, times
            rows["vector"] = vectors.reshape(count, dimension)
            found._buffer = rows.tobytes()
            found.judged, found.squares = int(said["judged"][0]), float(said["judged"][1])
            if "packed" in said:
                gram, moment, oldest_s, newest_s = said["packed"]
                sums = np.frombuffer(b64decode(gram, validate=True)).reshape(dimension + 1, dimension + 1).copy()
                products = np.frombuffer(b64decode(moment, validate=True)).reshape(dimension + 1).copy()
                found.packed = PackedRows(sums, products, float(oldest_s), float(newest_s))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no rows of a key ({error})") from None
        return found


def _text(values: NDArray[np.floating]) -> str:
    return b64encode(values.tobytes()).decode()
