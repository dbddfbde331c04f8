"""A query on its way, against a reference that computes all times together; laws of drops, deadlines and ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.pipeline import ALL, FIRST, Join, Pipeline, PipelineStage
from mark.serving.conductor.graph import StageGraph, parts
from mark.serving.conductor.query import (
    ANSWERED,
    BY_CACHE,
    BY_FUNCTION,
    FAILED,
    LATE,
    REFUSED,
    GraphProgress,
    QueryProgress,
    states,
)


@dataclass
class Case:
    """A graph, how long each stage takes, which of them fail, and until when the query is to be answered."""

    pipeline: Pipeline
    takes_s: list[float]
    fails: list[bool]
    deadline_s: float
    least_s: tuple[float, ...]


def case_of(seed: int, joins: bool = True) -> Case:
    chance = Random(seed)
    stages: list[PipelineStage] = []
    for n in range(chance.randint(1, 7)):
        after = tuple(stage.name for stage in stages if chance.random() < 0.5)
        join = ALL
        if joins and len(after) > 1 and chance.random() < 0.6:
            join = FIRST if chance.random() < 0.4 else Join(chance.randint(1, len(after)), chance.uniform(0.0, 1.0))
        stages.append(PipelineStage(f"s{n}", "m", after, join))
    takes_s = [chance.uniform(0.1, 1.0) for _ in stages]
    fails = [chance.random() < chance.choice((0.0, 0.2)) for _ in stages]
    least_s = tuple(seconds * chance.uniform(0.3, 1.0) for seconds in takes_s)
    return Case(Pipeline(tuple(stages)), takes_s, fails, chance.uniform(0.5, 4.0), least_s)


@dataclass
class Seen:
    """The outcome of a query. `called` has when each stage was called, and with whose answers."""

    called: dict[int, tuple[float, frozenset[int]]] = field(default_factory=dict)
    done_s: float = math.inf
    lost_s: float = math.inf
    lost_by: int | None = None
    said: str = ""


def played(case: Case, needed: bool = True) -> Seen:
    """Run the state machine, event by event, until the query has an answer or its deadline has passed."""
    graph, seen = StageGraph(case.pipeline), Seen()
    query = QueryProgress(case.pipeline.names, case.deadline_s)
    progress = GraphProgress(graph, query)
    needed_s = graph.needed_s(case.least_s) if needed else [0.0] * len(case.least_s)
    events: list[tuple[float, int]] = []  # when, and which stage is over; -1: a timer

    def calls(stages: list[int], now_s: float) -> None:
        for stage in stages:
            assert stage not in seen.called, "a stage is called once"
            seen.called[stage] = now_s, frozenset(progress.used[stage])
            heappush(events, (now_s + case.takes_s[stage], stage))
        if (due_s := progress.due_s()) < math.inf:
            heappush(events, (due_s, -1))

    calls(progress.start(0.0, needed_s), 0.0)
    now_s, ends = 0.0, 0
    while True:
        if progress.done or progress.lost_by is not None:
            ends += query.end(now_s)
            break
        if not events or events[0][0] >= case.deadline_s:
            now_s = case.deadline_s
            ends += query.end(now_s, LATE)
            break
        now_s, stage = heappop(events)
        if stage < 0:
            calls(progress.woken(now_s, needed_s), now_s)
        elif case.fails[stage]:
            assert query.settle(stage, now_s, FAILED)
            calls(progress.missed(stage, now_s, needed_s), now_s)
        else:
            assert query.settle(stage, now_s)
            calls(progress.answered(stage, now_s, needed_s), now_s)
    if progress.done:
        seen.done_s = now_s
    elif progress.lost_by is not None:
        seen.lost_s, seen.lost_by = now_s, progress.lost_by
    # Later events change nothing.
    for _, stage in events:
        if stage >= 0:
            assert not query.settle(stage, now_s + 1.0)
            assert progress.answered(stage, now_s + 1.0, needed_s) == []
    assert ends == 1
    assert not query.end(now_s)
    seen.said = query.said()
    return seen


def expected(case: Case, needed: bool = True) -> Seen:
    """Compute all times from the rules of joins, without playing an event."""
    stages = case.pipeline.stages
    above = case.pipeline.predecessors
    needed_s = _needed_s(case) if needed else [0.0] * len(stages)
    called_s, ok_s, lost_s = (dict.fromkeys(range(len(stages)), math.inf) for _ in range(3))
    for n, stage in enumerate(stages):
        answers = sorted(ok_s[p] for p in above[n] if ok_s[p] < math.inf)
        losses = sorted(lost_s[p] for p in above[n] if lost_s[p] < math.inf)
        everything_s = max(answers + losses, default=0.0)
        join = stage.join
        least = len(above[n]) if join.deadline_s == math.inf else join.least
        if len(answers) < least:
            lost_s[n] = losses[len(above[n]) - least]
            continue
        begin_s = min((answers[least - 1] if least else 0.0) + join.deadline_s, everything_s)
        if begin_s >= case.deadline_s or begin_s + needed_s[n] > case.deadline_s:
            lost_s[n] = begin_s
            continue
        called_s[n] = begin_s
        (lost_s if case.fails[n] else ok_s)[n] = begin_s + case.takes_s[n]
    sinks = [n for n in range(len(stages)) if not any(n in one for one in above)]
    seen = Seen()
    lost = min(lost_s[n] for n in sinks)
    done = max(ok_s[n] for n in sinks)
    if done < case.deadline_s:
        seen.done_s = done
    elif lost < case.deadline_s:
        seen.lost_s = lost
    over_s = min(seen.done_s, seen.lost_s, case.deadline_s)
    for n, at_s in called_s.items():
        if at_s < over_s:
            seen.called[n] = at_s, frozenset(p for p in above[n] if ok_s[p] <= at_s)
    return seen


def _needed_s(case: Case) -> list[float]:
    """Return the time to the end: of the longest way that the query needs, or of the shortest if it needs none."""
    stages, above = case.pipeline.stages, case.pipeline.predecessors

    def bound(n: int) -> list[int]:
        return [m for m in behind(n) if needed(m) and waits_for_all(m)]

    def behind(n: int) -> list[int]:
        return [m for m in range(len(stages)) if n in above[m]]

    def waits_for_all(n: int) -> bool:
        return stages[n].join.deadline_s == math.inf or stages[n].join.least == len(above[n])

    def needed(n: int) -> bool:
        return not behind(n) or bool(bound(n))

    def from_(n: int) -> float:
        ways = max if bound(n) else min
        return case.least_s[n] + ways((from_(m) for m in bound(n) or behind(n)), default=0.0)

    return [from_(n) for n in range(len(stages))]


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), needed=st.booleans())
def test_a_query_goes_as_its_joins_say(seed: int, needed: bool) -> None:
    case = case_of(seed)
    seen, wanted = played(case, needed), expected(case, needed)
    assert seen.called == wanted.called
    assert (seen.done_s, seen.lost_s) == (wanted.done_s, wanted.lost_s)


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_no_call_begins_that_cannot_be_in_time(seed: int) -> None:
    case = case_of(seed)
    for stage, (at_s, _) in played(case).called.items():
        assert at_s + case.least_s[stage] <= case.deadline_s + 1e-6
    assert all(at_s < case.deadline_s for at_s, _ in played(case, needed=False).called.values())


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_a_drop_costs_no_query_that_could_be_in_time(seed: int) -> None:
    case = case_of(seed)
    assert played(case).done_s <= played(case, needed=False).done_s


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_a_query_is_lost_by_a_failed_or_dropped_stage(seed: int) -> None:
    case = case_of(seed)
    seen = played(case)
    if seen.lost_by is not None:
        name = f"s{seen.lost_by}"
        states = dict(part.split("/") for part in seen.said.split(";") if "/" in part)
        said = {part.split("=")[0]: part.rpartition("/")[2] for part in seen.said.split(";") if "/" in part}
        assert states, seen.said
        assert said[name] in (LATE, FAILED)
        assert seen.lost_by not in seen.called or case.fails[seen.lost_by]


def test_what_is_said_of_stages() -> None:
    query = QueryProgress(("language", "translate", "vision", "topics"), 1.0)
    query.begin(2, 0.0)
    query.begin(0, 0.0)
    assert query.settle(0, 0.004)
    query.begin(1, 0.010)
    query.begin(1, 0.020)
    assert query.settle(1, 0.030)
    assert query.settle(1, 0.071, REFUSED)
    assert query.running == ["vision"]
    assert not query.in_time(0.8, 0.3)
    query.drop(3, 0.8)
    assert query.end(0.9, LATE)
    assert query.said() == "language=4;translate=61/refused;vision=900/late;topics=0/late"


def test_a_function_is_said_unless_a_call_has_no_answer() -> None:
    query = QueryProgress(("vision", "topics", "text"), 1.0)
    for stage, ends in enumerate(([ANSWERED, BY_FUNCTION, ANSWERED], [BY_FUNCTION, FAILED], [FAILED, BY_FUNCTION])):
        for _ in ends:
            query.begin(stage, 0.0)
        for state in ends:
            assert query.settle(stage, 0.01, state)
    assert query.answers == 5
    assert query.said() == "vision=10/function;topics=10/failed;text=10/failed"
    assert list(states(query.said())) == [("vision", "function"), ("topics", "failed"), ("text", "failed")]
    assert list(states("")) == []


def test_memory_is_said_unless_a_function_answered_too() -> None:
    query = QueryProgress(("a", "b", "c", "d"), 1.0)
    mixed = ([ANSWERED, BY_CACHE], [BY_CACHE, BY_FUNCTION], [BY_FUNCTION, BY_CACHE], [BY_CACHE, REFUSED])
    for stage, ends in enumerate(mixed):
        for state in ends:
            query.begin(stage, 0.0)
            assert query.settle(stage, 0.0, state)
    assert query.answers == 7
    assert [state for _, state in states(query.said())] == ["cache", "function", "function", "refused"]


def test_an_answer_to_no_call_is_refused() -> None:
    query = QueryProgress(("a",), 1.0)
    query.begin(0, 0.0)
    assert query.settle(0, 0.1)
    with pytest.raises(ValueError, match="no call of a is running"):
        query.settle(0, 0.2)


def diamond(join: Join = ALL) -> StageGraph:
    stages = [PipelineStage("a", "m"), PipelineStage("b", "m", ("a",)), PipelineStage("c", "m", ("a",))]
    return StageGraph(Pipeline((*stages, PipelineStage("d", "m", ("b", "c"), join))))


def test_what_is_needed_follows_times_that_change() -> None:
    graph = diamond()
    assert graph.needed_s((1.0, 2.0, 3.0, 4.0)) == [8.0, 6.0, 7.0, 4.0]
    assert graph.needed_s((1.0, 5.0, 3.0, 4.0)) == [10.0, 9.0, 7.0, 4.0]
    assert graph.query_s((1.0, 5.0, 3.0, 4.0)) == 10.0
    # d goes on with the first, so the quicker way is enough.
    assert diamond(FIRST).needed_s((1.0, 2.0, 3.0, 4.0)) == [7.0, 6.0, 7.0, 4.0]
    stages = (PipelineStage("a", "m"), PipelineStage("b", "m"), PipelineStage("c", "m", ("a", "b"), FIRST))
    assert StageGraph(Pipeline(stages)).query_s((1.0, 9.0, 4.0)) == 5.0


def test_parts_of_successive_stages_sum_to_rt_max() -> None:
    assert parts([1.0, 2.0, 4.0, 1.0], diamond()) == pytest.approx([1 / 6, 2 / 4, 4 / 6, 1 / 6])
    assert parts([1.0, 1.0, 2.0], None) == pytest.approx([0.25, 0.25, 0.5])


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_along_no_way_are_the_parts_more_than_rt_max(seed: int) -> None:
    case = case_of(seed)
    shares = parts(case.takes_s, StageGraph(case.pipeline))
    longest = [0.0] * len(shares)
    for n, above in enumerate(case.pipeline.predecessors):
        longest[n] = shares[n] + max((longest[p] for p in above), default=0.0)
    assert max(longest) <= 1.0 + 1e-9
