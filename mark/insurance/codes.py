"""Encode a group's queries into parity queries, and reconstruct missing outputs (ParM, SOSP '19, section 4).

With queries X_1 to X_k, parity model p (1 to r) is trained so that its output is the sum of c^(p-1) F(X_c) over c = 1
to k. So any j missing outputs solve j linear equations with a Vandermonde matrix, which can always be inverted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.insurance.insurance_settings import CODES, CONCAT, LEAST_K, MOST_K, MOST_R, SUM


class ParityCode:
    """A code of `k` queries for `r` parity models. Raises BadInput for an unknown name, and for k or r out of range."""

    def __init__(self, name: str, k: int, r: int = 1) -> None:
        if name not in CODES:
            raise BadInput(f"must be {' or '.join(CODES)}", "code", name)
        if not LEAST_K <= k <= MOST_K:
            raise BadInput(f"a group has {LEAST_K} to {MOST_K} queries", "k", k)
        if not 1 <= r <= min(MOST_R, k - 1):
            raise BadInput(f"must be 1 to {min(MOST_R, k - 1)} for groups of {k}", "r", r)
        self.name, self.k, self.r = name, k, r
        # (r, k): the weight of output c in the target of parity p.
        self.weights: FloatArray = np.arange(1.0, k + 1.0) ** np.arange(r)[:, None]

    def encode(self, queries: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the parity query for each of the r models, from k queries of one shape, which is also theirs.

        `sum` adds the queries with the code's weights. `concat` shrinks each query, whose last two axes are the rows
        and columns of an image, and puts all into a grid, the same for all models. Raises BadInput for another number
        of queries.
        """
        if len(queries) != self.k:
            raise BadInput(f"a group has {self.k} queries", "queries", len(queries))
        stacked = np.stack([np.asarray(query) for query in queries])
        if not np.issubdtype(stacked.dtype, np.floating):
            stacked = stacked.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite numbers show in the answer, which is checked
            if self.name == SUM:
                weights = self.weights.astype(stacked.dtype)
                return [np.tensordot(weights[p], stacked, axes=1) for p in range(self.r)]
            return [_grid(stacked)] * self.r

    def targets(self, outputs: FloatArray) -> FloatArray:
        """Return the outputs that the parity models should have, (r, groups, ...), for the model's (groups, k, ...)."""
        found: FloatArray = np.einsum("pk,gk...->pg...", self.weights, outputs)
        return found

    def decode(self, known: Mapping[int, FloatArray], parities: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """Return the missing outputs by place (0 to k - 1), from the `known` ones and outputs of parity models.

        `parities` are by number (0 to r - 1). The first of them are used, as many as outputs are missing. Raises
        BadInput if there are too few.
        """
        missing = [c for c in range(self.k) if c not in known]
        used = list(parities)[: len(missing)]
        if len(used) < len(missing):
            what = f"reconstruct one missing output each, and {len(missing)} are missing"
            raise BadInput(what, "parity outputs", len(used))
        if not missing:
            return {}
        rest = []
        for p in used:
            left = np.asarray(parities[p], dtype=np.float64)
            for c, output in known.items():
                left = left - self.weights[p, c] * output
            rest.append(left)
        solved = np.tensordot(np.linalg.inv(self.weights[np.ix_(used, missing)]), np.stack(rest), axes=1)
        return dict(zip(missing, solved, strict=True))


def fits_grid(shape: Sequence[int], k: int) -> bool:
    """Return whether k images of this shape, in the last two axes, can be shrunk into one."""
    rows, columns = _sides(k)
    return len(shape) >= 2 and shape[-2] >= rows and shape[-1] >= columns


def check_shape(code: ParityCode, shape: Sequence[int], where: str) -> None:
    """Raise BadInput at `where` if queries of this shape cannot be encoded."""
    if code.name == CONCAT and not fits_grid(shape, code.k):
        rows, columns = _sides(code.k)
        what = f"{CONCAT} puts {rows} x {columns} shrunken images into one: the input needs two axes of that size"
        raise BadInput(what, where, list(shape))


def _sides(k: int) -> tuple[int, int]:
    """Return the rows and columns of a grid of k images, as square as possible."""
    rows = next(n for n in range(math.isqrt(k), 0, -1) if k % n == 0)
    return k // rows, rows


def _grid(images: FloatArray) -> FloatArray:
    """Return the images (k, ..., H, W), shrunk by averaging pixels, in a grid as large as one of them."""
    rows, columns = _sides(len(images))
    height, width = images.shape[-2:]
    row_at = [row * height // rows for row in range(rows + 1)]
    column_at = [column * width // columns for column in range(columns + 1)]
    found = np.empty(images.shape[1:], dtype=images.dtype)
    for place, image in enumerate(images):
        row, column = divmod(place, columns)
        top, bottom, left, right = row_at[row], row_at[row + 1], column_at[column], column_at[column + 1]
        found[..., top:bottom, left:right] = _shrunk(_shrunk(image, bottom - top, -2), right - left, -1)
    return found


def _shrunk(image: FloatArray, size: int, axis: int) -> FloatArray:
    """Return the means of `size` runs of neighbours along the axis, whose lengths differ by at most one."""
    starts = np.arange(size) * image.shape[axis] // size
    lengths = np.diff(np.append(starts, image.shape[axis])).astype(image.dtype)
    shape = [1] * image.ndim
    shape[axis] = size
    return np.asarray(np.add.reduceat(image, starts, axis=axis) / lengths.reshape(shape))
