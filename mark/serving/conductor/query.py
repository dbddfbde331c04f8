"""One query on its way through a pipeline: what is called next, what is dropped, and how it ends. No I/O, no clock.

The shell (`mark.serving.conductor.conductor`) tells what happened and at what time, and calls what it is told to. Times
are seconds of one monotonic clock; a stage is its position among the pipeline's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mark.domain.rules.admission import TOLERANCE_S
from mark.serving.conductor.graph import StageGraph

# What became of the calls of a stage that were not all answered, as `mark-stages` says it.
LATE, FAILED, REFUSED, UNUSED = "late", "failed", "refused", "unused"
# All were answered: by its instances, or one at least by its function, or one at least from memory and none by that.
ANSWERED, BY_FUNCTION, BY_CACHE = "", "function", "cache"
STATES = (ANSWERED, BY_FUNCTION, BY_CACHE, LATE, FAILED, REFUSED, UNUSED)


class _Visit:
    """The calls of one stage for a query."""

    __slots__ = ("called_s", "ended_s", "running", "state")

    def __init__(self, now_s: float) -> None:
        self.called_s = self.ended_s = now_s
        self.running, self.state = 0, ANSWERED


class QueryProgress:
    """Which calls of stages may begin for a request, what became of them, and that it gets one answer.

    Whether a driver or a graph says what comes next makes no difference here, nor does how many items it has.
    """

    __slots__ = ("_stages", "_visits", "answers", "deadline_s", "dropped", "over")

    def __init__(self, stages: Sequence[str], deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.over = False  # it has its answer
        self.answers = 0  # of stages, so far
        self.dropped = False  # a stage was not called, for want of time
        self._stages = stages
        self._visits: dict[int, _Visit] = {}

    def in_time(self, now_s: float, needed_s: float) -> bool:
        """May a call begin, from which `needed_s` pass until the query's answer at least?"""
        return now_s < self.deadline_s and now_s + needed_s <= self.deadline_s + TOLERANCE_S

    def begin(self, stage: int, now_s: float) -> None:
        """The stage is called."""
        self._visit(stage, now_s).running += 1

    def drop(self, stage: int, now_s: float) -> None:
        """The stage would be called, were there time for it."""
        self._visit(stage, now_s).state = LATE
        self.dropped = True

    def _visit(self, stage: int, now_s: float) -> _Visit:
        visit = self._visits.get(stage)
        if visit is None:
            visit = self._visits[stage] = _Visit(now_s)
        return visit

    def settle(self, stage: int, now_s: float, state: str = ANSWERED) -> bool:
        """A call of the stage ended so; False where the query has its answer already."""
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
        """An answer of the stage turned out to be of no use."""
        if not self.over:
            self._visits[stage].state = state

    @property
    def running(self) -> list[str]:
        """The stages that have not answered all their calls."""
        return [self._stages[stage] for stage, visit in sorted(self._visits.items()) if visit.running]

    def end(self, now_s: float, rest: str = UNUSED) -> bool:
        """The request is answered now: True the first time. `rest` is what becomes of calls that still run."""
        if self.over:
            return False
        self.over = True
        for visit in self._visits.values():
            if visit.running:
                visit.ended_s, visit.state = now_s, rest
        return True

    def said(self) -> str:
        """`language=4;translate=61;vision=88/late`: of each stage the milliseconds from its first call to its last
        answer, and what became of it unless its instances answered."""
        said = []
        for stage, visit in sorted(self._visits.items()):
            state = f"/{visit.state}" if visit.state else ""
            said.append(f"{self._stages[stage]}={(visit.ended_s - visit.called_s) * 1e3:.0f}{state}")
        return ";".join(said)


def states(said: str) -> Iterator[tuple[str, str]]:
    """What `QueryProgress.said` says: each stage with what became of it."""
    for part in filter(None, said.split(";")):
        stage, _, rest = part.partition("=")
        yield stage, rest.partition("/")[2]


class GraphProgress:
    """One item of a request on a graph that is said: each stage is called once, when its join allows it.

    The methods return the stages to be called now. A call that fails, is refused or dropped is an answer that never
    comes: what can do without it goes on, at once if it has nothing else to wait for. Once a stage that no other comes
    after cannot be called any more the item is `lost_by` the stage whose answer is missing there. It is done when all
    of those stages have answered.
    """

    __slots__ = ("_enough_s", "_graph", "_lost", "_query", "_waiting", "answered_by", "lost_by", "used")

    def __init__(self, graph: StageGraph, query: QueryProgress) -> None:
        self._graph, self._query = graph, query
        self._waiting = list(range(len(graph.joins)))  # neither called nor lost, in topological order
        self._enough_s: dict[int, float] = {}  # of a waiting stage: when it has enough answers to go on after a while
        self._lost: dict[int, int] = {}  # a stage without an answer: by which one
        self.answered_by: set[int] = set()
        self.used: dict[int, tuple[int, ...]] = {}  # of a stage that was called: whose answers it gets
        self.lost_by: int | None = None

    @property
    def done(self) -> bool:
        return self.answered_by.issuperset(self._graph.sinks)

    def start(self, now_s: float, needed_s: Sequence[float]) -> list[int]:
        """The query has come."""
        return self._go_on(now_s, needed_s)

    def answered(self, stage: int, now_s: float, needed_s: Sequence[float]) -> list[int]:
        self.answered_by.add(stage)
        return self._go_on(now_s, needed_s)

    def missed(self, stage: int, now_s: float, needed_s: Sequence[float]) -> list[int]:
        """The stage has no answer, and will have none."""
        self._lost[stage] = stage
        return self._go_on(now_s, needed_s)

    def woken(self, now_s: float, needed_s: Sequence[float]) -> list[int]:
        """It is `due_s`, or later."""
        return self._go_on(now_s, needed_s)

    def due_s(self) -> float:
        """When a join has waited for long enough; infinite: none waits for a time."""
        joins = self._graph.joins
        return min((since_s + joins[stage].deadline_s for stage, since_s in self._enough_s.items()), default=math.inf)

    def _go_on(self, now_s: float, needed_s: Sequence[float]) -> list[int]:
        if self.lost_by is not None or self._query.over:
            return []
        called: list[int] = []
        still: list[int] = []
        for stage in self._waiting:  # what one of them loses shows at those behind it in the same round
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
