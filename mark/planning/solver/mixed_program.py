"""Small linear programs with some columns in whole numbers, solved by HiGHS to its default gap of 1e-4.

HiGHS is called directly, because PuLP hides the proven lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from mark.domain.arrays import BoolArray, FloatArray
from mark.planning.solver.integer_program import quiet_highs


@dataclass(frozen=True, slots=True)
class Constraint:
    """`least` <= the sum of `values` x `columns` <= `most`."""

    columns: Sequence[int]
    values: Sequence[float]
    least: float
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Solved:
    """The columns' values, or None without a solution; a proven lower bound of the cost, if `optimal`."""

    values: FloatArray | None
    bound: float
    optimal: bool


def solve_mixed(
    cost: FloatArray, whole: BoolArray, most: FloatArray, rows: Sequence[Constraint], most_nodes: int | None = None
) -> Solved:
    """Minimise `cost` x where 0 <= x <= `most`, the `whole` columns in whole numbers; no `most_nodes`: no limit."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(rows)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), most
    lp.row_lower_, lp.row_upper_ = np.array([row.least for row in rows]), np.array([row.most for row in rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row.columns) for row in rows)])
    lp.a_matrix_.index_ = np.concatenate([row.columns for row in rows])
    lp.a_matrix_.value_ = np.concatenate([row.values for row in rows])
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger if one else kinds.kContinuous for one in whole.tolist()]
    solver = quiet_highs()
    if most_nodes is not None:
        solver.setOptionValue("mip_max_nodes", most_nodes)
    solver.passModel(lp)
    solver.run()
    solution, info = solver.getSolution(), solver.getInfo()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solution.col_value) if feasible else None
    return Solved(values, float(info.mip_dual_bound), solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)
