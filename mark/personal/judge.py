"""The error of predictions made before their rewards were known, with intervals that hold at any time.

Every observation is first predicted and then learned, so its error is held out (prequential error, Dawid 1984). The
interval is an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2021): from some hundred
observations on, it may be checked after each observation and misses the mean only with the stated probability. The
state is a count and two sums, so tallies of several writers add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mark.selection.guard import FALSE_ALARM

ALL = "all"
# Segments by the number of earlier observations of a key: the least number, and the name.
_SEGMENTS = ((0, "new"), (1, "1 to 4"), (5, "5 to 19"), (20, "20 to 99"), (100, "100 or more"))
_TIGHTEST = 500.0  # observations at which the interval is relatively tightest
_LEAST = 20


@dataclass(slots=True)
class ErrorTally:
    """Count, sum and sum of squares of errors, or of differences of errors."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, error: float) -> None:
        self.count += 1
        self.total += error
        self.squares += error * error

    def merge(self, other: ErrorTally) -> None:
        """Add the tally of another writer."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float:
        """The mean error; NaN without observations."""
        return self.total / self.count if self.count else math.nan

    def interval(self, miss: float = FALSE_ALARM) -> tuple[float, float]:
        """Return an interval that contains the true mean at all times, except with the probability `miss`."""
        if self.count < _LEAST:
            return -math.inf, math.inf
        variance = max(0.0, self.squares / self.count - self.mean**2)
        # Howard et al. (2021): this rho makes the boundary tightest at about `_TIGHTEST` observations.
        rho2 = (2.0 * math.log(1.0 / miss) + math.log(1.0 + 2.0 * math.log(1.0 / miss))) / _TIGHTEST
        scaled = self.count * rho2 + 1.0
        inner = 2.0 * scaled / (self.count**2 * rho2) * math.log(math.sqrt(scaled) / miss)
        # Squared errors are skewed: samples with a low mean have a low variance, too. For values that are never
        # negative, the second moment alone bounds how far the sample's mean lies below the true one (Maurer 2003).
        above = math.sqrt(self.squares / self.count * inner)
        return self.mean - math.sqrt(variance * inner), self.mean + above


def segment_of(before: int) -> str:
    """Return the segment of a key with this number of earlier observations."""
    return next(name for least, name in reversed(_SEGMENTS) if before >= least)


class ErrorJudge:
    """Errors by version and segment. The segment `all` has every error of a version."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], ErrorTally] = {}

    def add(self, version: str, before: int, error: float) -> None:
        """Count the error of a prediction for a key that had `before` observations."""
        for segment in (ALL, segment_of(before)):
            self._tallies.setdefault((version, segment), ErrorTally()).add(error)

    def tally(self, version: str, segment: str = ALL) -> ErrorTally:
        """Return the errors of a version in a segment; an empty tally if there are none."""
        return self._tallies.get((version, segment)) or ErrorTally()

    def rows(self) -> Iterator[tuple[str, str, ErrorTally]]:
        """Yield version, segment and tally, in the order of versions and segments."""
        order = [ALL, *(name for _, name in _SEGMENTS)]
        for version, segment in sorted(self._tallies, key=lambda one: (one[0], order.index(one[1]))):
            yield version, segment, self._tallies[version, segment]

    def to_json(self) -> list[list[Any]]:
        return [[version, segment, one.count, one.total, one.squares] for version, segment, one in self.rows()]

    @staticmethod
    def of_json(said: Any) -> ErrorJudge:
        """Read a judge that `to_json` wrote. Raises ValueError."""
        found, known = ErrorJudge(), {ALL, *(name for _, name in _SEGMENTS)}
        try:
            for version, segment, count, total, squares in said:
                if segment not in known:
                    raise ValueError(f"unknown segment {segment!r}")
                found._tallies[str(version), str(segment)] = ErrorTally(int(count), float(total), float(squares))
        except TypeError as error:
            raise ValueError(f"no tallies of errors ({error})") from None
        return found
