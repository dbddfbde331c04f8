"""Cost Explorer: the answer of `aws ce get-cost-and-usage` (JSON), and the CSV that the console downloads.

Both must be grouped by usage type, because nothing else names the usage. If it is also grouped by record type, the JSON
separates credits, taxes and fees from use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from mark.cloud.billing.line_items import ZERO, LineItem, check_dollars, number, time
from mark.cloud.billing.services import product_of
from mark.domain.errors import BadInput
from mark.traffic.traces.partial import documents_in

KIND = "Cost Explorer export"
_DAY = timedelta(days=1)
_WAY_OUT = "group it by usage type (--group-by Type=DIMENSION,Key=USAGE_TYPE Type=DIMENSION,Key=RECORD_TYPE)"
_METRICS = "ask for --metrics UnblendedCost UsageQuantity"
_ITEM_TYPES = {
    "Recurring": "RIFee",
    "Recurring reservation fee": "RIFee",
    "Upfront": "Fee",
    "Upfront reservation fee": "Fee",
    "Reservation applied usage": "DiscountedUsage",
    "Savings Plan Covered Usage": "SavingsPlanCoveredUsage",
    "Savings Plan Negation": "SavingsPlanNegation",
    "Savings Plan Recurring Fee": "SavingsPlanRecurringFee",
    "Savings Plan Upfront Fee": "SavingsPlanUpfrontFee",
    "Enterprise Discount Program Discount": "EdpDiscount",
    "Support": "Fee",
}
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_TOTALS = ("total costs", "total cost")
_SLIP = Decimal("0.01")  # dollars, and share, by which the sum of a row may differ from its total
_COLUMN = re.compile(r"(?P<name>.*?)\s*\((?P<unit>[^()]+)\)")
_DIMENSIONS = {"Usage type", "UsageType", "Service", "Linked account", "Charge type", "Instance type", "Region", "Tag"}


@dataclass(frozen=True, slots=True)
class CostAnswers:
    """The answers of one file: one, or the pages of one behind one another or in a list.

    `has_more`: further pages exist. `is_net`: credits, refunds and taxes are mixed with use.
    """

    pages: Sequence[Mapping[str, Any]]

    @property
    def keys(self) -> list[str]:
        groups = self.pages[0].get("GroupDefinitions") or []
        return [str(one.get("Key")) for one in groups if isinstance(one, Mapping)]

    @property
    def has_more(self) -> bool:
        return bool(self.pages[-1].get("NextPageToken"))

    @property
    def is_net(self) -> bool:
        return "RECORD_TYPE" not in self.keys

    @property
    def is_estimated(self) -> bool:
        return any(one.get("Estimated") is True for page in self.pages for one in page["ResultsByTime"])

    def items(self, path: Path, tags: Sequence[tuple[str, str]]) -> Iterator[LineItem]:
        """Yield the groups as line items. Raises BadInput if a needed field is missing."""
        keys = self.keys
        if "USAGE_TYPE" not in keys:
            raise BadInput(f"no usage types; {_WAY_OUT}", str(path), ", ".join(keys) or "not grouped")
        seen: set[tuple[object, ...]] = set()
        for n, result in enumerate(one for page in self.pages for one in page["ResultsByTime"]):
            place = f"{path} ResultsByTime[{n}]"
            try:
                start_s = time(str(result["TimePeriod"]["Start"]), f"{place} TimePeriod.Start")
                end_s = time(str(result["TimePeriod"]["End"]), f"{place} TimePeriod.End")
                for group in result["Groups"]:
                    named = dict(zip(keys, (str(key) for key in group["Keys"]), strict=True))
                    if (group_of := (start_s, end_s, *named.values())) in seen:
                        what = "stands twice for one time: remove the copy"
                        raise BadInput(what, f"{place} Groups", ", ".join(named.values()))
                    seen.add(group_of)
                    yield _item(named, group["Metrics"], (start_s, end_s), place, tags)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, BadInput):
                    raise
                raise BadInput(f"no {KIND}: it lacks a field ({error})", str(path)) from error


def answers_in(text: str, path: Path) -> CostAnswers:
    """Return the answers in a JSON text. Raises BadInput for other JSON."""
    found: list[object] = []
    try:
        for one in documents_in(text):
            found += one if isinstance(one, list) else [one]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"is no JSON ({error})", str(path)) from None
    pages = [one for one in found if isinstance(one, Mapping) and isinstance(one.get("ResultsByTime"), list)]
    if not pages or len(pages) < len(found):
        raise BadInput(f"no {KIND}: it has no ResultsByTime", str(path))
    if any(one.get("GroupDefinitions") != pages[0].get("GroupDefinitions") for one in pages):
        raise BadInput("answers that are grouped differently: write each to its own file", str(path))
    return CostAnswers(pages)


def _item(
    named: Mapping[str, str], metrics: Any, span_s: tuple[float, float], place: str, tags: Sequence[tuple[str, str]]
) -> LineItem:
    if "UnblendedCost" not in metrics:
        raise BadInput(f"no unblended costs; {_METRICS}", place, ", ".join(metrics) or None)
    cost = number(str(metrics["UnblendedCost"]["Amount"]), f"{place} UnblendedCost")
    if cost:
        check_dollars(str(metrics["UnblendedCost"].get("Unit", "")), f"{place} UnblendedCost.Unit")
    quantity = metrics.get("UsageQuantity", {}).get("Amount", "")
    return LineItem(
        where=place,
        start_s=span_s[0],
        end_s=span_s[1],
        product=product_of(named.get("SERVICE", ""), named["USAGE_TYPE"]),
        usage_type=named["USAGE_TYPE"],
        item_type=_item_type(named.get("RECORD_TYPE", ""), named.get("SERVICE", ""), named["USAGE_TYPE"]),
        amount=number(str(quantity), f"{place} UsageQuantity"),
        cost=cost,
        account=named.get("LINKED_ACCOUNT", ""),
        operation=named.get("OPERATION", ""),
        region=named.get("REGION", ""),
        is_selected=not tags,
        identity=", ".join(named.values()),
    )


def _item_type(record: str, service: str, usage_type: str) -> str:
    if record:
        return _ITEM_TYPES.get(record, record)
    if service == "Tax":
        return "Tax"
    if "HeavyUsage" in usage_type:
        return "RIFee"
    return "Fee" if usage_type in ("", "NoUsageType") else "Usage"


def is_table(header: Sequence[str]) -> bool:
    return bool(header) and header[0].strip() in _DIMENSIONS and any(_COLUMN.fullmatch(c.strip()) for c in header[1:])


def table_items(
    rows: Iterator[tuple[str, Sequence[str]]], header: Sequence[str], where: str, tags: Sequence[tuple[str, str]]
) -> Iterator[LineItem]:
    """Yield the items of the console's CSV: a row for each day, hour or month, a column for each usage type.

    Columns are named like `BoxUsage:c5.large($)`.
    """
    if header[0].strip() not in ("Usage type", "UsageType"):
        raise BadInput("no usage types; group by `Usage type` before the download", where, header[0].strip())
    dated = [(place, cells) for place, cells in rows if not cells[0].strip().lower().endswith("total")]
    starts = [time(cells[0].strip(), f"{place} {header[0]}") for place, cells in dated]
    ends = _ends(starts, where)
    columns = [
        (at, found["name"], found["unit"])
        for at, name in enumerate(header)
        if (found := _COLUMN.fullmatch(name.strip()))
    ]
    amounts = {name: at for at, name, unit in columns if unit.lower() in ("hrs", "hours")}
    for (place, cells), start_s, end_s in zip(dated, starts, ends, strict=True):
        usd, total = ZERO, None
        for at, name, unit in columns:
            if at in amounts.values():
                continue
            cost = _of_console(cells[at], f"{place} {header[at]}")
            if name.lower() in _TOTALS:
                total = cost
                continue
            if not cost:
                continue
            usd += cost
            check_dollars(unit, f"{place} {header[at]}")
            yield LineItem(
                where=place,
                start_s=start_s,
                end_s=end_s,
                product=product_of("", name),
                usage_type=name,
                item_type=_item_type("", "", "" if name.lower() in ("no usage type", "nousagetype") else name),
                amount=_of_console(cells[amounts[name]], place) if name in amounts else ZERO,
                cost=cost,
                is_selected=not tags,
            )
        if total is not None and abs(total - usd) > max(_SLIP, _SLIP * abs(total)):
            what = f"the columns sum to ${usd:.2f}: some are missing, or were changed"
            raise BadInput(what, f"{place} total costs", f"{total:.2f}")


def _of_console(cell: str, where: str) -> Decimal:
    """Return a number of the console, whose commas group digits. Raises BadInput for decimal commas."""
    text = cell.strip()
    if "," in text and not _GROUPED.fullmatch(text):
        raise BadInput("is the comma a decimal sign? Download the file again, and keep its numbers", where, text)
    return number(text.replace(",", ""), where)


def _ends(starts: Sequence[float], where: str) -> list[float]:
    """Return the end of each row, one step after its start: a month, or the shortest step between two rows."""
    if len(starts) < 2:
        raise BadInput("one row may be a day or a month: download at least two of them, by day or hour", where)
    if any(b <= a for a, b in pairwise(starts)):
        raise BadInput("rows must go forward in time", where)
    whens = [datetime.fromtimestamp(at, UTC) for at in starts]
    if (
        all(when.day == 1 and not when.hour for when in whens[1:])
        and starts[-1] - starts[0] > 20.0 * _DAY.total_seconds()
    ):
        # The first month may be cut. Days and hours follow one another, so these are months.
        return [((when.replace(day=1) + 32 * _DAY).replace(day=1)).timestamp() for when in whens]
    step = min(b - a for a, b in pairwise(starts))
    if step > _DAY.total_seconds():
        raise BadInput("rows are neither hours, days nor months: some are missing", where)
    return [at + step for at in starts]
