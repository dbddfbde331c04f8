"""The files of a bill, each read by its kind: a cost and usage report, a monthly invoice or Cost Explorer's answer."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from mark.cloud.billing import cost_explorer, cost_reports, monthly_invoices
from mark.cloud.billing.line_items import LineItem, letters
from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import blocks, ends_within_line, is_folder

if TYPE_CHECKING:
    from _csv import Reader

# In order of detail, the most detailed first.
KINDS = (cost_reports.KIND, cost_explorer.KIND, monthly_invoices.KIND)
_PARTS = re.compile(r"(.*)-\d+(\.csv(?:\.gz)?)", re.IGNORECASE)
_LARGEST_JSON = 256 << 20


@dataclass(slots=True)
class BillFile:
    """One file. `kind`, `report` and `digest` are known once its items have been read.

    Files with the same `report` are parts of one report: they share a folder and a header, and their names differ in a
    number at the end.
    """

    path: Path
    kind: str = ""
    report: tuple[str, ...] = ()
    has_more: bool = False  # whether it is a page of an answer that has further pages
    is_net: bool = False  # whether its dollars of use include credits and taxes
    may_be_cut: bool = False
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    @property
    def digest(self) -> bytes:
        """The digest of the text, which is the same for a file and its compressed copy."""
        return self._hash.digest()

    def items(self, tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
        """Yield the line items. Raises BadInput, with file and line, if the file is no bill or cannot be read."""
        if _is_json(self.path):
            self.kind, self.report = cost_explorer.KIND, (str(self.path),)
            try:
                text = self.path.read_bytes()
            except OSError as error:
                raise BadInput("cannot be read", str(self.path), error.strerror or str(error)) from error
            if len(text) > _LARGEST_JSON:
                raise BadInput(f"larger than {_LARGEST_JSON >> 20} MiB", str(self.path))
            self._hash.update(text)
            data = cost_explorer.loaded(text, self.path)
            self.has_more, self.is_net = cost_explorer.has_more(data), cost_explorer.is_net(data)
            yield from cost_explorer.json_items(data, self.path, tags)
            return
        reader = csv.reader(self._lines(), strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise BadInput("the file is empty", str(self.path))
            yield from self._table(reader, header, tags)
            self.may_be_cut = ends_within_line(self.path)
        except csv.Error as error:
            raise BadInput(f"is no CSV ({error})", f"{self.path}:{reader.line_num}") from None

    def _table(self, reader: Reader, header: Sequence[str], tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
        names = [letters(name) for name in header]
        parts = _PARTS.fullmatch(self.path.name)
        stem = "*".join(parts.groups()) if parts else self.path.name
        self.report = (str(self.path.parent), stem, *names)
        if cost_explorer.is_table(header):
            self.kind, read = cost_explorer.KIND, cost_explorer.table_items
        elif monthly_invoices.is_one(set(names)):
            self.kind, read = monthly_invoices.KIND, monthly_invoices.items
        else:
            self.kind, read = cost_reports.KIND, cost_reports.items
        yield from read(self._rows(reader, len(header)), header, f"{self.path}:1", tags)

    def _rows(self, reader: Reader, width: int) -> Iterator[tuple[str, Sequence[str]]]:
        for cells in reader:
            if cells:
                place = f"{self.path}:{reader.line_num}"
                if len(cells) != width:
                    raise BadInput(f"{len(cells)} cells under a header of {width}", place)
                yield place, cells

    def _lines(self) -> Iterator[str]:
        for line, block in blocks(self.path):
            self._hash.update(block)
            try:
                yield from StringIO(block.decode("utf-8"))
            except UnicodeDecodeError:
                raise BadInput("is no UTF-8 text", f"{self.path}, from line {line}") from None


def bill_files(path: str) -> list[BillFile]:
    """Return the file, or all tables and Cost Explorer answers of a folder and its subfolders."""
    where = Path(path)
    if not path or not is_folder(where):
        return [BillFile(where)]
    found = sorted(p for p in where.rglob("*") if p.is_file() and (_is_table(p) or (_is_json(p) and _is_answer(p))))
    if not found:
        raise BadInput(
            "no .csv or .csv.gz files in this folder, nor answers of Cost Explorer (choose text/csv for the report)",
            path,
        )
    return [BillFile(file) for file in found]


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def _is_json(path: Path) -> bool:
    return path.name.lower().endswith(".json")


def _is_answer(path: Path) -> bool:
    """Return whether a JSON file is an answer of Cost Explorer and not a manifest, which lies beside reports."""
    try:
        with path.open("rb") as file:
            return b'"ResultsByTime"' in file.read(1 << 16)
    except OSError:
        return False
