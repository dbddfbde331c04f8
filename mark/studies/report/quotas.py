"""The quotas of an account beside a site's possible needs, before any purchase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.studies.report.layout import columns, page, small_print, text

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One quota of the account. `allowed` may be unknown (None); `code` is AWS's, for a request to raise it."""

    what: str
    code: str
    needed: int
    allowed: int | None
    services: tuple[str, ...]  # their limits need it

    @property
    def short(self) -> bool:
        return self.allowed is not None and self.allowed < self.needed

    @property
    def warning(self) -> str:
        """The warning for a quota that is too small."""
        return (
            f"{', '.join(self.services)} may need {self.needed:,} {self.what}, the account has {self.allowed:,}: "
            f"ask AWS for more (quota {self.code}), or lower the limits"
        )


def quota_table(lines: Sequence[QuotaLine]) -> RenderableType:
    table = columns("", "may need", "allowed", "")
    for line in lines:
        allowed = "unknown" if line.allowed is None else f"{line.allowed:,}"
        remark = f"{line.code}, too small" if line.short else line.code
        table.add_row(text(line.what), f"{line.needed:,}", allowed, text(remark))
    notes = ["at the services' limits; other instances of the account count against the same quotas"]
    return page(table, *small_print(notes))
