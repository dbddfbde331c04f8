"""Behind an AWS load balancer with target groups by capacity class, a mixed fleet costs little more than at best."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs

TRACE = Path(__file__).parents[2] / "traces" / "diurnal_day_5s.csv.gz"


def test_an_alb_on_a_mixed_fleet_costs_little_more() -> None:
    """At most 1 % of the requests go to functions, and the bill is within 3 % of least completion (half an hour)."""
    request = RunRequest(
        str(TRACE),
        "inception-v3",
        start_s=36_000.0,
        duration_s=1800.0,
        train_s=36_000.0,
        predictor="seasonal-naive",
        seed=1,
        with_bound=False,
    )
    inputs = open_inputs(request)

    def by(routing: str) -> SimulationResult:
        service = dataclasses.replace(inputs.resolved.service, routing=routing)
        resolved = dataclasses.replace(inputs.resolved, service=service)
        return simulate_inputs(dataclasses.replace(inputs, resolved=resolved), "mark", "seasonal-naive")

    best, alb = by("least-completion"), by("alb")
    assert {"c5.large/on-demand", "p2.xlarge/on-demand"} <= set(alb.fleet.instance_hours)
    assert best.requests.functions < alb.requests.functions <= 0.012 * alb.requests.total
    assert best.bill.total < alb.bill.total <= 1.03 * best.bill.total
