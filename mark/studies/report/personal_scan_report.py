"""`mark personal scan`: the places that hold data of a key, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mark.studies.report.report import DataTable, Report
from mark.studies.report.words import count


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


def scan_report(scan: FinishedScan) -> Report:
    looked = f"{count(scan.files)} files, {count(scan.objects)} objects and {count(scan.servers)} servers"
    data = {
        "schema": 1,
        "key": scan.key,
        "looked_at": {"files": scan.files, "objects": scan.objects, "servers": scan.servers},
        "found": [{"where": one.where, "what": one.what, "count": one.count} for one in scan.found],
    }
    if not scan.found:
        return Report(data, f"{scan.key}: nothing in {looked}")
    found = DataTable(
        ("count", ("what", str), ("where", str)), [(count(one.count), one.what, one.where) for one in scan.found]
    )
    return Report(data, f"{scan.key}: found in {count(len(scan.found))} of {looked}", [found])
