"""The cost of the next day, and the chance that it keeps the promise, after a run or from a plan.

The past is the trace up to the end of the run, or up to the moment of the plan. Bills and late requests come from the
run; a plan lacks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.service import ResolvedService
from mark.planning.bounds.whole_problem import mixes
from mark.planning.next_day import DAY, HALF_HOUR_S, MOST_DAYS, NextDay, PlanUsd, SeenHalfHours, next_day
from mark.planning.policies.names import BEST_FIXED, FIXED, split_policy
from mark.simulation.inputs import Inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import open_named
from mark.studies.saving_range import spent_at

if TYPE_CHECKING:
    from mark.studies.decision import PlannedService

_IN_HAND = 1.2  # capacity over the mean of a half hour


def next_days(request: RunRequest, results: Mapping[str, SimulationResult]) -> dict[str, NextDay | None]:
    """Return the day after the part of each run; None if the run is shorter than a day, or less is known."""
    found = {}
    for named, result in results.items():
        policy, predictor = split_policy(named, request.predictor)
        found[named] = next_day_of_run(open_named(replace(request, policy=policy, predictor=predictor)), result)
    return found


def next_day_of_run(inputs: Inputs, result: SimulationResult) -> NextDay | None:
    """Return the day after the part, by the run's own bills and late requests; None if the run is shorter than a day.

    The bill of a few hours, and of a fleet's first hours above all, does not tell how bills of days relate to plans.
    """
    rates_rps, edges_s = _past(inputs, inputs.end_s)
    in_run = (edges_s[:-1] >= inputs.start_s - 1e-6) & (edges_s[1:] <= inputs.end_s + 1e-6)
    if in_run.sum() < DAY:
        return None
    line, at_s = result.timeline, edges_s - inputs.start_s
    usd = np.where(in_run, np.diff(spent_at(result, at_s)), math.nan)
    ends_s = np.append(line.t_s, result.trace.duration_s)
    requests = np.concatenate([[0.0], np.cumsum(line.arrival_rps * np.diff(ends_s))])
    missed = line.arrival_rps * (1.0 - np.nan_to_num(line.attainment, nan=1.0))
    late = np.concatenate([[0.0], np.cumsum(missed * np.diff(ends_s))])
    came = np.diff(np.interp(at_s, ends_s, requests))
    shares = np.diff(np.interp(at_s, ends_s, late)) / np.where(came > 0.0, came, math.inf)
    seen = SeenHalfHours(rates_rps, usd, np.where(in_run, shares, math.nan))
    never_changes = result.policy.startswith((BEST_FIXED, FIXED)) and result.functions.calls == 0
    plan = np.ones_like if never_changes else plan_usd(inputs.resolved, rates_rps)
    return next_day(seen, 1.0 - result.slo.attainment, plan)


def next_day_of_plan(planned: PlannedService) -> NextDay | None:
    """Return the day that begins with the plan. Its bills are planned, and its confidence is the plan's own."""
    inputs = planned.inputs
    rates_rps, _ = _past(inputs, inputs.start_s)
    nothing = np.full(len(rates_rps), math.nan)
    return next_day(
        SeenHalfHours(rates_rps, nothing, nothing),
        1.0 - inputs.resolved.slo.attainment,
        plan_usd(inputs.resolved, rates_rps),
        stated_confidence=planned.plan.confidence,
    )


def _past(inputs: Inputs, until_s: float) -> tuple[FloatArray, FloatArray]:
    """Return the rates of the half hours before `until_s`, and their edges."""
    halves = min(MOST_DAYS * DAY, int(until_s / HALF_HOUR_S + 1e-9))
    edges_s = np.asarray(until_s - HALF_HOUR_S * np.arange(halves, -1, -1), dtype=np.float64)
    load = inputs.trace.series.load(float(edges_s[0]), until_s, HALF_HOUR_S, inputs.request.scale)
    return load.mean_rps[:halves], edges_s


def plan_usd(resolved: ResolvedService, rates_rps: FloatArray) -> PlanUsd:
    """Return the dollars of the cheapest whole instances and functions for a half hour, with a fifth of capacity spare.

    Fleets are computed for up to three times the highest of `rates_rps`; beyond that dollars are in proportion.
    """
    call_usd = resolved.in_time_usd * HALF_HOUR_S
    known = rates_rps[np.isfinite(rates_rps)]
    top_rps = 3.0 * _IN_HAND * float(known.max()) if len(known) else 0.0
    kinds = _kinds(resolved)
    if not len(kinds) or top_rps <= 0.0:
        return lambda rates: rates * (call_usd if math.isfinite(call_usd) else 1.0)
    front = mixes(kinds[:, 0] * HALF_HOUR_S, kinds[:, 1], top_rps)
    capacity_rps, usd = front.requests, front.usd
    first = 0 if math.isfinite(call_usd) else 1  # without functions at least one instance runs

    def dollars(rates: FloatArray) -> FloatArray:
        wanted_rps = _IN_HAND * rates
        at = np.clip(np.searchsorted(capacity_rps, wanted_rps), first, len(usd) - 1)
        found = usd[at] * np.maximum(1.0, wanted_rps / np.maximum(capacity_rps[at], 1e-12))
        if first == 0:
            below = np.maximum(at - 1, 0)
            called = np.maximum(0.0, rates - capacity_rps[below] / _IN_HAND)
            found = np.minimum(found, usd[below] + call_usd * called)
        return np.asarray(found)

    return dollars


def _kinds(resolved: ResolvedService) -> FloatArray:
    """Return dollars a second and requests/s of types, without those that whole numbers of others replace for less."""
    kept: list[tuple[float, float]] = []
    pairs = zip(resolved.offers, resolved.candidates, strict=True)
    sold = {(offer.usd_per_s, candidate.capacity_rps) for offer, candidate in pairs}
    for usd, rps in sorted(sold, key=lambda kind: (kind[0] / kind[1], kind[0])):
        if not any(math.ceil(rps / other_rps - 1e-12) * other_usd <= usd for other_usd, other_rps in kept):
            kept.append((usd, rps))
    return np.array(kept)
