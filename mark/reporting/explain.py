"""One decision in dollars: what is believed, what was chosen, and what the alternatives would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mark.domain.load import FloatArray, Forecast
from mark.domain.plan import Plan
from mark.domain.service import Deployment
from mark.profiling.policy import paper_window_s
from mark.reporting.layout import columns, page, sentences, small_print, text
from mark.reporting.words import HOURS_PER_MONTH, duration, number, rate, usd

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_CHOICES = 10  # shown; the JSON has all
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class Choice:
    """A fleet and its expected price: instances, and the requests that they cannot take.

    `overflow_usd_per_hour` is fluid: E[(rate - capacity)+] times the price of a function call, expectation over the
    quantiles of the mean rate; queueing is left out, so small fleets look a little better than they are. None where
    functions cannot meet the SLO: what overflows there is a late answer, and has no price.
    """

    fleet: str
    capacity_rps: float
    instances_usd_per_hour: float
    overflow_rps: float
    overflow_usd_per_hour: float | None

    @property
    def usd_per_hour(self) -> float:
        return self.instances_usd_per_hour + (self.overflow_usd_per_hour or 0.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """Our batch policy on an offer, and the window that the paper's formula gives for batches of that size."""

    n_batch: int
    w_batch_ms: float
    paper_w_batch_ms: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """`at_s` counts from the trace's first row; `lead_s` is how far ahead the forecast is read."""

    plan: Plan
    at_s: float
    service: str
    lead_s: float
    forecast: Forecast | None
    step: int
    running: dict[str, int]  # offer -> instances that serve or will
    prices: dict[str, float]  # offer -> $/h
    chosen: Choice | None
    alternatives: tuple[Choice, ...]  # cheapest first
    batches: dict[str, Batches]  # offer -> of what is planned and batches

    def as_json(self) -> dict[str, Any]:
        believed = self.forecast and {
            "predictor": self.forecast.predictor,
            "lead_s": self.lead_s,
            "mean_rps": {str(level): float(self.forecast.mean_at(level)[self.step]) for level in _LEVELS},
            "peak_rps": {str(level): float(self.forecast.peak_at(level)[self.step]) for level in _LEVELS},
        }
        return {
            "schema": 1,
            "service": self.service,
            "at_s": self.at_s,
            "forecast": believed,
            "targets": [asdict(target) for target in self.plan.targets],
            "standbys": [asdict(target) for target in self.plan.standbys],
            "running": self.running,
            "warm": self.plan.warm,
            "chosen": self.chosen and _choice_json(self.chosen),
            "alternatives": [_choice_json(choice) for choice in self.alternatives],
            "batches": {name: asdict(batches) for name, batches in self.batches.items()},
            "notes": list(self.plan.notes),
        }


def explain(
    plan: Plan, forecast: Forecast | None, deployment: Deployment, running: Mapping[str, int], at_s: float
) -> Explanation:
    """Price the plan and, for comparison, the best fleet of every single offer and functions alone.

    `running`: instances that serve or will, by offer. None at all means a first fleet, which is ready at once, so that
    the forecast is read for the coming minute; otherwise it is read where a launch made now begins to serve.
    """
    offers = {
        offer.name: (offer, candidate)
        for offer, candidate in zip(deployment.offers, deployment.candidates, strict=True)
    }
    booting = [offers[name][0].boot.mean_s for name in plan.counts if name in offers]
    lead_s = max(booting or [offer.boot.mean_s for offer in deployment.offers] or [0.0]) if running else 0.0
    by_minute = forecast.by_minute() if forecast is not None else None
    step = min(math.ceil(lead_s / 60.0), by_minute.steps - 1) if by_minute is not None else 0
    chosen, alternatives = None, []
    if by_minute is not None:
        rates, weights = by_minute.mean_rps[:, step], _weights(by_minute.levels)
        peak_rps = float(by_minute.peak_at(0.95)[step])

        def priced(name: str, capacity_rps: float, usd_per_hour: float) -> Choice:
            overflow_rps = float(weights @ np.maximum(0.0, rates - capacity_rps))
            call_usd = _call_usd(deployment)
            overflow_usd = None if call_usd is None else overflow_rps * 3600.0 * call_usd
            return Choice(name, capacity_rps, usd_per_hour, overflow_rps, overflow_usd)

        known = {name: n for name, n in plan.counts.items() if name in offers}
        chosen = priced(
            " + ".join(f"{n} {name}" for name, n in known.items()) or "no instances",
            sum(n * offers[name][1].capacity_rps for name, n in known.items()),
            sum(n * offers[name][0].usd_per_hour for name, n in known.items()),
        )
        # Zones differ in price only: the cheapest of a type and market stands for all.
        zones = sorted(offers.values(), key=lambda pair: (pair[0].usd_per_hour, pair[0].name), reverse=True)
        cheapest = {(offer.instance, offer.market): (offer, candidate) for offer, candidate in zones}
        for offer, candidate in cheapest.values():
            fleets = [
                priced(f"{n} {offer.name}", n * candidate.capacity_rps, n * offer.usd_per_hour)
                for n in _sizes(peak_rps / candidate.capacity_rps, deployment.service.max_instances)
            ]
            if _call_usd(deployment) is not None:
                alternatives.append(min(fleets, key=lambda choice: choice.usd_per_hour))
            else:
                # Without functions the promise decides, not the price: enough for the 5 s peak that 5 % exceed.
                alternatives.append(fleets[-1])
        if _call_usd(deployment) is not None:
            alternatives.append(priced("functions alone", 0.0, 0.0))
        alternatives.sort(key=lambda choice: (choice.usd_per_hour, choice.fleet))
    return Explanation(
        plan,
        at_s,
        deployment.service.name,
        lead_s,
        by_minute,
        step,
        dict(running),
        {name: offer.usd_per_hour for name, (offer, _) in offers.items()},
        chosen,
        tuple(alternatives),
        {
            name: Batches(
                c.policy.n_batch,
                c.policy.w_batch_s * 1e3,
                paper_window_s(c.profile, deployment.slo, c.policy.n_batch) * 1e3,
            )
            for name, (_, c) in offers.items()
            if plan.counts.get(name, 0) > 0 and c.policy.n_batch > 1
        },
    )


def plan_table(explained: Explanation) -> RenderableType:
    """The explanation for the terminal."""
    plan, forecast = explained.plan, explained.forecast
    believed = ["This policy makes no forecast."]
    if forecast is not None:
        step = explained.step
        low, median, high = (rate(float(forecast.mean_at(level)[step])) for level in (0.05, 0.5, 0.95))
        when = f"the minute from +{duration(step * forecast.step_s)}, when a launch made now can serve"
        when = when if step else "the coming minute"
        peak, high_peak = (rate(float(forecast.peak_at(level)[step])) for level in (0.5, 0.95))
        believed = [
            f"Believed for {when} ({forecast.predictor}): {median} requests/s, nine times out of ten between {low} and "
            f"{high}; the busiest 5 s {peak}, with 5 % chance above {high_peak}."
        ]
    wanted = columns("offer", "want", "have", "$/h", "reason")
    for target in plan.targets:
        have = explained.running.get(target.offer, 0)
        price = explained.prices.get(target.offer)
        wanted.add_row(
            text(target.offer),
            str(target.count),
            str(have),
            usd(target.count * price if price is not None else None),
            text(target.reason),
        )
    for offer in sorted(set(explained.running) - {target.offer for target in plan.targets}):
        wanted.add_row(text(offer), "0", str(explained.running[offer]), usd(0.0), "not in the plan: drained")
    for target in plan.standbys:
        wanted.add_row(text(target.offer), str(target.count), "", "", text(f"standby, stopped: {target.reason}"))
    choices = columns("fleet", "holds\n/s", "instances\n$/h", "overflow\n$/h", "total\n$/h", "against\nchosen")
    for choice in explained.alternatives[:MOST_CHOICES]:
        choices.add_row(
            text(choice.fleet),
            rate(choice.capacity_rps),
            usd(choice.instances_usd_per_hour),
            usd(choice.overflow_usd_per_hour),
            usd(choice.usd_per_hour),
            f"{choice.usd_per_hour - explained.chosen.usd_per_hour:+.2f}" if explained.chosen else "-",
        )
    others: list[RenderableType] = [text("What else would do, one kind at a time", "bold"), choices]
    return page(
        text(f"{explained.service}: the plan at {number(explained.at_s, 0)} s", "bold"),
        *sentences(believed),
        wanted,
        *sentences(_closing(explained) + _batching(explained)),
        *(others if explained.alternatives else []),
        *small_print(plan.notes),
    )


def _closing(explained: Explanation) -> list[str]:
    chosen = explained.chosen
    if chosen is None:
        return []
    if chosen.overflow_usd_per_hour is None:
        late = f"{rate(chosen.overflow_rps)} requests/s would come late" if chosen.overflow_rps > 0.0 else "none late"
        return [f"Chosen: {usd(chosen.usd_per_hour)}/h; functions cannot meet this SLO, {late} on average."]
    month = usd(chosen.usd_per_hour * HOURS_PER_MONTH)
    return [
        f"Chosen: {usd(chosen.instances_usd_per_hour)}/h for instances and {usd(chosen.overflow_usd_per_hour)}/h "
        f"expected for overflow to functions, {usd(chosen.usd_per_hour)}/h in all ({month} for a month like this hour)."
    ]


def _batching(explained: Explanation) -> list[str]:
    return [
        f"{name} takes up to {b.n_batch} requests at once and waits {b.w_batch_ms:.0f} ms for them (the paper's "
        f"window: {b.paper_w_batch_ms:.0f} ms)."
        for name, b in explained.batches.items()
    ]


def _call_usd(deployment: Deployment) -> float | None:
    """Price of one overflowed request; None without a function that is in time."""
    function = deployment.function
    return function.usd_per_request if function is not None and function.warm_s <= deployment.slo.rt_max_s else None


def _weights(levels: FloatArray) -> FloatArray:
    """Probability mass of each level: half-way to its neighbours, the tails to the outermost."""
    edges = np.concatenate(([0.0], (levels[1:] + levels[:-1]) / 2.0, [1.0]))
    return np.diff(edges)


def _sizes(needed: float, most: int) -> range:
    """Fleet sizes worth pricing: one to what covers everything."""
    return range(1, max(2, min(most, math.ceil(needed)) + 1))


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {**asdict(choice), "usd_per_hour": choice.usd_per_hour}
