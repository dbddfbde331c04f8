"""Any seed: short runs drawn at random over policies, services, traffic and worlds keep the laws of laws.py."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import replace

import pytest

from mark.domain.errors import BadInput, Infeasible
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate, simulate_inputs
from tests.samples import first
from tests.simulation.laws import check_laws

POLICIES = (
    "mark",
    "mark-paper",
    "mark-optimal",
    "reactive",
    "static-peak",
    "static-mean",
    "oracle",
    "target-tracking",
    "target-tracking-best",
    "fixed:c5.xlarge=4",
    "fixed:c5.2xlarge/on-demand=1,p2.xlarge=1",
)
TRACES = (
    "synthetic:mmpp?rates=5,80&dwell_s=100",
    "synthetic:gamma?rate=50&cv=4",
    "synthetic:poisson?rate=30",
    "synthetic:diurnal",
)


def drawn(seed: int) -> RunRequest:
    chance = random.Random(seed)
    return RunRequest(
        trace=chance.choice(TRACES),
        service=chance.choice(("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")),
        policy=chance.choice(POLICIES),
        predictor=chance.choice(("auto", "seasonal-naive", "artefact")),
        catalog=chance.choice(("aws-2019", "aws-2026")),
        markets=chance.choice((None, ("on-demand", "spot", "burstable"), ("spot",), ("burstable",))),
        scale=chance.choice((0.02, 0.3, 1.0, 2.5)),
        start_s=chance.choice((0.0, 1234.5, 7200.0)),
        duration_s=chance.choice((3.0, 60.0, 300.5, 601.0, 900.0)),
        seed=seed,
        cold_start=chance.random() < 0.3,
        spot_first_hour_free=chance.random() < 0.2,
        sensitivity=Sensitivity(
            capacity=chance.choice((1.0, 0.85)),
            boot_add_s=chance.choice((0.0, 60.0)),
            function_latency=chance.choice((1.0, 1.5)),
            interruptions=chance.choice((1.0, 30_000.0)),
        ),
    )


def told(result: SimulationResult) -> str:
    """Return all of the result except its speed."""
    return json.dumps({k: v for k, v in result.as_json().items() if k != "speed"})


@pytest.mark.parametrize("begin", first(2, range(0, 60, 10), slow=0))
def test_any_seed_keeps_the_laws(begin: int) -> None:
    """Nothing crashes, requests are conserved, bills add up, and no run comes out below its bound."""
    served = 0
    for seed in range(begin, begin + 10):
        # Refused are a service that these markets cannot serve, and a part without requests.
        with contextlib.suppress(BadInput, Infeasible):
            request = drawn(seed)
            check_laws(simulate(request), refunds=request.spot_first_hour_free)
            served += 1
    assert served >= 4


@pytest.mark.slow
def test_one_seed_one_result_for_every_policy() -> None:
    """Every policy twice on the same inputs: identical but for the speed, the inputs unspoilt by those before.

    One policy's run has its bounds, which take far longer than the runs.
    """
    request = RunRequest(
        trace=TRACES[0],
        service="inception-v3",
        catalog="aws-2019",
        markets=("on-demand", "spot", "burstable"),
        start_s=600.0,
        duration_s=300.0,
        seed=1,
        with_bound=False,
        sensitivity=Sensitivity(interruptions=30_000.0),
    )
    inputs = open_inputs(request)
    bounded = replace(inputs, request=replace(request, with_bound=True))
    runs = [(bounded, "reactive"), *((inputs, policy) for policy in POLICIES)]
    rounds = [[told(simulate_inputs(given, policy, "auto")) for given, policy in runs] for _ in range(2)]
    assert rounds[0] == rounds[1]
