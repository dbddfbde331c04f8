"""Run with `pytest examples/own-policy` where mark and this package are installed."""

from doubled_policy import Doubled

from mark.domain.fleet import Fleet
from mark.planning.planner import PlanningContext
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest


def test_a_gap_plans_for_the_last_observed_rate() -> None:
    resolved = open_inputs(RunRequest("synthetic:poisson?rate=20", "inception-v3", duration_s=60.0)).resolved
    planner = Doubled("c5.xlarge/on-demand", 10.0)
    plan, memory = planner.plan(PlanningContext(60.0, resolved, Fleet(()), last_minute_rps=24.0), planner.begin())
    after_gap, _ = planner.plan(PlanningContext(120.0, resolved, Fleet(())), memory)
    assert plan.counts == after_gap.counts == {"c5.xlarge/on-demand": 5}
