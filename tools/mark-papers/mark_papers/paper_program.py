"""The program of the MArk paper (section 4.3): the cheapest fleet over time whose capacity covers a predicted load.

    minimise    sum_t sum_i [ P_i n[i, t] + O_i max(n[i, t] - n[i, t-1], 0) ]
    subject to  sum_i lambda_i n[i, t] >= F_t  for every t,

lambda_i being the rate that an instance serves, and n[i, -1] the running fleet. The paper calls it intractable and uses
a greedy algorithm. It is tractable: types that are never worth a launch beside another are left out, then a dynamic
program over the counts is exact if these are few, and otherwise the integer program (PuLP with HiGHS or CBC) gives a
bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.errors import BadInput
from mark.planning.solver.dynamic_program import go_back, go_on, states_of
from mark.planning.solver.integer_program import SOLVERS, Rows, solve_rows
from mark.planning.solver.program import ROUNDING, rises

_NEVER_USD = 1e9  # finite, because the kernel interpolates

GAP = 0.002  # of the integer program, relative
TIME_BUDGET_S = 10.0
_STATES = 300_000  # combined counts that the dynamic program takes; a tenth of a microsecond each, step and offer
HOWS = ("auto", "dp", *SOLVERS)


@dataclass(frozen=True, slots=True)
class PaperProgram:
    """T steps and J offers, whose order decides between equal costs.

    `first`: the launch of a first fleet is free. Raises BadInput for numbers that are not finite or are negative, and
    for a capacity or price of zero.
    """

    usd_per_step: FloatArray  # (J,) P
    launch_usd: FloatArray  # (J,) O
    capacity_rps: FloatArray  # (J,) lambda
    running: IntArray  # (J,) n[., -1]
    demand_rps: FloatArray  # (T,) F
    max_instances: int = 2**40
    max_usd_per_step: float = math.inf
    first: bool = False

    def __post_init__(self) -> None:
        rows = (self.usd_per_step, self.launch_usd, self.capacity_rps, self.running)
        if len({row.shape for row in rows}) > 1 or len(self.demand_rps) == 0:
            raise BadInput("offers differ in number, or there are no steps", "program", [row.shape for row in rows])
        every = np.concatenate([*rows, self.demand_rps])
        if not (np.isfinite(every).all() and every.min() >= 0.0):
            raise BadInput("must be finite and not negative", "program", every.tolist())
        if not (self.usd_per_step > 0.0).all() or not (self.capacity_rps > 0.0).all():
            raise BadInput("prices and capacities must be above zero", "program")

    def useful(self) -> IntArray:
        """Return how many of each offer alone cover every step: (J,). More are never worth their price."""
        peak_rps = float(self.demand_rps.max())
        return np.ceil(peak_rps / self.capacity_rps * (1.0 - ROUNDING)).astype(np.int64)

    def within_limits(self, counts: IntArray) -> bool:
        """Return whether the `counts` (J,) of one step keep the limits."""
        usd = float(self.usd_per_step @ counts)
        return int(counts.sum()) <= self.max_instances and usd <= self.max_usd_per_step * (1.0 + ROUNDING)


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """The cheapest counts found, their cost, and a lower bound on the cost of any.

    `limited`: no fleet within the limits covers every step; such steps have the largest one. `solver` is "dp" (exact),
    "highs" or "cbc"; `finished`: no time budget stopped it, so the same arguments give the same plan on every machine.
    """

    counts: IntArray  # (J, T)
    usd: float
    bound_usd: float
    solver: str
    limited: bool = False
    finished: bool = True

    @property
    def gap(self) -> float:
        return 0.0 if self.usd <= 0.0 else 1.0 - self.bound_usd / self.usd


def paper_cost_usd(program: PaperProgram, counts: IntArray) -> float:
    """Return the objective of a plan (J, T), whether it covers the load or not."""
    before = counts[:, 0] if program.first else program.running
    return float(program.usd_per_step @ counts.sum(axis=1) + program.launch_usd @ rises(counts, before).sum(axis=1))


def solve_paper(
    program: PaperProgram,
    how: str = "auto",
    *,
    gap: float = GAP,
    time_budget_s: float = TIME_BUDGET_S,
    start: IntArray | None = None,
) -> PaperPlan:
    """Return the cheapest plan; without offers, one of no instances.

    "auto" uses the dynamic program if it can hold all combined counts, else HiGHS. `gap` (relative) and `time_budget_s`
    (seconds on this machine) stop the integer program. It begins with the plan `start` (J, T), if one that covers is
    known, and never returns a worse one. Raises BadInput for an unknown `how`.
    """
    if how not in HOWS:
        raise BadInput(f"unknown (known: {', '.join(HOWS)})", "how to plan", how)
    offers, steps = len(program.usd_per_step), len(program.demand_rps)
    if offers == 0 or program.demand_rps.max() <= 0.0:
        nothing = np.zeros((offers, steps), dtype=np.int64)
        return PaperPlan(nothing, 0.0, 0.0, "dp", limited=bool(program.demand_rps.max() > 0.0))
    if program.max_instances < int(program.useful().sum()):
        # Without the limit more offers can be left out, and a solution that keeps the limit anyway is optimal with it
        # too.
        free = replace(program, max_instances=int(program.useful().sum()))
        found = solve_paper(free, how, gap=gap, time_budget_s=time_budget_s, start=start)
        if all(program.within_limits(step) for step in found.counts.T):
            return found
    flat = _static(program)
    largest_rps = float(program.capacity_rps @ flat)
    limited = bool(program.demand_rps.max() > largest_rps * (1.0 + ROUNDING))
    if limited:
        program = replace(program, demand_rps=np.minimum(program.demand_rps, largest_rps))
        start = None
    most = _most(program)
    if how == "dp" or (how == "auto" and math.prod((most + 1).tolist()) <= _STATES):
        counts = _by_counts(program, most)
        usd = paper_cost_usd(program, counts)
        return PaperPlan(counts, usd, usd * (1.0 - ROUNDING), "dp", limited)
    solver = "highs" if how == "auto" else how
    known = _cheapest(
        [np.repeat(flat[:, None], steps, axis=1), _by_counts(program, _fewer(program, most)), start], program
    )
    most = np.maximum(most, known.max(axis=1))
    rows = _rows(program, most)
    whole = solve_rows(rows, _values(program, known), gap, time_budget_s, solver)
    counts, usd = known, paper_cost_usd(program, known)
    if whole.values is not None:
        better = np.rint(whole.values[: rows.integers]).astype(np.int64).reshape(offers, steps)
        if _covers(program, better) and paper_cost_usd(program, better) < usd:
            counts, usd = better, paper_cost_usd(program, better)
    return PaperPlan(counts, usd, min(usd, whole.bound_usd), solver, limited, whole.finished)


def _covers(program: PaperProgram, counts: IntArray) -> bool:
    enough = program.capacity_rps @ counts >= program.demand_rps * (1.0 - ROUNDING)
    return bool(enough.all()) and all(program.within_limits(step) for step in counts.T)


def _static(program: PaperProgram) -> IntArray:
    """Return a fleet (J,) that covers every step within the limits; the largest one if none does."""
    alone = program.useful()
    for i in np.argsort(alone * program.usd_per_step, kind="stable").tolist():
        fleet = np.zeros(len(alone), dtype=np.int64)
        fleet[i] = alone[i]
        if program.within_limits(fleet):
            return fleet
    scale = 1.0 / float(program.capacity_rps.max())
    every, usd = float(alone.sum()), float(alone @ program.usd_per_step)
    j = np.arange(len(alone))
    rows = Rows(
        cost=-scale * program.capacity_rps,
        least=np.zeros(len(alone)),
        most=alone.astype(np.float64),
        lower=np.full(2, -np.inf),
        upper=np.minimum([program.max_instances, program.max_usd_per_step * (1.0 + ROUNDING)], [every, usd]),
        starts=np.array([0, len(alone), 2 * len(alone)]),
        columns=np.concatenate([j, j]),
        values=np.concatenate([np.ones(len(alone)), program.usd_per_step]),
        integers=len(alone),
        usd=1.0,
    )
    found = solve_rows(rows, np.zeros(len(alone)), 1e-6, TIME_BUDGET_S, "highs")
    largest = np.zeros(len(alone)) if found.values is None else found.values
    return np.asarray(np.rint(largest), dtype=np.int64)


def _most(program: PaperProgram) -> IntArray:
    """Return how many of each offer an optimal plan may hold: (J,).

    An offer is never launched if k of another have at least its capacity for no more dollars, to run and to launch, and
    the limit of instances has room for k; only running ones of such an offer are kept. Of equal offers the first
    counts.
    """
    useful = program.useful()
    roomy = program.max_instances >= int(useful.sum())
    most = useful.copy()
    capacity, usd, launch = program.capacity_rps, program.usd_per_step, program.launch_usd
    for j in range(len(most)):
        times = np.ceil(capacity[j] / capacity * (1.0 - ROUNDING))
        no_dearer = (times * usd <= usd[j] * (1.0 + ROUNDING)) & (times * launch <= launch[j] * (1.0 + ROUNDING))
        # Two offers that could replace each other are equal: the first stays.
        equal = (times == 1.0) & (np.ceil(capacity / capacity[j] * (1.0 - ROUNDING)) == 1.0)
        equal &= (usd >= usd[j] * (1.0 - ROUNDING)) & (launch >= launch[j] * (1.0 - ROUNDING))
        better = no_dearer & ((times == 1.0) | roomy) & (~equal | (np.arange(len(most)) < j))
        better[j] = False
        if better.any():
            most[j] = 0 if program.first else min(int(useful[j]), int(program.running[j]))
    return most


def _by_counts(program: PaperProgram, most: IntArray) -> IntArray:
    states, stride = states_of(tuple(most.tolist()))
    usd = states @ program.usd_per_step
    over = usd > program.max_usd_per_step * (1.0 + ROUNDING)
    usd[over | (states.sum(axis=1) > program.max_instances)] = math.inf
    before = most if program.first else np.minimum(program.running, most)
    capacity_rps = (states @ program.capacity_rps) * (1.0 + ROUNDING)
    return cover(program.demand_rps, capacity_rps, usd, states, most, stride, program.launch_usd, before)


def _fewer(program: PaperProgram, most: IntArray) -> IntArray:
    """Return `most` without the most expensive offers per request/s, until the dynamic program can hold the rest."""
    most = most.copy()
    for i in np.argsort(-program.usd_per_step / program.capacity_rps, kind="stable").tolist():
        if math.prod((most + 1).tolist()) <= _STATES:
            break
        most[i] = 0
    return most


def _cheapest(plans: list[IntArray | None], program: PaperProgram) -> IntArray:
    """Return the cheapest of the plans that cover the load; the first plan does."""
    found = [plan for plan in plans if plan is not None and _covers(program, plan)]
    return min(found, key=lambda plan: paper_cost_usd(program, plan))


def _rows(program: PaperProgram, most: IntArray) -> Rows:
    """Return the rows of the program. Columns are n[j, t], then launches s[j, t] >= n[j, t] - n[j, t-1]."""
    offers, steps = len(most), len(program.demand_rps)
    n = np.arange(offers * steps).reshape(offers, steps)
    s = n + n.size
    usd = float(program.usd_per_step.mean())
    # Row by row: coverage in requests/s of the largest offer, launches, then the limits.
    scale = 1.0 / float(program.capacity_rps.max())
    of_rows: list[tuple[IntArray, FloatArray]] = [(n[:, t], scale * program.capacity_rps) for t in range(steps)]
    lower = [*(scale * program.demand_rps)]
    upper = [math.inf] * steps
    for j in range(offers):
        for t in range(steps):
            if t > 0:
                of_rows.append((np.array([n[j, t], n[j, t - 1], s[j, t]]), np.array([1.0, -1.0, -1.0])))
            else:
                of_rows.append((np.array([n[j, t], s[j, t]]), np.array([1.0, -1.0])))
            lower.append(-math.inf)
            upper.append(0.0 if t > 0 else float(most[j] if program.first else program.running[j]))
    for each, limit in (
        (np.ones(offers), program.max_instances),
        (program.usd_per_step / usd, program.max_usd_per_step / usd),
    ):
        if limit < each @ most:
            of_rows += [(n[:, t], each) for t in range(steps)]
            lower += [-math.inf] * steps
            upper += [float(limit)] * steps
    return Rows(
        cost=np.concatenate([np.repeat(program.usd_per_step, steps), np.repeat(program.launch_usd, steps)]) / usd,
        least=np.zeros(2 * n.size),
        most=np.repeat(most, 2 * steps).reshape(offers, 2, steps).transpose(1, 0, 2).ravel().astype(np.float64),
        lower=np.array(lower),
        upper=np.array(upper),
        starts=np.cumsum([0, *(len(columns) for columns, _ in of_rows)]),
        columns=np.concatenate([columns for columns, _ in of_rows]),
        values=np.concatenate([values for _, values in of_rows]),
        integers=n.size,
        usd=usd,
    )


def _values(program: PaperProgram, counts: IntArray) -> FloatArray:
    """Return the values of the columns for a plan."""
    before = counts[:, 0] if program.first else program.running
    return np.concatenate([counts.ravel(), rises(counts, before).ravel()]).astype(np.float64)


def cover(
    demand_rps: FloatArray,
    capacity_rps: FloatArray,
    state_usd: FloatArray,
    states: IntArray,
    most: IntArray,
    stride: IntArray,
    launch_usd: FloatArray,
    before: IntArray,
) -> IntArray:
    """Return the cheapest counts (L, T) whose capacity is at least the demand (T,) in each step, with instant launches.

    `capacity_rps` and `state_usd` (S,) are those of `states`; a forbidden state costs infinity. Some state must cover
    all. The values of the best continuations are kept at some steps only and recomputed from there: a day would fill
    the memory.
    """
    steps, total = len(demand_rps), len(states)
    # A capacity is identified by the number of demands, in order, that it reaches.
    place = np.searchsorted(np.sort(demand_rps), capacity_rps, side="right").astype(np.float64)
    first = np.searchsorted(np.sort(demand_rps), demand_rps, side="right")
    short_usd = np.where(np.arange(steps + 1) < first[:, None], _NEVER_USD, 0.0)
    every_usd = np.repeat(launch_usd[:, None], steps, axis=1)
    block = math.ceil(math.sqrt(steps))
    begins = range(0, steps, block)
    value, after = np.empty((block, total)), np.zeros(total)
    ahead = {}

    def back(begin: int, of: FloatArray) -> FloatArray:
        part = short_usd[begin : begin + block]
        value[: len(part)] = state_usd
        go_back(part, place, most + 1, stride, every_usd, value[: len(part)], of)
        return value[: len(part)]

    for begin in reversed(begins):
        ahead[begin] = after.copy()
        back(begin, after)
    chosen = np.empty(steps, dtype=np.int64)
    for begin in begins:
        part = back(begin, ahead[begin])
        go_on(part, states, before, every_usd, chosen[begin : begin + len(part)])
        before = states[chosen[begin + len(part) - 1]]
    return np.asarray(states[chosen].T)
