"""How many lines of a file may be left out because they cannot be read: `--skip-bad-lines N` or `P%`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mark.domain.errors import BadInput

_WRITTEN = re.compile(r"(\d+)|(\d+(?:\.\d+)?)\s?%")


@dataclass(frozen=True, slots=True)
class BadLines:
    """A limit: `most` lines, or else the `share` of all lines."""

    share: float = 0.01
    most: int | None = None

    @classmethod
    def parse(cls, text: str) -> BadLines:
        """`20` is twenty lines, `5%` one line in twenty. Raises BadInput for anything else."""
        found = _WRITTEN.fullmatch(text.strip())
        if found is None or float(found[2] or 0.0) > 100.0:
            raise BadInput("must be a number of lines or a percentage, as 20 or 5%", "skip_bad_lines", text)
        return cls(most=int(found[1])) if found[1] else cls(share=float(found[2]) / 100.0)

    def allow(self, bad: int, lines: int) -> bool:
        return bad <= (self.share * lines if self.most is None else self.most)

    def check(self, bad: int, lines: int, first: str, where: str) -> None:
        """Raise BadInput where more lines are bad than may be. `first` says what is wrong with the first of them."""
        if not self.allow(bad, lines):
            enough = f"{math.ceil(1000.0 * bad / lines) / 10.0:g}%" if lines and bad > 20 else str(bad)
            rest = f", `skip_bad_lines` {enough} leaves such lines out"
            raise BadInput(f"{bad:,} of {lines:,} lines cannot be read, the first is {first}{rest}", where)

    def __str__(self) -> str:
        return f"{self.share * 100.0:g}%" if self.most is None else str(self.most)


USUAL = BadLines()
