"""The page of `--report`, from existing results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from mark.simulation.result import SimulationResult


def report(results: SimulationResult | Mapping[str, SimulationResult], file: str | Path) -> None:
    """Write the result of `simulate` or `compare` as a page.

    The table "If these assumptions are wrong" is left out, because `mark compare --report` runs everything again for
    it. Raises BadInput if the file cannot be written.
    """
    from mark.studies.report.compare_report import render_report

    by_name = results if isinstance(results, Mapping) else {results.policy: results}
    if not by_name:
        raise BadInput("there are no results", "mark.report")
    try:
        Path(file).write_text(render_report(by_name), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", "mark.report", str(file)) from None
