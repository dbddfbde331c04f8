"""A fixed fleet alone, compared with the simulation of the policy `fixed:`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.simulation.best_fixed import fewest_that_keep
from mark.simulation.fixed_run import fixed_run
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate

NOISY = Path(__file__).parents[2] / "examples" / "insurance" / "noisy.toml"
OFFER = "c7i.large/on-demand"


def test_fixed_run_answers_as_the_policy_of_that_fleet() -> None:
    request = RunRequest(
        "synthetic:poisson?rate=100",
        str(NOISY),
        policy="fixed:c7i.large=13",
        duration_s=300.0,
        with_bound=False,
    )
    result, inputs = simulate(request), open_inputs(request)
    chunks = inputs.trace.chunks(inputs.start_s, inputs.end_s, 1.0, request.seed)
    arrivals_s = np.concatenate([times for times, _ in chunks])
    for after_s in (math.inf, 0.15):
        if math.isfinite(after_s):
            result = simulate(replace(request, hedge_after_ms=150.0))
        run = fixed_run(inputs, OFFER, 13, arrivals_s, hedge_after_s=after_s)
        in_time = (run.answer_s - arrivals_s <= inputs.resolved.slo.rt_max_s + 1e-6).mean()
        assert in_time == result.slo_result.attainment
        assert run.usd == pytest.approx(result.bill.total, rel=1e-9)
        assert 0.0 < run.instances_usd < run.usd


def test_second_fleet_serves_calls_after_the_end_of_the_part() -> None:
    request = RunRequest("synthetic:poisson?rate=1", str(NOISY), duration_s=60.0)
    times_s = np.array([59.0, 61.0, 80.0])
    run = fixed_run(open_inputs(request), OFFER, 1, times_s, np.full(3, 0.1))
    assert (run.answer_s > times_s).all()
    assert np.isfinite(run.answer_s).all()


@pytest.mark.parametrize("enough", range(1, 12))
def test_fewest_that_keep_are_found_from_any_guess(enough: int) -> None:
    for low in (1, 3):
        for guess in range(13):
            for limit in range(13):
                found = fewest_that_keep(lambda count: count >= enough, low, guess, limit)
                expected = max(low, enough)
                assert found == (expected if expected <= limit else None)
