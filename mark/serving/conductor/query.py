"""One query's progress through a pipeline: the next calls, the dropped calls, and its end. No I/O, no clock.

The shell (`mark.serving.conductor.conductor`) reports events with their times and makes the calls that are returned.
Times are seconds of one monotonic clock; a stage is identified by its position in the pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mark.domain.rules.admission import TOLERANCE_S
from mark.serving.conductor.graph import StageGraph

# The state of a stage with unanswered calls, as written in the header `mark-stages`.
LATE, FAILED, REFUSED, UNUSED = "late", "failed", "refused", "unused"
# The state of a stage with all calls answered: by its instances alone, some by its function, or some from the cache and
# none by the function.
ANSWERED, BY_FUNCTION, BY_CACHE = "", "function", "cache"
STATES = (ANSWERED, BY_FUNCTION, BY_CACHE, LATE, FAILED, REFUSED, UNUSED)


class _Visit:
    """The calls of one stage for a query."""

    __slots__ = ("called_s", "ended_s", "running", "state")

    def __init__(self, now_s: float) -> None:
        self.called_s = self.ended_s = now_s
        self.running, self.state = 0, ANSWERED


class QueryProgress:
    """The state of a request's calls of stages. It allows calls to begin and makes sure of a single answer.

    It is the same for drivers and graphs, and for any number of items.
    """

    __slots__ = ("_stages", "_visits", "answers", "deadline_s", "dropped", "over")

    def __init__(self, stages: Sequence[str], deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.over = False  # the request has its answer
        self.answers = 0  # of stages, so far
        self.dropped = False  # a stage was not called because too little time was left
        self._stages = stages
        self._visits: dict[int, _Visit] = {}

    def in_time(self, now_s: float, needed_s: float) -> bool:
        """Return whether a call may begin that needs at least `needed_s` until the query's answer."""
        return now_s < self.deadline_s and now_s + needed_s <= self.deadline_s + TOLERANCE_S

    def begin(self, stage: int, now_s: float) -> None:
        """Note that the stage is called."""
        self._visit(stage, now_s).running += 1

    def drop(self, stage: int, now_s: float) -> None:
        """Note that the stage is not called because too little time is left."""
        self._visit(stage, now_s).state = LATE
        self.dropped = True

    def _visit(self, stage: int, now_s: float) -> _Visit:
        visit = self._visits.get(stage)
        if visit is None:
            visit = self._visits[stage] = _Visit(now_s)
        return visit

    def settle(self, stage: int, now_s: float, state: str = ANSWERED) -> bool:
        """Note how a call of the stage ended; return False if the query has its answer already."""
        if self.over:
            return False
        visit = self._visits[stage]
        if not visit.running:
            raise ValueError(f"no call of {self._stages[stage]} is running")
        visit.running -= 1
        visit.ended_s = now_s
        answered = state in (ANSWERED, BY_FUNCTION, BY_CACHE)
        if answered:
            self.answers += 1
        if not answered or visit.state == ANSWERED or (visit.state == BY_CACHE and state == BY_FUNCTION):
            visit.state = state
        return True

    def failed(self, stage: int, state: str) -> None:
        """Note that an answer of the stage could not be used."""
        if not self.over:
            self._visits[stage].state = state

    @property
    def running(self) -> list[str]:
        """Return the stages with unanswered calls."""
        return [self._stages[stage] for stage, visit in sorted(self._visits.items()) if visit.running]

    def end(self, now_s: float, rest: str = UNUSED) -> bool:
        """Note that the request is answered; return True the first time. `rest` is the state of unanswered calls."""
        if self.over:
            return False
        self.over = True
        for visit in self._visits.values():
            if visit.running:
                visit.ended_s, visit.state = now_s, rest
        return True

    def said(self) -> str:
        """Return the stages' times and states, as in `language=4;translate=61;vision=88/late`.

        The number is the milliseconds from a stage's first call to its last answer. The state is omitted if the stage's
        instances answered all calls.
        """
        said = []
        for stage, visit in sorted(self._visits.items()):
            state = f"/{visit.state}" if visit.state else ""
            said.append(f"{self._stages[stage]}={(visit.ended_s - visit.called_s) * 1e3:.0f}{state}")
        return ";".join(said)


def states(said: str) -> Iterator[tuple[str, str]]:
    """Yield each stage with its state, from the text of `QueryProgress.said`."""
    for part in filter(None, said.split(";")):
        stage, _, rest = part.partition("=")
        yield stage, rest.partition("/")[2]


class GraphProgress:
    """One item of a request on a declared graph: each stage is called once, when its join allows it.

    The methods return the stages to call now. A call that fails, is refused or is dropped counts as an answer that
    never comes. Stages that can do without this answer continue, immediately unless they wait for another one. If a
    last stage can no longer be called, the item is `lost_by` the stage whose answer is missing. It is done when all
    last stages have answered.
    """

    __slots__ = ("_enough_s", "_graph", "_lost", "_query", "_waiting", "answered_by", "lost_by", "used")

    def __init__(self, graph: StageGraph, query: QueryProgress) -> None:
        self._graph, self._query = graph, query
        self._waiting = list(range(len(graph.joins)))  # stages neither called nor lost, in topological order
        self._enough_s: dict[int, float] = {}  # by waiting stage: since when its join has enough answers
        self._lost: dict[int, int] = {}  # by stage without an answer: the stage that caused the loss
        self.answered_by: set[int] = set()
        self.used: dict[int, tuple[int, ...]] = {}  # by called stage: the stages whose answers it gets
        self.lost_by: int | None = None

    @property
    def done(self) -> bool:
        return self.answered_by.issuperset(self._graph.sinks)

    def start(self, now_s: float, needed_s: Sequence[float]) -> list[int]:
        """Return the stages to call for a new query."""
        return self._go_on(now_s, needed_s)

    def answered(self, stage: int, now_s: float, needed_s: Sequence[float]) -> list[int]:
        self.answered_by.add(stage)
        return self._go_on(now_s, needed_s)

    def missed(self, stage: int, now_s: float, needed_s: Sequence[float]) -> list[int]:
        """Note that the stage will never have an answer."""
        self._lost[stage] = stage
        return self._go_on(now_s, needed_s)

    def woken(self, now_s: float, needed_s: Sequence[float]) -> list[int]:
        """Return the stages to call at `due_s` or later."""
        return self._go_on(now_s, needed_s)

    def due_s(self) -> float:
        """Return when a join stops waiting for more answers; infinite if no join waits for a time."""
        joins = self._graph.joins
        return min((since_s + joins[stage].deadline_s for stage, since_s in self._enough_s.items()), default=math.inf)

    def _go_on(self, now_s: float, needed_s: Sequence[float]) -> list[int]:
        if self.lost_by is not None or self._query.over:
            return []
        called: list[int] = []
        still: list[int] = []
        for stage in self._waiting:  # in topological order, so a loss reaches later stages in the same pass
            above = self._graph.predecessors[stage]
            has = tuple(one for one in above if one in self.answered_by)
            lost = [one for one in self._lost if one in above]
            if not self._can_begin(stage, len(above), len(has), len(lost), now_s):
                if self._is_lost(stage, len(above), len(lost)):
                    self._lost[stage] = self._lost[lost[-1]]
                    self._enough_s.pop(stage, None)
                else:
                    still.append(stage)
                continue
            self._enough_s.pop(stage, None)
            if self._query.in_time(now_s, needed_s[stage]):
                self.used[stage] = has
                called.append(stage)
            else:
                self._query.drop(stage, now_s)
                self._lost[stage] = stage
        self._waiting = still
        self.lost_by = next((self._lost[sink] for sink in self._graph.sinks if sink in self._lost), None)
        if self.lost_by is not None:
            return []
        for stage in called:
            self._query.begin(stage, now_s)
        return called

    def _can_begin(self, stage: int, above: int, has: int, lost: int, now_s: float) -> bool:
        if has == above:
            return True
        join = self._graph.joins[stage]
        if join.deadline_s == math.inf or has < join.least:
            return False
        enough_s = self._enough_s.setdefault(stage, now_s)
        return has + lost == above or now_s >= enough_s + join.deadline_s

    def _is_lost(self, stage: int, above: int, lost: int) -> bool:
        join = self._graph.joins[stage]
        return lost > 0 and (join.deadline_s == math.inf or above - lost < join.least)
