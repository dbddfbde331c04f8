"""Tables of how often an answer was correct by its score, and the increasing curve through them.

Scores lie on one fixed grid and facts are discounted by their stamps (`mark.selection.tally`), so tables of several
processes add up in any order. Isotonic regression by pooling adjacent violators (Ayer et al. 1955) turns a table into a
probability that never falls as the score rises.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import Any

_PER_OCTAVE = 4  # places of the grid
# The points that divide an octave of the grid, for numbers of 0.5 to 1. They are a table because libraries round
# logarithms differently, and all processes need one grid.
_DIVIDED = [2.0 ** (place / _PER_OCTAVE) / 2.0 for place in range(1, _PER_OCTAVE)]
_HALF = 512  # the grid's place of 1, and minus that of 0
_MOST_HALVINGS = 200  # weights are rescaled after so many, to stay finite
_NOTHING = 0.5**_MOST_HALVINGS


def grid_place(score: float) -> int:
    """Return the place of a score, any finite number, on the grid. Places never fall as scores rise.

    The grid is fine near 0 and near 1, where the scores of confident models lie.
    """
    if score <= 0.0:
        return -_HALF - _octaves(1.0 - score)
    if score <= 0.5:
        return max(-_HALF, _octaves(2.0 * score))
    if score < 1.0:
        return min(_HALF, -_octaves(2.0 * (1.0 - score)))
    return _HALF + _octaves(score)


def _octaves(value: float) -> int:
    """Return the octave of a number above 0, in places of the grid, rounded down."""
    mantissa, exponent = math.frexp(value)
    return _PER_OCTAVE * (exponent - 1) + bisect_right(_DIVIDED, mantissa)


class Fading:
    """The weights of facts. A fact has half its weight after `half_life` later facts.

    Weights are relative to a fact at the stamp `_base`, so that a new fact does not change the older weights.
    """

    __slots__ = ("_base", "_half_life", "_newest", "_step", "_tables")

    def __init__(self, half_life: float = math.inf) -> None:
        self._half_life = half_life
        self._base = self._newest = 0
        self._step = math.inf if math.isinf(half_life) else math.ceil(_MOST_HALVINGS * half_life)
        self._tables: list[ScoreTable] = []

    def weight(self, stamp: int) -> float:
        """Return the weight of a fact."""
        if stamp > self._newest:
            self._newest = stamp
            if stamp - self._base >= self._step:
                before = self._base
                self.load(stamp)
                for table in self._tables:
                    table._scale(0.5 ** ((self._base - before) / self._half_life))
        weight: float = 2.0 ** ((stamp - self._base) / self._half_life)
        return weight

    @property
    def newest(self) -> float:
        """The weight of the newest fact."""
        weight: float = 2.0 ** ((self._newest - self._base) / self._half_life)
        return weight

    def dump(self) -> int:
        """Return the newest stamp, for `load`."""
        return self._newest

    def load(self, newest: int) -> None:
        """Begin at this stamp. Load the tables afterwards, because their weights depend on it."""
        self._newest, self._base = newest, 0 if math.isinf(self._step) else newest - int(newest % self._step)


class ScoreTable:
    """How many answers were correct at each place of the grid, discounted. Tables of one `fading` fade together."""

    __slots__ = ("_changed", "_counted", "_curve", "_fading", "_places", "_rows")

    def __init__(self, fading: Fading | None = None) -> None:
        self._fading = Fading() if fading is None else fading
        self._fading._tables.append(self)
        self._rows: dict[int, list[float]] = {}  # by place: count, correct
        self._places: list[int] = []  # sorted
        self._counted = 0.0
        self._curve: _Curve | None = None
        self._changed: set[int] = set()  # places with answers that the curve has not seen

    def add(self, score: float, correct: float, stamp: int = 0) -> None:
        """Add an answer whose correctness is 0 to 1."""
        self.put(grid_place(score), self._fading.weight(stamp), correct)

    def put(self, place: int, weight: float, correct: float) -> None:
        """Add an answer with the weight of its stamp (`Fading.weight`) at a place of the grid."""
        if weight < _NOTHING:
            return
        row = self._rows.get(place)
        if row is None:
            self._rows[place] = [weight, weight * correct]
            insort(self._places, place)
        else:
            row[0] += weight
            row[1] += weight * correct
        self._counted += weight
        self._changed.add(place)

    @property
    def total(self) -> float:
        """The discounted number of answers."""
        return self._counted / self._fading.newest

    def probability(self, score: float) -> float:
        """Return the probability that an answer with this score is correct. Raises ValueError for an empty table."""
        if self._curve is None:
            if not self._rows:
                raise ValueError("an empty table says nothing")
            self._curve = _Curve()
            self._curve.extend(self._places, self._rows)
        else:
            for place in self._changed:
                self._curve.mend(place, self._places, self._rows)
        self._changed.clear()
        return self._curve.at(grid_place(score))

    def dump(self) -> dict[str, list[float]]:
        """Return the table for `load`, with weights relative to the newest fact, so that the half-life may change."""
        newest = self._fading.newest
        return {str(place): [count / newest, right / newest] for place, (count, right) in self._rows.items()}

    def load(self, dumped: Mapping[str, Any]) -> None:
        """Replace all rows."""
        newest = self._fading.newest
        self._replace({int(place): [newest * count, newest * right] for place, (count, right) in dumped.items()})

    def _scale(self, by: float) -> None:
        self._replace({place: [by * count, by * correct] for place, (count, correct) in self._rows.items()})

    def _replace(self, rows: dict[int, list[float]]) -> None:
        # Rows of negligible weight would only take memory.
        self._rows = {place: row for place, row in rows.items() if row[0] >= _NOTHING}
        self._places = sorted(self._rows)
        self._counted = math.fsum(row[0] for row in self._rows.values())
        self._curve = None
        self._changed.clear()


class _Curve:
    """Pools of adjacent places; their means rise from pool to pool."""

    __slots__ = ("_counts", "_firsts", "_means")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # the first place of each pool
        self._counts: list[float] = []
        self._means: list[float] = []

    def at(self, place: int) -> float:
        return self._means[max(0, bisect_right(self._firsts, place) - 1)]

    def extend(self, places: Sequence[int], rows: Mapping[int, list[float]]) -> None:
        """Add places that lie after all present ones."""
        firsts, counts, means = self._firsts, self._counts, self._means
        for place in places:
            count, right = rows[place]
            mean = right / count
            while means and means[-1] >= mean:  # it violates the order: pool the two
                before, counted = means.pop(), counts.pop()
                place = firsts.pop()
                mean = (before * counted + mean * count) / (counted + count)
                count += counted
            firsts.append(place)
            counts.append(count)
            means.append(mean)

    def mend(self, place: int, places: Sequence[int], rows: Mapping[int, list[float]]) -> None:
        """Divide the pool of a place again after its rows have changed.

        No other pool needs dividing, because that never depends on its neighbours; neighbours may be joined to it.
        """
        firsts, counts, means = self._firsts, self._counts, self._means
        at = max(0, bisect_right(firsts, place) - 1)
        begin = bisect_left(places, min(place, firsts[at]))
        end = bisect_left(places, firsts[at + 1]) if at + 1 < len(firsts) else len(places)
        later = firsts[at + 1 :], counts[at + 1 :], means[at + 1 :]
        del firsts[at:], counts[at:], means[at:]
        self.extend(places[begin:end], rows)
        joined = 0
        for count, mean in zip(later[1], later[2], strict=True):
            if means[-1] < mean:
                break
            joined += 1
            means[-1] = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
            counts[-1] += count
            while len(means) > 1 and means[-2] >= means[-1]:
                mean, count = means.pop(), counts.pop()
                firsts.pop()
                means[-1] = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
                counts[-1] += count
        firsts += later[0][joined:]
        counts += later[1][joined:]
        means += later[2][joined:]
