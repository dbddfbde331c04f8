"""The planner's program as rows: its linear relaxation by HiGHS, the integer program by HiGHS or CBC through PuLP.

The relaxation calls HiGHS directly, because it takes milliseconds and PuLP alone takes 140 ms to load. The integer
program needs two calls that PuLP hides: a solution to start from, and the proven lower bound.

Columns are instances n[j, t], launches s[j, t] >= n[j, t] - n[j, t-1], and how far capacity fills each level; as
overflow is convex, the levels that save most fill first. More columns are the instances missing in steps with a least
number. Dollars are counted in those of a typical instance and step, because solvers' tolerances are absolute.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.errors import BadInput
from mark.planning.solver.program import Program, rises, violation

SOLVERS = ("highs", "cbc")
TOLERANCE = 1e-6  # relative error of a solver's optimum: a multiple of its tolerances
_FLAT = 1e-12  # a level of overflow that saves no more than this, relative, is left out


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The linear program's optimum: a lower bound, its plan in fractions, and the worth of its rows in dollars.

    `counts` (J, T). `launch_price` (J, T): of one instance that serves already in the step before, from 0 to the price
    of its launch. `capacity_price` (T,): of one request/s more in a step.
    """

    bound_usd: float
    counts: FloatArray
    launch_price: FloatArray
    capacity_price: FloatArray


@dataclass(frozen=True, slots=True)
class Integer:
    """The result of an integer program: a plan that can be carried out, or None, and a proven lower bound.

    `finished`: the time limit did not stop it.
    """

    counts: IntArray | None
    bound_usd: float
    finished: bool


def relax(program: Program, limits: bool) -> Relaxation:
    """Solve the program without integers, and without the limits unless `limits`. Takes milliseconds."""
    rows = rows_of(program, limits)
    solver = quiet_highs()
    solver.passModel(rows.model())
    solver.run()
    shape = (program.offers, program.steps)
    n = program.offers * program.steps
    if solver.modelStatusToString(solver.getModelStatus()) != "Optimal":
        return Relaxation(0.0, np.zeros(shape), np.zeros(shape), np.zeros(program.steps))
    solution = solver.getSolution()
    duals = rows.usd * np.asarray(solution.row_dual)
    return Relaxation(
        bound_usd=rows.usd * float(solver.getInfo().objective_function_value) * (1.0 - TOLERANCE),
        counts=np.asarray(solution.col_value)[:n].reshape(shape),
        launch_price=np.maximum(0.0, -duals[:n]).reshape(shape),
        capacity_price=np.maximum(0.0, duals[n : n + program.steps]),
    )


def solve_integer(program: Program, start: IntArray, gap: float, time_budget_s: float, solver: str) -> Integer:
    """Solve the integer program to `gap`, relative, within the limits, beginning with the plan `start` (J, T).

    The time budget is in seconds of this machine, because neither solver counts anything steadier; HiGHS can exceed it
    several times. Raises BadInput for a solver that is not available.
    """
    rows = rows_of(program, limits=True)
    found = solve_rows(rows, _values(program, start), gap, time_budget_s, solver)
    if found.values is None:
        return Integer(None, found.bound_usd, found.finished)
    counts = np.rint(found.values[: rows.integers]).astype(np.int64).reshape(program.offers, program.steps)
    return Integer(None if violation(program, counts) else counts, found.bound_usd, found.finished)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a solver for `Rows`: the columns' values, or None, and a proven lower bound; see `Integer`."""

    values: FloatArray | None
    bound_usd: float
    finished: bool


def solve_rows(rows: Rows, start: FloatArray, gap: float, time_budget_s: float, solver: str) -> Found:
    """Solve `rows` in whole numbers, beginning with the columns' values `start`; otherwise like `solve_integer`."""
    import pulp  # takes 140 ms, which only a plan without a faster proof has to pay

    problem, columns = rows.problem()
    if solver == "highs":
        engine = pulp.HiGHS(msg=False, gapRel=gap, timeLimit=time_budget_s, threads=1)
        engine.createAndConfigureSolver(problem)
        engine.buildSolverModel(problem)
        given = np.empty(len(columns))
        given[[column.index for column in columns]] = start
        problem.solverModel.setSolution(_given(given))
        engine.callSolver(problem)
        _, status = engine.findSolutionValues(problem)
        bound = float(problem.solverModel.getInfo().mip_dual_bound)
    elif solver == "cbc":
        # With its preprocessing the CBC that PuLP brings (2.10.3) calls some plans optimal that are not optimal.
        engine = pulp.COIN_CMD(
            path=pulp.apis.coin_api.pulp_cbc_path,
            msg=False,
            gapRel=gap,
            timeLimit=time_budget_s,
            threads=1,
            warmStart=True,
            options=["preprocess off"],
        )
        if not engine.available():
            raise BadInput("PuLP brings no CBC for this machine", "solver", solver)
        for column, value in zip(columns, start, strict=True):
            column.setInitialValue(float(value), check=False)
        with tempfile.TemporaryDirectory() as engine.tmpDir:
            try:
                problem.solve(engine)
            except pulp.PulpSolverError:  # CBC had no time to begin
                return Found(None, 0.0, False)
        # At the time limit `status` says optimal; only `sol_status` tells the truth.
        status = problem.sol_status
        bound = float(problem.objective.value()) * (1.0 - gap) if status == pulp.LpSolutionOptimal else 0.0
    else:
        raise BadInput(f"unknown (known: {', '.join(SOLVERS)})", "solver", solver)
    values = np.array([column.value() or 0.0 for column in columns])
    known = status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    proven = max(0.0, rows.usd * bound * (1.0 - TOLERANCE)) if math.isfinite(bound) else 0.0
    return Found(values if known else None, proven, status == pulp.LpSolutionOptimal)


def quiet_highs() -> highspy.Highs:
    """Return HiGHS, silent and on one thread, so that the same program always gets the same answer."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, setting in (("output_flag", False), ("threads", 1)):
        solver.setOptionValue(option, setting)
    return solver


def _given(values: FloatArray) -> highspy.HighsSolution:
    solution = highspy.HighsSolution()
    solution.col_value = values.tolist()
    return solution


@dataclass(frozen=True, slots=True)
class Rows:
    """The problem: least <= x <= most, lower <= A x <= upper, minimise cost x, in `usd` dollars.

    The first `integers` columns are whole. A is kept by row: row i has the `columns` and `values` from `starts[i]` to
    `starts[i + 1]`. The last column is 1: its cost is the part that no plan changes; as a constant beside the objective
    it would not count in a solver's relative gap.
    """

    cost: FloatArray
    least: FloatArray
    most: FloatArray
    lower: FloatArray
    upper: FloatArray
    starts: IntArray
    columns: IntArray
    values: FloatArray
    integers: int
    usd: float

    def model(self) -> highspy.HighsLp:
        """Return the problem for HiGHS, without integers."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.lower)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.cost, self.least, self.most
        lp.row_lower_, lp.row_upper_ = self.lower, self.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = self.starts, self.columns, self.values
        return lp

    def problem(self) -> tuple[Any, list[Any]]:
        """Return the problem for PuLP, and its variables."""
        import pulp  # as in `solve_integer`

        problem = pulp.LpProblem("plan", pulp.LpMinimize)
        kinds = [pulp.LpInteger] * self.integers + [pulp.LpContinuous] * (len(self.cost) - self.integers)
        columns = [
            problem.add_variable(f"x{i}", least, most if math.isfinite(most) else None, kind)
            for i, (least, most, kind) in enumerate(zip(self.least.tolist(), self.most.tolist(), kinds, strict=True))
        ]
        problem.setObjective(pulp.LpAffineExpression(list(zip(columns, self.cost.tolist(), strict=True))))
        starts, index, values = self.starts.tolist(), self.columns.tolist(), self.values.tolist()
        for i, (lower, upper) in enumerate(zip(self.lower.tolist(), self.upper.tolist(), strict=True)):
            row = slice(starts[i], starts[i + 1])
            sum_ = pulp.LpAffineExpression([(columns[c], v) for c, v in zip(index[row], values[row], strict=True)])
            problem += sum_ <= upper if math.isfinite(upper) else sum_ >= lower
        return problem, columns


def rows_of(program: Program, limits: bool) -> Rows:
    offers, steps = program.offers, program.steps
    n = np.arange(offers * steps).reshape(offers, steps)
    s = n + n.size
    slopes = np.diff(program.overflow_usd, axis=1)
    step, level = np.nonzero(slopes < -_FLAT * max(float(program.overflow_usd.max()), 1e-300))
    filled = 2 * n.size + np.arange(len(step))
    bound = _steps_with_least(program)
    missing = 2 * n.size + len(step) + np.arange(len(bound))
    prices = program.usd_per_step[program.usd_per_step > 0.0]
    usd = float(prices.mean()) if prices.size else max(float(program.overflow_usd.max()), 1e-300)
    most = np.repeat(np.minimum(program.most, program.useful())[:, None], steps, axis=1).astype(np.float64)
    can_launch, leads = program.can_launch, program.leads
    row_of: list[IntArray] = []
    column_of: list[IntArray] = []
    value_of: list[FloatArray] = []

    def put(row: IntArray, column: IntArray, value: float | FloatArray) -> None:
        row, column = np.broadcast_arrays(row, column)
        row_of.append(row.ravel())
        column_of.append(column.ravel())
        value_of.append(np.broadcast_to(value, row.shape).ravel())

    # n_t - n_t-1 - s_t <= 0; the instances that ran before stand on the right of the first.
    put(n, n, 1.0)
    put(n[:, 1:], n[:, :-1], -1.0)
    put(n, s, -1.0)
    before = np.zeros(n.shape)
    before[:, 0] = program.before
    # Capacity fills the levels.
    capacity = n.size + np.arange(steps)
    put(capacity, n, program.capacity_rps[:, None])
    put(capacity[step], filled, -1.0)
    lower = [np.full(n.size, -np.inf), np.zeros(steps)]
    upper = [before.ravel(), np.full(steps, np.inf)]
    if program.least is not None:
        rows = n.size + steps + np.arange(len(bound))
        put(rows, n[:, bound], 1.0)
        put(rows, missing, 1.0)
        lower.append(program.least[bound].astype(np.float64))
        upper.append(np.full(len(bound), np.inf))
    for each, limit in ((np.ones(offers), program.max_instances), (program.usd_per_step, program.max_usd_per_step)):
        if not limits or limit >= 2**40:
            continue
        first = sum(len(block) for block in lower)
        put(first + np.arange(steps), n, each[:, None])
        for j, longest in enumerate(leads.max(axis=1).tolist()):
            for ahead in range(1, min(longest, steps - 1) + 1):
                begin = np.flatnonzero(leads[j, ahead:] >= ahead)
                put(first + begin, s[j, ahead + begin], float(each[j]))
        lower.append(np.full(steps, -np.inf))
        upper.append(np.full(steps, float(limit)))
    row, column, value = np.concatenate(row_of), np.concatenate(column_of), np.concatenate(value_of)
    order = np.argsort(row, kind="stable")
    bounds = np.concatenate(lower)
    running_usd = np.repeat(program.usd_per_step, steps)
    launch_usd = np.where(can_launch, program.launches_usd(), program.launch_usd[:, None]).ravel()
    nothing_usd = program.overflow_usd[:, :1].sum(axis=0)
    full = np.full(len(step), program.spacing_rps)
    one = np.ones(1)
    return Rows(
        cost=np.concatenate(
            [
                running_usd,
                launch_usd,
                slopes[step, level] / program.spacing_rps,
                np.full(len(bound), program.missing_usd),
                nothing_usd,
            ]
        )
        / usd,
        least=np.concatenate([np.zeros(2 * n.size + len(step) + len(bound)), one]),
        most=np.concatenate(
            [most.ravel(), np.where(can_launch, np.inf, 0.0).ravel(), full, np.full(len(bound), np.inf), one]
        ),
        lower=bounds,
        upper=np.concatenate(upper),
        starts=np.searchsorted(row[order], np.arange(len(bounds) + 1)),
        columns=column[order],
        values=value[order],
        integers=n.size,
        usd=usd,
    )


def _values(program: Program, counts: IntArray) -> FloatArray:
    """Return the columns' values of a plan."""
    slopes = np.diff(program.overflow_usd, axis=1)
    step, level = np.nonzero(slopes < -_FLAT * max(float(program.overflow_usd.max()), 1e-300))
    capacity_rps = (program.capacity_rps @ counts)[step]
    filled = np.clip(capacity_rps - level * program.spacing_rps, 0.0, program.spacing_rps)
    missing = program.missing(counts.sum(axis=0))[_steps_with_least(program)]
    return np.concatenate([counts.ravel(), rises(counts, program.before).ravel(), filled, missing, np.ones(1)])


def _steps_with_least(program: Program) -> IntArray:
    return np.zeros(0, dtype=np.int64) if program.least is None else np.flatnonzero(program.least)
