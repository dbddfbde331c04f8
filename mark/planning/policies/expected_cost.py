"""`mark`: the fleet over the next 40 minutes with the lowest expected cost, including launches and overflow.

In step t, capacity x leaves an overflow of E[D_t - S(D_t, x)] requests/s. D_t is the believed load, and S(D, x) is the
part that bouncers serve in time, counted or by a queueing formula (mark/planning/demand/served_load.py). Each request
of the overflow has a price, so its cost in a step is a convex function of x. Choosing the instances of each offer in
each step, with launches at their price and a boot ahead, is a `Program` (mark/planning/solver/program.py). `solve`
solves it exactly if it is small, else nearly exactly. Only the first step is carried out; a minute later it is solved
again.

So load of probability q is covered if q times the cost of the function calls that it saves exceeds the instance's
price: a newsvendor problem with the launch as set-up cost. A running instance is swapped for a cheaper one if that pays
for the launch. It stays until its replacement serves, because a booting one counts only from its expected ready time.

If no function answers within RT_max, the overflow is late or refused: a miss. It costs the price that keeps the promise
with its confidence (mark/planning/demand/promise_price.py), and a function call if one is made.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.fleet import Fleet, Phase
from mark.domain.load import Forecast
from mark.domain.offer import Market
from mark.domain.percent import percent
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.planning.demand.promise_price import Law, PromisePrice, at_price, call_usd, confidence_notes, learns_price
from mark.planning.demand.served_load import HORIZON, Lateness, ServedLoad, lateness_of, served_load
from mark.planning.demand.slo_budget import OverflowPrice, neutral_usd, shed_usd
from mark.planning.demand.type_weights import TypeWeights
from mark.planning.market.own_boots import OwnBoots
from mark.planning.market.spot import DISK_USD_PER_HOUR, Pools, SpotTerms, boot_usd, planned_standbys, within
from mark.planning.planner import PlanningContext
from mark.planning.policies.burstable import Burst, Lasting, Seen, carrier, surplus_usd_per_hour
from mark.planning.policies.hindsight import FixedFleet, FixedFleets, PastCosts
from mark.planning.resolve import buyable
from mark.planning.solver.boot_law import absent, there, with_law
from mark.planning.solver.program import Program, overflow_usd, wanted_now, with_least
from mark.planning.solver.solve import solve

_LIKELY = 0.9  # quantile of the likely bursts
TIME_BUDGET_S = 2.0  # of the integer program, which `how` "ilp" uses if the plan is not proven without it


@dataclass(frozen=True, slots=True)
class ExpectedCostMemory:
    """The policy's memory: its burstables, past costs, late requests (`law`), and measured boots and resumes."""

    burstables: tuple[Seen, ...] = ()
    past: PastCosts | None = None
    law: Law = field(default_factory=Law)
    boots: OwnBoots = field(default_factory=OwnBoots)
    resumes: OwnBoots = field(default_factory=OwnBoots)


class ExpectedCostPolicy:
    """A `Planner` that minimizes expected dollars. It ignores another policy's memory.

    `how` says how its program is solved: see `solve`.
    """

    needs_forecast = True
    monitors_slo = True
    replans = True

    def __init__(self, name: str, resolved: ResolvedService, how: str = "auto") -> None:
        self.name = name
        self._how, self._resolved = how, resolved
        self._steady = chosen = buyable(resolved)
        self._lateness = lateness_of(resolved, chosen)
        self._promise = PromisePrice(resolved, chosen) if chosen and learns_price(resolved, self._lateness) else None
        carries = carrier(resolved)
        if carries is not None:
            chosen += (carries,)
        usable_rps = [resolved.candidates[i].capacity_rps for i in chosen]
        # From here on, each pool is represented by its first offer.
        self._pools = Pools([resolved.offers[i] for i in chosen], usable_rps)
        self._offers = tuple(self._pools.offers[i] for i in self._pools.first)
        self._usable_rps = np.array([usable_rps[i] for i in self._pools.first])
        self._pool = np.array([self._pools.pool_of[name] for name in self._pools.names], dtype=np.int64)
        self._candidates = tuple(resolved.candidates[chosen[i]] for i in self._pools.first)
        self._weights = TypeWeights.of(resolved, self._steady, self._candidates)
        self._alone: tuple[Lateness, ...] = ()
        if self._lateness.shares is not None and all(c.late_shares is not None for c in self._candidates):
            patience_s = self._lateness.patience_s
            self._alone = tuple(Lateness(patience_s, c.late_shares, c.capacity_rps) for c in self._candidates)
        self._usd_per_step = np.array([offer.usd_per_s * STEP_S for offer in self._offers])
        self._launch_usd = np.array([boot_usd(offer) for offer in self._offers])
        self._boot_steps = np.array([math.ceil(o.boot.mean_s / STEP_S) for o in self._offers], dtype=np.int64)
        resumes = [o.resume or o.boot for o in self._offers]
        self._resume_steps = np.array([math.ceil(delay.mean_s / STEP_S) for delay in resumes], dtype=np.int64)
        self._resume_usd = np.array([boot_usd(replace(o, boot=r)) for o, r in zip(self._offers, resumes, strict=True)])
        self._boots, self._resumes = tuple(o.boot for o in self._offers), tuple(resumes)
        self._boot_of = {o.name: o.boot for o in self._pools.offers}
        self._resume_of = {o.name: o.resume or o.boot for o in self._pools.offers}
        self._committed = np.array([resolved.committed.get(o.name, 0) for o in self._offers], dtype=np.int64)
        self._burst = None
        if carries is not None:
            self._burst = Burst(resolved.offers[carries], self._offers.index(resolved.offers[carries]))
        self._usd_per_overflow = shed_usd(resolved, neutral_usd(resolved, self._steady))
        # Do not compare with fixed fleets if functions answer in time, because a wrong forecast then costs only calls,
        # or if burstables stay beside the plan, because fixed fleets have none.
        compares = not resolved.functions_in_time and self._offers and self._burst is None
        self._fixed = self._fixed_fleets() if compares else None
        self._overflow = "function calls" if resolved.functions_in_time else "misses of the SLO"

    def begin(self) -> ExpectedCostMemory:
        return ExpectedCostMemory()

    def plan(self, context: PlanningContext, memory: Any) -> tuple[Plan, ExpectedCostMemory]:
        memory = memory if isinstance(memory, ExpectedCostMemory) else self.begin()
        instances = context.fleet.instances
        memory = replace(
            memory,
            boots=memory.boots.seen(instances, self._boot_of, resumed=False),
            resumes=memory.resumes.seen(instances, self._resume_of, resumed=True),
        )
        those: tuple[Lasting, ...] = ()
        leaving: tuple[int, ...] = ()
        if self._burst is not None:
            burstables, those = self._burst.look(context.fleet, memory.burstables, context.now_s)
            memory = replace(memory, burstables=burstables)
            leaving = self._burst.spent(context.fleet, those)
            left = tuple(i for i in context.fleet.instances if i.number not in leaving)
            context = replace(context, fleet=Fleet(left))
        live = context.fleet.live()
        running = self._pools.count(live)
        forecast = context.forecast
        if forecast is None:
            names = [offer.name for offer in self._pools.offers if live[offer.name] > 0]
            held = (Target(name, live[name], "kept: there is no forecast") for name in names)
            note = "no forecast: the fleet stays as it is"
            return Plan(context.now_s, tuple(held), notes=(note,), leaving=leaving), memory
        if not self._offers:
            warm = self._warm(self._burst_rps(forecast))
            return Plan(context.now_s, (), forecast.predictor, notes=("functions alone serve",), warm=warm), memory
        saved = served_load(forecast, self._lateness)
        usd_per_miss, confidence, price = None, None, OverflowPrice(call_usd(self._resolved))
        notes: tuple[str, ...] = ()
        if self._promise is not None:
            law = self._promise.seen(memory.law, context.now_s, context.last_minute_rps, context.windows_rps)
            miss, law = self._promise.usd_per_miss(context.now_s, saved, context.answered, law, first=context.first)
            memory = replace(memory, law=law)
            usd_per_miss, confidence = miss.usd, miss.confidence
            price, saved = at_price(self._resolved, self._lateness, saved, usd_per_miss)
            notes = confidence_notes(miss.confidence, self._resolved.slo)
        usd_per_overflow = price.usd
        # At a quiet minute's load one instance of any type suffices, so all types would seem equal, also for a burst.
        likely_rps = saved.believed.likely_rps()
        usable_rps = self._weights.at(likely_rps)
        needed = np.maximum(self._weights.needed(likely_rps), self._resolved.service.min_instances)
        mean_rps = float(saved.load[-1]) / saved.steps
        surplus = surplus_usd_per_hour(self._offers, self._candidates, mean_rps, needed)[self._pool]
        terms = self._pools.terms(context.beliefs, context.now_s, self._usd_per_overflow, surplus)
        counts, stay, solver = self._wanted(saved, usable_rps, running, terms, context, price, those, memory)
        why = f"the plan costs least over {saved.steps * STEP_S / 60.0:.0f} min, launches included"
        if self._fixed is not None:
            usd_per_step = terms.usd_per_hour * STEP_S / 3600.0
            own = counts
            if memory.past is not None and self._fixed.best(memory.past) is not None:
                # Compare plans made without the held capacity: if they found it running, they would save its launches.
                theirs = np.array(memory.past.plans[-1], dtype=np.int64)
                own, _, _ = self._wanted(saved, usable_rps, theirs, terms, context, price, those, memory)
            past = self._fixed.seen(
                memory.past,
                context.now_s,
                context.last_minute_rps,
                own,
                usd_per_step,
                min(usd_per_overflow, self._usd_per_overflow),
                context.windows_rps,
                self._weights.at(context.last_minute_rps or 0.0),
            )
            memory = replace(memory, past=past)
            better = self._fixed.best(past)
            if better is not None:
                ready = self._ready(context.fleet)
                raised = self._fixed.hold(
                    better, counts, running, ready, terms.buyable, forecast, usd_per_step, usable_rps
                )
                if self._allowed(raised):
                    counts = raised
                if counts @ usable_rps >= better.count * usable_rps[better.offer] * (1.0 - 1e-9):
                    notes = (*notes, self._held(better))
                    why = f"{better.count} {self._offers[better.offer].name} throughout would have cost less"
        # Keep committed instances, because they are paid for anyway. The program keeps only those that it needs.
        committed = np.maximum(counts, np.where(terms.buyable, self._committed, 0))
        if self._allowed(committed):
            counts = committed
        if self._burst is not None:
            counts[self._burst.place] += stay
        least = self._least(forecast)
        if counts.sum() <= least:
            why = "an instance must be there when a request comes"
        kept, spare = counts, np.zeros_like(counts)
        if not context.first:
            kept, spare = self._with_spares(counts, running, context, float(forecast.mean_at(0.5)[0]))
            more = self._until_ready(kept, least, context.fleet, terms)
            kept, spare = kept + more, spare + more
        capacity_rps = float(counts @ usable_rps)
        plan = Plan(
            at_s=context.now_s,
            targets=self._targets(kept, spare, running, terms, context, saved, usable_rps, usd_per_overflow, why),
            predictor=forecast.predictor,
            standbys=self._standbys(counts, context, terms),
            warm=self._warm(max(saved.passed_on_rps(capacity_rps), self._burst_rps(forecast) - capacity_rps)),
            notes=(*notes, *(("stopped at the service's limit of instances or $/h",) if self._limited(counts) else ())),
            capacity_rps=self._weights.holds_rps(counts),
            usd_per_miss=usd_per_miss,
            confidence=confidence,
            solver=solver,
            leaving=leaving,
        )
        return plan, memory

    def _ready(self, fleet: Fleet) -> IntArray:
        """Return how many instances serve and are not being interrupted: (pools,)."""
        serving = [i for i in fleet.instances if i.phase is Phase.READY and i.interruption_at_s is None]
        return self._pools.count(Counter(i.offer for i in serving if not i.standby))

    def _fixed_fleets(self) -> FixedFleets:
        service = self._resolved.service
        usd_per_hour = np.array([offer.usd_per_hour for offer in self._offers])
        lasting = np.array([offer.market is not Market.SPOT and offer.always_full for offer in self._offers])
        # 1e-9: a budget of exactly three instances must hold three.
        affordable = np.minimum(np.floor(service.max_usd_per_hour / usd_per_hour + 1e-9), service.max_instances)
        on_demand = np.array([offer.market is Market.ON_DEMAND for offer in self._offers])
        resumes = on_demand & (service.warm_pool > 0)
        return FixedFleets(
            [offer.name for offer in self._offers],
            self._usable_rps,
            np.where(resumes, self._resume_usd, self._launch_usd),
            np.where(resumes, self._resume_steps, self._boot_steps),
            self._committed,
            np.where(lasting, affordable, 0.0).astype(np.int64),
            late_share=1.0 - self._resolved.slo.attainment,
            lateness=self._lateness,
            alone=self._alone,
        )

    def _held(self, fleet: FixedFleet) -> str:
        return (
            f"{fleet.count} {self._offers[fleet.offer].name} throughout would have kept the promise for "
            f"{percent(fleet.fixed_usd / fleet.planned_usd, 0)} of the cost of following the load: "
            "their capacity is held"
        )

    def _wanted(
        self,
        saved: ServedLoad,
        usable_rps: FloatArray,
        running: IntArray,
        terms: SpotTerms,
        context: PlanningContext,
        price: OverflowPrice,
        those: tuple[Lasting, ...],
        memory: ExpectedCostMemory,
    ) -> tuple[IntArray, int, str]:
        """Return the instances to hold now by pool, how many of the burstables `those` stay beside them, and the
        solver with its status.
        """
        pool, program, law = self._program(saved, usable_rps, running, terms, context, price, memory)
        stay = 0
        if self._burst is not None:
            program, stay = self._burst.revised(program, those, memory.burstables, context.now_s)
        program = with_least(with_law(program, law), self._least(context.forecast) - stay)
        solution = solve(program, self._how, time_budget_s=TIME_BUDGET_S if self._how == "ilp" else 0.0)
        # A pool has up to three columns: at its price, committed, and launched beyond its stopped instances.
        counts = np.bincount(pool, wanted_now(program, solution.counts), len(running)).astype(np.int64)
        return counts, stay, f"{solution.solver}, {solution.status}"

    def _program(
        self,
        saved: ServedLoad,
        usable_rps: FloatArray,
        running: IntArray,
        terms: SpotTerms,
        context: PlanningContext,
        price: OverflowPrice,
        memory: ExpectedCostMemory,
    ) -> tuple[IntArray, Program, FloatArray]:
        """Return the pool of each column, the program, and the boot law (`there`) of each column.

        The first columns are all pools at their price, the next ones the committed instances, which are free. If a
        pool has stopped instances, its first column has the launch price of a resume and covers running and stopped
        instances; a last column has its new launches.
        """
        service = self._resolved.service
        free = np.flatnonzero(self._committed)
        committed = np.minimum(running, self._committed)
        usd_per_step = terms.usd_per_hour * STEP_S / 3600.0
        most = np.where(terms.buyable, service.max_instances, running - committed)
        overflow = price.priced(overflow_usd(saved.served, None, price.usd, STEP_S))
        late_rps = self._late_rps(context, usable_rps, saved.steps, memory)
        stopped = self._pools.count(Counter(i.offer for i in context.fleet.pooled()))
        resumed = np.minimum(most, running - committed + stopped)
        beyond = np.flatnonzero((stopped > 0) & (resumed < most))
        pool = np.concatenate([np.arange(len(self._offers)), free, beyond])
        boots = there(self._boots, HORIZON, memory.boots.scale)
        resumes = there(self._resumes, HORIZON, memory.resumes.scale)
        law = np.concatenate([np.where((stopped > 0)[:, None], resumes, boots), boots[free], boots[beyond]])
        return (
            pool,
            Program(
                usd_per_step=np.concatenate([usd_per_step, np.zeros(len(free)), usd_per_step[beyond]]),
                launch_usd=np.concatenate(
                    [
                        np.where(stopped > 0, self._resume_usd, self._launch_usd),
                        np.zeros(len(free)),
                        self._launch_usd[beyond],
                    ]
                ),
                capacity_rps=usable_rps[pool],
                boot_steps=np.concatenate(
                    [
                        np.where(stopped > 0, self._resume_steps, self._boot_steps),
                        self._boot_steps[free],
                        self._boot_steps[beyond],
                    ]
                ),
                running=np.concatenate([running - committed, committed[free], np.zeros(len(beyond), dtype=np.int64)]),
                most=np.concatenate(
                    [np.where(stopped > 0, resumed, most), self._committed[free], (most - resumed)[beyond]]
                ),
                overflow_usd=overflow_while_booting(overflow, late_rps / saved.spacing_rps),
                spacing_rps=saved.spacing_rps,
                max_instances=service.max_instances,
                max_usd_per_step=service.max_usd_per_hour * STEP_S / 3600.0,
                first=context.first,
            ),
            law,
        )

    def _late_rps(
        self, context: PlanningContext, usable_rps: FloatArray, steps: int, memory: ExpectedCostMemory
    ) -> FloatArray:
        """Return, for each step, the capacity of booting instances that is expected not to serve by then:
        (steps,).
        """
        late_rps = np.zeros(steps)
        pool_of = self._pools.pool_of
        for i in context.fleet.instances:
            if i.phase is Phase.PENDING and i.interruption_at_s is None and not i.standby and i.offer in pool_of:
                k = pool_of[i.offer]
                boot, own = (self._resumes[k], memory.resumes) if i.resumed else (self._boots[k], memory.boots)
                missing = np.ones(steps)
                if i.ready_s is not None:
                    expected_s = (i.ready_s - i.launched_s) * (own.scale if boot.sigma else 1.0)
                    missing = absent(boot, expected_s, context.now_s - i.launched_s, steps)
                late_rps += usable_rps[k] * missing
        return late_rps

    def _allowed(self, counts: IntArray) -> bool:
        """Return whether the counts are within the service's limits."""
        service = self._resolved.service
        usd_per_hour = np.array([offer.usd_per_hour for offer in self._offers])
        most_usd_per_hour = service.max_usd_per_hour * (1.0 + 1e-9)
        return bool(counts.sum() <= service.max_instances and counts @ usd_per_hour <= most_usd_per_hour)

    def _limited(self, counts: IntArray) -> bool:
        service = self._resolved.service
        usd_per_hour = np.array([offer.usd_per_hour for offer in self._offers])
        left = service.max_usd_per_hour - float(counts @ usd_per_hour)
        return bool(counts.sum() >= service.max_instances or left < usd_per_hour.min())

    def _least(self, forecast: Forecast | None) -> int:
        """Return the least number of instances: `min_instances`, but 1 if requests are expected and no function is in
        time.

        For a load far below one instance the program would buy none, so every request would be late or refused. But
        the budget of misses is for unforeseen load.
        """
        least = self._resolved.service.min_instances
        if forecast is None or self._resolved.functions_in_time:
            return least
        return max(least, int(float(forecast.mean_at(0.5).max()) * STEP_S >= 1.0))

    def _with_spares(
        self, counts: IntArray, running: IntArray, context: PlanningContext, load_rps: float
    ) -> tuple[IntArray, IntArray]:
        """Return `counts` with spares for interrupted instances, as far as limits allow; and the number of spares."""
        there = [i for i in context.fleet.instances if i.phase is not Phase.STOPPED]
        ready = self._ready(context.fleet)
        need = self._missing(counts, running, ready, context, load_rps)
        if not need.any():
            return counts, np.zeros_like(counts)
        spares = self._pools.spares(need, self._usd_per_overflow)
        service, price = self._resolved.service, {o.name: o.usd_per_hour for o in self._resolved.offers}
        possible = within(
            np.maximum(counts, ready + need + spares),
            running,
            np.array([o.usd_per_hour for o in self._offers]),
            service.max_instances - len(there),
            service.max_usd_per_hour - sum(price[i.offer] for i in there),
        )
        kept = np.maximum(counts, possible)
        return kept, np.clip(kept - ready - need, 0, spares)

    def _until_ready(self, kept: IntArray, least: int, fleet: Fleet, terms: SpotTerms) -> IntArray:
        """Return how many ready instances beyond `kept` stay, the cheapest first, until `least` serve: (pools,).

        The program counts booting instances as serving, so it ends an instance whose replacement boots if requests
        alone do not pay for it.
        """
        ready, more = self._ready(fleet), np.zeros_like(kept)
        left = least - int(np.minimum(kept, ready).sum())
        if left <= 0:
            return more
        for i in np.argsort(terms.usd_per_hour, kind="stable"):
            more[i] = min(max(0, ready[i] - kept[i]), left)
            left -= more[i]
        return more if self._allowed(kept + more) else np.zeros_like(kept)

    def _missing(
        self, counts: IntArray, running: IntArray, ready: IntArray, context: PlanningContext, load_rps: float
    ) -> IntArray:
        """Return how many planned instances, not ready yet, replace recently interrupted capacity: (pools,)."""
        coming = np.maximum(0, counts - ready)
        lost_s = max((belief.lost_s for belief in context.beliefs.values()), default=-math.inf)
        boots_s = STEP_S * float(self._boot_steps[coming > 0].max(initial=0))
        if context.now_s - lost_s > 2.0 * boots_s:
            return np.zeros_like(counts)
        bridging_rps = sum(
            self._resolved.candidates[self._resolved.index(i.offer)].capacity_rps
            for i in context.fleet.instances
            if i.standby
        )
        missing_rps = load_rps - bridging_rps - float(ready @ self._usable_rps)
        need = np.zeros_like(counts)
        # Instances that boot already will be there first.
        for i in sorted(np.flatnonzero(coming), key=lambda i: -float((running[i] - ready[i]) * self._usable_rps[i])):
            need[i] = min(int(coming[i]), math.ceil(max(0.0, missing_rps) / float(self._usable_rps[i])))
            missing_rps -= float(need[i] * self._usable_rps[i])
        return need

    def _standbys(self, counts: IntArray, context: PlanningContext, terms: SpotTerms) -> tuple[Target, ...]:
        resolved, pools = self._resolved, self._pools
        sold = list(zip(resolved.offers, resolved.candidates, strict=True))
        spot = {o.name: c.capacity_rps for o, c in sold if o.market is Market.SPOT}
        if not spot:
            return ()
        rates = {o.name: float(r) for o, r in zip(pools.offers, terms.interruptions_per_hour, strict=True)}
        planned = pools.spread(counts, context.fleet, terms)
        return planned_standbys(
            [(o, c.capacity_rps) for o, c in sold if o.market is Market.BURSTABLE and not o.unlimited],
            max((o.boot for o, _ in sold if o.market is Market.SPOT), key=lambda boot: boot.mean_s),
            [(n * spot[name], rates[name]) for name, n in planned.items() if name in spot],
            self._usd_per_overflow,
            DISK_USD_PER_HOUR if resolved.catalog.bills_extras else 0.0,
            Counter(i.offer for i in context.fleet.instances if i.standby),
            first=context.first,
        )

    def _burst_rps(self, forecast: Forecast) -> float:
        """Return the `_LIKELY` quantile of the highest 5 s rate in the next two steps."""
        return float(forecast.peak_at(_LIKELY)[:2].max())

    def _warm(self, overflow_rps: float) -> int:
        """Return how many function environments to keep warm for the planned overflow; a cold start would be a miss.

        With Poisson calls the number of busy environments is Poisson with mean a = rate x time. So a + 3 sqrt(a) + 1
        are nearly always enough (square-root staffing). An idle one costs only a ping when it is recycled.
        """
        function = self._resolved.function
        if function is None or not self._resolved.functions_in_time:
            return 0
        busy = max(0.0, overflow_rps) * function.warm_s
        return min(function.offer.concurrency, 1 + math.ceil(busy + 3.0 * math.sqrt(busy)))

    def _targets(
        self,
        kept: IntArray,
        spare: IntArray,
        running: IntArray,
        terms: SpotTerms,
        context: PlanningContext,
        saved: ServedLoad,
        usable_rps: FloatArray,
        usd_per_overflow: float,
        why: str,
    ) -> tuple[Target, ...]:
        """Return the targets. The reason of each is the worth of its last instance, or `why` if that does not pay."""
        forecast = context.forecast
        assert forecast is not None
        planned_rps = float((kept - spare) @ usable_rps)
        coming = self._weights.holds_rps(running) * self._resolved.service.unit.size
        planned = self._weights.holds_rps(kept - spare) * self._resolved.service.unit.size
        left = spare.copy()
        budget = ""
        if not self._resolved.functions_in_time:
            unspent = 1.0 - min(1.0, context.answered.burnt(self._resolved.slo))
            budget = (
                f", priced at ${1e6 * usd_per_overflow:,.2f} a million; {percent(unspent, 0)} of their budget is left"
            )
        targets, unit = [], self._resolved.service.unit
        for name, count in self._pools.spread(kept, context.fleet, terms).items():
            i = self._pools.pool_of[name]
            step = 0 if context.first else min(int(self._boot_steps[i]), forecast.steps - 1)
            high_rps = float(forecast.mean_at(0.9)[step])
            # Load that the last instance serves from when a launch of now is ready, for as long as that pays.
            one_less_rps = max(0.0, planned_rps - float(usable_rps[i]))
            below, above = saved.at(np.array([one_less_rps, planned_rps]))
            served = above - below
            ready = min(step, saved.steps - 1)
            usd_per_hour = float(terms.usd_per_hour[i])
            lost_usd = STEP_S * usd_per_overflow * (served[ready:] - served[ready])
            gained_usd = lost_usd - usd_per_hour * STEP_S / 3600.0 * np.arange(len(lost_usd))
            pays = int(np.argmax(gained_usd[1:])) + 1  # steps
            worth = (
                f"one instance less would save {usd_per_hour:.3f} $/h and add "
                f"{lost_usd[pays] * 3600.0 / (pays * STEP_S):.2f} $/h of {self._overflow} of this traffic over "
                f"{pays * STEP_S / 60.0:.0f} min{budget}"
            )
            more = min(count, int(left[i]))
            left[i] -= more
            targets.append(
                Target(
                    name,
                    count,
                    f"forecast p50 {forecast.mean_at(0.5)[step] * unit.size:.0f}, p90 {unit.per_s(high_rps, '.0f')} "
                    f"at +{step * STEP_S:.0f} s, capacity {coming:.0f} there or coming "
                    f"(instances: {running.sum()}), {planned:.0f} planned ({(kept - spare).sum()}); "
                    f"{worth if gained_usd[pays] > 0.0 else why}"
                    + (f"; {more} until the others serve" if more > 0 else ""),
                    spare=more,
                )
            )
        return tuple(targets)


def overflow_while_booting(overflow_usd: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the overflow's cost, (T, K + 1) or wider, if `levels` (T,) of the capacity do not serve yet.

    Below zero serving capacity the cost is extrapolated, so that it stays convex and no boot is cancelled.
    """
    late = np.flatnonzero(levels > 0.0)
    if len(late) == 0:
        return overflow_usd
    more = math.ceil(float(levels.max()))  # the last level must still suffice
    result = np.pad(overflow_usd, ((0, 0), (0, more)), mode="edge")
    every = np.arange(result.shape[1], dtype=np.float64)
    for t in late:
        row = result[t].copy()
        place = every - levels[t]
        result[t] = np.where(place < 0.0, row[0] + place * (row[1] - row[0]), np.interp(place, every, row))
    return result
