"""World 1: the real controller over a virtual cloud, in virtual time.

A single loop: the kernel simulates requests up to the next possible change (the end of a 5 s window, or an event of the
cloud), the cloud fires its events, and the controller runs: a full step every minute, a fast one every 5 s and at every
notice. This module decides nothing.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from mark.cloud.billing.extras import LEFT_OUT, LEFT_OUT_WITH_EXTRAS, site_usd_per_hour
from mark.control.coming_calls import ComingCalls, StageNow, stage_now
from mark.control.controller import Controller, Leadership
from mark.control.memory_store import MemoryStore
from mark.control.monitor import default_offer
from mark.control.ports import WINDOW_S
from mark.control.shared_limits import Holding, limited
from mark.control.views import Limits
from mark.control.warm_pool import WarmPool
from mark.domain.arrays import FloatArray
from mark.domain.bill import Bill
from mark.domain.plan import Plan
from mark.domain.profile import Basis
from mark.domain.service import ResolvedService
from mark.domain.time import DAY_S, HOUR_S, STEP_S
from mark.kernel.departures import Recording
from mark.kernel.stage import StageSimulation
from mark.planning.bounds.lower_bound import Bound, bin_width_s
from mark.planning.bounds.whole_bound import highest_bound
from mark.planning.demand.promise_price import notes_without_confidence
from mark.planning.marginal_prices import planned_usd
from mark.planning.planner import PlanningContext, Policy
from mark.planning.policies.alternatives import Weighed, weigh
from mark.planning.policies.names import BEST_FIXED
from mark.planning.policies.policy_registry import make_policy, predictor_of, wants_perfect_forecast
from mark.planning.policies.static import Static
from mark.simulation.best_fixed import best_fixed
from mark.simulation.bounding import bound_problem, with_extras
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.minutes import Minutes
from mark.simulation.parts import Arrivals, bill_of, cloud_of, stage_of, takes_controller
from mark.simulation.request import RunRequest
from mark.simulation.result import (
    CrashCounts,
    Decision,
    HedgeCounts,
    Latency,
    PromiseRun,
    Requests,
    SimulationResult,
    SloResult,
    Speed,
    TraceInfo,
)
from mark.simulation.stopwatch import MadeForecasts, SharingPredictor, Stopwatch, TimedPlanner, TimedPredictor
from mark.simulation.world.shared_instances import SharedInstances
from mark.simulation.world.simulated_cloud import FleetResult
from mark.simulation.world.telemetry import CountedAnswers, CountedPlane, SeenTrace, SimulatedTelemetry
from mark.traffic.forecast.perfect import PerfectPredictor
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.supervised import MOST_TIMES, Supervised

WINDOWS_A_TICK = 12  # the controller plans once a minute
MAX_DECISIONS = 20_000  # kept for the report; a run makes a few thousand
MAX_WEIGHED = 1_000  # plans that are explained: a report shows no more
_MOST_SHARED_S = 1.5 * DAY_S  # of forecasts that runs share: 100 MB a day


class VirtualClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s


class _WarmPool:
    """The port `Functions` over the kernel's pool."""

    def __init__(self, stage: StageSimulation | SharedInstances, clock: VirtualClock) -> None:
        self._stage, self._clock = stage, clock

    def warm(self, environments: int) -> int:
        return self._stage.warm(self._clock.now_s(), environments)

    def switch(self, release: str) -> bool:
        return False  # simulated services have one release


class ArrivalSource(Protocol):
    """The source of requests."""

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        """Simulate the arrivals before `until_s`, which must never decrease."""


class Simulation:
    """One policy in the virtual world; `run` may be called once. With `keep` there is a `recording` of each request.

    `arrivals` are drawn from the trace by default. Bouncers promise the service's RT_max, or `rt_max_s`, that of a
    pipeline's stage, whose requests have their own limits. If either is given, the caller makes the steps of the run:
    `begin`, `pass_window` until the end, `finish`. `coming` tells the controller the coming calls. With `shared` the
    controller buys these instances, and the caller simulates the stages on them, each window between `open_window` and
    `close_window`. The controller keeps the promise of `answers`, by default of the stage's own ones. A named predictor
    takes forecasts from `made`, and adds its own.
    """

    def __init__(
        self,
        inputs: Inputs,
        policy: str | Policy,
        predictor: str | Predictor | None = None,
        *,
        keep: bool = False,
        arrivals: ArrivalSource | None = None,
        rt_max_s: float | None = None,
        coming: Callable[[], ComingCalls | None] = lambda: None,
        shared: SharedInstances | None = None,
        answers: CountedAnswers | None = None,
        made: MadeForecasts | None = None,
    ) -> None:
        self._began_s = time.perf_counter()
        self._inputs = inputs
        request = inputs.request
        self._seed, self._end_s = request.seed, inputs.duration_s
        self._policy: Policy = _policy_named(policy, inputs) if isinstance(policy, str) else policy
        self._policy_name = policy if isinstance(policy, str) else policy.planner.name
        # Stages of a pipeline share a site, and their bills exclude extras.
        is_stage = arrivals is not None or shared is not None
        resolved = self._policy.resolved
        billed = not is_stage and takes_controller(self._policy.planner.name) and resolved.catalog.bills_extras
        self._controller_usd = site_usd_per_hour() * inputs.duration_s / HOUR_S if billed else 0.0
        self._kernel_watch, self._planner_watch, self._predictor_watch = Stopwatch(), Stopwatch(), Stopwatch()
        self._plane: StageSimulation | SharedInstances
        self._advance: Callable[[float], None]
        if shared is None:
            self._plane = stage = stage_of(inputs, self._policy, keep=keep, rt_max_s=rt_max_s)
            source: ArrivalSource = Arrivals(inputs) if arrivals is None else arrivals
            advance = self._kernel_watch.timed(source.advance)
            self._advance = lambda until_s: advance(stage, until_s)
        else:
            self._plane, self._advance = shared, lambda until_s: None
        self._cloud = cloud_of(inputs, self._policy, self._plane)
        self._clock, self._store = VirtualClock(), MemoryStore()
        self._telemetry = self.telemetry_of(self._plane, answers)
        self._predictor_note = self._pool_note = ""
        self._predictor = self._supervised(predictor, made)
        self._timed = TimedPlanner(self._policy.planner, self._planner_watch)
        self._first: tuple[Decision, ...] = ()  # of the warm start, which no command makes
        self._weighed: list[Weighed] = []
        self._weighed_for: dict[int, int] = {}  # index in the journal -> index in `_weighed`
        self._controller = Controller(
            replace(self._policy, planner=self._timed),
            self._predictor,
            self._cloud,
            _WarmPool(self._plane, self._clock),
            self._clock,
            self._store,
            self._telemetry,
            leadership=Leadership(request.seed),
            coming=coming,
        )
        self._minutes = Minutes(resolved)
        self._window = 0
        self._windows_a_plan = round(self._policy.every_s / WINDOW_S)

    def _supervised(self, predictor: str | Predictor | None, made: MadeForecasts | None) -> Supervised | None:
        if not self._policy.planner.needs_forecast:
            return None
        watch, request = self._predictor_watch, self._inputs.request
        if wants_perfect_forecast(self._policy_name) or request.foresight:
            perfect = PerfectPredictor(self._inputs.drawn())
            supervised = TimedPredictor(perfect, watch, most_times=np.inf)
        elif predictor is None or isinstance(predictor, str):
            name, self._predictor_note = predictor_of(self._policy_name, predictor)
            seed = request.seed if request.forecast_seed is None else request.forecast_seed
            named = make_predictor(name, seed, self._inputs.history.step_s)
            if made is None or self._end_s > _MOST_SHARED_S:
                supervised = TimedPredictor(named, watch, most_times=MOST_TIMES)
            else:
                supervised = SharingPredictor(named, watch, made, identity=(name, seed))
        else:
            supervised = TimedPredictor(predictor, watch, most_times=MOST_TIMES)
        supervised.fit(self._inputs.known)
        return supervised

    @property
    def recording(self) -> Recording:
        return self.stage.recording()

    @property
    def stage(self) -> StageSimulation:
        """The data plane of the simulation."""
        assert isinstance(self._plane, StageSimulation), "stages that share instances are the caller's"
        return self._plane

    def holding(self) -> Holding:
        """Return the current use of the limits."""
        return self._controller.holding()

    def telemetry_of(self, plane: CountedPlane, answers: CountedAnswers | None = None) -> SimulatedTelemetry:
        """Return the telemetry of a data plane on these instances, from now on, and of `answers` if given."""
        resolved, inputs = self._policy.resolved, self._inputs
        counts = isinstance(plane, StageSimulation) and self._policy.every_s < STEP_S
        return SimulatedTelemetry(
            plane,
            self._cloud,
            resolved.offers,
            tuple(c.workers for c in resolved.candidates),
            seen=SeenTrace(self._end_s, inputs.trace.bin_s, inputs.gaps, inputs.before_rps),
            step_s=inputs.history.step_s,
            answers=answers,
            in_flight=self.stage.in_flight if counts else None,
        )

    def stage_now(self) -> StageNow:
        """Return the state of the stage at the end of a window."""
        return stage_now(self._telemetry, self._controller.last_plan, self._policy.resolved)

    def request_usd(self) -> tuple[float, float]:
        """Return a request's part of an instance's price, and the current price of one more, higher without room."""
        plan, prices = self._controller.last_plan, self._controller.price_list(self._cloud.fleet().ready())
        planned = planned_usd(self._policy.resolved, {} if plan is None else plan.counts)
        return planned, max(planned, prices.usd_per_request or 0.0)

    def ready_rps(self) -> float:
        """Return the capacity of the ready instances in requests/s."""
        resolved = self._policy.resolved
        ready = self._cloud.fleet().ready()
        return sum(count * resolved.candidates[resolved.index(offer)].capacity_rps for offer, count in ready.items())

    def limit(self, limits: Limits) -> None:
        """Plan within these limits from now on."""
        policy = make_policy(self._policy_name, limited(self._policy.resolved, limits), self._inputs.evaluated)
        self._timed = TimedPlanner(policy.planner, self._planner_watch)
        self._controller.use(replace(policy, planner=self._timed))

    def run(self) -> SimulationResult:
        first = self.begin()
        while self._clock.time_s < self._end_s:
            self.pass_window()
        self.finish()
        return self._result(time.perf_counter() - self._began_s, first)

    def begin(self) -> Plan:
        """Make the first fleet ready, and return its plan."""
        first = self._controller.begin()
        context = self._timed.seen()
        if not self._inputs.request.cold_start:
            begun = self._weigh(first, context)
            price = {offer.name: offer.usd_per_hour for offer in self._policy.resolved.offers}
            self._first = tuple(
                Decision(0.0, "begin", f"begin with {t.count} {t.offer}: {t.reason}", "ready", usd, begun)
                for t in first.targets
                if (usd := t.count * price[t.offer])
            )
            for target in first.targets:
                self._cloud.start_ready(target.offer, target.count)
            for target in first.standbys:
                self._cloud.start_ready(target.offer, target.count, standby=True)
            self._fill_pool(first)
            if isinstance(self._plane, StageSimulation):
                self._plane.start_warm(first.warm)
        return first

    def pass_window(self) -> None:
        """Run the controller, and simulate until its next turn; the last window ends with the part."""
        self.open_window()
        self.close_window()

    def open_window(self) -> None:
        """Run the controller, and let instances change before the window's end."""
        now = self._clock.time_s
        if self._window % WINDOWS_A_TICK == 0:
            self._telemetry.measure_utilization(self._policy.every_s)
            self._reconcile(self._controller.fast)
            self._reconcile(self._controller.tick)
            self._minutes.sample(now, self._cloud)
            if self._inputs.request.progress is not None:
                self._inputs.request.progress(now / self._end_s)
        else:
            self._reconcile(self._controller.fast)
            if self._window % self._windows_a_plan == 0:
                self._telemetry.measure_utilization(self._policy.every_s)
                self._reconcile(self._controller.plan_between)
        self._window += 1
        event = self._cloud.next_event_s()
        while event < self._until_s:
            self._advance(event)
            self._clock.time_s = event
            self._cloud.advance(event)
            if self._cloud.has_notices():
                self._reconcile(self._controller.fast)
            event = self._cloud.next_event_s()

    def close_window(self) -> None:
        """Simulate the requests in the rest of the window."""
        until = self._until_s
        self._advance(until)
        self._clock.time_s = until
        self._telemetry.close_window()
        self._cloud.advance(until)

    @property
    def _until_s(self) -> float:
        return min(self._window * WINDOW_S, self._end_s)

    def finish(self) -> None:
        """Let all accepted requests be answered."""
        self._advance(np.inf)
        if isinstance(self._plane, StageSimulation):
            self._plane.finish()
        self._minutes.sample(self._end_s, self._cloud)

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks about the run."""
        plan = self._controller.last_plan
        assert plan is not None
        return self._notes(self._policy.resolved, plan)

    def share_on(self, basis: Basis) -> float:
        """Return the share of the bill that rests on profile rows of this basis."""
        return self._share_on(basis, self.bill())

    def paid(self) -> FloatArray:
        """Return the number of paid instances, by minute."""
        return self._minutes.paid()

    def bill(self) -> Bill:
        """Return the bill of the whole part."""
        return bill_of(self._inputs, self._policy, self._plane, self._cloud, self._controller_usd)

    def fleet(self) -> FleetResult:
        """Return the figures of the fleet."""
        return self._cloud.fleet_result(self._end_s)

    def _fill_pool(self, first: Plan) -> None:
        """Fill the warm pool, as in a service that has run before. A fleet that never changes needs none."""
        resolved = self._policy.resolved
        pool = WarmPool(resolved).begun(first, default_offer(resolved))
        if pool is not None and not isinstance(self._policy.planner, Static):
            self._cloud.start_ready(pool.offer, pool.count, pooled=True)
            self._pool_note = f"the warm pool held {pool.count} {pool.offer} at the start"

    def _reconcile(self, step: Callable[[], None]) -> None:
        """Run a step of the controller. If its plan changed the fleet, keep the plan's alternatives."""
        before = len(self._store.journal)
        step()
        context, journal = self._timed.seen(), self._store.journal
        changes = [i for i in range(before, len(journal)) if journal[i][1].usd_per_hour != 0.0]
        if changes and (place := self._weigh(self._controller.last_plan, context)) is not None:
            self._weighed_for.update(dict.fromkeys(changes, place))

    def _weigh(self, plan: Plan | None, context: PlanningContext | None) -> int | None:
        """Weigh a plan against its alternatives, if requested, and return its index in `_weighed`."""
        if not self._inputs.request.explain or context is None or plan is None or len(self._weighed) >= MAX_WEIGHED:
            return None
        weighed = weigh(plan, context)
        if weighed is None:
            return None
        self._weighed.append(weighed)
        return len(self._weighed) - 1

    # -- the result ----------------------------------------------------------------------------------------------------

    def _result(self, wall_s: float, first: Plan) -> SimulationResult:
        stage, inputs, resolved = self.stage, self._inputs, self._policy.resolved
        accounts = stage.accounts
        requests = Requests(stage.by_instances, accounts.by_functions, accounts.rejected, accounts.late)
        if requests.total != stage.arrived:
            raise AssertionError(f"{stage.arrived} requests arrived, {requests.total} were accounted for")
        bill = self.bill()
        slo_result = self._slo_result(requests)
        bound, own_bound, regret, reason = None, None, None, "not asked for"
        bound_note, regret_fluid = "", None
        if inputs.request.with_bound:
            promised = inputs.service.slo.attainment
            allowed = (1.0 - promised) * requests.total
            bound, own_bound = self._bounds(allowed, float(requests.late))
            if bound.usd is not None and own_bound.usd is not None and requests.late <= allowed:
                # The search finds the price of a late request for each bound; a stricter promise never costs less than
                # a looser one.
                own_bound = max(bound, own_bound, key=lambda each: each.usd or 0.0)
            bound_note = bound.note
            regret, reason = _regret(bill.total, bound, requests, slo_result, promised)
            if regret is not None and bound.fluid_usd:
                regret_fluid = bill.total / bound.fluid_usd
        ccdf_s, ccdf_share = accounts.ccdf()
        plan = self._controller.last_plan
        return SimulationResult(
            service=inputs.service.name,
            policy=self._policy_name,
            predictor="" if self._predictor is None else self._predictor.name,
            predictors=dict(sorted(self._controller.predictors.items())),
            seed=self._seed,
            trace=TraceInfo(inputs.trace.name, requests.total, self._end_s, inputs.trace.read),
            slo=inputs.service.slo,
            requests=requests,
            slo_result=slo_result,
            promise=self._promise_run(),
            latency_ms=Latency(
                mean=_ms(accounts.latency_mean_s()),
                p50=_ms(accounts.latency_quantile_s(0.5)),
                p95=_ms(accounts.latency_quantile_s(0.95)),
                p98=_ms(accounts.latency_quantile_s(0.98)),
                p99=_ms(accounts.latency_quantile_s(0.99)),
                p999=_ms(accounts.latency_quantile_s(0.999)),
                max=_ms(accounts.latency_max_s()),
            ),
            bill=bill,
            functions=stage.function_calls(),
            fleet=self.fleet(),
            speed=Speed(
                wall_s=wall_s,
                kernel_s=self._kernel_watch.spent_s,
                planner_s=self._planner_watch.spent_s,
                predictor_s=self._predictor_watch.spent_s,
                requests_per_wall_s=requests.total / wall_s,
                peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
            ),
            timeline=self._minutes.timeline(stage, self._end_s, bill.other),
            ccdf_ms=ccdf_s * 1e3,
            ccdf_share=ccdf_share,
            decisions=self._first
            + tuple(
                Decision(at_s, command.verb, str(command), outcome, command.usd_per_hour, self._weighed_for.get(place))
                for place, (at_s, command, outcome) in enumerate(self._store.journal[:MAX_DECISIONS])
            ),
            unit=inputs.service.unit,
            crashed=CrashCounts(self._cloud.crashes, *stage.lost) if inputs.service.faults.crashes else None,
            hedged=HedgeCounts(*stage.hedges) if resolved.service.hedge_after_s < np.inf else None,
            weighed=tuple(self._weighed),
            bound_usd=None if bound is None else bound.usd,
            bound_own_usd=None if own_bound is None else own_bound.usd,
            bound_fluid_usd=None if bound is None else bound.fluid_usd,
            bound_disks_usd=0.0 if bound is None else bound.disks_usd,
            controller_usd=self._controller_usd,
            regret=regret,
            regret_fluid=regret_fluid,
            regret_reason=reason,
            bound_note=bound_note,
            notes=self._notes(resolved, first if plan is None else plan),
            assumed_share=self._share_on(Basis.ASSUMED, bill),
            derived_share=self._share_on(Basis.DERIVED, bill),
            priced=inputs.resolved.catalog.priced,
        )

    def _slo_result(self, requests: Requests) -> SloResult:
        total, good, _ = self.stage.accounts.minutes()
        with_requests = total > 0
        share = good[with_requests] / total[with_requests]
        target = self._inputs.service.slo.attainment
        in_time = requests.instances + requests.functions - requests.late
        return SloResult(
            attainment=in_time / requests.total if requests.total else None,
            worst_minute_attainment=float(share.min()) if len(share) else None,
            minutes_below_target=int((share < target).sum()),
        )

    def _promise_run(self) -> PromiseRun:
        """Return the shares in time by window; windows follow each other from the start of the part."""
        total, good, _ = self.stage.accounts.minutes()
        minutes = round(self._inputs.service.slo.window_s / STEP_S)
        places = range(0, math.ceil(self._end_s / STEP_S), minutes)
        counts = [(int(total[i : i + minutes].sum()), int(good[i : i + minutes].sum())) for i in places]
        first, least = self._timed.first_stated, self._timed.least_stated
        return PromiseRun(
            tuple(kept / came if came else None for came, kept in counts),
            confidence_at_start=None if first is None else first[1],
            least_confidence=None if least is None else least[1],
            least_at_s=None if least is None else least[0],
        )

    def _bounds(self, *late: float) -> list[Bound]:
        """Return the bound for each of these numbers of late requests."""
        # A fixed fleet or an endpoint may use offers that the service does not name; the bound must allow them too.
        own, used = self._inputs.resolved, self._policy.resolved
        known = {offer.name for offer in own.offers}
        more = [i for i, offer in enumerate(used.offers) if offer.name not in known]
        allowed = replace(
            own,
            offers=own.offers + tuple(used.offers[i] for i in more),
            candidates=own.candidates + tuple(used.candidates[i] for i in more),
        )
        problem = bound_problem(
            replace(self._inputs, resolved=allowed), self.stage.accounts.fine_counts(), bin_width_s(own.slo)
        )
        return [with_extras(highest_bound(problem, each), self._inputs, self.stage.arrived) for each in late]

    def _share_on(self, basis: Basis, bill: Bill) -> float:
        """Return the share of the bill that uses a profile row of this basis."""
        resolved = self._policy.resolved
        found_usd = 0.0
        hours = self.fleet().instance_hours
        for offer, candidate in zip(resolved.offers, resolved.candidates, strict=True):
            if any(r.basis is basis for r in candidate.profile.rows if r.batch <= candidate.policy.n_batch):
                found_usd += hours.get(offer.name, 0.0) * offer.usd_per_hour
        if resolved.function is not None and resolved.function.basis == basis:
            found_usd += bill.functions
        return min(1.0, found_usd / bill.total) if bill.total > 0.0 else 0.0

    def _notes(self, resolved: ResolvedService, plan: Plan) -> tuple[str, ...]:
        inputs = self._inputs
        notes = list(inputs.trace.more_notes)
        if inputs.trace.read and inputs.trace.kind == "counts":
            counted = inputs.trace.total_counts(inputs.start_s, inputs.end_s, inputs.request.scale)
            drawn = self.stage.arrived
            if drawn != round(counted):
                notes.append(
                    f"requests are drawn at random from the trace's counts: {drawn:,} instead of {counted:,.0f}"
                )
        reasons = dict.fromkeys(why for _, why in resolved.skipped)
        notes += [f"left out ({why}): {', '.join(name for name, w in resolved.skipped if w == why)}" for why in reasons]
        notes += [resolved.tail_note] if resolved.tail_note else []
        notes += notes_without_confidence(plan, resolved.slo)
        notes += self._cloud.notes
        notes += [self._pool_note] if self._pool_note else []
        notes += [self._predictor_note] if self._predictor_note else []
        if (crashes := self._cloud.crashes) > 0:
            lost, retried = self.stage.lost
            notes.append(
                f"{crashes:,} instances crashed with {lost:,} requests, {retried:,} of which asked another instance"
            )
        if isinstance(self._plane, StageSimulation) and (hedges := self._plane.hedges)[0] > 0:
            sent, won, wasted_s = hedges
            notes.append(
                f"{sent:,} requests had a second copy, which answered {won:,} of them; {wasted_s:,.0f} s were wasted"
            )
        if rescues := self._rescues():
            notes.append(f"instances that its SLO monitor launched beside the plan: {rescues:,}")
        fallbacks, failures = self._controller.fallbacks, self._controller.failures
        for name, count in sorted(fallbacks.items()):
            cause = self._controller.causes.get(name)
            notes.append(f"fallback, {count:,} times: {name}" + (f" (at first {cause})" if cause else ""))
        notes += [f"refused, {count:,} times: {name}" for name, count in sorted(failures.items())]
        if self._controller_usd > 0.0:
            notes.append(
                f"${self._controller_usd:.2f} of the bill is for mark's controller (its instance, NAT gateway, "
                "DynamoDB table, queue); several services share it"
            )
        notes.append(LEFT_OUT_WITH_EXTRAS if resolved.catalog.bills_extras else LEFT_OUT)
        return tuple(dict.fromkeys(notes))

    def _rescues(self) -> int:
        """Return how many instances the SLO monitor launched."""
        store = self._store
        started = zip(store.journal, store.results, strict=True)
        return sum(n for (_, command, _), (_, n) in started if command.rescue)


def simulate(request: RunRequest) -> SimulationResult:
    """Run one policy over a trace. Raises BadInput, Infeasible."""
    return simulate_inputs(open_inputs(request), request.policy, request.predictor)


def simulate_inputs(
    inputs: Inputs, policy: str, predictor: str | None = None, made: MadeForecasts | None = None
) -> SimulationResult:
    """Run one policy over open inputs, with its own predictor unless one is named.

    Raises BadInput, Infeasible.
    """
    return Simulation(inputs, policy, predictor, made=made).run()


def _policy_named(name: str, inputs: Inputs) -> Policy:
    """Return the policy of this name; `best-fixed` is searched by simulation. Raises BadInput, Infeasible."""
    return best_fixed(inputs) if name == BEST_FIXED else make_policy(name, inputs.resolved, inputs.evaluated)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _regret(
    total_usd: float, bound: Bound, requests: Requests, slo: SloResult, target: float
) -> tuple[float | None, str]:
    """Return bill / bound, or why it is undefined: refused requests, a missed SLO, or no positive bound."""
    if requests.rejected:
        return None, f"{requests.rejected:,} requests were rejected"
    if slo.attainment is not None and slo.attainment < target:
        return None, "the SLO was missed"
    if bound.usd is None:
        return None, bound.note or "no bound"
    if bound.usd <= 0.0:
        return None, "the bound is zero"
    return total_usd / bound.usd, ""
