"""Tables of how often an answer was correct by its score, and the increasing curve through them.

Scores lie on one fixed grid and facts are discounted by their stamps (`mark.selection.tally`), so tables of several
processes add up in any order. Isotonic regression by pooling adjacent violators (Ayer et al. 1955) turns a table into a
probability that never falls as the score rises.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

_PER_OCTAVE = 8  # places of the grid
_HALF = 1024  # the grid's place of 1, and minus that of 0
_MOST_HALVINGS = 200.0  # between the first and the newest fact, before rows are scaled down to stay finite


def grid_place(score: float) -> int:
    """The place of a score on the grid, which is fine near 0 and near 1, where scores of sure models lie.

    Places never fall as scores rise. Scores may be any finite number.
    """
    if score <= 0.0:
        return -_HALF - _octaves(1.0 - score)
    if score <= 0.5:
        return max(-_HALF, _octaves(2.0 * score))
    if score < 1.0:
        return min(_HALF, -_octaves(2.0 * (1.0 - score)))
    return _HALF + _octaves(score)


def _octaves(value: float) -> int:
    return math.floor(_PER_OCTAVE * math.log2(value))


class ScoreTable:
    """How many answers were correct at each place of the grid, discounted. A fact has half its weight after `half_life`
    later ones."""

    __slots__ = ("_base", "_curve", "_half_life", "_newest", "_rows")

    def __init__(self, half_life: float = math.inf) -> None:
        self._half_life = half_life
        self._rows: dict[int, list[float]] = {}  # by place: count, correct; of a weight that is 1 at the stamp `_base`
        self._base = self._newest = 0
        self._curve: tuple[list[int], list[float]] | None = None

    def add(self, score: float, correct: float, stamp: int = 0) -> None:
        """Add an answer whose correctness is 0 to 1."""
        self._newest = max(self._newest, stamp)
        if (self._newest - self._base) / self._half_life > _MOST_HALVINGS:
            faded = 0.5 ** ((self._newest - self._base) / self._half_life)
            for row in self._rows.values():
                row[0] *= faded
                row[1] *= faded
            self._base = self._newest
        weight = 2.0 ** ((stamp - self._base) / self._half_life)
        row = self._rows.setdefault(grid_place(score), [0.0, 0.0])
        row[0] += weight
        row[1] += weight * correct
        self._curve = None

    @property
    def total(self) -> float:
        """The discounted number of answers."""
        faded: float = 0.5 ** ((self._newest - self._base) / self._half_life)
        return faded * math.fsum(row[0] for row in self._rows.values())

    def probability(self, score: float) -> float:
        """The probability that an answer with this score is correct. Raises ValueError for an empty table."""
        if self._curve is None:
            if not self._rows:
                raise ValueError("an empty table says nothing")
            self._curve = _increasing((place, row[0], row[1]) for place, row in sorted(self._rows.items()))
        places, values = self._curve
        return values[max(0, bisect_right(places, grid_place(score)) - 1)]

    def dump(self) -> dict[str, Any]:
        """The table, for `load`."""
        return {"base": self._base, "newest": self._newest, "rows": {str(at): row for at, row in self._rows.items()}}

    def load(self, dumped: Mapping[str, Any]) -> None:
        """Replace all rows."""
        self._base, self._newest = int(dumped["base"]), int(dumped["newest"])
        self._rows = {int(at): [float(row[0]), float(row[1])] for at, row in dumped["rows"].items()}
        self._curve = None


def _increasing(rows: Iterable[tuple[int, float, float]]) -> tuple[list[int], list[float]]:
    """First places of the pools, and their means, which rise."""
    pools: list[list[float]] = []  # first place, count, correct
    for place, count, correct in rows:
        pools.append([place, count, correct])
        while len(pools) > 1 and pools[-2][2] * pools[-1][1] >= pools[-1][2] * pools[-2][1]:
            _, more, right = pools.pop()
            pools[-1][1] += more
            pools[-1][2] += right
    return [int(pool[0]) for pool in pools], [pool[2] / pool[1] for pool in pools]
