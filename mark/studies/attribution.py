"""The dollars between a bill and its bound, split by cause: runs in better worlds, and plans that know every arrival.

docs/attribution.md has the definitions. The parts add up to bill - bound exactly, because `other` is the remainder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mark.cloud.billing.extras import extras_usd
from mark.domain.errors import BadInput
from mark.planning.bounds.cost_gap import CostGap, cost_gap
from mark.planning.policies.policy_registry import policy_entry, wants_perfect_forecast
from mark.simulation.bounding import drawn_problem
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import open_named, policy_requests, run_all
from mark.studies.executor import HERE, StudyExecutor

PARTS = (
    "forecast_error", "boot_delay", "launch_overhead", "queueing", "integrality", "extras", "beyond_promise", "other",
)  # fmt: skip
ORACLE = "oracle"
PAPER = ("mark-paper", "mark-optimal")


@dataclass(frozen=True, slots=True)
class Attribution:
    """The gap in dollars: `parts` by the names in `PARTS`, whose sum is bill - bound.

    `perfect_usd` is the bill with perfect forecasts, `certain_usd` the bill with these if every boot takes its mean.
    `controller_usd` is the controller's part of `extras`.
    """

    bill_usd: float
    perfect_usd: float
    certain_usd: float
    bound_usd: float
    parts: dict[str, float]
    controller_usd: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "bill_usd": self.bill_usd,
            "bound_usd": self.bound_usd,
            "gap_usd": self.bill_usd - self.bound_usd,
            "parts_usd": self.parts,
            "perfect_forecasts_bill_usd": self.perfect_usd,
            "and_certain_boots_bill_usd": self.certain_usd,
        }


def compare_attributed(
    request: RunRequest,
    policies: Sequence[str],
    wanted: Sequence[str] | None = None,
    *,
    beside: RunRequest | None = None,
    executor: StudyExecutor = HERE,
) -> tuple[dict[str, SimulationResult], dict[str, Attribution], SimulationResult | None]:
    """Return the results of `compare`, the attribution of the policies in `wanted`, and the result of `beside`.

    By default these are all policies that forecast, except the paper's. Every planner takes two more runs: with perfect
    forecasts (unless `oracle` is among the policies and has the same planner), and with these in a world where every
    boot takes its mean. Policies without a regret are left out. Raises BadInput for wanted policies that are not
    compared or plan without a forecast.
    """
    inputs = open_named(request)
    asked = dict(zip(policies, policy_requests(inputs, policies), strict=True))
    planners = _planners(asked, wanted)
    better: dict[tuple[str, bool], RunRequest] = {}
    for planner in dict.fromkeys(planners.values()):
        perfect = replace(request, policy=planner, foresight=True, with_bound=False, explain=False)
        if planner != "mark" or ORACLE not in asked:
            better[planner, False] = perfect
        better[planner, True] = replace(perfect, sensitivity=replace(request.sensitivity, certain_boots=True))
    requests = [*asked.values(), *better.values(), *([] if beside is None else [beside])]
    runs = run_all(requests, executor=executor, progress=request.progress)
    more = None if beside is None else runs.pop()
    results = dict(zip(asked, runs[: len(asked)], strict=True))
    worlds = dict(zip(better, runs[len(asked) :], strict=True))
    if ORACLE in results:
        worlds.setdefault(("mark", False), results[ORACLE])
    kept = [named for named in planners if results[named].regret is not None]
    if not kept:
        return results, {}, more
    problem, total = drawn_problem(inputs)
    extras_in_bound = 0.0
    if inputs.resolved.catalog.bills_extras:
        service = inputs.service
        extras_in_bound = extras_usd(inputs.duration_s, total, service.request_kb, service.response_kb)
    found = {}
    for named in kept:
        # Without such plans no instance is bought, so only forecasts and boots are separated.
        plans = cost_gap(problem, float(results[named].requests.late)) or CostGap(0.0, 0.0, 0.0, 0.0, 0.0)
        perfect_run, certain_run = (worlds[planners[named], certain] for certain in (False, True))
        found[named] = _split(results[named], perfect_run, certain_run, plans, extras_in_bound)
    return results, found, more


def _planners(asked: Mapping[str, RunRequest], wanted: Sequence[str] | None) -> dict[str, str]:
    """Return, by policy to be attributed, the policy whose planner it has."""
    planners = {}
    for named in asked if wanted is None else wanted:
        if named not in asked:
            raise BadInput("is not among the policies compared", "attribute", named)
        policy = asked[named].policy
        if policy_entry(policy).forecasts:
            if policy not in PAPER or wanted is not None:
                planners[named] = "mark" if wants_perfect_forecast(policy) else policy
        elif wanted is not None:
            raise BadInput("plans without a forecast", "attribute", named)
    return planners


def _split(
    result: SimulationResult,
    perfect: SimulationResult,
    certain: SimulationResult,
    plans: CostGap,
    extras_in_bound: float,
) -> Attribution:
    assert result.bound_usd is not None
    assert result.bound_own_usd is not None
    bill_usd, perfect_usd, certain_usd = result.bill.total, perfect.bill.total, certain.bill.total
    fluid_usd = result.bound_usd if result.bound_fluid_usd is None else result.bound_fluid_usd
    whole_in_bound_usd = result.bound_usd - fluid_usd - result.bound_disks_usd
    parts = {
        "forecast_error": bill_usd - perfect_usd,
        "boot_delay": perfect_usd - certain_usd,
        "launch_overhead": certain.fleet.boot_usd - plans.launches_usd,
        "queueing": plans.queueing_usd - plans.whole_usd,
        # The bound already includes whole instances and their disks, as far as they could be proven.
        "integrality": plans.whole_usd - plans.fluid_usd - whole_in_bound_usd,
        "extras": certain.bill.other - extras_in_bound - result.bound_disks_usd,
        "beyond_promise": result.bound_own_usd - result.bound_usd,
    }
    parts["other"] = bill_usd - result.bound_usd - math.fsum(parts.values())
    return Attribution(bill_usd, perfect_usd, certain_usd, result.bound_usd, parts, certain.controller_usd)
