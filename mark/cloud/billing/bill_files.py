"""The files of a bill, each read by its kind: a detailed report, a monthly invoice or Cost Explorer's answer."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mark.cloud.billing import cost_explorer, cost_reports, focus, monthly_invoices
from mark.cloud.billing.line_items import LineItem, letters
from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import LONGEST_LINE, beginning, blocks, ends_within_line, is_folder, shown
from mark.traffic.traces.exports import is_parquet

if TYPE_CHECKING:
    from _csv import Reader

# In order of detail, the most detailed first.
KINDS = (cost_reports.KIND, focus.KIND, cost_explorer.KIND, monthly_invoices.KIND)
Row = tuple[str, Sequence[str]]
"""The file and line of a row, and its cells."""

_PARTS = re.compile(r"(.*)-\d+(\.csv(?:\.gz|\.zip)?|\.zip|(?:\.\w+)?\.parquet)", re.IGNORECASE)
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
    is_estimated: bool = False  # whether AWS calls some of its costs an estimate
    first_s: float = float("inf")  # of an answer
    last_s: float = float("-inf")
    may_be_cut: bool = False
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    @property
    def digest(self) -> bytes:
        """The digest of the text, which is the same for a file and its compressed copy."""
        return self._hash.digest()

    def items(self, tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
        """Yield the line items. Raises BadInput, with file and line, if the file is no bill or cannot be read."""
        if _is_json(self.path):
            yield from self._answers(tags)
            return
        if is_parquet(self.path):
            yield from self._table(self._parquet_rows(), self._parquet_names(), tags)
            return
        reader = csv.reader(self._lines(), strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise BadInput("the file is empty", str(self.path))
            yield from self._table(self._rows(reader, len(header)), header, tags)
            self.may_be_cut = ends_within_line(self.path)
        except csv.Error as error:
            raise BadInput(f"is no CSV ({error})", f"{self.path}:{reader.line_num}") from None

    def _answers(self, tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
        text = "".join(self._lines(longest=_LARGEST_JSON))
        if len(text) > _LARGEST_JSON:
            raise BadInput(f"larger than {_LARGEST_JSON >> 20} MiB", str(self.path))
        answers = cost_explorer.answers_in(text, self.path)
        self.kind, self.report = cost_explorer.KIND, (cost_explorer.KIND, *answers.keys)
        self.has_more, self.is_net, self.is_estimated = answers.has_more, answers.is_net, answers.is_estimated
        for item in answers.items(self.path, tags):
            self.first_s, self.last_s = min(self.first_s, item.start_s), max(self.last_s, item.end_s)
            yield item

    def _parquet_names(self) -> list[str]:
        return list(self._parquet().schema_arrow.names)

    def _parquet_rows(self) -> Iterator[Row]:
        with self.path.open("rb") as file:
            while data := file.read(1 << 20):
                self._hash.update(data)
        number, batches = 0, self._parquet().iter_batches()
        while (batch := self._read(lambda: next(batches, None))) is not None:
            for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                yield f"{self.path} row {number}", [_text(cell) for cell in cells]

    def _parquet(self) -> Any:
        try:
            import pyarrow.parquet as pq  # imported here because it takes 0.3 s
        except ImportError:
            what = "Parquet needs pyarrow (pip install 'mark-serving[parquet]'), or choose text/csv for the report"
            raise BadInput(what, str(self.path)) from None
        return self._read(lambda: pq.ParquetFile(self.path))

    def _read(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (OSError, ValueError) as error:
            raise BadInput("the Parquet file cannot be read", str(self.path), str(error).split("\n")[0]) from None

    def _table(self, rows: Iterator[Row], header: Sequence[str], tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
        names = [letters(name) for name in header]
        parts = _PARTS.fullmatch(self.path.name)
        stem = "*".join(parts.groups()) if parts else self.path.name
        self.report = (str(self.path.parent), stem, *names)
        if cost_explorer.is_table(header):
            self.kind, read = cost_explorer.KIND, cost_explorer.table_items
        elif monthly_invoices.is_one(set(names)):
            self.kind, read = monthly_invoices.KIND, monthly_invoices.items
        elif focus.is_one(set(names)):
            self.kind, read = focus.KIND, focus.items
        elif any(name.startswith("lineitem") for name in names):
            self.kind, read = cost_reports.KIND, cost_reports.items
        else:
            what = f"no bill of AWS as CSV; known are {', '.join(KINDS)}"
            raise BadInput(what, f"{self.path}:1", shown(",".join(header).encode())[:60])
        yield from read(rows, header, f"{self.path}:1", tags)

    def _rows(self, reader: Reader, width: int) -> Iterator[Row]:
        for cells in reader:
            if cells:
                place = f"{self.path}:{reader.line_num}"
                if len(cells) != width:
                    raise BadInput(f"{len(cells)} cells under a header of {width}", place)
                yield place, cells

    def _lines(self, longest: int = LONGEST_LINE) -> Iterator[str]:
        for line, block in blocks(self.path, longest=longest):
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
        what = "no .csv, .csv.gz, .zip or .parquet files in this folder, nor answers of Cost Explorer"
        raise BadInput(what, path)
    return [BillFile(file) for file in found]


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz", ".zip", ".parquet"))


def _is_json(path: Path) -> bool:
    return path.name.lower().endswith((".json", ".json.gz"))


def _is_answer(path: Path) -> bool:
    """Return whether a JSON file is an answer of Cost Explorer and not a manifest, which lies beside reports."""
    try:
        return b'"ResultsByTime"' in beginning(path, 1 << 16)
    except BadInput:
        return False


def _text(cell: object) -> str:
    """Return a Parquet cell as a CSV report has it."""
    if isinstance(cell, list | dict):  # a map of tags
        return json.dumps(dict(cell))
    return "" if cell is None else str(cell)
