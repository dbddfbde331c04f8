"""Discounted sums of losses, by candidate and by context: the one state that all selection policies read.

Each fact carries a stamp: how many facts of its context its writer had seen before it. A fact weighs
`discount ** (newest stamp - stamp)`, so the sums are the same in whichever order facts arrive.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

_COLUMNS = 3  # of each candidate: count, loss, weighted
_ROWS = 4096  # of a block, so that a growing store copies nothing


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the facts of one context, by candidate.

    `counts` are discounted numbers of observed losses, `losses` their sums (each loss is 0 to 1), and `weighted` the
    sums of loss / propensity, which estimate the loss that a candidate would have had on every query.
    """

    counts: Sequence[float]
    losses: Sequence[float]
    weighted: Sequence[float]

    def mean(self, candidate: int, prior: float = 0.5, prior_count: float = 1.0) -> float:
        """The mean loss of a candidate, shrunk towards `prior` as if that had been seen `prior_count` times."""
        return (self.losses[candidate] + prior * prior_count) / (self.counts[candidate] + prior_count)


class Tallies:
    """Sums for each context of `candidates` models. `discount` is the weight that a fact loses with the next one.

    The oldest context is forgotten where there would be more than `most`.
    """

    def __init__(self, candidates: int, discount: float, most: int = 1_000_000) -> None:
        if not 0.0 < discount <= 1.0:
            raise ValueError("a discount is above 0 and 1 at most")
        self.candidates, self.discount, self._most = candidates, discount, most
        self._width = _COLUMNS * candidates + 2  # and the newest stamp, and how many facts there were
        self._rows: dict[str, int] = {}  # in the order in which contexts were first seen
        self._blocks: list[array[float]] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, context: str) -> bool:
        return context in self._rows

    def seen(self, context: str) -> int:
        """How many facts of the context there were: the stamp of a new one."""
        row = self._rows.get(context)
        if row is None:
            return 0
        block, at = self._place(row)
        return int(block[at + 1])

    def sums(self, context: str) -> Sums:
        """The sums of a context, zeros for one without facts."""
        row, n = self._rows.get(context), self.candidates
        if row is None:
            zeros = [0.0] * n
            return Sums(zeros, zeros, zeros)
        block, at = self._place(row)
        at += 2
        return Sums(block[at : at + n], block[at + n : at + 2 * n], block[at + 2 * n : at + 3 * n])

    def add(
        self, context: str, stamp: int, losses: Sequence[float | None], propensities: Sequence[float] | None = None
    ) -> None:
        """Add a fact: the loss of each candidate (None: not observed) and the probability of asking it (None: 1)."""
        row = self._rows.get(context)
        if row is None:
            row = self._new_row(context)
        block, at = self._place(row)
        n, newest = self.candidates, block[at]
        weight = 1.0
        if stamp > newest:
            faded = self.discount ** (stamp - newest)
            if faded != 1.0:
                for place in range(at + 2, at + 2 + _COLUMNS * n):
                    block[place] *= faded
            block[at] = stamp
        elif stamp < newest:
            weight = self.discount ** (newest - stamp)
        block[at + 1] += 1.0
        for candidate, loss in enumerate(losses):
            if loss is None:
                continue
            place = at + 2 + candidate
            block[place] += weight
            if loss:
                block[place + n] += weight * loss
                propensity = 1.0 if propensities is None else propensities[candidate]
                block[place + 2 * n] += weight * loss / propensity

    def clear(self, context: str) -> bool:
        """Forget a context; False where it was unknown."""
        row = self._rows.pop(context, None)
        if row is None:
            return False
        block, at = self._place(row)
        for place in range(at, at + self._width):
            block[place] = 0.0
        self._free.append(row)
        return True

    def dump(self) -> dict[str, list[float]]:
        """All rows, for `load`."""
        found = {}
        for context, row in self._rows.items():
            block, at = self._place(row)
            found[context] = list(block[at : at + self._width])
        return found

    def load(self, dumped: dict[str, list[float]]) -> None:
        """Replace all rows. Raises ValueError where they are of another number of candidates."""
        if any(len(row) != self._width for row in dumped.values()):
            raise ValueError("the sums are of another number of candidates")
        self._rows, self._blocks, self._free = {}, [], []
        for context, values in dumped.items():
            block, at = self._place(self._new_row(context))
            block[at : at + self._width] = array("d", values)

    def _new_row(self, context: str) -> int:
        if len(self._rows) >= self._most:
            self.clear(next(iter(self._rows)))
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._rows)
            if row // _ROWS >= len(self._blocks):
                self._blocks.append(array("d", bytes(8 * self._width * _ROWS)))
        self._rows[context] = row
        return row

    def _place(self, row: int) -> tuple[array[float], int]:
        return self._blocks[row // _ROWS], row % _ROWS * self._width


def discount_of(half_life: float) -> float:
    """The discount with which a fact has half its weight after `half_life` later ones; infinite: 1."""
    discount: float = 0.5 ** (1.0 / half_life)
    return discount
