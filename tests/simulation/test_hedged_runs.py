"""Whole runs with second copies: the laws hold, stragglers hurt less, and the result states the extra work."""

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
    duration_s=300.0,
    predictor="seasonal-naive",
    with_bound=False,
)
INPUTS = open_inputs(REQUEST)
FIXED = "fixed:c5.xlarge=12"
STRAGGLERS = Faults(slow_share=0.05, slow_s=20.0, slow_factor=8.0)


def run(hedge_after_s: float, faults: Faults = STRAGGLERS, policy: str = FIXED) -> SimulationResult:
    service = replace(INPUTS.service, faults=faults, routing="least-completion", hedge_after_s=hedge_after_s)
    inputs = replace(INPUTS, service=service, resolved=replace(INPUTS.resolved, service=service))
    result = simulate_inputs(inputs, policy, "seasonal-naive")
    check_laws(result)
    return result


def told(result: SimulationResult) -> str:
    return json.dumps({k: v for k, v in result.as_json().items() if k != "speed"})


def test_the_999th_permille_falls_with_room_for_copies() -> None:
    """Without copies it is a batch in a slow period; with copies it is the delay and a calm batch.

    The 99th percentile is calm already, because the gateway avoids slow instances.
    """
    plain, hedged = run(float("inf")), run(0.2)
    assert plain.hedged is None
    assert "resilience" not in plain.as_json()
    assert hedged.requests.total == plain.requests.total
    assert plain.latency_ms.p99 is not None
    assert plain.latency_ms.p999 is not None
    assert hedged.latency_ms.p999 is not None
    assert hedged.latency_ms.p999 < 0.4 * plain.latency_ms.p999
    assert plain.latency_ms.p99 < 0.4 * plain.latency_ms.p999
    assert hedged.hedged is not None
    assert 0 < hedged.hedged.hedges_won <= hedged.hedged.hedges
    assert hedged.as_json()["resilience"]["hedges"] == hedged.hedged.hedges
    assert any("second copy" in note for note in hedged.notes)
    assert told(run(0.2)) == told(hedged)


@pytest.mark.parametrize("policy", [pytest.param("mark", marks=pytest.mark.slow), "reactive"])
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
    ("service", "after_ms", "says"),
    [
        ("inception-v3-2026", 50.0, "an ALB sends no second copies"),
        ("inception-v3", 0.0, "above zero"),
        ("inception-v3", float("nan"), "above zero"),
    ],
)
def test_what_can_never_be_is_refused(service: str, after_ms: float, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        open_inputs(replace(REQUEST, service=service, hedge_after_ms=after_ms))
