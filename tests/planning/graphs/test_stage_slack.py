"""The slack of stages while nothing waits."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.slo import Slo
from mark.planning.graphs.estimate import QuerySample, StageChoice
from mark.planning.graphs.stage_slack import SamplePaths
from tests.planning.graphs.planned import option

# a, then b beside c; of ten queries all visit a and b, and two visit c.
PIPELINE = Pipeline((PipelineStage("a", "a"), PipelineStage("b", "b", ("a",)), PipelineStage("c", "c", ("a",))))
CALLS = np.ones((10, 3), dtype=np.int64)
CALLS[2:, 2] = 0


def paths(rt_max_s: float, attainment: float) -> SamplePaths:
    return SamplePaths(PIPELINE, QuerySample(np.arange(10.0), CALLS), Slo(rt_max_s, attainment))


@pytest.mark.parametrize(("attainment", "late"), [(0.99, 0), (0.9, 1), (0.8, 2)])
def test_visitors_and_late_allowed_are_counted(attainment: float, late: int) -> None:
    found = paths(1.0, attainment)
    assert ([found.visitors(stage) for stage in range(3)], found.late_allowed) == ([10, 10, 2], late)


def test_a_stage_has_what_the_longest_way_through_it_leaves() -> None:
    """Stages on parallel branches do not use its time."""
    found = paths(0.1, 0.9)
    assert [found.slack_s(stage, [0.02, 0.03, 0.05]) for stage in range(3)] == pytest.approx([0.07, 0.08, 0.08])
    assert paths(0.01, 0.9).slack_s(1, [0.02, 0.03, 0.05]) == pytest.approx(-0.01)


@pytest.mark.parametrize(
    ("rt_max_s", "attainment", "enough"), [(0.07, 0.99, True), (0.06, 0.8, True), (0.06, 0.9, False)]
)
def test_as_many_may_be_too_slow_as_may_be_late(rt_max_s: float, attainment: float, enough: bool) -> None:
    """The two that visit c take 70 ms, the others 50."""
    choices = tuple(StageChoice(option("x", 1.0, 0.0, each_s), 1, 1) for each_s in (0.02, 0.03, 0.05))
    assert paths(rt_max_s, attainment).fast_enough(choices) == enough
