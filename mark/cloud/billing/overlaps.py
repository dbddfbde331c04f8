"""Decides which of several overlapping reports counts, so that every line item counts once.

Reports overlap if a payer's report includes its members' reports, if an old and a new export run side by side, or if a
month is kept both daily and hourly. They are compared item by item and day by day. If they agree, one of them counts.
If they differ, the bill is refused, because the files do not tell which report is right.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar

from mark.cloud.billing.invoice_lines import InvoiceLine
from mark.domain.errors import BadInput

DAY_S = 86400.0
_RELATIVE = Decimal("0.001")
_CENT = Decimal("0.01")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Said:
    """The sums of a report for one line, account and day; a line item belongs to the day of its start."""

    report: int
    account: str
    line: InvoiceLine
    day: int  # since 1970
    usd: Decimal
    amount: Decimal
    rows: int
    is_long: bool  # whether it has items of more than a day
    in_period: bool
    begin_s: float  # of the first item
    end_s: float  # of the last item


@dataclass(frozen=True, slots=True)
class InvoiceReport:
    name: str
    kind: int  # the lower, the more detailed
    kind_name: str


def left_out(said: Mapping[K, Said], reports: Sequence[InvoiceReport]) -> tuple[set[K], tuple[str, ...]]:
    """Return the keys to drop, because another report has their items, and a note for each pair of such reports.

    Raises BadInput if two reports of one item in the period differ.
    """
    dropped: dict[K, tuple[int, int]] = {}  # key -> (report that it is dropped from, report that counts)
    for kind in sorted({report.kind for report in reports}):
        own = {key: one for key, one in said.items() if reports[one.report].kind == kind}
        _drop_within(own, reports, dropped)
    _drop_across({key: one for key, one in said.items() if key not in dropped}, reports, dropped)
    pairs: dict[tuple[int, int], list[Said]] = {}
    for key, pair in dropped.items():
        pairs.setdefault(pair, []).append(said[key])
    notes = tuple(
        f"{reports[out].name}: {sum(one.rows for one in what):,} of its line items, "
        f"${sum(one.usd for one in what):.2f}, are in {reports[kept].name}, too, and count once"
        for (out, kept), what in sorted(pairs.items())
    )
    return set(dropped), notes


def _drop_within(said: Mapping[K, Said], reports: Sequence[InvoiceReport], dropped: dict[K, tuple[int, int]]) -> None:
    """Drop repeated items among reports of one kind, by account, line and day; by month if an item exceeds a day."""
    with_accounts = {one.report for one in said.values() if one.account}
    by_account = with_accounts == {one.report for one in said.values()}
    things: dict[tuple[str, InvoiceLine], list[K]] = {}
    for key, one in said.items():
        things.setdefault((one.account if by_account else "", one.line), []).append(key)
    for keys in things.values():
        if len({said[key].report for key in keys}) < 2:
            continue
        by_month = any(said[key].is_long for key in keys)
        units: dict[Hashable, dict[int, list[K]]] = {}
        for key in keys:
            unit = _month(said[key].day) if by_month else said[key].day
            units.setdefault(unit, {}).setdefault(said[key].report, []).append(key)
        for by_report in units.values():
            _drop_all_but_one(by_report, said, reports, dropped)


def _drop_all_but_one(
    by_report: Mapping[int, Sequence[K]],
    said: Mapping[K, Said],
    reports: Sequence[InvoiceReport],
    dropped: dict[K, tuple[int, int]],
) -> None:
    """Keep the report with most items, because it has the most precise times."""
    rows = {report: sum(said[key].rows for key in keys) for report, keys in by_report.items()}
    first, *others = sorted(by_report, key=lambda report: (-rows[report], report))
    whole = [said[key] for key in by_report[first]]
    for other in others:
        same = [said[key] for key in by_report[other]]
        agree, alike = _agree(whole, same), _of_one_time(whole, same)
        if not (agree and alike) and any(one.in_period for one in [*whole, *same]):
            apart = f"differ (${_usd(whole):.2f}, ${_usd(same):.2f})" if not agree else "are of different hours"
            raise BadInput(
                f"{reports[first].name} and {reports[other].name} both have {whole[0].line.label} of "
                f"{_date(min(one.day for one in whole))} and {apart}: leave out "
                "the older or the lesser one; parts of one report are named alike but for -1, -2",
                "bill",
            )
        dropped.update(dict.fromkeys(by_report[other], (other, first)))


def _drop_across(said: Mapping[K, Said], reports: Sequence[InvoiceReport], dropped: dict[K, tuple[int, int]]) -> None:
    """Drop repetitions among kinds, by the sum of a month, because kinds name items differently."""
    months: dict[Hashable, dict[int, list[K]]] = {}
    for key, one in said.items():
        months.setdefault(_month(one.day), {}).setdefault(reports[one.report].kind, []).append(key)
    for month, by_kind in months.items():
        first, *others = sorted(by_kind)
        whole = [said[key] for key in by_kind[first]]
        for kind in others:
            same = [said[key] for key in by_kind[kind]]
            names = reports[whole[0].report], reports[same[0].report]
            if not _agree(whole, same, amounts=False) and any(one.in_period for one in [*whole, *same]):
                raise BadInput(
                    f"{names[0].name} (a {names[0].kind_name}) and {names[1].name} (a {names[1].kind_name}) are both "
                    f"of {month} and differ (${_usd(whole):.2f}, ${_usd(same):.2f}): name one of them",
                    "bill",
                )
            for key in by_kind[kind]:
                dropped[key] = (said[key].report, whole[0].report)


def _agree(one: Iterable[Said], other: Iterable[Said], *, amounts: bool = True) -> bool:
    mine, theirs = list(one), list(other)
    if not _close(_usd(mine), _usd(theirs)):
        return False
    return not amounts or _close(sum((s.amount for s in mine), Decimal(0)), sum((s.amount for s in theirs), Decimal(0)))


def _of_one_time(one: Iterable[Said], other: Iterable[Said]) -> bool:
    """Return whether one report's time is within the other's. Two halves of a day may cost the same."""
    (begin, end), (begins, ends) = (
        (min(said.begin_s for said in report), max(said.end_s for said in report))
        for report in (list(one), list(other))
    )
    return (begin <= begins and ends <= end) or (begins <= begin and end <= ends)


def _close(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) <= max(_CENT, _RELATIVE * max(abs(one), abs(other)))


def _usd(said: Iterable[Said]) -> Decimal:
    return sum((one.usd for one in said), Decimal(0))


def _month(day: int) -> str:
    return _date(day)[:7]


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
