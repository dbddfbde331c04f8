"""The feasible plan above every bound: a schedule that can be carried out, near the cheapest one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mark.planning.bounds.feasible_plan import feasible_usd
from tests.planning.bounds.schedules import SmallCase, random_case


def test_plans_never_cost_less_than_the_cheapest_schedule() -> None:
    rng = np.random.default_rng(11)
    ratios = []
    for _ in range(40):
        case = random_case(rng, 240)
        found = feasible_usd(case.problem(), 0.0, case.function_usd)
        assert found is not None
        # The last second's requests are free in the plan, as in the bounds.
        without_last = replace(case, counts=np.append(case.counts[:-1], 0))
        assert found >= without_last.cheapest_usd() * (1.0 - 1e-9)
        ratios.append(found / case.cheapest_usd())
    assert np.median(ratios) <= 1.15  # a plan pays 60 s of every start, which the schedule does not


def test_late_requests_make_plans_cheaper() -> None:
    rng = np.random.default_rng(12)
    case = SmallCase(rng.poisson(4.0, 3600), (1.0, 3.0), (5, 20), (40.0, 100.0), math.inf)
    problem = case.problem()
    strict, loose = (feasible_usd(problem, late, 10.0) for late in (0.0, 700.0))
    assert strict is not None
    assert loose is not None
    assert 3600.0 * 0.8 <= loose < strict


def test_no_plan_where_no_fleet_found_answers_enough() -> None:
    """The only type comes and goes, so no plan may hold it."""
    problem = SmallCase(np.full(600, 4), (1.0, 3.0), (5, 20), (40.0, 100.0), math.inf).problem()
    by_bin = np.tile(problem.usd_per_s, (600, 1))
    by_bin[300:] = np.inf
    assert feasible_usd(replace(problem, by_bin=by_bin), 0.0, 1.0) is None


def test_committed_instances_serve_in_plans_and_pay_their_disks() -> None:
    problem = SmallCase(np.full(600, 4), (1.0, 3.0), (5, 20), (40.0, 100.0), math.inf).problem()
    free = replace(problem, free_rps=5.0, free_disks_usd_per_s=0.001)
    assert feasible_usd(free, 0.0, 1.0) == pytest.approx(0.6)
