"""Pipelines and lineages: order, circles, and laws that hold for every joint law of visits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mark.domain.errors import BadInput
from mark.domain.pipeline import ALL, FIRST, Join, Lineage, Pipeline, PipelineStage, needed_s

CALLS = st.tuples(st.integers(1, 60), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 3))
)


def stage(name: str, *after: str) -> PipelineStage:
    return PipelineStage(name, "m", after)


def test_stages_are_put_in_order_and_otherwise_keep_theirs() -> None:
    found = Pipeline.ordered([stage("d", "b", "c"), stage("c", "a"), stage("b", "a"), stage("a"), stage("x")])
    assert found.names == ("a", "x", "c", "b", "d")
    assert found.predecessors == ((), (), (0,), (0,), (3, 2))
    assert found.last == (1, 4)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], "stages: a pipeline has 1 to 62 stages: 0"),
        ([stage("a"), stage("a")], "names a stage twice: a"),
        ([stage("a", "a")], "the stages form a circle: a -> a"),
        # In the direction of the answers.
        ([stage("a", "c"), stage("b", "a"), stage("c", "b")], "the stages form a circle: a -> b -> c -> a"),
        ([stage("a"), stage("bee", "be")], "bee.after: is no stage, did you mean bee?: be"),
        ([stage("a"), stage("b", "a", "a")], "b.after: names a stage twice: a, a"),
    ],
)
def test_what_is_no_pipeline(stages: list[PipelineStage], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        Pipeline.ordered(stages)
    message = str(caught.value)
    if "circle" in said:  # it may be told from any of its stages
        names = said.rpartition(": ")[2].split(" -> ")[:-1]
        turns = [names[n:] + names[:n] for n in range(len(names))]
        assert any(message.endswith(" -> ".join([*turn, turn[0]])) for turn in turns)
    else:
        assert message.endswith(said)


def test_a_pipeline_in_the_wrong_order_is_refused() -> None:
    with pytest.raises(BadInput, match="must name stages before this one"):
        Pipeline((stage("b", "a"), stage("a")))


@pytest.mark.parametrize(
    ("join", "awaited"),
    [(ALL, True), (FIRST, False), (Join(1, 0.04), False), (Join(2, 0.04), True)],  # two of two are all
)
def test_a_stage_is_awaited_unless_a_join_can_spare_it(join: Join, awaited: bool) -> None:
    found = Pipeline((stage("a"), stage("b", "a"), stage("c", "a"), PipelineStage("d", "m", ("b", "c"), join)))
    assert found.awaited == (awaited, awaited, awaited, True)
    # A stage that only follows such a stage is not awaited either.
    assert Pipeline((*found.stages, stage("e", "b"))).awaited == (True, True, awaited, True, True)


@pytest.mark.parametrize(("join", "needed"), [(ALL, [8.0, 6.0, 7.0, 4.0]), (FIRST, [7.0, 6.0, 7.0, 4.0])])
def test_a_call_needs_the_time_of_what_must_follow(join: Join, needed: list[float]) -> None:
    """Stages take 1, 2, 3 and 4 s: the longer branch counts if both are waited for, otherwise the shorter."""
    found = Pipeline((stage("a"), stage("b", "a"), stage("c", "a"), PipelineStage("d", "m", ("b", "c"), join)))
    assert found.successors == ((1, 2), (3,), (3,), ())
    assert found.awaits_all == (join is ALL,) * 4
    assert needed_s((1.0, 2.0, 3.0, 4.0), found.successors, found.awaits_all) == needed


def test_joins() -> None:
    assert (ALL.least, ALL.deadline_s) == (1, math.inf)
    assert (FIRST.least, FIRST.deadline_s) == (1, 0.0)
    for least, deadline_s in ((0, 1.0), (1, -1.0), (1, math.nan)):
        with pytest.raises(BadInput):
            Join(least, deadline_s)


@given(CALLS)
def test_a_lineage_keeps_the_joint_law_of_its_queries(calls: np.ndarray) -> None:
    """Patterns are distinct, the most frequent first; shares and means equal those of the single queries."""
    names = [f"s{n}" for n in range(calls.shape[1])]
    lineage = Lineage.of(names, calls)
    assert lineage.queries.sum() == len(calls)
    assert list(lineage.queries) == sorted(lineage.queries, reverse=True)
    assert len({tuple(row) for row in lineage.calls.tolist()}) == len(lineage.queries)
    repeated = np.repeat(lineage.calls, lineage.queries, axis=0)
    assert sorted(map(tuple, repeated.tolist())) == sorted(map(tuple, calls.tolist()))
    np.testing.assert_allclose(lineage.shares, (calls > 0).mean(axis=0))
    np.testing.assert_allclose(lineage.calls_per_query, calls.mean(axis=0))
    assert (lineage.calls_per_query >= lineage.shares - 1e-12).all()
    assert lineage.by_all.tolist() == [len(set(column)) == 1 and column[0] > 0 for column in calls.T.tolist()]


def test_drawn_queries_keep_what_correlates() -> None:
    """Two stages that are never visited together are never drawn together, whatever their shares."""
    lineage = Lineage(("a", "b"), np.array([[1, 0], [0, 3]]), np.array([3, 1]))
    drawn = lineage.drawn(20_000, np.random.default_rng(1))
    assert {tuple(row) for row in drawn.tolist()} == {(1, 0), (0, 3)}
    assert (drawn[:, 0] > 0).mean() == pytest.approx(0.75, abs=0.01)
    np.testing.assert_array_equal(drawn, lineage.drawn(20_000, np.random.default_rng(1)))


@pytest.mark.parametrize(
    ("calls", "queries"),
    [([[1, 0]], [0]), ([[-1, 0]], [1]), ([[1]], [1]), ([[1, 0]], [1, 2]), (np.zeros((0, 2)), [])],
)
def test_what_is_no_lineage(calls: list, queries: list) -> None:
    with pytest.raises(BadInput):
        Lineage(("a", "b"), np.array(calls, dtype=np.int64), np.array(queries, dtype=np.int64))


def test_independent_visits_give_each_pattern_its_shares_product() -> None:
    found = Lineage.independent(["a", "b", "c"], [1.0, 0.4, 0.25])
    assert found.queries.tolist() == [9, 6, 3, 2]  # of 20
    assert found.calls.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]
    np.testing.assert_allclose(found.shares, [1.0, 0.4, 0.25])


def test_shares_of_many_digits_are_kept_to_high_precision() -> None:
    shares = [1.0 / 3.0, 0.123456789, 0.9876543210123]
    found = Lineage.independent(["a", "b", "c"], shares)
    np.testing.assert_allclose(found.shares, shares, rtol=1e-12)
    assert found.queries.sum() <= 10**15 + 8


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.0], "share of s0: a share of the queries is above 0 and 1 at most: 0.0"),
        ([1.5], "share of s0: a share of the queries is above 0 and 1 at most: 1.5"),
        ([0.5] * 17, "shares below 1: of at most 16 stages visits are taken as independent"),
    ],
)
def test_what_are_no_independent_visits(shares: list[float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Lineage.independent([f"s{n}" for n in range(len(shares))], shares)


def test_columns_of_a_lineage_follow_the_stages() -> None:
    law = Lineage(("b", "a"), np.array([[0, 1], [2, 1]]), np.array([3, 1]))
    found = law.of_stages(("a", "b"))
    assert (found.stages, found.calls.tolist(), found.queries.tolist()) == (("a", "b"), [[1, 0], [1, 2]], [3, 1])
    with pytest.raises(BadInput, match="stages: must have a column for each of a, c: b, a"):
        law.of_stages(("a", "c"))
