"""A table of items: a name and a vector each, from a `.npz` file with the arrays `ids` and `vectors`."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import BoolArray, FloatArray
from mark.domain.errors import BadInput
from mark.personal.settings import LONGEST_NAME, MOST_DIMENSION

IDS, VECTORS = "ids", "vectors"
MOST_VALUE = 1e6  # of one number of a vector: squares of larger ones lose the digits of all others


class ItemTable:
    """Items by number. `vectors` are float32, a row for each item, and `squares` the squared lengths of these rows.

    Raises BadInput for a table that cannot be used; `where` names its file.
    """

    def __init__(self, ids: Sequence[str], vectors: NDArray[np.floating], where: str) -> None:
        if vectors.ndim != 2 or not vectors.size:
            raise BadInput(f"{VECTORS} must have a row for each item and a column for each number", where)
        if len(ids) != len(vectors):
            raise BadInput(f"{IDS} and {VECTORS} differ in length", where, f"{len(ids)} and {len(vectors)}")
        if vectors.shape[1] > MOST_DIMENSION:
            raise BadInput(f"{VECTORS} may have {MOST_DIMENSION:,} columns at most", where, vectors.shape[1])
        self.ids = list(ids)
        self.numbers = {name: at for at, name in enumerate(self.ids)}
        if len(self.numbers) < len(self.ids):
            twice = next(name for at, name in enumerate(self.ids) if self.numbers[name] != at)
            raise BadInput(f"{IDS} names an item twice", where, twice)
        for name in self.ids:
            if not 0 < len(name) <= LONGEST_NAME:
                raise BadInput(f"{IDS} has a name that is empty or longer than {LONGEST_NAME} characters", where, name)
        bad = np.flatnonzero(~usable(vectors))
        if len(bad):
            name = self.ids[int(bad[0])]
            raise BadInput(f"{VECTORS} of this item must be finite, {MOST_VALUE:,.0f} at most", where, name)
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        self.squares: FloatArray = np.einsum("nd,nd->n", self.vectors, self.vectors, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        return len(self.vectors.T)

    @property
    def memory_bytes(self) -> int:
        """The memory of the table, roughly."""
        return self.vectors.nbytes + self.squares.nbytes + 150 * len(self.ids)


def usable(vectors: NDArray[np.floating]) -> BoolArray:
    """Return for each row whether its numbers are finite and not too large."""
    found: BoolArray = (np.abs(vectors) <= MOST_VALUE).all(axis=-1)
    return found


def item_table(data: bytes, where: str) -> ItemTable:
    """Return the table in the content of a `.npz` file. Raises BadInput."""
    try:
        found = np.load(BytesIO(data), allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise BadInput(f"is one array: write numpy.savez({where!r}, {IDS}=..., {VECTORS}=...)", where)
        with found as arrays:
            for name in (IDS, VECTORS):
                if name not in arrays:
                    raise BadInput(f"has no array {name!r}, only {', '.join(arrays) or 'nothing'}", where)
            ids, vectors = arrays[IDS], arrays[VECTORS]
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise BadInput(f"is no file of numpy.savez without pickled objects ({_line(error)})", where) from None
    if ids.ndim != 1 or ids.dtype.kind not in "USiu":
        raise BadInput(f"{IDS} must be a list of texts or whole numbers", where, f"{ids.dtype}, {ids.ndim} dimensions")
    if vectors.dtype.kind not in "fiu":
        raise BadInput(f"{VECTORS} must be numbers", where, str(vectors.dtype))
    try:
        names = [name.decode() if isinstance(name, bytes) else str(name) for name in ids.tolist()]
    except UnicodeDecodeError:
        raise BadInput(f"{IDS} has a name that is no UTF-8 text", where) from None
    return ItemTable(names, vectors, where)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
