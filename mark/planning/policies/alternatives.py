"""The alternatives of a decision: the believed load, and the cost of other fleets.

A fleet is priced as `mark` prices it, whichever policy planned it. Instances are stacked: running ones at the bottom,
then the cheapest request/s first. Each serves the load at its place in the stack (`served_load`) and is kept as long as
that pays: running ones at least for a minute, new ones from when they are ready. A replaced instance leaves when its
replacement is ready. Instances that pay only later are launched then, on top. Load without an instance overflows. All
this is over the planner's horizon of some minutes, as dollars an hour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.plan import Plan
from mark.domain.time import STEP_S
from mark.planning.demand.promise_price import at_price
from mark.planning.demand.served_load import lateness_of, served_load
from mark.planning.demand.slo_budget import neutral_usd, shed_usd
from mark.planning.demand.type_weights import TypeWeights
from mark.planning.market.spot import Pools, boot_usd
from mark.planning.planner import PlanningContext
from mark.planning.policies.burstable import carrier, surplus_usd_per_hour
from mark.planning.resolve import buyable

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
CHOSEN, KEPT, NONE = "chosen", "the fleet as it is", "functions alone"
_STAYS, _LEAVES, _NEW = 0, 1, 2


@dataclass(frozen=True, slots=True)
class LoadBelief:
    """Quantiles (at `LEVELS`) of the minute that ends `horizon_s` after the decision: its mean and its busiest 5 s."""

    predictor: str
    horizon_s: float
    mean_rps: tuple[float, ...]
    peak_rps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A fleet by offer and its expected cost, averaged over the horizon.

    `capacity_rps` is of all its instances; `overflow_rps` is the believed load that they leave over, the median weighed
    as the plan weighs it (`OverflowPrice`). Committed instances cost nothing here.
    """

    label: str
    counts: Mapping[str, int]
    capacity_rps: float
    instances_usd_per_hour: float
    launches_usd_per_hour: float
    overflow_rps: float
    overflow_usd_per_hour: float

    @property
    def usd_per_hour(self) -> float:
        return self.instances_usd_per_hour + self.launches_usd_per_hour + self.overflow_usd_per_hour

    @property
    def fleet(self) -> str:
        return " + ".join(f"{n} {name}" for name, n in self.counts.items()) or "no instances"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "fleet": self.fleet, "usd_per_hour": self.usd_per_hour}


@dataclass(frozen=True, slots=True)
class Weighed:
    """A decision beside its alternatives, cheapest first. `overflow` names its fate: function calls, or misses.

    Alternatives may have fewer instances than `min_instances`, the service's least number.
    """

    belief: LoadBelief
    over_s: float
    overflow: str
    chosen: Alternative
    alternatives: tuple[Alternative, ...]
    min_instances: int = 0

    @property
    def saved_usd_per_hour(self) -> float | None:
        """Expected saving against the best alternative; below zero if that looks cheaper."""
        return self.alternatives[0].usd_per_hour - self.chosen.usd_per_hour if self.alternatives else None

    @property
    def saved_against_kept_usd_per_hour(self) -> float | None:
        """Saving against leaving the fleet as it is; None if that was chosen, or no instance runs."""
        kept = next((one for one in self.alternatives if one.label == KEPT), None)
        return None if kept is None else kept.usd_per_hour - self.chosen.usd_per_hour

    def as_json(self) -> dict[str, Any]:
        return {
            "belief": {"levels": list(LEVELS), **asdict(self.belief)},
            "over_s": self.over_s,
            "overflow": self.overflow,
            "chosen": self.chosen.as_json(),
            "alternatives": [one.as_json() for one in self.alternatives],
            "saved_usd_per_hour": self.saved_usd_per_hour,
            "saved_against_kept_usd_per_hour": self.saved_against_kept_usd_per_hour,
        }


def weigh(plan: Plan, context: PlanningContext) -> Weighed | None:
    """Return the plan and its alternatives, priced with the belief it was made from; None without a forecast or offers.

    Alternatives: the fleet as it is, one more and one fewer of each chosen offer, one more of the cheapest request/s,
    the best fleet of every single available offer (in its cheapest zone), all of them within the service's limits, and
    functions alone if they are in time.
    """
    if context.forecast is None or not context.resolved.offers:
        return None
    return _Scales(context, plan).weigh(plan)


class _Scales:
    """The prices of fleets in one situation. An offer is a place in `self._names`."""

    def __init__(self, context: PlanningContext, plan: Plan) -> None:
        assert context.forecast is not None
        resolved = context.resolved
        carries = carrier(resolved)
        steady = buyable(resolved)
        chosen = steady + (() if carries is None else (carries,))
        candidates = [resolved.candidates[i] for i in chosen]
        self._offers = [resolved.offers[i] for i in chosen]
        self._names = [offer.name for offer in self._offers]
        self._forecast = context.forecast.by_minute()
        lateness = lateness_of(resolved, steady)
        usd_per_miss = neutral_usd(resolved, steady) if plan.usd_per_miss is None else plan.usd_per_miss
        price, self._saved = at_price(resolved, lateness, served_load(self._forecast, lateness), usd_per_miss)
        self._weights = TypeWeights.of(resolved, steady, candidates)
        likely_rps = self._saved.believed.likely_rps()
        self._usable_rps = self._weights.at(likely_rps)
        self._overflow_price, self._usd_per_overflow = price, price.usd
        # The worth of a request to a fleet: a call, or, beyond the functions' limit, a refusal.
        self._worths_usd = (price.usd,) if math.isinf(price.capped_rps) else (price.usd, price.refused_usd)
        self._steps = self._saved.steps
        # If late shares were not counted the highest level serves (nearly) everything.
        counted = lateness.shares is not None
        self._most_served = float(self._saved.load[-1] if counted else self._saved.served[-1, -1])
        # An interruption costs a call or a miss at its neutral price; a fleet's misses have the plan's price.
        pools = Pools(self._offers, list(self._usable_rps))
        mean_rps = float(self._saved.load[-1]) / self._saved.steps
        needed = np.maximum(self._weights.needed(likely_rps), resolved.service.min_instances)
        surplus = surplus_usd_per_hour(self._offers, candidates, mean_rps, needed)
        lost_usd = shed_usd(resolved, neutral_usd(resolved, steady))
        terms = pools.terms(context.beliefs, context.now_s, lost_usd, surplus)
        self._functions_in_time = resolved.functions_in_time
        self._usd_per_step = terms.offer_usd_per_hour * STEP_S / 3600.0
        # Only the planner knows how many burstables may be started, so they are left out.
        self._can_be_had = terms.can_be_had & (np.array(chosen) != carries)
        # By offer: of a launch, and of the resume of a stopped instance.
        boots = [(offer, replace(offer, boot=offer.resume or offer.boot)) for offer in self._offers]
        self._boot_usd = np.array([[boot_usd(one) for one in both] for both in boots])
        self._boot_steps = np.array([[math.ceil(one.boot.mean_s / STEP_S) for one in both] for both in boots])
        stopped = Counter(i.offer for i in context.fleet.pooled())
        self._stopped = np.array([stopped[name] for name in self._names])
        self._committed = [resolved.committed.get(name, 0) for name in self._names]
        self._listed_usd_per_hour = np.array([offer.usd_per_hour for offer in self._offers])
        self._least, self._most = resolved.service.min_instances, resolved.service.max_instances
        self._most_usd_per_hour = resolved.service.max_usd_per_hour * (1.0 + 1e-9)  # so that rounding forbids no fleet
        self._first = context.first
        live = context.fleet.live()
        self._running = [live[name] for name in self._names]
        self._order = np.argsort(terms.offer_usd_per_hour / self._usable_rps, kind="stable").tolist()
        self._best = next((i for i in self._order if self._can_be_had[i]), None)

    def weigh(self, plan: Plan) -> Weighed:
        wanted = [plan.counts.get(name, 0) for name in self._names]
        found = {tuple(wanted): self._priced(CHOSEN, wanted)}
        if any(self._running):
            found.setdefault(tuple(self._running), self._priced(KEPT, self._running))
        if self._functions_in_time:
            nothing = [0] * len(self._names)
            found.setdefault(tuple(nothing), self._priced(NONE, nothing))
        for i, name in enumerate(self._names):
            for change, word in ((1, "more"), (-1, "fewer")):
                if (wanted[i] or (i == self._best and change > 0)) and (change < 0 or self._can_be_had[i]):
                    counts = [n + change * (j == i) for j, n in enumerate(wanted)]
                    if change > 0 and not self._allowed(counts):
                        continue
                    found.setdefault(tuple(counts), self._priced(f"one {name} {word}", counts))
        # Zones differ in price only: the cheapest available offer of a type and market stands for all.
        kinds = {(self._offers[i].instance, self._offers[i].market): i for i in reversed(self._order)}
        for i in sorted(i for i in kinds.values() if self._can_be_had[i]):
            for worth_usd in self._worths_usd:
                counts = self._best_of(i, worth_usd)
                if any(counts):
                    found.setdefault(tuple(counts), self._priced(f"{counts[i]} {self._names[i]}", counts))
        chosen = found.pop(tuple(wanted))
        return Weighed(
            self._belief(plan),
            self._steps * STEP_S,
            "function calls" if self._functions_in_time else "misses of the SLO",
            chosen,
            tuple(sorted(found.values(), key=lambda one: (one.usd_per_hour, one.label))),
            self._least,
        )

    def _belief(self, plan: Plan) -> LoadBelief:
        """Return the belief for the time when a launch of this plan would begin to serve; for a first fleet, the coming
        minute.
        """
        launched = [
            int(self._boot_steps[i, 0])
            for i, name in enumerate(self._names)
            if plan.counts.get(name, 0) > self._running[i] and not self._first
        ]
        step = min(max(launched, default=0), self._forecast.steps - 1)
        return LoadBelief(
            plan.predictor or self._forecast.predictor,
            (step + 1) * STEP_S,
            tuple(float(self._forecast.mean_at(level)[step]) for level in LEVELS),
            tuple(float(self._forecast.peak_at(level)[step]) for level in LEVELS),
        )

    def _priced(self, label: str, counts: list[int]) -> Alternative:
        """Price a fleet over the horizon: surplus instances leave when their replacement serves, or immediately without
        one.
        """
        leaving = [max(0, runs - n) for runs, n in zip(self._running, counts, strict=True)]
        replaces = any(n > runs for runs, n in zip(self._running, counts, strict=True))
        staying = [min(runs, n) for runs, n in zip(self._running, counts, strict=True)]
        new = [max(0, n - runs) for runs, n in zip(self._running, counts, strict=True)]
        later = label not in (KEPT, NONE)
        best = self._totals(staying, leaving if replaces else [0] * len(counts), new, later=later)
        # A plan may hold instances only until others replace them, without saying which.
        while replaces:
            fewer = [
                ([n - (j == i) for j, n in enumerate(staying)], [n + (j == i) for j, n in enumerate(leaving)])
                for i in range(len(counts))
                if staying[i]
            ]
            if not fewer:
                break
            priced = [(self._totals(stay, leave, new, later=later), stay, leave) for stay, leave in fewer]
            cheapest, stay, leave = min(priced, key=lambda option: option[0][0])
            if cheapest[0] >= best[0]:
                break
            best, staying, leaving = cheapest, stay, leave
        _, instances_usd, launches_usd, overflow_rps = best
        hours = self._steps * STEP_S / 3600.0
        return Alternative(
            label,
            {name: n for name, n in zip(self._names, counts, strict=True) if n},
            self._weights.holds_rps(counts),
            instances_usd / hours,
            launches_usd / hours,
            overflow_rps,
            self._overflow_usd(overflow_rps * self._steps) / hours,
        )

    def _totals(
        self, staying: list[int], leaving: list[int], new: list[int], *, later: bool
    ) -> tuple[float, float, float, float]:
        """Return (all dollars, of instances, of launches, overflow in requests/s) over the horizon.

        `later` says whether further instances are launched later.
        """
        stack = [(i, _STAYS, k) for i in self._order for k in range(staying[i])]
        stack += [(i, _LEAVES, staying[i] + k) for i in self._order for k in range(leaving[i])]
        stack += [(i, _NEW, self._running[i] + k) for i in self._order for k in range(new[i])]
        found = []
        for worth_usd in self._worths_usd:
            parts = np.array([part.sum() for part in self._stacked(stack, worth_usd)])
            # Not for refusals: their limit is met on average here, so to launch later would look cheaper than it is.
            if later and worth_usd == self._usd_per_overflow:
                parts += self._launched_later([s + n for s, n in zip(staying, new, strict=True)], worth_usd)
            instances_usd, launches_usd, served = parts.tolist()
            overflow = max(0.0, self._most_served - float(self._saved.served[0, -1]) - served)
            usd = instances_usd + launches_usd + self._overflow_usd(overflow)
            found.append((usd, instances_usd, launches_usd, overflow / self._steps))
        return min(found)

    def _overflow_usd(self, rps_steps: float) -> float:
        return float(self._overflow_price.priced(rps_steps * STEP_S * self._usd_per_overflow, self._steps))

    def _stacked(
        self, stack: list[tuple[int, int, int]], worth_usd: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return running dollars, launch dollars and requests/s-steps served, by place in the stack, lowest first.

        A place is (offer, `_STAYS` | `_LEAVES` | `_NEW`, number among its offer's). It is free up to the committed
        number, and held as long as its requests, at `worth_usd` each, are worth more than it costs. Until all new
        instances are ready, leaving ones lie above staying ones; then new ones do.
        """
        if not stack:
            return np.zeros(0), np.zeros(0), np.zeros(0)
        offer = np.array([i for i, _, _ in stack])
        kind = np.array([_STAYS if self._first else kind for _, kind, _ in stack])
        paid = np.array([k >= self._committed[i] for i, _, k in stack])
        usable_rps = self._usable_rps[offer]
        resumed = self._resumed(offer, np.array([number for _, _, number in stack]))
        ready = np.where(kind == _NEW, np.minimum(self._boot_steps[offer, resumed], self._steps), 0)
        swapped = int(ready.max())
        before = self._between(np.where(kind == _NEW, 0.0, usable_rps))
        after = self._between(np.where(kind == _LEAVES, 0.0, usable_rps))
        steps = np.arange(self._steps + 1)
        then = after - np.where(kind == _NEW, after[np.arange(len(stack)), ready], after[:, swapped])[:, None]
        now = np.where(steps <= swapped, before, before[:, [swapped]])
        served = np.where(kind[:, None] == _NEW, then, now + np.where(steps > swapped, then, 0.0))
        usd_per_step = np.where(paid, self._usd_per_step[offer], 0.0)
        kept = steps - ready[:, None]
        worth = STEP_S * worth_usd * served - usd_per_step[:, None] * kept
        # Running instances stay at least for a minute, leaving ones until they are replaced; new ones may leave as soon
        # as they are ready. The service's least number stays throughout.
        least = np.where(kind == _NEW, ready, np.where(kind == _LEAVES, swapped, 1))[:, None]
        stays = kind != _LEAVES
        least[stays & (np.cumsum(stays) <= self._least)] = self._steps
        most = np.where(kind == _LEAVES, swapped, self._steps)[:, None]
        last = np.argmax(np.where((steps >= least) & (steps <= most), worth, -np.inf), axis=1)
        launches_usd = np.where((kind == _NEW) & paid, self._boot_usd[offer, resumed], 0.0)
        return usd_per_step * (last - ready), launches_usd, served[np.arange(len(stack)), last]

    def _launched_later(self, counts: list[int], worth_usd: float) -> FloatArray:
        """Return running dollars, launch dollars and requests/s-steps served of later launches on top of a fleet.

        They are of the cheapest request/s. Each serves the load at its place from the step to the step that pay most.
        """
        i, nothing = self._best, np.zeros(3)
        if i is None:
            return nothing
        size_rps, listed = float(self._usable_rps[i]), self._listed_usd_per_hour
        fleet_rps, top_rps = float(np.dot(counts, self._usable_rps)), self._saved.spacing_rps * len(self._saved.served)
        by_price = math.floor((self._most_usd_per_hour - float(np.dot(counts, listed))) / float(listed[i]))
        most = min(self._most - sum(counts), by_price, math.ceil((top_rps - fleet_rps) / size_rps))
        if most <= 0:
            return nothing
        number = np.arange(counts[i], counts[i] + most)
        tops_rps = np.asarray(fleet_rps + size_rps * np.arange(1, most + 1), dtype=np.float64)
        served = self._saved.between(tops_rps - size_rps, tops_rps)
        resumed, steps = self._resumed(i, number), np.arange(self._steps + 1)
        usd_per_step = np.where(number >= self._committed[i], self._usd_per_step[i], 0.0)
        boot_usd_each = np.where(number >= self._committed[i], self._boot_usd[i, resumed], 0.0)
        worth = STEP_S * worth_usd * served - usd_per_step[:, None] * steps
        # Launched a minute later at least.
        ready = np.where(steps > self._boot_steps[i, resumed][:, None], worth, np.inf)
        gains = worth - np.minimum.accumulate(ready, axis=1) - boot_usd_each[:, None]
        last, each = gains.argmax(axis=1), np.arange(most)
        first = np.where(steps <= last[:, None], ready, np.inf).argmin(axis=1)
        pays = gains[each, last] > 0.0
        found = (usd_per_step * (last - first), boot_usd_each, served[each, last] - served[each, first])
        return np.array([part[pays].sum() for part in found])

    def _resumed(self, offer: IntArray | int, number: IntArray) -> IntArray:
        """Return 1 for each instance that a resume would start, else 0. `number` counts the instances of an offer."""
        return np.asarray(number < np.array(self._running)[offer] + self._stopped[offer], dtype=np.int64)

    def _between(self, size_rps: FloatArray) -> FloatArray:
        """Return the load served by each instance of the stack, by number of steps; size 0 takes no place."""
        tops = np.cumsum(size_rps)
        return self._saved.between(tops - size_rps, tops)

    def _allowed(self, counts: list[int]) -> bool:
        return sum(counts) <= self._most and float(np.dot(counts, self._listed_usd_per_hour)) <= self._most_usd_per_hour

    def _best_of(self, i: int, worth_usd: float) -> list[int]:
        """Return the best fleet of one offer alone, if a request is worth `worth_usd`."""
        top_rps = self._saved.spacing_rps * (len(self._saved.served) - 1)
        by_price = math.floor(self._most_usd_per_hour / float(self._listed_usd_per_hour[i]))
        enough = max(self._least, math.ceil(top_rps / float(self._usable_rps[i])))
        most = max(self._running[i], min(self._most, by_price, enough))
        stack = [(i, _STAYS if k < self._running[i] else _NEW, k) for k in range(most)]
        instances, launches, served = self._stacked(stack, worth_usd)
        gain = np.cumsum(STEP_S * worth_usd * served - instances - launches)
        least = min(self._least, most)
        count = least + int(np.argmax(np.concatenate(([0.0], gain))[least:]))
        return [count if j == i else 0 for j in range(len(self._names))]
