"""Solving the planner's program: fast, with a proof, or by the integer program."""

from __future__ import annotations

import numpy as np

from mark.domain.copying import unchecked
from mark.domain.errors import BadInput
from mark.planning.solver.decomposition import fluid_bound, prove
from mark.planning.solver.integer_program import SOLVERS, relax, solve_integer
from mark.planning.solver.local_search import fast, tight, within_limits
from mark.planning.solver.program import GAP, ROUNDING, Program, Solution, price, prune, violation

HOWS = ("auto", "fast", "ilp")


def solve(
    program: Program, how: str = "auto", *, time_budget_s: float = 0.0, gap: float = GAP, solver: str = "highs"
) -> Solution:
    """Return a plan for the program and how good it is. A plan always exists: a plan without instances breaks no limit.

    "fast": the fast path, with a bound that costs nothing. "auto": then as much proof as `prove` finds, which may
    improve the plan; then, if it is not within `gap`, the integer program. "ilp": the integer program after the fast
    path, unless its plan is already proven, also by the linear program. `time_budget_s` is the integer program's; with
    zero it is not used. Unless the status is "time-out" the same arguments give the same answer everywhere. Raises
    BadInput for an unknown `how` or `solver`.
    """
    if program.least is not None:
        free = solve(unchecked(program, least=None), how, time_budget_s=time_budget_s, gap=gap, solver=solver)
        if not program.missing(free.counts.sum(axis=0)).any():
            return free
    for what, name, known in (("how to plan", how, HOWS), ("solver", solver, SOLVERS)):
        if name not in known:
            raise BadInput(f"unknown (known: {', '.join(known)})", what, name)
    # A bound without the limits is a bound with them, too.
    part, left = prune(program, scaled=True)
    counts, exact = fast(part)
    if limited := bool(violation(part, counts)):
        part, left = prune(program, scaled=False)
        counts, exact = within_limits(part)
    usd = price(part, counts)
    maker, stopped = "dp" if exact else "fast", False
    bound_usd = usd * (1.0 - ROUNDING) if exact else fluid_bound(part)

    def open_() -> bool:
        return usd - bound_usd > gap * usd

    if how == "auto" and open_() and not limited:
        found, bound_usd = prove(part, counts, gap)
        if found is not counts:
            counts, usd, maker = found, price(part, found), "dp"
    elif how != "fast" and open_():
        bound_usd = max(bound_usd, relax(tight(part, counts), limited).bound_usd)
    if how != "fast" and time_budget_s > 0.0 and open_():
        best = solve_integer(tight(part, counts), counts, 0.98 * gap, time_budget_s, solver)
        bound_usd, stopped = max(bound_usd, best.bound_usd), not best.finished
        if best.counts is not None and price(part, best.counts) < usd:
            counts, usd, maker = best.counts, price(part, best.counts), solver
    every = np.zeros((program.offers, program.steps), dtype=np.int64)
    every[left] = counts
    status = "proven" if not open_() else "time-out" if stopped else "feasible"
    return Solution(every, usd, min(usd, bound_usd), maker, status)
