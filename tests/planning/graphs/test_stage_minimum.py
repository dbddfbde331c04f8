"""The minimum of each stage alone, compared with a trial of every number of replicas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Infeasible
from mark.domain.slo import Slo
from mark.planning.graphs.estimate import QuerySample, StageChoice, estimate
from mark.planning.graphs.stage_minimum import most_calls_within, own_needs
from tests.planning.graphs.planned import anything_small, chain, option, traffic

CPU, GPU = option("cpu", 0.1, 0.0, 0.020, 2), option("gpu", 0.7, 0.004, 0.003)


@pytest.mark.parametrize("seed", range(4))
def test_a_stage_alone_keeps_the_promise_with_no_fewer_replicas(seed: int) -> None:
    """For the second stage, the promise is RT_max without the least time of the first."""
    sample, slo = traffic(400, 80.0, 1.5, (1.0, 0.7), seed), Slo(0.1, 0.97)
    found = own_needs(chain("a", "b"), sample, [[GPU], [CPU, GPU]], slo, [0.0, 0.0])
    alone = QuerySample(sample.arrivals_s, sample.calls[:, 1:])
    for choice in found.of_stage[1]:
        late = [
            estimate(chain("b"), alone, [StageChoice(choice.option, choice.batch, replicas)]).miss_share(0.093)
            for replicas in range(1, choice.replicas + 1)
        ]
        assert late[-1] <= 0.03
        assert all(share > 0.03 for share in late[:-1])
    usd = [choice.usd_per_hour for choice in found.of_stage[1]]
    assert usd == sorted(usd)
    assert found.calls_simulated > 0


def test_dominated_options_are_left_out() -> None:
    sample = QuerySample(np.arange(20.0), np.ones((20, 1), dtype=np.int64))
    dear, slow = option("dear", 0.9, 0.0, 0.02, 2), option("slow", 0.05, 0.0, 0.03, 1)
    found = own_needs(chain("a"), sample, [[dear, CPU, slow]], Slo(0.1, 0.9), [0.0]).of_stage[0]
    assert {choice.option.hardware for choice in found} == {"slow", "cpu"}


def test_a_load_that_lasts_needs_as_many_as_keep_up() -> None:
    """This includes a stage that no query of the sample visits."""
    sample = QuerySample(np.array([0.0]), np.array([[1, 0]]))
    found = own_needs(chain("a", "b"), sample, [[CPU], [CPU]], Slo(0.1, 0.9), [120.0, 60.0])
    assert [of[0].replicas for of in found.of_stage] == [3, 2]


def test_a_stage_that_nothing_is_fast_enough_for_is_infeasible() -> None:
    sample = traffic(50, 20.0, 1.0, (1.0, 1.0), seed=2)
    with pytest.raises(Infeasible, match="a has 5 of 25 ms, the others at their fastest, and takes 7 ms on gpu"):
        own_needs(chain("a", "b"), sample, [[GPU], [CPU]], Slo(0.025, 0.9), [0.0, 0.0])


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 20))
def test_the_most_calls_are_those_of_the_fullest_window(queries: list[tuple[int, int]], tenths: int) -> None:
    """Both ends of a window are in it; arrivals in tenths, in any order."""
    at, calls = np.array(queries).T
    sample = QuerySample(at / 10.0, calls[:, None].astype(np.int64))
    fullest = max(int(calls[(at >= begin) & (at <= begin + tenths)].sum()) for begin in at)
    assert most_calls_within(sample, 0, tenths / 10.0) == fullest


def test_every_stage_of_anything_small_has_a_need() -> None:
    for seed in range(10):
        pipeline, sample, options, slo = anything_small(seed)
        found = own_needs(pipeline, sample, options, slo, [0.0] * len(options))
        assert all(found.of_stage)
