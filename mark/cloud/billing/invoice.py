"""The invoiced cost of a period, by line, from AWS's own files.

Every line item of the files is in one of the sums of an `Invoice`, to the last digit because the sums are decimal, and
only once even if several reports contain it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase

from mark.cloud.billing import cost_reports
from mark.cloud.billing.bill_files import KINDS, BillFile, bill_files
from mark.cloud.billing.invoice_lines import COMMITMENTS, USED, InvoiceLine, line_of
from mark.cloud.billing.line_items import ZERO, LineItem, utc
from mark.cloud.billing.overlaps import DAY_S, InvoiceReport, Said, left_out
from mark.domain.errors import BadInput

_COVERED = ("DiscountedUsage", "SavingsPlanCoveredUsage")
_PLAIN_LINUX = re.compile(r"(RunInstances(:SV\d+)?|RunInstance|Hosting)?")
_PROBE = 1000  # items kept of each file, to detect that another part of its report repeats them
_OWN = 1_000_000  # hashes of items kept of each file, to detect that it repeats them: 60 MB


@dataclass(frozen=True, slots=True)
class InvoicedCost:
    """The invoiced amount and dollars of a line in the period.

    The `rated` part is billed by use at a price: `rated_usd` / `rated_amount` is the price paid, after discounts.
    """

    amount: float
    usd: float
    rated_amount: float
    rated_usd: float


@dataclass(frozen=True, slots=True)
class Invoice:
    """The line items of bills, cut to a period and a selection. Times are Unix seconds, dollars are unblended.

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
    """Read the line items of the period [begin, end) that have all `tags`, with instances of the given types only.

    `instances` are patterns of types. An item that reaches beyond the period counts with its share of the time. An item
    in several reports counts once. Raises BadInput for files that are not bills, for reports that differ on an item,
    for dollars in another currency, and if the selection is empty.
    """
    reading = _Reading(begin_s, end_s, tuple(tags), tuple(instances))
    files = [file for path in paths for file in bill_files(path)]
    reading.by_day = len(files) > 1
    for n, file in enumerate(files):
        reading.read(n, file)
    for file in files:
        if file.has_more and not any(_is_next_page(other, file) for other in files):
            what = "is one page of several: fetch the others with --next-page-token, and name their files too"
            raise BadInput(what, f"{file.path} NextPageToken")
    return reading.invoice(files)


def _is_next_page(other: BillFile, file: BillFile) -> bool:
    """Return whether another file may be a page behind this one: it goes on where this one ends."""
    if other is file or other.report != file.report:
        return False
    return other.first_s <= file.last_s <= other.last_s


@dataclass(slots=True)
class _Sums:
    amount: Decimal = ZERO
    usd: Decimal = ZERO
    rated_amount: Decimal = ZERO
    rated_usd: Decimal = ZERO

    def add(self, other: _Sums) -> None:
        self.amount += other.amount
        self.usd += other.usd
        self.rated_amount += other.rated_amount
        self.rated_usd += other.rated_usd


@dataclass(slots=True)
class _Pile:
    """The sums of one file for one line, account and day; for all days if there is only one file."""

    rows: int = 0
    usd: Decimal = ZERO
    amount: Decimal = ZERO
    is_long: bool = False
    in_period: bool = False
    begin_s: float = float("inf")
    end_s: float = float("-inf")
    sums: dict[InvoiceLine, _Sums] = field(default_factory=dict)
    runs: dict[tuple[float, float], float] = field(default_factory=dict)
    outside_period: Decimal = ZERO
    outside_selection: Decimal = ZERO

    def of(self, line: InvoiceLine) -> _Sums:
        return self.sums.setdefault(line, _Sums())


_Key = tuple[int, str, InvoiceLine, int]  # file, account, line, day


@dataclass(slots=True)
class _Reading:
    begin_s: float
    end_s: float
    tags: tuple[tuple[str, str], ...]
    instances: tuple[str, ...]
    by_day: bool = False
    piles: dict[_Key, _Pile] = field(default_factory=dict)
    probes: dict[tuple[str, ...], dict[int, set[tuple[str, float, str]]]] = field(default_factory=dict)
    repeated: set[tuple[str, ...]] = field(default_factory=set)  # reports with parts that repeat each other
    first_s: float = float("inf")
    last_s: float = float("-inf")
    regions: set[str] = field(default_factory=set)
    platforms: set[str] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    spread_usd: Decimal = ZERO  # of use of more than a day, of which only a share counts
    covered: bool = False  # whether a reservation or a savings plan has paid for any use
    unlisted: bool = False  # whether use that a reservation covers has no list price

    def read(self, n: int, file: BillFile) -> None:
        own: set[int] = set()
        for item in file.items(self.tags):
            self.add(n, item)
            if item.identity:
                key = hash((item.identity, item.account, item.start_s, item.item_type, item.amount, item.cost))
                if key in own:
                    what = "stands above already: two copies of a report in one file count twice, remove one"
                    raise BadInput(what, f"{item.where} line item", item.identity)
                if len(own) < _OWN:
                    own.add(key)
            if self.by_day and item.identity:
                # Answers are small, and may overlap anywhere.
                most = _PROBE if file.kind == cost_reports.KIND else sys.maxsize
                self._probe(n, file.report, (item.identity, item.start_s, item.item_type), most)

    def _probe(self, n: int, report: tuple[str, ...], item: tuple[str, float, str], most: int) -> None:
        """Find parts that repeat each other's items, and so are separate reports."""
        parts = self.probes.setdefault(report, {})
        if any(item in seen for part, seen in parts.items() if part != n):
            self.repeated.add(report)
        own = parts.setdefault(n, set())
        if len(own) < most:
            own.add(item)

    def add(self, n: int, item: LineItem) -> None:
        used = item.item_type in USED
        if used:
            self.first_s, self.last_s = min(self.first_s, item.start_s), max(self.last_s, item.end_s)
        line = line_of(item.product, item.usage_type, item.item_type)
        day = int(item.start_s // DAY_S) if self.by_day else 0
        pile = self.piles.setdefault((n, item.account, line, day), _Pile())
        share = self._share(item.start_s, item.end_s)
        inside = item.cost * share
        pile.rows += 1
        pile.usd += item.cost
        pile.amount += item.amount if used else ZERO
        pile.is_long = pile.is_long or item.end_s - item.start_s > DAY_S
        pile.in_period = pile.in_period or bool(share)
        pile.begin_s, pile.end_s = min(pile.begin_s, item.start_s), max(pile.end_s, item.end_s)
        pile.outside_period += item.cost - inside
        if not share:
            return
        named = not (line.is_instance and self.instances) or any(fnmatchcase(line.name, one) for one in self.instances)
        if not (item.is_selected and named):
            pile.outside_selection += inside
            return
        amount = item.amount * share if used else ZERO
        sums = pile.of(line)
        sums.amount += amount
        sums.usd += inside
        if item.item_type == "DiscountedUsage":
            # A reservation has paid for this already. It counts at list price here and is subtracted from
            # `commitments`, as savings plans are in the report.
            listed = item.list_cost * share
            self.unlisted = self.unlisted or (item.amount > 0 and not item.list_cost)
            sums.usd += listed
            pile.of(COMMITMENTS).usd -= listed
        else:
            sums.rated_amount += amount
            sums.rated_usd += inside
        self.spread_usd += inside if used and share < 1 and item.end_s - item.start_s > DAY_S else ZERO
        self.accounts.add(item.account)
        self.covered = self.covered or item.item_type in _COVERED
        if line.is_instance and used:
            span = (item.start_s, item.end_s)
            pile.runs[span] = pile.runs.get(span, 0.0) + float(item.amount)
            self.regions.add(item.region)
            if not _PLAIN_LINUX.fullmatch(item.operation):
                self.platforms.add(item.operation)

    def _share(self, start_s: float, end_s: float) -> Decimal:
        """Return the share of the item's time that lies in the period."""
        if self.begin_s <= start_s and end_s <= self.end_s and start_s < self.end_s:
            return Decimal(1)
        overlap_s = min(end_s, self.end_s) - max(start_s, self.begin_s)
        return Decimal(overlap_s) / Decimal(end_s - start_s) if overlap_s > 0.0 else ZERO

    def _counted(self, files: Sequence[BillFile]) -> tuple[dict[_Key, _Pile], tuple[str, ...]]:
        """Return the piles that count, and notes on the others."""
        if not self.by_day:
            return self.piles, ()
        copies: dict[bytes, int] = {}
        of: dict[tuple[str, ...], int] = {}
        reports: list[int] = []  # of each file
        notes = []
        for n, file in enumerate(files):
            before = copies.setdefault(file.digest, n)
            # A part that repeats items of another part is a separate report, and so are its neighbours.
            alone = file.report in self.repeated
            reports.append(reports[before] if before != n else n if alone else of.setdefault(file.report, n))
            if before != n and any(key[0] == n for key in self.piles):
                notes.append(f"{file.path} is a copy of {files[before].path} and counts once")
        piles = {key: pile for key, pile in self.piles.items() if copies[files[key[0]].digest] == key[0]}
        said = {
            (n, account, line, day): Said(
                reports[n],
                account,
                line,
                day,
                pile.usd,
                pile.amount,
                pile.rows,
                pile.is_long,
                pile.in_period,
                pile.begin_s,
                pile.end_s,
            )
            for (n, account, line, day), pile in piles.items()
        }
        named = [InvoiceReport(str(file.path), KINDS.index(file.kind), file.kind) for file in files]
        dropped, pairs = left_out(said, named)
        return {key: pile for key, pile in piles.items() if key not in dropped}, (*notes, *pairs)

    def invoice(self, files: Sequence[BillFile]) -> Invoice:
        period = f"{utc(self.begin_s)} to {utc(self.end_s)}"
        if not self.piles:
            raise BadInput("the files have headers and no line items", "bill")
        piles, overlaps = self._counted(files)
        sums: dict[InvoiceLine, _Sums] = {}
        runs: dict[InvoiceLine, dict[tuple[float, float], float]] = {}
        for (_, _, line, _), pile in piles.items():
            for part, one in pile.sums.items():
                sums.setdefault(part, _Sums()).add(one)
            for span, hours in pile.runs.items():
                of_line = runs.setdefault(line, {})
                of_line[span] = of_line.get(span, 0.0) + hours
        outside_selection = sum((pile.outside_selection for pile in piles.values()), ZERO)
        if not sums:
            if outside_selection:
                raise BadInput("no line item of the period fits `tags` and `instances`", "bill", period)
            reach = f"; use is from {utc(self.first_s)} to {utc(self.last_s)}" if self.first_s <= self.last_s else ""
            raise BadInput(f"no line item in the trace's period{reach}", "bill", period)
        return Invoice(
            charges={
                line: InvoicedCost(float(one.amount), float(one.usd), float(one.rated_amount), float(one.rated_usd))
                for line, one in sums.items()
            },
            usd=float(sum((one.usd for one in sums.values()), ZERO)),
            outside_period_usd=float(sum((pile.outside_period for pile in piles.values()), ZERO)),
            outside_selection_usd=float(outside_selection),
            files=len(files),
            rows=sum(pile.rows for pile in piles.values()),
            first_s=self.first_s,
            last_s=self.last_s,
            runs={
                line: tuple((*interval, hours) for interval, hours in sorted(by_interval.items()))
                for line, by_interval in runs.items()
            },
            regions=tuple(sorted(self.regions - {""})),
            notes=(*self._notes(files, period), *overlaps),
        )

    def _notes(self, files: Sequence[BillFile], period: str) -> list[str]:
        notes = []
        if self.first_s > self.last_s:
            notes.append("the invoice has no use at all, only fees, taxes and credits")
        elif self.first_s > self.begin_s or self.last_s < self.end_s:
            notes.append(
                f"the invoice has use from {utc(self.first_s)} to {utc(self.last_s)} only, and the trace is of {period}"
            )
        if len(accounts := sorted(self.accounts - {""})) > 1:
            notes.append(f"the invoice is of {len(accounts)} accounts, all of which count: {', '.join(accounts)}")
        if self.spread_usd:
            what = f"${self.spread_usd:.2f} of the invoice are shares of use longer than a day, by their time in the"
            notes.append(f"{what} trace's period: a report by hour shows when they were used")
        if self.platforms:
            notes.append(f"not plain Linux, and simulated as if it were: {', '.join(sorted(self.platforms))}")
        cut = [str(file.path) for file in files if file.may_be_cut]
        if cut:
            notes.append(f"no line feed at the end: rows may be missing in {', '.join(cut)}")
        if any(file.is_net for file in files):
            notes.append("not grouped by record type, so that credits, refunds and taxes are in the dollars of use")
        if estimated := [str(file.path) for file in files if file.is_estimated]:
            notes.append(f"AWS calls costs of {', '.join(estimated)} estimated: they may still change")
        if self.unlisted:
            notes.append("use that reservations cover has no list price in these files and counts as $0")
        if self.tags and self.covered:
            notes.append("fees carry no tags: use covered by reservations and plans stands here without its fee")
        return notes
