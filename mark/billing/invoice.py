"""AWS cost and usage reports: what a period was invoiced, by line. CSV, plain or gzip, a file, several, or a folder.

Legacy reports (`lineItem/UsageType`) and Data Exports' CUR 2.0 (`line_item_usage_type`) differ in how they write the
names of the columns, so columns are known by their letters alone. Sums are decimal: every line item of the files is
in one of the sums of an `Invoice`, to the last digit.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import lru_cache
from io import StringIO
from pathlib import Path

from mark.billing.invoice_lines import COMMITMENTS, USED, InvoiceLine, line_of
from mark.domain.errors import BadInput
from mark.workload.blocks import blocks, is_folder

_REQUIRED = {
    "start": "lineItem/UsageStartDate",
    "end": "lineItem/UsageEndDate",
    "product": "lineItem/ProductCode",
    "usage_type": "lineItem/UsageType",
    "item_type": "lineItem/LineItemType",
    "amount": "lineItem/UsageAmount",
    "cost": "lineItem/UnblendedCost",
}
_OPTIONAL = {
    "operation": ("lineitemoperation",),
    "currency": ("lineitemcurrencycode",),
    "region": ("productregioncode", "productregion"),
    "list_cost": ("pricingpublicondemandcost",),
    "billing_period": ("billbillingperiodstartdate",),
    "tags": ("resourcetags", "tags"),
}
_TAG_PREFIXES = ("resourcetagsuser", "resourcetags", "user", "")
_COVERED = ("DiscountedUsage", "SavingsPlanCoveredUsage")
_ZERO = Decimal(0)
_PLAIN_LINUX = re.compile(r"(RunInstances(:SV\d+)?|RunInstance|Hosting)?")


@dataclass(frozen=True, slots=True)
class InvoicedCost:
    """What a line was invoiced in the period. `rated` is the part of it that was billed by use at a price, discounts
    taken off: its dollars over its amount are the price that was really paid."""

    amount: float
    usd: float
    rated_amount: float
    rated_usd: float


@dataclass(frozen=True, slots=True)
class Invoice:
    """A cost and usage report, cut to a period and a selection. Times are Unix seconds, dollars are unblended.

    `usd + outside_period_usd + outside_selection_usd` is the total of the files. `runs` are hours of instances as the
    report has them: (from, to, instance hours) of every interval that touches the period.
    """

    charges: Mapping[InvoiceLine, InvoicedCost]
    usd: float
    outside_period_usd: float
    outside_selection_usd: float
    files: int
    rows: int
    first_s: float  # of use, anywhere in the files
    last_s: float
    runs: Mapping[InvoiceLine, tuple[tuple[float, float, float], ...]]
    regions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def total_usd(self) -> float:
        return self.usd + self.outside_period_usd + self.outside_selection_usd


def read_invoice(
    paths: Sequence[str],
    begin_s: float,
    end_s: float,
    *,
    tags: Sequence[tuple[str, str]] = (),
    instances: Sequence[str] = (),
) -> Invoice:
    """The line items of the period [begin, end), those with all of the tags; of instances only the types that fit one
    of the patterns. An item that reaches beyond the period counts with its share of the time.

    Raises BadInput for what is no cost and usage report, for the same report twice, for dollars that are none (another
    currency), and where nothing is left to compare.
    """
    reading = _Reading(begin_s, end_s, tuple(tags), tuple(instances))
    files = [file for path in paths for file in _files(path)]
    seen: dict[tuple[str, str], Path] = {}
    for file in files:
        period = reading.read(file)
        before = seen.setdefault((file.name, period) if period else (str(file.resolve()), ""), file)
        if before is not file:
            raise BadInput("the same report twice; leave out the older version of it", str(file), str(before))
    return reading.invoice(len(files))


def _files(path: str) -> list[Path]:
    where = Path(path)
    if not path or not is_folder(where):
        return [where]
    found = sorted(p for p in where.rglob("*") if p.name.lower().endswith((".csv", ".csv.gz")) and p.is_file())
    if not found:
        raise BadInput("no .csv or .csv.gz files in this folder (choose text/csv for the report)", path)
    return found


@dataclass(slots=True)
class _Sums:
    amount: Decimal = _ZERO
    usd: Decimal = _ZERO
    rated_amount: Decimal = _ZERO
    rated_usd: Decimal = _ZERO


@dataclass(slots=True)
class _Reading:
    begin_s: float
    end_s: float
    tags: tuple[tuple[str, str], ...]
    instances: tuple[str, ...]
    sums: dict[InvoiceLine, _Sums] = field(default_factory=dict)
    runs: dict[InvoiceLine, dict[tuple[float, float], float]] = field(default_factory=dict)
    outside_period: Decimal = _ZERO
    outside_selection: Decimal = _ZERO
    rows: int = 0
    first_s: float = float("inf")
    last_s: float = float("-inf")
    regions: set[str] = field(default_factory=set)
    platforms: set[str] = field(default_factory=set)
    covered: bool = False  # is there use that a reservation or a savings plan has paid

    def read(self, path: Path) -> str:
        """Add a file's items; its billing period, where it says one and has an item."""
        reader = csv.reader(_lines(path), strict=True)
        period = ""
        try:
            header = next(reader, None)
            if header is None:
                raise BadInput("the file is empty", str(path))
            columns = _Columns(header, path, self.tags)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise BadInput(f"{len(cells)} cells under a header of {len(header)}", f"{path}:{reader.line_num}")
                row = _Row(columns, cells, path, reader.line_num)
                period = period or row.text("billing_period")
                self.add(row)
        except csv.Error as error:
            raise BadInput(f"is no CSV ({error})", f"{path}:{reader.line_num}") from None
        return period

    def add(self, row: _Row) -> None:
        self.rows += 1
        start_s, end_s = row.time("start"), row.time("end")
        if end_s < start_s:
            raise BadInput("ends before it starts", row.where("end"), row.text("end"))
        cost, item_type = row.number("cost"), row.text("item_type")
        if cost and row.text("currency") not in ("", "USD"):
            raise BadInput("mark's prices are US dollars", row.where("currency"), row.text("currency"))
        used = item_type in USED
        if used:
            self.first_s, self.last_s = min(self.first_s, start_s), max(self.last_s, end_s)
        share = self._share(start_s, end_s)
        inside = cost * share
        self.outside_period += cost - inside
        if not share:
            return
        line = line_of(row.text("product"), row.text("usage_type"), item_type)
        if not row.has_tags(self.tags) or (line.is_instance and not self._wants(line.name)):
            self.outside_selection += inside
            return
        amount = row.number("amount") * share if used else _ZERO
        sums = self.sums.setdefault(line, _Sums())
        sums.amount += amount
        sums.usd += inside
        if item_type == "DiscountedUsage":
            # A reservation has paid for it already: it counts at list price here, and `commitments` for as much less,
            # which is how savings plans come in the report.
            listed = row.number("list_cost") * share
            sums.usd += listed
            self.sums.setdefault(COMMITMENTS, _Sums()).usd -= listed
        else:
            sums.rated_amount += amount
            sums.rated_usd += inside
        self.covered = self.covered or item_type in _COVERED
        if line.is_instance and used:
            run = self.runs.setdefault(line, {})
            run[start_s, end_s] = run.get((start_s, end_s), 0.0) + float(row.number("amount"))
            self.regions.add(row.text("region"))
            if not _PLAIN_LINUX.fullmatch(row.text("operation")):
                self.platforms.add(row.text("operation"))

    def _share(self, start_s: float, end_s: float) -> Decimal:
        """How much of the item's time lies in the period."""
        if self.begin_s <= start_s and end_s <= self.end_s and start_s < self.end_s:
            return Decimal(1)
        overlap_s = min(end_s, self.end_s) - max(start_s, self.begin_s)
        return Decimal(overlap_s) / Decimal(end_s - start_s) if overlap_s > 0.0 else _ZERO

    def _wants(self, instance: str) -> bool:
        return not self.instances or any(fnmatchcase(instance, pattern) for pattern in self.instances)

    def invoice(self, files: int) -> Invoice:
        period = f"{utc(self.begin_s)} to {utc(self.end_s)}"
        if not self.rows:
            raise BadInput("the files have headers and no line items", "bill")
        if not self.sums:
            if self.outside_selection:
                raise BadInput("no line item of the period fits `tags` and `instances`", "bill", period)
            reach = f"; use is from {utc(self.first_s)} to {utc(self.last_s)}" if self.first_s <= self.last_s else ""
            raise BadInput(f"no line item in the trace's period{reach}", "bill", period)
        notes = []
        if self.first_s > self.last_s:
            notes.append("the invoice has no use at all, only fees, taxes and credits")
        elif self.first_s > self.begin_s or self.last_s < self.end_s:
            notes.append(
                f"the invoice has use from {utc(self.first_s)} to {utc(self.last_s)} only, and the trace is of {period}"
            )
        if self.platforms:
            notes.append(f"not plain Linux, and simulated as if it were: {', '.join(sorted(self.platforms))}")
        if self.tags and self.covered:
            notes.append("fees carry no tags: what reservations and plans cover stands here without what it cost")
        return Invoice(
            charges={
                line: InvoicedCost(float(one.amount), float(one.usd), float(one.rated_amount), float(one.rated_usd))
                for line, one in self.sums.items()
            },
            usd=float(sum((one.usd for one in self.sums.values()), _ZERO)),
            outside_period_usd=float(self.outside_period),
            outside_selection_usd=float(self.outside_selection),
            files=files,
            rows=self.rows,
            first_s=self.first_s,
            last_s=self.last_s,
            runs={
                line: tuple((*interval, hours) for interval, hours in sorted(by_interval.items()))
                for line, by_interval in self.runs.items()
            },
            regions=tuple(sorted(self.regions - {""})),
            notes=tuple(notes),
        )


class _Columns:
    """Where the columns of one file are."""

    def __init__(self, header: Sequence[str], path: Path, tags: Sequence[tuple[str, str]]) -> None:
        at = {_letters(name): place for place, name in reversed(list(enumerate(header)))}
        self.at: dict[str, int] = {}
        for column, name in _REQUIRED.items():
            if _letters(name) not in at:
                raise BadInput(f"no cost and usage report: it lacks the column {name}", f"{path}:1")
            self.at[column] = at[_letters(name)]
        for column, names in _OPTIONAL.items():
            place = next((at[name] for name in names if name in at), None)
            if place is not None:
                self.at[column] = place
        self.of_tag = {
            key: [at[name] for name in (f"{prefix}{_letters(key)}" for prefix in _TAG_PREFIXES[:2]) if name in at]
            for key, _ in tags
        }


@dataclass(slots=True)
class _Row:
    columns: _Columns
    cells: Sequence[str]
    path: Path
    line: int

    def where(self, column: str) -> str:
        return f"{self.path}:{self.line} {_REQUIRED.get(column, column)}"

    def text(self, column: str) -> str:
        place = self.columns.at.get(column)
        return "" if place is None else self.cells[place].strip()

    def number(self, column: str) -> Decimal:
        """Zero where it is blank, as amounts of taxes are."""
        cell = self.text(column)
        if not cell:
            return _ZERO
        try:
            value = Decimal(cell)
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite() or abs(value) > Decimal("1e15"):
            raise BadInput("must be a finite number", self.where(column), cell)
        return value

    def time(self, column: str) -> float:
        cell = self.text(column)
        try:
            return _unix_s(cell)
        except ValueError:
            raise BadInput("must be a time like 2026-05-01T00:00:00Z", self.where(column), cell) from None

    def has_tags(self, tags: Sequence[tuple[str, str]]) -> bool:
        return all(self._has_tag(key, value) for key, value in tags)

    def _has_tag(self, key: str, value: str) -> bool:
        if any(self.cells[place].strip() == value for place in self.columns.of_tag[key]):
            return True
        if not (packed := self.text("tags")):
            return False
        try:
            tags = json.loads(packed)
        except ValueError:
            tags = None
        if not isinstance(tags, dict):
            raise BadInput("must be a map of tags, as JSON", self.where("resource_tags"), packed)
        names = {f"{prefix}{_letters(key)}" for prefix in _TAG_PREFIXES}
        return any(_letters(name) in names and held == value for name, held in tags.items())


def _lines(path: Path) -> Iterator[str]:
    for line, block in blocks(path):
        try:
            yield from StringIO(block.decode("utf-8"))
        except UnicodeDecodeError:
            raise BadInput("is no UTF-8 text", f"{path}, from line {line}") from None


def parse_time(text: str) -> float:
    """Unix seconds of an ISO 8601 time, UTC where it names no zone. Raises ValueError, also far from today."""
    when = datetime.fromisoformat(text)
    if not 2000 <= when.year < 2200:
        raise ValueError(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


_unix_s = lru_cache(maxsize=65536)(parse_time)


def utc(at_s: float) -> str:
    """A Unix time to the minute."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%MZ")


@lru_cache(maxsize=4096)
def _letters(name: str) -> str:
    """`lineItem/UsageType` and `line_item_usage_type` alike; `user:CostCenter` and `user_cost_center`, too."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
