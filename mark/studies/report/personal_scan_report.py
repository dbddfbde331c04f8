"""`mark personal scan`: the places that hold data of a key, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mark.studies.report.layout import columns, page, text
from mark.studies.report.words import count

if TYPE_CHECKING:
    from rich.console import RenderableType


class FoundPlace(Protocol):
    """A place that holds data of a key (`mark.launch.personal_scan`)."""

    @property
    def where(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def count(self) -> int: ...


class FinishedScan(Protocol):
    """The places searched, and the ones found."""

    @property
    def key(self) -> str: ...
    @property
    def files(self) -> int: ...
    @property
    def objects(self) -> int: ...
    @property
    def servers(self) -> int: ...
    @property
    def found(self) -> Sequence[FoundPlace]: ...


def scan_json(scan: FinishedScan) -> dict[str, Any]:
    """Return the scan for programs."""
    return {
        "schema": 1,
        "key": scan.key,
        "looked_at": {"files": scan.files, "objects": scan.objects, "servers": scan.servers},
        "found": [{"where": one.where, "what": one.what, "count": one.count} for one in scan.found],
    }


def scan_table(scan: FinishedScan) -> RenderableType:
    """Return the scan for people."""
    looked = f"{count(scan.files)} files, {count(scan.objects)} objects and {count(scan.servers)} servers"
    if not scan.found:
        return page(text(f"{scan.key}: nothing in {looked}", "bold"))
    table = columns("count", "what", "where")
    for one in scan.found:
        table.add_row(count(one.count), one.what, one.where)
    return page(text(f"{scan.key}: found in {count(len(scan.found))} of {looked}", "bold"), table)
