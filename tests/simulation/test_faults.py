"""Whole runs in which instances slow down, hang and crash: the laws hold, and dollars match the events."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from mark.domain.ec2_limits import MINIMUM_BILLED_S, UNBILLED_PENDING_S
from mark.domain.faults import Faults
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from tests.simulation.laws import check_laws

PART_S = 1800.0
FLEET = 4
FIXED = f"fixed:c5.xlarge={FLEET}"
INPUTS = open_inputs(
    RunRequest(
        trace="synthetic:poisson?rate=30",
        service="inception-v3",
        start_s=7200.0,
        duration_s=PART_S,
        predictor="seasonal-naive",
        with_bound=False,
    )
)
CRASHES = Faults(crashes_per_hour=3.0)


def faulty(faults: Faults, policy: str = FIXED, routing: str = "alb") -> SimulationResult:
    service = replace(INPUTS.service, faults=faults, routing=routing)
    resolved = replace(INPUTS.resolved, service=service)
    inputs: Inputs = replace(INPUTS, service=service, resolved=resolved)
    result = simulate_inputs(inputs, policy, "seasonal-naive")
    check_laws(result)
    return result


def told(result: SimulationResult) -> str:
    return json.dumps({k: v for k, v in result.as_json().items() if k != "speed"})


def test_one_seed_one_world_of_faults() -> None:
    """All faults together give the same result twice. The arrivals are those of a world without faults."""
    everything = Faults(0.2, 20.0, 3.0, 0.1, 2, 10.0, 5.0, 3.0)
    first = faulty(everything)
    assert told(first) == told(faulty(everything))
    calm = faulty(Faults())
    assert first.requests.total == calm.requests.total
    assert first.requests.late > calm.requests.late
    assert "resilience" not in calm.as_json()
    assert first.as_json()["resilience"]["crashes"] > 0


@pytest.mark.parametrize("policy", [FIXED, "mark", "reactive"])
def test_what_crashes_is_paid_until_it_is_replaced(policy: str) -> None:
    """Its silence is seen after 30 s, another one is launched, it is drained and ended."""
    result = faulty(CRASHES, policy)
    assert result.crashed is not None
    given_up = [d for d in result.decisions if "has not answered for" in d.text]
    assert 0 < len(given_up) <= result.crashed.crashes
    for decision in given_up:
        number = re.search(r"#(\d+)", decision.text)
        assert number is not None
        (ended,) = (d for d in result.decisions if d.text.startswith(f"terminate #{number[1]} "))
        assert decision.at_s < ended.at_s <= decision.at_s + 60.0


def test_dollars_are_those_of_the_events() -> None:
    """For a fixed fleet, the journal gives each instance's time from running to its end, in whole seconds."""
    result = faulty(CRASHES, FIXED)
    begins_s = [(0.0, 0.0)] * FLEET  # and the least that is billed
    ends_s: dict[int, float] = {}
    for decision in result.decisions:
        if decision.verb == "launch":
            count = re.match(r"launch (\d+) ", decision.text)
            assert count is not None
            begins_s += [(decision.at_s + UNBILLED_PENDING_S, MINIMUM_BILLED_S)] * int(count[1])
        if (ended := re.match(r"terminate #(\d+) ", decision.text)) is not None:
            ends_s[int(ended[1])] = decision.at_s
    assert len(begins_s) > FLEET
    billed_s = 0.0
    for number, (begin_s, least_s) in enumerate(begins_s, 1):
        end_s = (
            min(PART_S, begin_s + max(math.ceil(ends_s[number] - begin_s - 1e-6), least_s))
            if number in ends_s
            else PART_S
        )
        billed_s += max(0.0, end_s - begin_s)
    price = next(o.usd_per_hour for o in INPUTS.resolved.offers if o.name == "c5.xlarge/on-demand")
    assert result.bill.on_demand == pytest.approx(billed_s / 3600.0 * price)


def test_a_gateway_asks_again_and_a_balancer_does_not() -> None:
    """On a fixed fleet without functions, requests that an ALB's targets lose are never answered."""
    rare = Faults(crashes_per_hour=0.5)
    behind_alb, behind_gateway = (faulty(rare, "fixed:c5.large=12", r) for r in ("alb", "least-completion"))
    assert behind_alb.crashed is not None
    assert behind_gateway.crashed is not None
    assert behind_alb.crashed.retried == 0 < behind_alb.crashed.lost == behind_alb.requests.rejected
    assert behind_gateway.crashed.lost == behind_gateway.crashed.retried > 0 == behind_gateway.requests.rejected


def test_best_fixed_is_found_in_the_slow_world() -> None:
    """It needs more than in a calm world; it does not know about crashes."""
    calm, slow = (faulty(f, "best-fixed") for f in (Faults(), Faults(slow_share=0.3, slow_factor=3.0)))
    assert slow.slo_result.attainment is not None
    assert slow.slo_result.attainment >= INPUTS.service.slo.attainment
    assert slow.bill.total > calm.bill.total
    crashing = faulty(CRASHES, "best-fixed")
    assert crashing.crashed is not None
    assert crashing.crashed.crashes > 0
    assert crashing.decisions[0].text == calm.decisions[0].text
