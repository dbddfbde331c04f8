"""Reproduce Fig. 9 of the MArk paper: unforeseen surges (a, b, c) and interrupted spot instances (d).

Details that the paper leaves open are chosen here: arrivals are Poisson, at a constant rate except for the surge, with
a day of history; the surge grows linearly for two minutes and stays; the spot market recovers a minute after the
interruption.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from mark.cloud.ec2.spot_series import SpotSeries
from mark.control.ports import WINDOW_S
from mark.domain.arrays import FloatArray
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.service import ResolvedService
from mark.domain.time import DAY_S
from mark.planning.planner import Planner, PlanningContext, Policy
from mark.planning.policies.policy_registry import make_policy
from mark.planning.policies.target_tracking import OVER_PROVISION, TargetTracker
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.trace import Trace

HISTORY_S = DAY_S
DURATION_S = 25 * 60.0

SURGE_MODEL, SURGE_RPS = "lstm-ptb", 83.0
SURGES = (0.5, 0.75, 1.0)  # increase as a share of the rate
SURGE_AT_S, SURGE_RISE_S = 11 * 60.0, 120.0

STORM_MODEL = "inception-v3"
STORM_INSTANCE, STANDBY = "c5.large", "t2.medium"  # the paper names the second
STORM_RPS = 90.0  # the paper's mean, at which `mark` holds 20
STORMS = (0.2, 0.4, 0.8)  # of the fleet
STORM_AT_S, SHORT_S = 7 * 60.0, 60.0
STORM_MARKETS = (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE)


@dataclass(frozen=True, slots=True)
class WindowSeries:
    """One run, by windows of 5 s in which requests arrived; NaN without any (latencies: without any answered)."""

    name: str
    result: SimulationResult
    arrived: FloatArray
    in_time: FloatArray  # share
    mean_ms: FloatArray
    p98_ms: FloatArray

    @property
    def missed_s(self) -> float:
        """The seconds of windows whose share in time was below the promise."""
        return WINDOW_S * float((self.in_time < self.result.slo.attainment).sum())

    def share_in_time(self, first: int) -> float:
        """Return the share in time of the requests that arrived in window `first` or later."""
        good = np.nan_to_num(self.in_time[first:]) * self.arrived[first:]
        return float(good.sum() / self.arrived[first:].sum())


@dataclass(frozen=True, slots=True)
class Panel:
    """The event at `at_s`, and the runs of several ways of serving."""

    title: str
    at_s: float
    lines: tuple[WindowSeries, ...]


@dataclass(frozen=True, slots=True)
class Fig9:
    surges: tuple[Panel, ...]
    storms: tuple[Panel, ...]


class Altered:
    """A planner with one change: without its reactive side, or with a share of standbys per spot instance."""

    def __init__(self, planner: Planner, *, reactive: bool = True, standby_share: float | None = None) -> None:
        self.name, self.needs_forecast, self.begin = planner.name, planner.needs_forecast, planner.begin
        self.monitors_slo, self.replans = planner.monitors_slo and reactive, planner.replans and reactive
        self._planner, self._standby_share = planner, standby_share

    def plan(self, context: PlanningContext, memory: Any) -> tuple[Plan, Any]:
        plan, memory = self._planner.plan(context, memory)
        if self._standby_share is None:
            return plan, memory
        spot = {o.name for o in context.resolved.offers if o.market is Market.SPOT}
        held = sum(target.count for target in plan.targets if target.offer in spot)
        standby = next(o.name for o in context.resolved.offers if o.instance == STANDBY)
        count = math.ceil(self._standby_share * held - 1e-9)
        reason = f"one for each of {100.0 * self._standby_share:g} % of {held} spot instances"
        return replace(plan, standbys=(Target(standby, count, reason),)), memory


def steady_trace(rate_rps: float, surge: float, seed: int, name: str) -> Trace:
    """Return a day of history, then 25 minutes at `rate_rps`, surging by the share `surge` from minute 11 to 13."""
    bins = round((HISTORY_S + DURATION_S) / WINDOW_S)
    starts_s = WINDOW_S * np.arange(bins, dtype=np.float64)
    since_s = starts_s + WINDOW_S / 2.0 - HISTORY_S - SURGE_AT_S
    counts = WINDOW_S * rate_rps * (1.0 + surge * np.clip(since_s / SURGE_RISE_S, 0.0, 1.0))
    # Predictors learn from expected counts, so the history's are drawn: a steady load must still look random.
    past = starts_s < HISTORY_S
    counts[past] = np.random.default_rng([seed, 9]).poisson(counts[past])
    return trace_of_bins(name, starts_s, counts, WINDOW_S)


def storm_series(share: float) -> SpotSeries:
    """Return a spot market that interrupts `share` of the fleet at minute 7 and recovers a minute later."""
    times_s = (0.0, STORM_AT_S, STORM_AT_S + SHORT_S)
    return SpotSeries(
        f"a storm of {100.0 * share:g} %", "availability", times_s, (1.0, 1.0 - share, 1.0), 2.0 * DURATION_S
    )


def run_fig9(
    *,
    surges: tuple[float, ...] = SURGES,
    storms: tuple[float, ...] = STORMS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Fig9:
    """Run every panel; `surges` and `storms` are shares, of the rate and of the fleet."""
    panels: list[Callable[[], Panel]] = [
        *(partial(_surge, share, seed) for share in surges),
        *(partial(_storm, share, seed) for share in storms),
    ]
    done = []
    for panel in panels:
        done.append(panel())
        if progress is not None:
            progress(len(done) / len(panels))
    return Fig9(tuple(done[: len(surges)]), tuple(done[len(surges) :]))


def _surge(share: float, seed: int) -> Panel:
    title = f"+{100.0 * share:g} % in two minutes"
    inputs = _inputs(SURGE_MODEL, steady_trace(SURGE_RPS, share, seed, f"{SURGE_RPS:g} requests/s, {title}"), seed)
    mark, paper, sagemaker = (
        make_policy(name, inputs.resolved, inputs.evaluated) for name in ("mark", "mark-paper", "target-tracking")
    )
    policies = {
        "mark": mark,
        "mark-not-reactive": replace(mark, planner=Altered(mark.planner, reactive=False)),
        "mark-paper": paper,
        "sagemaker": sagemaker,
        "sagemaker-factor-1": _not_over_provisioned(sagemaker),
    }
    return Panel(title, SURGE_AT_S, tuple(_line(name, inputs, policy) for name, policy in policies.items()))


def _storm(share: float, seed: int) -> Panel:
    title = f"{100.0 * share:g} % interrupted"
    inputs = _inputs(STORM_MODEL, steady_trace(STORM_RPS, 0.0, seed, f"{STORM_RPS:g} requests/s"), seed)
    inputs = replace(inputs, spot=(storm_series(share),), resolved=_cluster(inputs.resolved))
    mark = make_policy("mark", inputs.resolved, inputs.evaluated)
    policies = {
        "mark": mark,
        "mark-standby-each": replace(mark, planner=Altered(mark.planner, standby_share=share)),
    }
    return Panel(title, STORM_AT_S, tuple(_line(name, inputs, policy) for name, policy in policies.items()))


def _inputs(model: str, trace: Trace, seed: int) -> Inputs:
    markets = STORM_MARKETS if model == STORM_MODEL else None
    request = RunRequest(
        trace=trace.name,
        service=model,
        markets=markets,
        start_s=HISTORY_S,
        duration_s=DURATION_S,
        seed=seed,
        with_bound=False,
    )
    return open_inputs(request, trace)


def _cluster(resolved: ResolvedService) -> ResolvedService:
    """Return the service with only the types of the paper's cluster."""
    kept = [i for i, offer in enumerate(resolved.offers) if offer.instance in (STORM_INSTANCE, STANDBY)]
    return replace(
        resolved,
        offers=tuple(resolved.offers[i] for i in kept),
        candidates=tuple(resolved.candidates[i] for i in kept),
    )


def _not_over_provisioned(policy: Policy) -> Policy:
    """Return the endpoint with a target of an instance's full capacity instead of half, as tight as our own."""
    tracker = cast(TargetTracker, policy.planner)
    planner = replace(tracker, target=OVER_PROVISION * tracker.target, target_rps=OVER_PROVISION * tracker.target_rps)
    return replace(policy, planner=planner)


def _line(name: str, inputs: Inputs, policy: Policy) -> WindowSeries:
    """Run the simulation and sort its requests into windows."""
    request = inputs.request
    chunks = inputs.trace.chunks(inputs.start_s, inputs.end_s, request.scale, request.seed)
    arrived_s = np.concatenate([times_s for times_s, _ in chunks])
    simulation = Simulation(inputs, policy, request.predictor, keep=True)
    result = simulation.run()
    latency_s = simulation.recording.finish_s - arrived_s
    edges = np.searchsorted(arrived_s, WINDOW_S * np.arange(1, round(inputs.duration_s / WINDOW_S)))
    windows = np.split(latency_s, edges)
    answered = [window[np.isfinite(window)] for window in windows]
    return WindowSeries(
        name=name,
        result=replace(result, policy=name),
        arrived=np.array([len(window) for window in windows], dtype=np.float64),
        in_time=_of_each(windows, lambda window: np.mean(window <= result.slo.rt_max_s + TOLERANCE_S)),
        mean_ms=_of_each(answered, lambda window: 1e3 * np.mean(window)),
        p98_ms=_of_each(answered, lambda window: 1e3 * np.quantile(window, 0.98)),
    )


def _of_each(windows: list[FloatArray], figure: Callable[[FloatArray], Any]) -> FloatArray:
    return np.array([float(figure(window)) if len(window) else math.nan for window in windows])
