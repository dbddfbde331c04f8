"""One line item of an AWS bill, and functions that read the cells of its files.

`cost_reports`, `monthly_invoices` and `cost_explorer` yield the line items of their kind of file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from mark.domain.errors import BadInput

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class LineItem:
    """One item. Times are Unix seconds, `cost` is unblended dollars, `list_cost` the on-demand price of reserved use.

    `product`, `usage_type`, `operation` and `item_type` have the names of the cost and usage report.
    """

    where: str  # the file and the line
    start_s: float
    end_s: float
    product: str
    usage_type: str
    item_type: str
    amount: Decimal
    cost: Decimal
    account: str = ""
    operation: str = ""
    region: str = ""
    list_cost: Decimal = ZERO
    is_selected: bool = True  # whether it has all the requested tags
    identity: str = ""  # unique within its report


class BillColumns:
    """The columns of a table, found by the letters of their names, because AWS writes them in several ways."""

    def __init__(
        self, header: Sequence[str], where: str, required: Mapping[str, Sequence[str]], what: str, **optional: str
    ) -> None:
        """Find columns: `required` and `optional` have the possible names of each, optional ones split at spaces."""
        self.places = {letters(name): place for place, name in reversed(list(enumerate(header)))}
        self.at: dict[str, int] = {}
        self.names = {column: names[0] for column, names in required.items()}
        for column, names in required.items():
            place = next((self.places[key] for name in names if (key := letters(name)) in self.places), None)
            if place is None:
                raise BadInput(f"no {what}: it lacks the column {names[0]}", where)
            self.at[column] = place
        for column, spelled in optional.items():
            place = next((self.places[name] for name in spelled.split() if name in self.places), None)
            if place is not None:
                self.at[column] = place


@dataclass(slots=True)
class BillRow:
    """The cells of one line, by column."""

    columns: BillColumns
    cells: Sequence[str]
    place: str

    def where(self, column: str) -> str:
        return f"{self.place} {self.columns.names.get(column, column)}"

    def text(self, column: str) -> str:
        at = self.columns.at.get(column)
        return "" if at is None else self.cells[at].strip()

    def number(self, column: str) -> Decimal:
        """Return the number in a column, zero if blank, as amounts of taxes are."""
        return number(self.text(column), self.where(column))

    def span(self) -> tuple[float, float]:
        start_s, end_s = time(self.text("start"), self.where("start")), time(self.text("end"), self.where("end"))
        if end_s < start_s:
            raise BadInput("ends before it starts", self.where("end"), self.text("end"))
        return start_s, end_s

    def item(self) -> LineItem:
        """Return the line item, from the columns that both kinds of reports have."""
        start_s, end_s = self.span()
        return LineItem(
            where=self.place,
            start_s=start_s,
            end_s=end_s,
            product=self.text("product"),
            usage_type=self.text("usage_type"),
            item_type=self.text("item_type"),
            amount=self.number("amount"),
            cost=self.dollars("cost"),
            account=self.text("account"),
            operation=self.text("operation"),
            region=self.text("region"),
            identity=self.text("identity"),
        )

    def dollars(self, column: str) -> Decimal:
        cost = self.number(column)
        if cost:
            check_dollars(self.text("currency"), self.where("currency"))
        return cost


def number(cell: str, where: str) -> Decimal:
    if not cell:
        return ZERO
    try:
        value = Decimal(cell)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or abs(value) > Decimal("1e15"):
        raise BadInput("must be a finite number", where, cell)
    return value


def check_dollars(currency: str, where: str) -> None:
    if currency not in ("", "USD", "$"):
        raise BadInput("mark's prices are US dollars", where, currency)


def time(cell: str, where: str) -> float:
    try:
        return _unix_s(cell)
    except ValueError:
        raise BadInput("must be a time like 2026-05-01T00:00:00Z", where, cell) from None


def parse_time(text: str) -> float:
    """Return Unix seconds of an ISO 8601 time, in UTC if it names no zone. Raises ValueError, also far from today."""
    when = datetime.fromisoformat(text)
    if not 2000 <= when.year < 2200:
        raise ValueError(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


@lru_cache(maxsize=65536)
def _unix_s(cell: str) -> float:
    return parse_time(cell.replace("/", "-"))  # monthly invoices have 2026/05/01 00:00:00


def utc(at_s: float) -> str:
    """Return a Unix time as text, to the minute."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%MZ")


@lru_cache(maxsize=4096)
def letters(name: str) -> str:
    """Return lower-case letters and digits, equal for `lineItem/UsageType` and `line_item_usage_type`, for example."""
    return "".join(c for c in name.lower() if c.isascii() and c.isalnum())
