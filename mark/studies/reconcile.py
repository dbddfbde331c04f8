"""A past period replayed and compared with its invoice, line by line, and the bills of other policies for it.

The simulated side of a line is the run's usage at the catalogue's price, or at the price that the invoice shows. Lines
add up: on the invoiced side to the invoice, on the simulated side to the run's bill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mark.cloud.billing.extras import extras, site_usd_per_hour
from mark.cloud.billing.invoice import Invoice, read_invoice
from mark.cloud.billing.invoice_lines import (
    CALLS,
    COMMITMENTS,
    CPU_CREDITS,
    CREDIT,
    DISKS,
    EXTRAS,
    GB_SECONDS,
    INSTANCE_MARKETS,
    REFUND,
    SITE,
    TAX,
    InvoiceLine,
)
from mark.cloud.billing.meter import DISK_USD_PER_GIB_MONTH
from mark.domain.errors import BadInput
from mark.planning.policies.names import FIXED
from mark.planning.resolve import profile_of
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.parts import takes_controller
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import policy_requests, run_all
from mark.studies.executor import HERE, StudyExecutor

AS_IS = "as-is"
# These depend on usage in ways that the invoice does not show: a credit may be used up, a tax has its rate.
_NOT_OF_A_POLICY = (CREDIT, REFUND, TAX)
_STEADY = 0.02  # instances an hour may differ this much, relative, from their whole number
_MOST_OF_TIME = 0.95  # share of the period at one number, for a constant fleet; a roll-out may double it for an hour
_HALF_A_CENT = 0.005


@dataclass(frozen=True, slots=True)
class InvoiceQuery:
    """The invoice's files, the part of it to use, and the prices that count: `catalog` or `invoice`.

    `began_s` is the time of the trace's first row in Unix seconds; None: the trace knows it.
    """

    paths: tuple[str, ...]
    began_s: float | None = None
    tags: tuple[tuple[str, str], ...] = ()
    instances: tuple[str, ...] = ()
    prices: str = "catalog"


@dataclass(frozen=True, slots=True)
class Rate:
    """An instance's invoiced price of an hour, and the catalogue's (None: the catalogue does not sell it)."""

    line: InvoiceLine
    invoice_usd_per_hour: float
    catalog_usd_per_hour: float | None

    @property
    def factor(self) -> float | None:
        return None if self.catalog_usd_per_hour is None else self.invoice_usd_per_hour / self.catalog_usd_per_hour


@dataclass(frozen=True, slots=True)
class Compared:
    """One line. Amounts are in the line's unit; `simulates` says whether runs bill such a line at all."""

    line: InvoiceLine
    invoiced: float
    invoiced_usd: float
    simulated: float
    simulated_usd: float
    simulates: bool

    @property
    def difference_usd(self) -> float:
        return self.simulated_usd - self.invoiced_usd


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The comparison. `policy` ran in the period; `results` and `usd` (bills at the chosen prices) have it first."""

    invoice: Invoice
    begin_s: float
    end_s: float
    policy: str
    prices: str
    lines: tuple[Compared, ...]
    rates: tuple[Rate, ...]
    results: dict[str, SimulationResult]
    usd: dict[str, float]
    notes: tuple[str, ...]

    @property
    def simulated_usd(self) -> float:
        return self.usd[self.policy]

    @property
    def used(self) -> list[Compared]:
        """The lines of use, without credits, taxes and fees: a credit pays for use and does not undo it."""
        return [one for one in self.lines if one.line.is_use]

    @property
    def used_usd(self) -> float:
        """Dollars of use, at the price before commitments and credits."""
        return sum(one.invoiced_usd for one in self.used)

    @property
    def explained(self) -> float | None:
        """1 - sum |simulated - invoiced| / sum |invoiced| over the lines of use, at least 0; None without use.

        Errors of two lines do not cancel each other, and use that no simulation knows counts in full.
        """
        invoiced = sum(abs(one.invoiced_usd) for one in self.used)
        apart = sum(abs(one.difference_usd) for one in self.used)
        return max(0.0, 1.0 - round(apart / invoiced, 9)) if invoiced > 0.0 else None

    @property
    def not_simulated(self) -> list[Compared]:
        """The lines of use that no run bills, the dearest first."""
        return _dearest_first(one for one in self.used if not one.simulates)

    @property
    def not_used(self) -> list[Compared]:
        """The lines beside use: credits, refunds, taxes, support, fees; the dearest first."""
        return _dearest_first(one for one in self.lines if not one.line.is_use)

    @property
    def is_before_credits(self) -> bool:
        """Whether the invoice has lines that `paid_usd` leaves out."""
        return any(one.line in _NOT_OF_A_POLICY for one in self.not_used)

    def paid_usd(self, policy: str) -> float | None:
        """Return the policy's invoice before credits, refunds and taxes: simulated lines change, the others stay.

        None if the simulation is so far off that the result would be negative.
        """
        left_out = sum(one.invoiced_usd for one in self.lines if one.line in _NOT_OF_A_POLICY)
        paid = self.invoice.usd - left_out + self.usd[policy] - self.simulated_usd
        return paid if paid >= -_HALF_A_CENT else None


def reconcile(
    request: RunRequest,
    query: InvoiceQuery,
    others: Sequence[str],
    *,
    own: str | None = None,
    executor: StudyExecutor = HERE,
    progress: Callable[[float], None] | None = None,
) -> Reconciliation:
    """Read the invoice, replay the period with the policy `own`, and run the others on the same arrivals.

    By default `own` is the service file's [policy], otherwise the constant fleet on the invoice. Raises the errors of
    reading and running, and BadInput if the time of the trace or the policy that ran is unknown.
    """
    inputs = open_inputs(request)
    began_s = inputs.trace.began_s if query.began_s is None else query.began_s
    if began_s is None:
        what = "say when its first row was, as 2026-05-01T00:00Z; this trace does not know"
        raise BadInput(what, "began", inputs.trace.name)
    begin_s, end_s = began_s + inputs.start_s, began_s + inputs.end_s
    invoice = read_invoice(query.paths, begin_s, end_s, tags=query.tags, instances=query.instances)
    if own is None:
        own = AS_IS if inputs.service.as_is is not None else _fleet_of(invoice, begin_s, end_s, inputs)
    policies = (own, *(name for name in others if name != own))
    runs = run_all(policy_requests(inputs, policies), executor=executor, progress=progress)
    results = dict(zip(policies, runs, strict=True))
    rates = _rates(invoice, inputs)
    paid = {rate.line: rate for rate in rates} if query.prices == "invoice" else {}
    simulated = {name: _simulated(result, inputs, paid) for name, result in results.items()}
    return Reconciliation(
        invoice=invoice,
        begin_s=begin_s,
        end_s=end_s,
        policy=own,
        prices=query.prices,
        lines=_compared(invoice, simulated[own], inputs.resolved.catalog.bills_extras),
        rates=rates,
        results=results,
        usd={name: sum(usd for _, usd in lines.values()) for name, lines in simulated.items()},
        notes=(*invoice.notes, *_notes(invoice, inputs)),
    )


def _fleet_of(invoice: Invoice, begin_s: float, end_s: float, inputs: Inputs) -> str:
    """Return the policy `fixed:...` of an invoice whose types nearly always have one whole number of instances each."""
    counts: dict[str, int] = {}
    others: list[str] = []
    for line, runs in sorted(invoice.runs.items(), key=lambda item: item[0].label):
        levels = _levels(runs, begin_s, end_s)
        spans_s: dict[int, float] = {}
        for count, span_s in levels:
            if abs(count - round(count)) <= _STEADY * count:
                spans_s[round(count)] = spans_s.get(round(count), 0.0) + span_s
        usual = max(spans_s, key=lambda count: spans_s[count], default=0)
        if not any(hours for _, _, hours in runs):
            others.append(f"{line.label}, of which it has no hours")
        elif line.market == "spot":
            others.append(line.label)
        elif profile_of(inputs.resolved.profiles, line.name) is None:
            others.append(f"{line.name}, which {inputs.service.model} has no profile on")
        elif not usual or spans_s[usual] < _MOST_OF_TIME * (end_s - begin_s):
            seen = [count for count, _ in levels]
            others.append(f"{line.name} {min(seen):.3g} to {max(seen):.3g}")
        else:
            counts[line.name] = usual
    if others or not counts:
        why = (
            f"the instances invoiced are not a constant fleet of it: {', '.join(others)}"
            if others
            else "none was invoiced"
        )
        where = f"{inputs.service.source or inputs.service.name} [policy]"
        what = (
            "state today's fleet by kind, instance, min, max, or select it with `tags`, `instances`; it is missing, and"
        )
        raise BadInput(f"{what} {why}", where)
    return FIXED + ",".join(f"{name}={count}" for name, count in counts.items())


def _levels(runs: Sequence[tuple[float, float, float]], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """Return the levels of instances that ran at a time, zero included, with the seconds of each in the period."""
    steps = {begin_s: 0.0, end_s: 0.0}
    for from_s, to_s, hours in runs:
        if to_s > from_s:
            each = hours / ((to_s - from_s) / 3600.0)
            for at_s, change in ((max(from_s, begin_s), each), (min(to_s, end_s), -each)):
                steps[at_s] = steps.get(at_s, 0.0) + change
    times = sorted(steps)
    levels, count = [], 0.0
    for at_s, next_s in pairwise(times):
        count += steps[at_s]
        levels.append((max(0.0, count), next_s - at_s))
    return levels


def _rates(invoice: Invoice, inputs: Inputs) -> tuple[Rate, ...]:
    """Return the rates of every instance line with hours billed by use, in order of their dollars."""
    sold: dict[tuple[str, str], list[float]] = {}
    for offer in inputs.resolved.catalog.offers:
        sold.setdefault((_field(str(offer.market)), offer.instance), []).append(offer.usd_per_hour)
    found = [
        (charge.rated_usd, line, charge.rated_usd / charge.rated_amount)
        for line, charge in invoice.charges.items()
        if line.is_instance and charge.rated_amount > 0.0 and charge.rated_usd > 0.0
    ]
    return tuple(
        Rate(line, usd_per_hour, sum(prices) / len(prices) if (prices := sold.get((line.market, line.name))) else None)
        for _, line, usd_per_hour in sorted(found, key=lambda one: (-one[0], one[1].label))
    )


def _simulated(
    result: SimulationResult, inputs: Inputs, paid: Mapping[InvoiceLine, Rate]
) -> dict[InvoiceLine, tuple[float, float]]:
    """Return amount and dollars of a run by line. At catalogue prices (`paid` is empty) they add up to its bill.

    A type that is not on the invoice is scaled by the mean factor of its market; a market that is not on it keeps the
    catalogue's prices.
    """
    bill, resolved = result.bill, inputs.resolved
    price = {offer.name: offer.usd_per_hour for offer in resolved.catalog.offers}
    hours: dict[InvoiceLine, float] = {}
    listed: dict[InvoiceLine, float] = {}
    for name, ran_h in result.fleet.instance_hours.items():
        instance, market = name.split("/")[:2]
        line = InvoiceLine(_field(market), instance, "h")
        hours[line] = hours.get(line, 0.0) + ran_h
        listed[line] = listed.get(line, 0.0) + ran_h * price[name]
    lines: dict[InvoiceLine, tuple[float, float]] = {}
    fee_usd = resolved.committed_usd_per_hour * result.trace.duration_s / 3600.0
    rest = {
        "on_demand": (COMMITMENTS, fee_usd),
        "burstable": (CPU_CREDITS, 0.0),
    }
    for market in INSTANCE_MARKETS:
        ours = [line for line in listed if line.market == market]
        listed_usd = sum(listed[line] for line in ours)
        billed_usd = getattr(bill, market)
        # With a price series, spot may have been cheaper or dearer than in the catalogue.
        drift = billed_usd / listed_usd if market == "spot" and listed_usd > 0.0 else 1.0
        whole = _market_factor(market, paid)
        usd = {line: listed[line] * drift * _factor(line, paid, whole) for line in ours}
        lines |= {line: (hours[line], usd[line]) for line in ours}
        if market in rest:
            line, fixed_usd = rest[market]
            # The use that commitments cover is scaled as the instances are that they cover.
            scale = sum(usd.values()) / listed_usd if listed_usd > 0.0 else 1.0
            left_usd = fixed_usd + (billed_usd - fixed_usd - listed_usd) * scale
            if abs(left_usd) > 1e-9:
                lines[line] = (0.0, left_usd)
    if bill.functions > 0.0 and resolved.function is not None:
        offer = resolved.function.offer
        calls = float(result.requests.functions)
        calls_usd = min(bill.functions, calls * offer.usd_per_million_requests / 1e6)
        lines[CALLS] = (calls, calls_usd)
        lines[GB_SECONDS] = ((bill.functions - calls_usd) / offer.usd_per_gb_second, bill.functions - calls_usd)
    if resolved.catalog.bills_extras:
        service = inputs.service
        parts = extras(result.trace.duration_s, result.requests.total, service.request_kb, service.response_kb)
        lines |= {line: (parts[line.name][0], parts[line.name][0] * parts[line.name][1]) for line in EXTRAS}
        disks_usd = bill.other - sum(amount * usd for amount, usd in parts.values())
        if takes_controller(result.policy):
            site_usd = site_usd_per_hour() * result.trace.duration_s / 3600.0
            lines[SITE] = (0.0, site_usd)
            disks_usd -= site_usd
        lines[DISKS] = (disks_usd / DISK_USD_PER_GIB_MONTH, disks_usd)
    return lines


def _market_factor(market: str, paid: Mapping[InvoiceLine, Rate]) -> float:
    """Return the invoice's price relative to the catalogue's in a market, a mean in which all types count alike."""
    factors = [f for line, rate in paid.items() if line.market == market and (f := rate.factor) is not None]
    return sum(factors) / len(factors) if factors else 1.0


def _factor(line: InvoiceLine, paid: Mapping[InvoiceLine, Rate], whole: float) -> float:
    own = paid[line].factor if line in paid else None
    return whole if own is None else own


def _compared(
    invoice: Invoice, simulated: Mapping[InvoiceLine, tuple[float, float]], bills_extras: bool
) -> tuple[Compared, ...]:
    """Return the lines: markets in the bill's order, then lines that are not simulated; in each the dearest first."""
    order = ("on_demand", "spot", "burstable", "functions", "sagemaker", "other", "")
    found = []
    for line in {**invoice.charges, **simulated}:
        charge = invoice.charges.get(line)
        amount, usd = simulated.get(line, (0.0, 0.0))
        invoiced, invoiced_usd = (charge.amount, charge.usd) if charge else (0.0, 0.0)
        simulates = bool(line.market) and (line.market != "other" or bills_extras)
        found.append(Compared(line, invoiced, invoiced_usd, amount, usd, simulates))
    return tuple(
        sorted(
            found,
            key=lambda one: (
                order.index(one.line.market) if one.simulates else len(order),
                -max(abs(one.invoiced_usd), abs(one.simulated_usd)),
                one.line.label,
            ),
        )
    )


def _dearest_first(lines: Iterable[Compared]) -> list[Compared]:
    return sorted((one for one in lines if one.invoiced_usd), key=lambda one: (-abs(one.invoiced_usd), one.line.label))


def _notes(invoice: Invoice, inputs: Inputs) -> list[str]:
    notes = []
    committed = invoice.charges.get(COMMITMENTS)
    if committed is not None and abs(committed.usd) > _HALF_A_CENT and not inputs.resolved.committed:
        notes.append("reserved instances or savings plans were invoiced; say them in [fleet.committed]")
    if len(invoice.regions) > 1 or (invoice.regions and invoice.regions[0] != "us-east-1"):
        notes.append(f"instances in {', '.join(invoice.regions)}; the catalogues shipped are of us-east-1")
    return notes


def _field(market: str) -> str:
    """Return a market as a field of Bill."""
    return market.replace("-", "_")
