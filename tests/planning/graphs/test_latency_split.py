"""RT_max split over stages: against every possible split, and on paths that some queries take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import Infeasible
from mark.domain.pipeline import FIRST, Pipeline, PipelineStage
from mark.planning.graphs.critical_paths import pattern_path_s
from mark.planning.graphs.latency_split import StageCost, split_latency
from tests.planning.graphs.planned import chain

UNITS = 8


def steps(*usd: float) -> StageCost:
    """Return dollars by whole units of a second; infinite below the first given one."""
    return lambda seconds: usd[min(len(usd), int(seconds + 1e-6)) - 1] if seconds > 1.0 - 1e-6 else math.inf


def spent(costs: Sequence[StageCost], seconds: Sequence[float]) -> float:
    return sum(cost(of_stage) for cost, of_stage in zip(costs, seconds, strict=True))


def test_time_goes_where_it_saves_and_the_rest_is_shared() -> None:
    every = np.ones((1, 2), dtype=np.int64)
    flat, steep = steps(1.0), steps(9.0, 9.0, 9.0, 2.0)
    assert split_latency(chain("a", "b"), every, [flat, steep], 8.0, 8) == pytest.approx([1.6, 6.4])


def test_stages_beside_each_other_have_the_same_time() -> None:
    beside = Pipeline((PipelineStage("a", "a"), PipelineStage("b", "b")))
    one = steps(5.0, 4.0, 3.0, 2.0)
    assert split_latency(beside, np.ones((1, 2), dtype=np.int64), [one, one], 4.0, 4) == pytest.approx([4.0, 4.0])


def test_stages_that_no_query_visits_together_have_all_of_it() -> None:
    either = np.array([[1, 0], [0, 1]])
    one = steps(5.0, 4.0, 3.0, 2.0)
    assert split_latency(chain("a", "b"), either, [one, one], 4.0, 4) == pytest.approx([4.0, 4.0])


def test_no_split_says_which_stage_is_too_slow() -> None:
    every, never = np.ones((1, 2), dtype=np.int64), steps(math.inf)
    with pytest.raises(Infeasible, match="no part of RT_max is enough for b"):
        split_latency(chain("a", "b"), every, [steps(1.0), never], 4.0, 4)
    slow = steps(math.inf, math.inf, 1.0)
    with pytest.raises(Infeasible, match="of one path need more than RT_max: a 3000 ms, b 3000 ms"):
        split_latency(chain("a", "b"), every, [slow, slow], 4.0, 4)


def test_time_moves_to_where_it_saves_more_than_it_cost() -> None:
    """A unit saves most for a, two for b: only the second leaves nothing better."""
    every = np.ones((1, 2), dtype=np.int64)
    found = split_latency(chain("a", "b"), every, [steps(10.0, 5.0), steps(10.0, 10.0, 1.0)], 4.0, 4)
    assert found == pytest.approx([1.0, 3.0])


def test_a_given_part_is_kept_and_others_have_the_rest() -> None:
    """The rest of 10 s is 2.5 s for b, which its whole units leave to be shared out."""
    every = np.ones((1, 2), dtype=np.int64)
    found = split_latency(chain("a", "b"), every, [7.5, steps(5.0, 4.0, 3.0)], 10.0, 10)
    assert found == pytest.approx([7.5, 2.0 * 10.0 / 9.5])
    assert sum(found) <= 10.0
    with pytest.raises(Infeasible, match="a 9500 ms, b 1000 ms"):
        split_latency(chain("a", "b"), every, [9.5, steps(5.0)], 10.0, 10)


def test_what_is_shared_out_stays_within_paths_that_joins_make() -> None:
    """Alone z may have all that x and y leave each other; but with more time for these it waits longer."""
    pipeline = Pipeline((PipelineStage("x", "x"), PipelineStage("y", "y"), PipelineStage("z", "z", ("x", "y"), FIRST)))
    patterns = np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0]])
    found = split_latency(pipeline, patterns, [steps(1.0), steps(1.0), steps(1.0)], 10.0, 10)
    assert pattern_path_s(pipeline, patterns, found).max() <= 10.0 + 1e-6


def test_many_stages_of_little_time_need_no_whole_units() -> None:
    names = [f"s{n}" for n in range(45)]

    def quick(seconds: float) -> float:
        return 1.0 if seconds >= 0.002 else math.inf

    found = split_latency(chain(*names), np.ones((1, 45), dtype=np.int64), [quick] * 45, 0.1)
    assert sum(found) == pytest.approx(0.1)
    with pytest.raises(Infeasible, match="s44 2 ms"):
        split_latency(chain(*names), np.ones((1, 45), dtype=np.int64), [quick] * 45, 0.08)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_is_within_a_tenth_of_the_best_split(data: st.DataObject) -> None:
    """For two stages it is the best; for three, single units and pairs that move leave little."""
    count = data.draw(st.integers(1, 3))
    stages: list[PipelineStage] = []
    for n in range(count):
        stages.append(PipelineStage(f"s{n}", "m", tuple(s.name for s in stages if data.draw(st.booleans()))))
    pipeline = Pipeline(tuple(stages))
    patterns = np.array([
        [data.draw(st.integers(0, 2)) for _ in range(count)] for _ in range(data.draw(st.integers(1, 3)))
    ])  # fmt: skip
    costs = []
    for _ in range(count):
        falls = data.draw(st.lists(st.integers(0, 5), min_size=UNITS, max_size=UNITS))
        usd = [1.0 + float(sum(falls[n:])) for n in range(UNITS)]
        slow = data.draw(st.integers(0, 3))
        costs.append(steps(*[math.inf] * slow, *usd[slow:]))

    def fits(seconds: Sequence[float]) -> bool:
        return bool(pattern_path_s(pipeline, patterns, list(seconds)).max() <= UNITS + 1e-6)

    splits = [one for one in itertools.product(range(1, UNITS + 1), repeat=count) if fits(one)]
    best = min((spent(costs, one) for one in splits), default=math.inf)
    if best == math.inf:
        with pytest.raises(Infeasible):
            split_latency(pipeline, patterns, costs, float(UNITS), UNITS)
        return
    found = split_latency(pipeline, patterns, costs, float(UNITS), UNITS)
    assert fits(found)
    assert best - 1e-9 <= spent(costs, found) <= (best if count < 3 else 1.1 * best) + 1e-9
