"""RT_max split where stages are bought together: the cheapest of the splits tried, and never one that is too long."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from mark.domain.profile import Candidate, ProfileRow
from mark.domain.slo import Slo
from mark.planning.graphs.group_split import SharedSplit
from mark.planning.graphs.latency_split import StageCost, split_latency
from mark.planning.graphs.stage_group import GroupedStage
from mark.profiling.policy import candidate
from tests.planning.graphs.planned import chain
from tests.planning.graphs.test_stage_group import grouped

BATCHES = tuple(ProfileRow(b, 8.0 + 2.0 * b, workers=2) for b in (1, 2, 4, 8, 16, 32))
EVERY = np.ones((1, 2), dtype=np.int64)


def alone(stage: GroupedStage, rps: float) -> StageCost:
    def usd_per_hour(seconds: float) -> float:
        usd = math.inf
        for offer, known in zip(stage.resolved.offers, stage.resolved.candidates, strict=True):
            found = candidate(known.profile, Slo(seconds, 0.99))
            if isinstance(found, Candidate):
                usd = min(usd, max(1, math.ceil(rps * stage.calls / found.capacity_rps)) * offer.usd_per_hour)
        return usd

    return usd_per_hour


def split(rps: float, said: Sequence[float | None] = (None, None)) -> SharedSplit:
    stages = [grouped("a", rt_max_s=0.2, cpu=BATCHES), grouped("b", rt_max_s=0.2, cpu=BATCHES)]
    costs = [alone(stage, rps) if own is None else own for stage, own in zip(stages, said, strict=True)]
    return SharedSplit(chain("a", "b"), EVERY, stages, costs, [(0, 1)], 0.2, rps)


@pytest.mark.untraced
@pytest.mark.parametrize("rps", [5.0, 300.0, 700.0, 2000.0])
def test_it_costs_no_more_than_the_split_of_each(rps: float) -> None:
    asked = split(rps)
    found = asked.found()
    assert sum(found) <= 0.2 * (1.0 + 1e-6)
    separate = split_latency(asked.pipeline, EVERY, asked.costs, 0.2)
    assert asked.usd_per_hour(found) <= asked.usd_per_hour(separate)
    least = min(asked.usd_per_hour([part, 0.2 - part]) for part in np.linspace(0.012, 0.188, 45))
    assert asked.usd_per_hour(found) <= 1.25 * least, "of every split one in forty-five is hardly cheaper"


def test_a_part_that_is_said_stays() -> None:
    assert split(300.0, (0.05, None)).found()[0] == pytest.approx(0.05)
