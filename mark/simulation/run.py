"""World 1: the real controller over a virtual cloud, in virtual time.

One loop. The kernel simulates requests up to the next thing that can matter (the end of a 5 s window, or an event of
the cloud), the cloud fires its events, and the controller looks: every minute in full, every 5 s and at every notice
in short. Nothing here decides anything.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.control.controller import Controller
from mark.control.memory_store import MemoryStore
from mark.domain.bill import Bill
from mark.domain.fleet import Fleet
from mark.domain.load import Forecast
from mark.domain.offer import Market
from mark.domain.plan import Plan
from mark.domain.profile import Basis
from mark.domain.service import Deployment
from mark.forecasting.perfect import PerfectPredictor
from mark.forecasting.port import Predictor
from mark.forecasting.registry import make_predictor
from mark.kernel.stage import SPOT_NOTICE_S, StageSimulation
from mark.planning.bound import Bound, BoundProblem, bin_width_s, build_problem, lower_bound
from mark.planning.policies import make_policy, wants_perfect_forecast
from mark.planning.port import Planner, Policy, Situation
from mark.simulation.cloud import SimulatedCloud
from mark.simulation.extras import LEFT_OUT, LEFT_OUT_WITH_EXTRAS, extras_usd
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import (
    Decision,
    Latency,
    Requests,
    SimulationResult,
    SloResult,
    Speed,
    Timeline,
    TraceInfo,
)
from mark.simulation.telemetry import WINDOW_S, SimulatedTelemetry

TICK_S = 60.0
MAX_DECISIONS = 20_000  # kept for the report; a run makes a few thousand


class Stopwatch:
    """Adds up wall time; the only place where the simulation looks at a clock, and only to report its speed."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.spent_s += time.perf_counter() - began

        return call


class _TimedPlanner:
    def __init__(self, planner: Planner, watch: Stopwatch) -> None:
        self.name, self.needs_forecast, self.monitors_slo = planner.name, planner.needs_forecast, planner.monitors_slo
        self.begin = planner.begin
        self._plan = watch.timed(planner.plan)

    def plan(self, situation: Situation, memory: Any) -> tuple[Plan, Any]:
        result: tuple[Plan, Any] = self._plan(situation, memory)
        return result


class _TimedPredictor:
    def __init__(self, predictor: Predictor, watch: Stopwatch) -> None:
        self.name = predictor.name
        self.fit = watch.timed(predictor.fit)
        self.update = watch.timed(predictor.update)
        self._predict = watch.timed(predictor.predict)

    def predict(self, steps: int) -> Forecast:
        result: Forecast = self._predict(steps)
        return result


class VirtualClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s


class _WarmPool:
    """The port `Functions` over the kernel's pool."""

    def __init__(self, stage: StageSimulation, clock: VirtualClock) -> None:
        self._stage, self._clock = stage, clock

    def warm(self, environments: int) -> int:
        return self._stage.warm(self._clock.now_s(), environments)


class _Arrivals:
    """Feeds chunks of arrivals to the kernel."""

    def __init__(self, chunks: Iterator[tuple[NDArray[np.float64], float]], end_s: float) -> None:
        self._chunks, self._end_s = chunks, end_s
        self._times: NDArray[np.float64] = np.zeros(0)
        self._next, self._covered_s = 0, 0.0

    def advance(self, stage: StageSimulation, until_s: float) -> None:
        while True:
            self._next = stage.advance(self._times, self._next, until_s)
            if self._covered_s >= min(until_s, self._end_s):
                return
            # The chunk is used up: whatever it held lies before covered_s, which lies before until_s.
            chunk = next(self._chunks, None)
            if chunk is None:
                self._covered_s = self._end_s
                continue
            self._times, self._covered_s = chunk
            self._next = 0


class Simulation:
    """One policy in the virtual world; `run` once."""

    def __init__(self, inputs: Inputs, policy: str | Policy, predictor_name: str) -> None:
        self._inputs = inputs
        request = inputs.request
        self._seed, self._end_s = request.seed, inputs.duration_s
        self._policy: Policy = (
            make_policy(policy, inputs.deployment, inputs.evaluated) if isinstance(policy, str) else policy
        )
        self._policy_name = policy if isinstance(policy, str) else policy.planner.name
        self._kernel_watch, self._planner_watch, self._predictor_watch = Stopwatch(), Stopwatch(), Stopwatch()
        deployment = self._policy.deployment
        rt_max_s = deployment.slo.rt_max_s
        self._fine_s = bin_width_s(deployment.slo)
        self._stage = StageSimulation(
            deployment.candidates,
            rt_max_s=rt_max_s,
            end_s=self._end_s,
            function=deployment.function if self._policy.bouncers else None,
            bouncers=self._policy.bouncers,
            two_choices=deployment.service.routing == "power-of-two-choices",
            fine_s=self._fine_s,
            seed=request.seed,
            horizons_s=[
                min(rt_max_s, SPOT_NOTICE_S) if offer.market is Market.SPOT else rt_max_s for offer in deployment.offers
            ],
        )
        self._cloud = SimulatedCloud(
            deployment.offers,
            self._stage,
            seed=request.seed,
            end_s=self._end_s,
            spot=inputs.spot,
            spot_first_hour_free=request.spot_first_hour_free,
            bills_disks=deployment.catalog.bills_extras,
            workers=[c.workers for c in deployment.candidates],
            on_demand_usd_per_hour={
                o.instance: o.usd_per_hour for o in deployment.catalog.offers if o.market is Market.ON_DEMAND
            },
            zones=deployment.catalog.spot_zones,
        )
        self._clock, self._store = VirtualClock(), MemoryStore()
        self._telemetry = SimulatedTelemetry(
            self._stage,
            self._cloud,
            deployment.offers,
            tuple(c.workers for c in deployment.candidates),
            end_s=self._end_s,
            step_s=inputs.history.step_s,
            bin_s=inputs.trace.bin_s,
            gaps=inputs.gaps,
            before_rps=inputs.before_rps,
        )
        self._predictor_name = self._predictor_of(predictor_name)
        self._controller = Controller(
            replace(self._policy, planner=_TimedPlanner(self._policy.planner, self._planner_watch)),
            self._predictor,
            self._cloud,
            _WarmPool(self._stage, self._clock),
            self._clock,
            self._store,
            self._telemetry,
            seed=request.seed,
        )
        self._advance = self._kernel_watch.timed(
            _Arrivals(
                inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed), self._end_s
            ).advance
        )
        self._minutes = _Minutes(deployment)

    def _predictor_of(self, name: str) -> str:
        self._predictor: Predictor | None = None
        if not self._policy.planner.needs_forecast:
            return ""
        if wants_perfect_forecast(self._policy_name):
            inputs = self._inputs
            predictor: Predictor = PerfectPredictor(inputs.drawn())
        else:
            predictor = make_predictor(name, self._seed)
        timed = _TimedPredictor(predictor, self._predictor_watch)
        timed.fit(self._inputs.history)
        self._predictor = timed
        return predictor.name

    def run(self) -> SimulationResult:
        began = time.perf_counter()
        first = self._controller.begin()
        if not self._inputs.request.cold_start:
            for target in first.targets:
                self._cloud.start_ready(target.offer, target.count)
            for target in first.standbys:
                self._cloud.start_ready(target.offer, target.count, standby=True)
            self._stage.start_warm(first.warm)
        now = 0.0
        window = 0
        while now < self._end_s:
            self._clock.time_s = now
            if window % 12 == 0:
                self._telemetry.measure_utilization(TICK_S)
                self._controller.fast()
                self._controller.tick()
                self._minutes.sample(now, self._cloud)
                if self._inputs.request.progress is not None:
                    self._inputs.request.progress(now / self._end_s)
            else:
                self._controller.fast()
            window += 1
            until = min(window * WINDOW_S, self._end_s)
            event = self._cloud.next_event_s()
            while event < until:
                self._advance(self._stage, event)
                self._clock.time_s = event
                self._cloud.advance(event)
                if self._cloud.has_notices():
                    self._controller.fast()
                event = self._cloud.next_event_s()
            self._advance(self._stage, until)
            self._clock.time_s = until
            self._telemetry.close_window()
            self._cloud.advance(until)
            now = until
        self._advance(self._stage, np.inf)
        self._stage.finish()
        self._minutes.sample(self._end_s, self._cloud)
        return self._result(time.perf_counter() - began, first)

    # -- the result ----------------------------------------------------------------------------------------------------

    def _result(self, wall_s: float, first: Plan) -> SimulationResult:
        stage, inputs, deployment = self._stage, self._inputs, self._policy.deployment
        requests = Requests(stage.by_instances, stage.by_functions, stage.rejected, stage.late)
        if requests.total != stage.arrived:
            raise AssertionError(f"{stage.arrived} requests arrived, {requests.total} were accounted for")
        bill = self._bill()
        slo_result = self._slo_result(requests)
        bound, regret, reason = None, None, "not asked for"
        bound_note = ""
        if inputs.request.with_bound:
            bound = self._bound(requests.late)
            bound_note = bound.note
            regret, reason = _regret(bill.total, bound, requests, slo_result, inputs.service.slo.attainment)
        ccdf_s, ccdf_share = stage.ccdf()
        plan = self._controller.last_plan
        return SimulationResult(
            service=inputs.service.name,
            policy=self._policy_name,
            predictor=self._predictor_name,
            seed=self._seed,
            trace=TraceInfo(inputs.trace.name, requests.total, self._end_s),
            slo=inputs.service.slo,
            requests=requests,
            slo_result=slo_result,
            latency_ms=Latency(
                mean=_ms(stage.latency_mean_s()),
                p50=_ms(stage.latency_quantile_s(0.5)),
                p95=_ms(stage.latency_quantile_s(0.95)),
                p98=_ms(stage.latency_quantile_s(0.98)),
                p99=_ms(stage.latency_quantile_s(0.99)),
                p999=_ms(stage.latency_quantile_s(0.999)),
                max=_ms(stage.latency_max_s()),
            ),
            bill=bill,
            fleet=self._cloud.fleet_result(self._end_s),
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
            decisions=tuple(
                Decision(at_s, command.verb, str(command), outcome, command.usd_per_hour)
                for at_s, command, outcome in self._store.journal[:MAX_DECISIONS]
            ),
            bound_usd=None if bound is None else bound.usd,
            regret=regret,
            regret_reason=reason,
            bound_note=bound_note,
            notes=self._notes(deployment, first if plan is None else plan),
            assumed_share=self._assumed_share(bill),
        )

    def _bill(self) -> Bill:
        bill = self._cloud.bill(self._end_s)
        other = bill.other
        if self._policy.deployment.catalog.bills_extras:
            hours = sum(self._cloud.fleet_result(self._end_s).instance_hours.values())
            service = self._inputs.service
            other += extras_usd(self._end_s, hours, self._stage.arrived, service.request_kb, service.response_kb)
        return replace(bill, functions=self._stage.function_usd(), other=other)

    def _slo_result(self, requests: Requests) -> SloResult:
        total, good, _ = self._stage.minutes()
        with_requests = total > 0
        share = good[with_requests] / total[with_requests]
        target = self._inputs.service.slo.attainment
        in_time = requests.instances + requests.functions - requests.late
        return SloResult(
            attainment=in_time / requests.total if requests.total else None,
            worst_minute_attainment=float(share.min()) if len(share) else None,
            minutes_below_target=int((share < target).sum()),
        )

    def _bound(self, late: int) -> Bound:
        # A fixed fleet or an endpoint may use what the service does not name; the bound must allow it too.
        own, used = self._inputs.deployment, self._policy.deployment
        known = {offer.name for offer in own.offers}
        more = [i for i, offer in enumerate(used.offers) if offer.name not in known]
        allowed = replace(
            own,
            offers=own.offers + tuple(used.offers[i] for i in more),
            candidates=own.candidates + tuple(used.candidates[i] for i in more),
        )
        problem = bound_problem(replace(self._inputs, deployment=allowed), self._stage.fine_counts(), self._fine_s)
        return _with_extras(lower_bound(problem, float(late)), self._inputs, self._stage.arrived)

    def _assumed_share(self, bill: Bill) -> float:
        deployment = self._policy.deployment
        assumed = 0.0
        hours = self._cloud.fleet_result(self._end_s).instance_hours
        for offer, candidate in zip(deployment.offers, deployment.candidates, strict=True):
            if any(r.basis is Basis.ASSUMED for r in candidate.profile.rows if r.batch <= candidate.policy.n_batch):
                assumed += hours.get(offer.name, 0.0) * offer.usd_per_hour
        if deployment.function is not None and deployment.function.basis == Basis.ASSUMED:
            assumed += bill.functions
        return min(1.0, assumed / bill.total) if bill.total > 0.0 else 0.0

    def _notes(self, deployment: Deployment, plan: Plan) -> tuple[str, ...]:
        notes = list(self._inputs.trace.notes)
        reasons = dict.fromkeys(why for _, why in deployment.skipped)
        notes += [
            f"left out ({why}): {', '.join(name for name, w in deployment.skipped if w == why)}" for why in reasons
        ]
        notes += plan.notes
        notes += self._cloud.notes
        fallbacks, failures = self._controller.fallbacks, self._controller.failures
        notes += [f"fallback, {count} times: {name}" for name, count in sorted(fallbacks.items())]
        notes += [f"refused, {count} times: {name}" for name, count in sorted(failures.items())]
        notes.append(LEFT_OUT_WITH_EXTRAS if deployment.catalog.bills_extras else LEFT_OUT)
        return tuple(dict.fromkeys(notes))


class _Minutes:
    """Samples fleet and bill once a minute, for the report."""

    def __init__(self, deployment: Deployment) -> None:
        self._capacity = {o.name: c.capacity_rps for o, c in zip(deployment.offers, deployment.candidates, strict=True)}
        self._t_s: list[float] = []
        self._ready: list[dict[str, int]] = []
        self._spent: list[dict[str, float]] = []

    def sample(self, now_s: float, cloud: SimulatedCloud) -> None:
        self._t_s.append(now_s)
        self._ready.append(dict(cloud.fleet().ready()))
        self._spent.append(cloud.spent_usd(now_s))

    def timeline(self, stage: StageSimulation, end_s: float, other_usd: float) -> Timeline:
        rows = len(self._t_s) - 1  # the last sample only closes the bill
        total, good, by_function = (counts[:rows].astype(np.float64) for counts in stage.minutes())
        width = np.minimum(60.0, end_s - np.array(self._t_s[:rows]))
        offers = sorted({name for ready in self._ready for name in ready})
        instances = {name: np.array([float(r.get(name, 0)) for r in self._ready[:rows]]) for name in offers}
        markets = sorted({name for spent in self._spent for name in spent})
        spent_usd = {name: np.array([s.get(name, 0.0) for s in self._spent[1:]]) for name in markets}
        # Balancer, addresses and data are known in the end only: spread them over time. Disks are metered already.
        ends_s = np.append(self._t_s[1:rows], end_s)
        spent_usd["other"] = spent_usd["other"] + (other_usd - spent_usd["other"][-1]) * ends_s / end_s
        with np.errstate(invalid="ignore"):
            attainment = np.where(total > 0, good / total, np.nan)
        # Functions are billed by the call: spread their bill over the minutes by their calls (pings alone: over time).
        function_usd = stage.function_usd()
        if function_usd > 0.0:
            calls = by_function if by_function.any() else width
            spent_usd["functions"] = function_usd * np.cumsum(calls) / calls.sum()
        return Timeline(
            t_s=np.array(self._t_s[:rows]),
            arrival_rps=total / width,
            capacity_rps=np.sum([n * self._capacity[name] for name, n in instances.items()], axis=0)
            if instances
            else np.zeros(rows),
            overflow_rps=by_function / width,
            attainment=attainment,
            instances=instances,
            spent_usd=spent_usd,
        )


def simulate(request: RunRequest) -> SimulationResult:
    """Run one policy over a trace. Raises BadInput, Infeasible."""
    return simulate_inputs(open_inputs(request), request.policy, request.predictor)


def simulate_inputs(inputs: Inputs, policy: str, predictor: str) -> SimulationResult:
    """The same over inputs that are open already."""
    return Simulation(inputs, policy, predictor).run()


def bound_problem(inputs: Inputs, fine_counts: NDArray[np.int64], fine_s: float) -> BoundProblem:
    """The clairvoyant problem of a part: arrivals as drawn, everything the service itself may buy."""
    bins = int(np.ceil(inputs.duration_s / fine_s))
    return build_problem(
        inputs.deployment,
        fine_counts[:bins],
        end_s=inputs.duration_s,
        bin_s=fine_s,
        warm_start=not inputs.request.cold_start,
        spot=inputs.spot,
        spot_first_hour_free=inputs.request.spot_first_hour_free,
    )


def bound(request: RunRequest) -> tuple[Bound, Bound, int]:
    """The lower bound with no late request, with (1 - SL_min) of them late, and the number of requests."""
    inputs = open_inputs(request)
    fine_s = bin_width_s(inputs.service.slo)
    counts = np.zeros(int(np.ceil(inputs.duration_s / fine_s)) + 1, dtype=np.int64)
    for times, _ in inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed):
        if len(times):
            places = (times / fine_s).astype(np.int64)
            counts[places[0] : places[-1] + 1] += np.bincount(places - places[0])
    problem = bound_problem(inputs, counts, fine_s)
    total = int(counts.sum())
    at_zero, within_slo = (
        _with_extras(lower_bound(problem, late), inputs, total)
        for late in (0.0, (1.0 - inputs.service.slo.attainment) * total)
    )
    return at_zero, within_slo, total


def _with_extras(bound: Bound, inputs: Inputs, requests: int) -> Bound:
    """The bound and what every policy pays beside instances and functions: the balancer, and the data it moves."""
    if bound.usd is None or not inputs.deployment.catalog.bills_extras:
        return bound
    service = inputs.service
    usd = extras_usd(inputs.duration_s, 0.0, requests, service.request_kb, service.response_kb)
    note = f"${usd:.2f} of it for balancer and data moved"
    return replace(bound, usd=bound.usd + usd, note="; ".join(filter(None, (bound.note, note))))


def plan_once(request: RunRequest, at_s: float) -> tuple[Plan, Forecast | None, Deployment, dict[str, int]]:
    """The decision a policy would make at `at_s` of the trace, with the fleet it would have bought for that minute."""
    inputs = open_inputs(replace(request, start_s=at_s))
    policy = make_policy(request.policy, inputs.deployment, inputs.evaluated)
    forecast: Forecast | None = None
    if policy.planner.needs_forecast:
        if wants_perfect_forecast(request.policy):
            predictor: Predictor = PerfectPredictor(inputs.drawn())
        else:
            predictor = make_predictor(request.predictor, request.seed)
        predictor.fit(inputs.history)
        forecast = predictor.predict(60).by_minute()
    first = Situation(
        now_s=0.0, deployment=policy.deployment, fleet=Fleet(()), forecast=forecast, first=True, last_minute_rps=None
    )
    plan, _ = policy.planner.plan(first, policy.planner.begin())
    return plan, forecast, policy.deployment, {}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _regret(
    total_usd: float, bound: Bound, requests: Requests, slo: SloResult, target: float
) -> tuple[float | None, str]:
    """Bill / bound, or why it says nothing: a run that did not do the work has none."""
    if requests.rejected:
        return None, f"{requests.rejected} requests were rejected"
    if slo.attainment is not None and slo.attainment < target:
        return None, "the SLO was missed"
    if bound.usd is None:
        return None, bound.note or "no bound"
    if bound.usd <= 0.0:
        return None, "the bound is zero"
    return total_usd / bound.usd, ""
