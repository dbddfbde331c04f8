"""The limit on unreadable lines of a file that may be left out: `--skip-bad-lines N` or `P%`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import CUT_OFF

_WRITTEN = re.compile(r"(\d+)|(\d+(?:\.\d+)?)\s?%")


@dataclass(frozen=True, slots=True)
class BadLines:
    """A limit: `most` lines, or otherwise the `share` of all lines."""

    share: float = 0.01
    most: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0 or (self.most is not None and self.most < 0):
            value = self.share if self.most is None else self.most
            raise BadInput("must be a number of lines, or a share of 0 to 1", "skip_bad_lines", value)

    @classmethod
    def parse(cls, text: str) -> BadLines:
        """Parse `20` as twenty lines, `5%` as one line in twenty. Raises BadInput for any other form."""
        found = _WRITTEN.fullmatch(text.strip())
        if found is None or float(found[2] or 0.0) > 100.0:
            raise BadInput("must be a number of lines or a percentage, as 20 or 5%", "skip_bad_lines", text)
        return cls(most=int(found[1])) if found[1] else cls(share=float(found[2]) / 100.0)

    def allowed(self, lines: int, least: int = 0) -> int:
        """Return how many of `lines` may be left out. A share above zero allows `least` of them in a short file too."""
        if self.most is not None:
            return self.most
        return max(least, int(self.share * lines + 1e-9)) if self.share > 0.0 else 0

    def check(self, bad: int, lines: int, first: str, where: str) -> None:
        """Raise BadInput if too many lines are bad. `first` describes the fault of the first of them."""
        if bad > self.allowed(lines):
            enough = f"{math.ceil(1000.0 * bad / lines) / 10.0:g}%" if lines and bad > 20 else str(bad)
            rest = f", `skip_bad_lines` {enough} leaves such lines out"
            raise BadInput(f"{bad:,} of {lines:,} lines cannot be read, the first is {first}{rest}", where)

    def check_cut(self, path: Path, files: int) -> None:
        """Raise BadInput for a compressed file that ends too early beside others, unless a limit was given.

        A single file lost only later requests, and its trace ends there. A file among others lost requests between
        theirs, and their number is not known.
        """
        if files > 1 and self == DEFAULT:
            what = f"{CUT_OFF}, so that requests are missing among those of the other files"
            raise BadInput(f"{what}: `skip_bad_lines` 2% reads the rest", str(path))

    def __str__(self) -> str:
        return f"{self.share * 100.0:g}%" if self.most is None else str(self.most)


def may_be_cut(last: float, before: float) -> bool:
    """Return whether the last number of a file may have lost digits; each lost digit makes it a tenth, fractions aside.

    A file without a final line feed may end within a number. The row before shows how large numbers are.
    """
    return last < before / 4.0 and (last > 0.0 or before % 1.0 > 0.0)


DEFAULT = BadLines()
