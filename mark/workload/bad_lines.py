"""How many lines of a file may be left out because they cannot be read: `--skip-bad-lines N` or `P%`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mark.domain.errors import BadInput

_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True)
class BadLines:
    """At most `most` lines, or this share of all lines."""

    most: float
    share: bool

    def __post_init__(self) -> None:
        if not (math.isfinite(self.most) and self.most >= 0.0 and (not self.share or self.most <= 1.0)):
            raise BadInput("must be a number of lines, or a share of 0 % to 100 %", "skip_bad_lines", self.most)

    def allowed(self, lines: int) -> int:
        """The lines that may be left out of `lines`. A share above zero allows one line even in a short file."""
        if not self.share:
            return int(self.most)
        return max(1, int(self.most * lines + 1e-9)) if self.most > 0.0 else 0

    def __str__(self) -> str:
        return f"{100.0 * self.most:g}%" if self.share else f"{self.most:g}"


DEFAULT = BadLines(0.01, share=True)


def parse_bad_lines(text: str) -> BadLines:
    """`20` lines or `2%` of them. Raises BadInput for anything else."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or (not found[2] and "." in found[1]):
        raise BadInput("must be a number of lines such as 20, or a share such as 2%", "skip_bad_lines", text)
    return BadLines(float(found[1]) / 100.0, share=True) if found[2] else BadLines(float(found[1]), share=False)
