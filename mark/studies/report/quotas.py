"""The quotas of an account beside a site's possible needs, before any purchase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import grouped


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


def quota_report(lines: Sequence[QuotaLine]) -> Report:
    rows = [
        (
            *(line.what, line.needed, "unknown" if line.allowed is None else line.allowed),
            f"{line.code}, too small" if line.short else line.code,
        )
        for line in lines
    ]
    notes = ["at the services' limits; other instances of the account count against the same quotas"]
    return Report({}, parts=[DataTable(("", ("may need", grouped), ("allowed", grouped), ""), rows)], notes=notes)
