"""Whole runs with second copies: the laws hold, stragglers hurt less, and the result says what it took."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from tests.simulation.laws import check_laws

REQUEST = RunRequest(
    trace="synthetic:poisson?rate=30",
    service="inception-v3",
    start_s=7200.0,
    duration_s=900.0,
    predictor="seasonal-naive",
    with_bound=False,
)
INPUTS = open_inputs(REQUEST)
FIXED = "fixed:c5.xlarge=6"
HANGS = Faults(hangs_per_hour=60.0, hang_s=5.0)


def run(hedge_after_s: float, faults: Faults = HANGS, policy: str = FIXED) -> SimulationResult:
    service = replace(INPUTS.service, faults=faults, routing="least-completion", hedge_after_s=hedge_after_s)
    inputs = replace(INPUTS, service=service, resolved=replace(INPUTS.resolved, service=service))
    result = simulate_inputs(inputs, policy, "seasonal-naive")
    check_laws(result)
    return result


def told(result: SimulationResult) -> str:
    return json.dumps({k: v for k, v in result.as_json().items() if k != "speed"})


def test_second_copies_answer_for_what_hangs() -> None:
    plain, hedged = run(float("inf")), run(0.4)
    assert plain.hedged is None
    assert "resilience" not in plain.as_json()
    assert hedged.requests.total == plain.requests.total
    assert plain.latency_ms.p99 is not None
    assert hedged.latency_ms.p99 is not None
    assert hedged.latency_ms.p99 < 0.5 * plain.latency_ms.p99
    assert hedged.hedged is not None
    assert 0 < hedged.hedged.hedges_won <= hedged.hedged.hedges
    assert hedged.as_json()["resilience"]["hedges"] == hedged.hedged.hedges
    assert any("second copy" in note for note in hedged.notes)
    assert told(run(0.4)) == told(hedged)


@pytest.mark.parametrize("policy", ["mark", "reactive"])
def test_controllers_run_with_second_copies_and_faults(policy: str) -> None:
    result = run(0.3, Faults(0.2, 20.0, 3.0, 0.1, 2, 10.0, 5.0, 3.0), policy)
    assert set(result.as_json()["resilience"]) == {"crashes", "lost", "retried", "hedges", "hedges_won", "wasted_s"}


def test_a_delay_that_none_reaches_changes_no_answer() -> None:
    plain, hedged = run(float("inf")), run(1e9)
    assert hedged.hedged is not None
    assert hedged.hedged.hedges == 0
    assert (hedged.requests, hedged.bill) == (plain.requests, plain.bill)
    assert hedged.ccdf_ms.tolist() == plain.ccdf_ms.tolist()


@pytest.mark.parametrize(
    ("after_ms", "says"), [(50.0, "an ALB sends no second copies"), (0.0, "above zero"), (float("nan"), "above zero")]
)
def test_what_can_never_be_is_refused(after_ms: float, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        open_inputs(replace(REQUEST, hedge_after_ms=after_ms))
