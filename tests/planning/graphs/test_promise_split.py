"""The cost of a pipeline's promise when RT_max is split again: against every possible split."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.price_list import SHIFT_S
from mark.planning.graphs.critical_paths import pattern_path_s
from mark.planning.graphs.promise_split import split_estimate, split_usd_per_hour
from mark.planning.promise_cost import PromiseSteps
from tests.planning.graphs.planned import any_graph, chain


@st.composite
def some_steps(draw: st.DrawFn) -> PromiseSteps:
    seconds = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4, unique=True).map(sorted))
    usd = draw(st.lists(st.integers(1, 50), min_size=len(seconds), max_size=len(seconds), unique=True).map(sorted))
    return PromiseSteps(tuple(s / 100 for s in seconds), tuple(float(u) for u in reversed(usd)))


def cheapest(pipeline: Pipeline, patterns: np.ndarray, steps: list[PromiseSteps], rt_max_s: float) -> float:
    least = math.inf
    for chosen in itertools.product(*(range(len(of.seconds)) for of in steps)):
        times_s = [of.seconds[n] for of, n in zip(steps, chosen, strict=True)]
        if pattern_path_s(pipeline, patterns, times_s).max() <= rt_max_s + 1e-9:
            least = min(least, sum(of.usd_per_hour[n] for of, n in zip(steps, chosen, strict=True)))
    return least


def waiting_for_all(data: st.DataObject) -> Pipeline:
    graph = any_graph(data)
    return Pipeline(tuple(PipelineStage(one.name, one.model, one.after) for one in graph.stages))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_it_is_the_cheapest_of_all_splits(data: st.DataObject) -> None:
    pipeline = waiting_for_all(data)
    count = len(pipeline.stages)
    steps = [data.draw(some_steps()) for _ in range(count)]
    patterns = np.array(
        data.draw(st.lists(st.lists(st.integers(0, 2), min_size=count, max_size=count), min_size=1, max_size=4))
    )
    rt_max_s = data.draw(st.integers(1, 90)) / 100
    found = split_usd_per_hour(pipeline, patterns, steps, rt_max_s)
    # Even a stage that no query visits needs an instance in time.
    if any(of.seconds[0] > rt_max_s for of in steps):
        assert found == math.inf
    elif (patterns.sum(axis=0) > 0).all():
        assert found == pytest.approx(cheapest(pipeline, patterns, steps, rt_max_s))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_split_with_early_joins_is_never_too_cheap(data: st.DataObject) -> None:
    """The split is found by units of time, so it may be dearer than the cheapest."""
    pipeline = any_graph(data)
    steps = [data.draw(some_steps()) for _ in pipeline.stages]
    every = np.ones((1, len(steps)), dtype=np.int64)
    found = split_usd_per_hour(pipeline, every, steps, 0.6)
    assert found >= cheapest(pipeline, every, steps, 0.6) - 1e-9


def test_ten_milliseconds_buy_the_next_step() -> None:
    """The chain has two stages, one of which has a cheaper step that is just too slow."""
    steps = [PromiseSteps((0.1,), (2.0,)), PromiseSteps((0.1, 0.205), (9.0, 3.0))]
    found = split_estimate(chain("a", "b"), np.ones((1, 2), dtype=np.int64), steps, 0.3, 40.0)
    assert SHIFT_S == 0.01
    assert (found.rps, found.usd_per_hour) == (40.0, 11.0)
    assert [(one.rt_max_s, one.usd_per_hour) for one in found.other_slos] == [
        (pytest.approx(0.29), 11.0), (pytest.approx(0.31), 5.0),
    ]  # fmt: skip
