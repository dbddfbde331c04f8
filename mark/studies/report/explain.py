"""One decision in dollars: the believed load, the chosen fleet, and the cost of the alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mark.domain.load_unit import REQUESTS, LoadUnit
from mark.domain.plan import Plan
from mark.domain.price_list import PriceList, SloPrice, usd_per_hour_per_ms
from mark.domain.promise_outlook import PromiseOutlook
from mark.planning.demand.promise_price import notes_without_confidence
from mark.planning.marginal_prices import prices_of
from mark.planning.next_day import NextDay
from mark.planning.planner import PlanningContext
from mark.planning.policies.alternatives import LEVELS, Alternative, LoadBelief, Weighed, weigh
from mark.profiling.policy import paper_window_s
from mark.studies.report.next_day_report import next_day_words
from mark.studies.report.promise_help_report import outlook_parts
from mark.studies.report.report import DataTable, Marked, Part, Prose, Report
from mark.studies.report.takeaway import listed
from mark.studies.report.words import HOURS_PER_MONTH, duration, number, percent, rate, usd

if TYPE_CHECKING:
    from mark.studies.insured_plan import InsuredPlan

_UNKNOWN = PriceList()
_PRICES = ("usd_per_request", "usd_per_miss", "usd_per_planned_request")
_ROUNDING = 0.01
_CHEAPER = " (lower: see above)"
_NO_SHARE = 5e-4  # a smaller share of requests without room would be printed as 0.0 %
MOST_CHOICES = 10  # shown; the JSON has all


@dataclass(frozen=True, slots=True)
class Batches:
    """Our batch policy on an offer, and the window that the paper's formula gives for batches of that size."""

    n_batch: int
    w_batch_ms: float
    paper_w_batch_ms: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision explained. `at_s` counts from the trace's first row. `weighed` may be None, without a forecast.

    `other_slos` are the costs of other RT_max, ascending; empty unless requested.
    """

    plan: Plan
    at_s: float
    service: str
    weighed: Weighed | None
    running: dict[str, int]  # offer -> instances that serve or will
    prices: dict[str, float]  # offer -> $/h
    batches: dict[str, Batches]  # offer -> batches, for planned offers that batch
    committed_usd_per_hour: float = 0.0
    price_list: PriceList = _UNKNOWN
    other_slos: Sequence[SloPrice] = ()
    read: str = ""  # the trace that was read, in words
    promise: PromiseOutlook | None = None  # None: no late request is priced, or the caller did not ask
    next_day: NextDay | None = None
    unit: LoadUnit = REQUESTS

    def as_json(self) -> dict[str, Any]:
        weighed = self.weighed
        believed = weighed and {
            "predictor": weighed.belief.predictor,
            "lead_s": weighed.belief.horizon_s - 60.0,
            "horizon_s": weighed.belief.horizon_s,
            "mean_rps": dict(zip(map(str, LEVELS), weighed.belief.mean_rps, strict=True)),
            "peak_rps": dict(zip(map(str, LEVELS), weighed.belief.peak_rps, strict=True)),
        }
        return {
            "schema": 1,
            "service": self.service,
            "at_s": self.at_s,
            "trace": {"read": self.read},
            "forecast": believed,
            "targets": [asdict(target) for target in self.plan.targets],
            "standbys": [asdict(target) for target in self.plan.standbys],
            "running": self.running,
            "warm": self.plan.warm,
            "over_s": weighed and weighed.over_s,
            "overflow": weighed and weighed.overflow,
            "chosen": weighed and weighed.chosen.as_json(),
            "alternatives": [one.as_json() for one in weighed.alternatives] if weighed else [],
            "saved_usd_per_hour": weighed and weighed.saved_usd_per_hour,
            "saved_against_kept_usd_per_hour": weighed and weighed.saved_against_kept_usd_per_hour,
            "committed_usd_per_hour": self.committed_usd_per_hour,
            "prices": {
                **{name: getattr(self.price_list, name) for name in _PRICES},
                "usd_per_hour_per_ms": usd_per_hour_per_ms(self.other_slos),
                "other_slos": [other.as_json(weighed.chosen.usd_per_hour) for other in self.other_slos if weighed],
            },
            "promise": self.promise and self.promise.as_json(),
            "next_day": self.next_day and self.next_day.as_json(),
            "solver": self.plan.solver,
            "batches": {name: asdict(batches) for name, batches in self.batches.items()},
            "notes": list(self.plan.notes),
        } | self._in_units()

    def _in_units(self) -> dict[str, Any]:
        """Return the rates in the service's unit; nothing for requests."""
        if self.unit.is_requests:
            return {}
        weighed = self.weighed
        believed = weighed and {
            key: dict(zip(map(str, LEVELS), (rps * self.unit.size for rps in rates), strict=True))
            for key, rates in (("mean_per_s", weighed.belief.mean_rps), ("peak_per_s", weighed.belief.peak_rps))
        }
        holds = weighed and weighed.chosen.capacity_rps * self.unit.size
        return {"unit": {**asdict(self.unit), "forecast": believed, "capacity_per_s": holds}}


def explain(
    plan: Plan,
    context: PlanningContext,
    at_s: float,
    other_slos: Sequence[SloPrice] = (),
    read: str = "",
    promise: PromiseOutlook | None = None,
    next_day: NextDay | None = None,
) -> Explanation:
    """Return the plan with its alternatives and prices, all by the forecast; `at_s` is a time of the trace `read`."""
    resolved = context.resolved
    offers = dict(zip((offer.name for offer in resolved.offers), resolved.candidates, strict=True))
    return Explanation(
        plan,
        at_s,
        resolved.service.name,
        weigh(plan, context),
        dict(context.fleet.live()),
        {offer.name: offer.usd_per_hour for offer in resolved.offers},
        {
            name: Batches(
                c.policy.n_batch,
                c.policy.w_batch_s * 1e3,
                paper_window_s(c.profile, resolved.slo, c.policy.n_batch) * 1e3,
            )
            for name, c in offers.items()
            if plan.counts.get(name, 0) > 0 and c.policy.n_batch > 1
        },
        resolved.committed_usd_per_hour,
        prices_of(plan, context),
        other_slos,
        read,
        promise,
        next_day,
        resolved.service.unit,
    )


_WANTED = ("offer", ("want", str), ("have", str), ("$/h", usd), "reason")


def plan_report(explained: Explanation) -> Report:
    plan, weighed = explained.plan, explained.weighed
    running, rows, said = explained.running, list[tuple[Any, ...]](), ""
    for target in plan.targets:
        price = explained.prices.get(target.offer)
        paid = None if price is None else target.count * price
        reason = "as above" if rows and target.reason == said else target.reason
        said = target.reason
        rows.append((target.offer, target.count, running.get(target.offer, 0), paid, reason))
    drained = sorted(set(running) - {target.offer for target in plan.targets})
    rows += [(offer, 0, running[offer], 0.0, "not in the plan: drained") for offer in drained]
    rows += [(one.offer, one.count, "", "", f"standby, stopped: {one.reason}") for one in plan.standbys]
    believed, others = "This policy makes no forecast.", list[Part]()
    if weighed is not None:
        believed = believed_words(weighed.belief, explained.unit)
        head = Marked(f"Alternatives: expected $/h over the next {duration(weighed.over_s)}", "strong")
        others = [head, choices_table(weighed, weighed.alternatives[:MOST_CHOICES], explained.unit)]
    return Report(
        explained.as_json(),
        f"{explained.service}: the plan at {number(explained.at_s, 0)} s",
        [
            Prose([believed]),
            DataTable(_WANTED, rows) if rows else Marked("Nothing is to run, and nothing does."),
            Prose(_closing(explained) + _batching(explained)),
            *([] if explained.promise is None else outlook_parts(explained.promise)),
            Prose(
                []
                if explained.next_day is None
                else [next_day_words(explained.next_day, promise=explained.promise is None)]
            ),
            *others,
            Prose(_prices(explained)),
        ],
        notes=[*_while_held(explained), *_plan_notes(explained)],
        read=explained.read,
    )


def _plan_notes(explained: Explanation) -> list[str]:
    """Return the plan's notes and its solver, without the note that the outlook states better."""
    plan, promise = explained.plan, explained.promise
    notes = plan.notes if promise is None else notes_without_confidence(plan, promise.slo)
    return [*notes, *([f"solved by {plan.solver}"] if plan.solver else [])]


def believed_words(belief: LoadBelief, unit: LoadUnit = REQUESTS) -> str:
    """Return the believed load as a sentence."""
    low, median, high = (rate(belief.mean_rps[LEVELS.index(level)] * unit.size) for level in (0.05, 0.5, 0.95))
    peak, high_peak = (rate(belief.peak_rps[LEVELS.index(level)] * unit.size) for level in (0.5, 0.95))
    lead_s = belief.horizon_s - 60.0
    when = f"the minute from +{duration(lead_s)}, when a launch made now can serve" if lead_s else "the coming minute"
    return (
        f"Believed for {when} ({belief.predictor}): {median} {unit.name}/s, nine times out of ten between {low} and "
        f"{high}; the busiest 5 s {peak}, with 5 % chance above {high_peak}."
    )


def choices_table(weighed: Weighed, alternatives: Sequence[Alternative], unit: LoadUnit = REQUESTS) -> DataTable:
    """Return the chosen fleet and some of its alternatives, with the dollars of each."""
    chosen = weighed.chosen
    low_usd = chosen.usd_per_hour - 0.005  # a row that is shown below the chosen one
    overflow = "overflow" if weighed.overflow == "function calls" else "misses,\nas priced"
    heads = (
        *("fleet", (f"holds\n{unit.named}/s", rate), ("instances", usd), ("launches", usd), (overflow, usd)),
        ("total\n$/h", usd),
        ("against\nchosen", "{:+z.2f}".format),
    )
    rows = [
        (
            f"{one.label}: {one.fleet}" if one is chosen else f"{one.label}{_CHEAPER * (one.usd_per_hour < low_usd)}",
            *(one.capacity_rps * unit.size, one.instances_usd_per_hour, one.launches_usd_per_hour),
            *(one.overflow_usd_per_hour, one.usd_per_hour),
            "" if one is chosen else one.usd_per_hour - chosen.usd_per_hour,
        )
        for one in (chosen, *alternatives)
    ]
    return DataTable(heads, rows)


def _closing(explained: Explanation) -> list[str]:
    weighed = explained.weighed
    if weighed is None:
        return []
    chosen, unit = weighed.chosen, explained.unit
    lines = [
        f"Chosen: {usd(chosen.instances_usd_per_hour)}/h for instances, {usd(chosen.launches_usd_per_hour)}/h for "
        f"launches and {usd(chosen.overflow_usd_per_hour)}/h expected for overflow, {usd(chosen.usd_per_hour)}/h in "
        f"all ({usd(chosen.usd_per_hour * HOURS_PER_MONTH)} for a month like this)."
    ]
    if weighed.overflow != "function calls":
        lines = [
            f"Chosen: {usd(chosen.instances_usd_per_hour + chosen.launches_usd_per_hour)}/h for instances; no "
            f"function answers in time, {rate(chosen.overflow_rps * unit.size)} {unit.name}/s would be late on average."
        ]
    if weighed.saved_usd_per_hour is not None:
        lines.append(saved_words(weighed))
    if explained.committed_usd_per_hour > 0.0:
        lines.append(f"Beside it {usd(explained.committed_usd_per_hour)}/h are committed, used or not.")
    return lines


def _prices(explained: Explanation) -> list[str]:
    """Return the cost of one more request, one more miss and one millisecond less, as far as they are known."""
    found, lines = explained.price_list, []
    if found.usd_per_request is not None and found.usd_per_miss:
        share = found.usd_per_request / found.usd_per_miss
        per_million = f"{usd(1e6 * found.usd_per_request)} a million: {percent(share)} of them would find no room"
        free = "nothing now: ready capacity has room for it"
        lines.append(f"A request: {free if share < _NO_SHARE else per_million}.")
    if found.usd_per_miss is not None:
        late = explained.weighed is not None and explained.weighed.overflow != "function calls"
        what = "by the SLO's budget of misses" if late else "a function's call avoids it"
        lines.append(f"A miss: {usd(1e6 * found.usd_per_miss)} a million, {what}.")
    if explained.other_slos and explained.weighed is not None:
        own_usd = explained.weighed.chosen.usd_per_hour
        per_ms = usd_per_hour_per_ms(explained.other_slos)
        others = ", ".join(_other_slo(other, own_usd) for other in explained.other_slos)
        lines.append(f"A millisecond of RT_max: {'' if per_ms is None else f'{usd(per_ms)}/h; '}{others}.")
    return ["Price of one more", *lines] if lines else []


def _other_slo(other: SloPrice, own_usd_per_hour: float) -> str:
    within = f"within {other.rt_max_s * 1e3:g} ms"
    if other.usd_per_hour is None:
        return f"{within} not possible"
    more = other.usd_per_hour - own_usd_per_hour
    if abs(more) < 1e-6:
        return f"{within} the same"
    return f"{within} {usd(abs(more))}/h {'more' if more > 0.0 else 'less'}"


def _while_held(explained: Explanation) -> list[str]:
    """Return why an hour of the chosen fleet differs from its prices: it is held for part of the time only."""
    weighed = explained.weighed
    if weighed is None:
        return []
    priced = sum(target.count * explained.prices.get(target.offer, 0.0) for target in explained.plan.targets)
    if abs(weighed.chosen.instances_usd_per_hour - priced) <= _ROUNDING * priced:
        held = weighed.chosen.counts
        more = [{**held, name: held.get(name, 0) + 1} for name in explained.prices]
        shorter = [
            f"{one.label}, {usd(listed)}"
            for one in weighed.alternatives[:MOST_CHOICES]
            if one.counts in more
            and one.instances_usd_per_hour
            < (1.0 - _ROUNDING) * (listed := sum(n * explained.prices.get(name, 0.0) for name, n in one.counts.items()))
        ]
        if not shorter or explained.committed_usd_per_hour > 0.0:
            return []
        return [
            "the alternatives assume that unneeded instances end and missing ones are launched within the "
            f"{duration(weighed.over_s)} ({shorter[0]}/h if it were kept); the reasons assume that the fleet stays"
        ]
    return [
        f"$/h of fleets are expected spending over the next {duration(weighed.over_s)}, in which instances come and go "
        f"as the forecast does; the present plan costs {usd(priced)}/h while it runs"
    ]


def saved_words(weighed: Weighed) -> str:
    """Return the expected saving against the best alternative and against leaving the fleet as it is."""
    saved, kept = weighed.saved_usd_per_hour, weighed.saved_against_kept_usd_per_hour
    if saved is None:
        return "There was no alternative."
    words = f"Expected to cost {_less(saved)} than the best alternative"
    if saved < 0.0 and sum(weighed.alternatives[0].counts.values()) < weighed.min_instances:
        words = f"The best alternative is priced {usd(-saved)}/h lower, but min_instances is {weighed.min_instances}"
    elif saved < 0.0:
        words = (
            f"The best alternative is priced {usd(-saved)}/h lower; unlike the plan, these prices let an instance "
            "stop and come back only if the fleet launches one now"
        )
    if kept is not None:
        words += f"{',' if saved >= 0.0 else '. The plan costs'} {_less(kept)} than leaving the fleet as it is"
    return f"{words}."


def _less(saved_usd_per_hour: float) -> str:
    return f"{usd(abs(saved_usd_per_hour))}/h {'less' if saved_usd_per_hour >= 0.0 else 'more'}"


def _batching(explained: Explanation) -> list[str]:
    alike: dict[Batches, list[str]] = {}
    for name, batches in explained.batches.items():
        alike.setdefault(batches, []).append(name)
    return [
        f"{listed(names)} {'takes' if len(names) == 1 else 'take'} up to {b.n_batch} requests at once and "
        f"{'waits' if len(names) == 1 else 'wait'} {b.w_batch_ms:.0f} ms for them; by the MArk "
        f"paper's rule: {b.paper_w_batch_ms:.0f} ms."
        for b, names in alike.items()
    ]


def insured_plan_report(found: InsuredPlan) -> Report:
    """Return the plans stage by stage."""
    stages = {
        name: plan_report(explain(planned.plan, planned.context, found.at_s, read=found.read))
        for name, planned in found.stages.items()
    }
    parts = []
    for one in stages.values():
        parts += [Marked(one.headline, "strong"), *one.parts]
        parts += [Marked(""), *(Marked(f"note: {note}", "faint") for note in one.notes)]
    return Report(
        {
            "schema": 1,
            "service": found.config.name,
            "at_s": found.at_s,
            "usd_per_hour": found.usd_per_hour,
            "stages": {name: one.data for name, one in stages.items()},
            "notes": list(found.notes),
        },
        f"{found.config.name}: {usd(found.usd_per_hour)} an hour for all stages",
        parts,
        notes=found.notes,
        read=found.read,
    )
