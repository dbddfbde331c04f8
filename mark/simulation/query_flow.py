"""Queries in stages that are simulated one after the other, window by window.

As in `mark.kernel.central_queues`, a stage is advanced through a window after those before it, so that every answer
before the window's end is known. The results do not depend on where windows end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray
from mark.domain.pipeline import Pipeline
from mark.kernel.arrays import INF, Ints

# The time of an answer that never comes. It is finite, because infinite means not known yet.
NEVER_S = 1e300


class QueryFlow:
    """Determines when the calls of each stage are due, as answers become known.

    `arrivals_s` (N,) ascend; `calls` (N, S) is how often each query calls each stage. A query passes a stage that it
    does not call once the stages before are done. A call that is never answered stops its query at the stages that wait
    for it, unless it is reported as missed.
    """

    def __init__(self, pipeline: Pipeline, arrivals_s: FloatArray, calls: Ints) -> None:
        self._pipeline, self._arrivals_s = pipeline, arrivals_s
        self._calls = np.ascontiguousarray(calls.T)
        shape = self._calls.shape
        self._answer_s = np.full(shape, INF)  # infinite: not known yet; NEVER_S: never
        self._latest_s = np.full(shape, -INF)  # of a query's answered calls
        self._missed = np.zeros(shape, dtype=np.bool_)  # queries that go on without an answer of the stage
        self._left = self._calls.copy()  # calls without an answer
        # queries that arrived and have not gone on to the stage
        self._open: list[Ints] = [np.empty(0, dtype=np.int64)] * shape[0]
        self._arrived = [0] * shape[0]
        self._until_s = [-INF] * shape[0]  # calls due before this time are known
        self._since_s = [-INF] * shape[0]  # the same at the window before
        self._query_of: list[Ints] = [np.empty(int(n), dtype=np.int64) for n in self._calls.sum(axis=1)]  # by call
        self._made = [0] * shape[0]

    def due(self, stage: int, until_s: float) -> tuple[FloatArray, Ints]:
        """Return the times of the calls due before `until_s`, ascending, and their queries; each call is returned once.

        All answers of the stages before it earlier than `until_s` must be known.
        """
        upto = int(np.searchsorted(self._arrivals_s, until_s))
        waiting = np.concatenate([self._open[stage], np.arange(self._arrived[stage], upto)])
        self._arrived[stage] = upto
        ready_s = self._ready_s(stage, waiting)
        goes_on = ready_s < min(until_s, NEVER_S)
        never = (ready_s >= NEVER_S) & (ready_s < INF)
        called = self._calls[stage, waiting] > 0
        passed = goes_on & ~called
        self._answer_s[stage, waiting[passed]] = ready_s[passed]
        self._answer_s[stage, waiting[never]] = NEVER_S
        self._open[stage] = waiting[~(goes_on | never)]
        due = np.flatnonzero(goes_on & called)
        if len(due) and float(ready_s[due].min()) < self._until_s[stage]:
            raise AssertionError("a call became known after its window: an answer came late")
        self._since_s[stage], self._until_s[stage] = self._until_s[stage], until_s
        due = due[np.argsort(ready_s[due], kind="stable")]
        times_s, queries = ready_s[due], waiting[due]
        each = self._calls[stage, queries]
        times_s, queries = np.repeat(times_s, each), np.repeat(queries, each)
        made = self._made[stage]
        self._query_of[stage][made : made + len(queries)] = queries
        self._made[stage] = made + len(queries)
        return times_s, queries

    def answered(self, stage: int, call: Ints, answer_s: FloatArray) -> None:
        """Note the answers of calls, by their numbers at the stage; infinite: never answered."""
        queries = self._query_of[stage][call]
        np.maximum.at(self._latest_s[stage], queries, np.minimum(answer_s, NEVER_S))
        np.subtract.at(self._left[stage], queries, 1)
        done = queries[self._left[stage, queries] == 0]
        self._answer_s[stage, done] = self._latest_s[stage, done]

    def missed(self, stage: int, call: Ints, at_s: FloatArray) -> None:
        """Let the queries of these calls go on without an answer of the stage, from `at_s` on."""
        self._missed[stage, self._query_of[stage][call]] = True
        self.answered(stage, call, np.maximum(at_s, self._since_s[stage]))

    def choose(self, first: int, until_s: float, choose: Callable[[int, int], Ints]) -> int:
        """Replace the calls of the queries from `first` to the last before `until_s`, which must not have arrived yet.

        `choose` returns the calls of the queries from one number to before another one. There may be no more calls than
        before. Returns the number of the next query.
        """
        last = int(np.searchsorted(self._arrivals_s, until_s))
        if last > first:
            self._calls[:, first:last] = choose(first, last).T
            self._left[:, first:last] = self._calls[:, first:last]
        return last

    @property
    def calls(self) -> Ints:
        """How often each query calls each stage, (N, S)."""
        return self._calls.T

    def decided(self, deadline_s: float) -> tuple[FloatArray, BoolArray]:
        """Return the latency of each query in a selection, and the stages that answered it by then, (N, S).

        A query is decided when all its calls are answered or missed. From `deadline_s` after its arrival one answer is
        enough.
        """
        called = self._calls > 0
        answers = called & ~self._missed & (self._answer_s < NEVER_S)
        answer_s = np.where(answers, self._answer_s, INF)
        awaited_s = np.where(called, self._answer_s, -INF).max(axis=0)
        first_s = answer_s.min(axis=0)
        at_s = np.minimum(awaited_s, np.maximum(self._arrivals_s + deadline_s, first_s))
        at_s[np.isinf(first_s)] = INF
        return at_s - self._arrivals_s, (answers & (answer_s <= at_s)).T

    def left_s(self, times_s: FloatArray, queries: Ints, rt_max_s: float) -> FloatArray:
        """Return the times left until the deadlines of these queries."""
        return self._arrivals_s[queries] + rt_max_s - times_s

    def latency_s(self) -> FloatArray:
        """Return the latency of each query, (N,); infinite without an answer."""
        latest_s = self._answer_s[list(self._pipeline.last)].max(axis=0)
        return np.where(latest_s >= NEVER_S, INF, latest_s - self._arrivals_s)

    def _ready_s(self, stage: int, queries: Ints) -> FloatArray:
        """Return when the queries go on to the stage: after all stages before it, or by the rule of its join."""
        before = np.array(self._pipeline.predecessors[stage], dtype=np.int64)
        if not len(before):
            return self._arrivals_s[queries]
        earlier_s = self._answer_s[np.ix_(before, queries)]
        ready_s: FloatArray = earlier_s.max(axis=0)
        join = self._pipeline.stages[stage].join
        if np.isfinite(join.deadline_s) and join.least <= len(before):
            comes = (self._calls[np.ix_(before, queries)] > 0) & (earlier_s < NEVER_S)
            answers_s = np.sort(np.where(comes, earlier_s, INF), axis=0)
            ready_s = np.minimum(ready_s, answers_s[join.least - 1] + join.deadline_s)
        return ready_s
