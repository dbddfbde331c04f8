"""Burstables that carry load, in the virtual world."""

from __future__ import annotations

import pytest

from mark.domain.ec2_limits import LAUNCH_CREDIT_STARTS_PER_DAY
from mark.domain.fleet import Phase
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation
from tests.simulation.laws import check_laws

HOUR = 3600.0
T2 = "t2.medium/burstable"


def simulated(*markets: str, bound: bool) -> SimulationResult:
    request = RunRequest(
        trace="synthetic:poisson?rate=60",
        service="inception-v3",
        markets=markets,
        start_s=6 * HOUR,
        duration_s=HOUR,
        predictor="seasonal-naive",
        with_bound=bound,
    )
    return Simulation(open_inputs(request), "mark", request.predictor).run()


@pytest.mark.slow
def test_burstables_save_and_keep_the_slo() -> None:
    """They cost at least a tenth less than on-demand alone, keep the SLO, and never cost less than the bound."""
    plain, both = simulated("on-demand", bound=False), simulated("on-demand", "burstable", bound=True)
    check_laws(both)
    assert both.bill.burstable > 0.0
    assert both.bill.total < 0.9 * plain.bill.total
    assert both.slo_result.attainment is not None
    assert both.slo_result.attainment >= 0.98
    launched = [d for d in both.decisions if d.verb == "launch" and T2 in d.text]
    assert 0 < len(launched) < LAUNCH_CREDIT_STARTS_PER_DAY


def test_a_burstable_without_credits_is_drained() -> None:
    """An instance with less than a minute of credits gets no requests from the next plan on.

    No plan uses it as part of its base.
    """
    serving: dict[int, int] = {}  # looks in a row at which it served without credits
    longest = 0

    def look(share: float) -> None:
        nonlocal longest
        for i in simulation._cloud.fleet().instances:
            spent = i.offer == T2 and i.phase is Phase.READY and i.credits is not None and i.credits < 1.0
            serving[i.number] = serving.get(i.number, 0) + 1 if spent else 0
            longest = max(longest, serving[i.number])

    request = RunRequest(
        trace="synthetic:poisson?rate=60",
        service="inception-v3",
        markets=("on-demand", "burstable"),
        start_s=6 * HOUR,
        duration_s=2 * HOUR,
        predictor="seasonal-naive",
        with_bound=False,
        progress=look,
    )
    simulation = Simulation(open_inputs(request), "mark", request.predictor)
    result = simulation.run()
    assert any("its credits are spent" in d.text and d.verb in ("drain", "terminate") for d in result.decisions)
    assert longest <= 1
