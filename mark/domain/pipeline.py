"""A pipeline: a graph of models behind one promise, and the stages that its queries visit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput

# A set of visited stages has one bit for each stage in a signed word.
MOST_STAGES = 62
# Limit on stages that only some queries visit, because each doubles the patterns of independent visits.
MOST_INDEPENDENT = 16
_MOST_QUERIES = 10**15


@dataclass(frozen=True, slots=True)
class Join:
    """The condition on which a query goes on to a stage that has several predecessors.

    It goes on when all predecessors that it visits have answered, or `deadline_s` after `least` of them have. The
    default waits for all; `FIRST` goes on with the first answer.
    """

    least: int = 1
    deadline_s: float = math.inf

    def __post_init__(self) -> None:
        if self.least < 1:
            raise BadInput("a join waits for one answer at least", "least", self.least)
        if not self.deadline_s >= 0.0:
            raise BadInput("must not be negative", "deadline_s", self.deadline_s)

    def needs_all(self, predecessors: int) -> bool:
        """Return whether a stage with this many `predecessors` waits for all that a query visits."""
        return self.deadline_s == math.inf or self.least >= predecessors


ALL = Join()
FIRST = Join(1, 0.0)


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One model of a pipeline, called when the stages `after` have answered."""

    name: str
    model: str
    after: tuple[str, ...] = ()
    join: Join = ALL


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in topological order: each comes later than the stages in its `after`.

    Raises BadInput for no stage, more than `MOST_STAGES`, a repeated name, an unknown predecessor, or a wrong order.
    """

    stages: tuple[PipelineStage, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MOST_STAGES:
            raise BadInput(f"a pipeline has 1 to {MOST_STAGES} stages", "stages", len(self.stages))
        known: set[str] = set()
        for stage in self.stages:
            if stage.name in known:
                raise BadInput("names a stage twice", "stages", stage.name)
            for name in stage.after:
                if name not in known:
                    raise BadInput("must name stages before this one", f"{stage.name}.after", name, known=known)
            if len(set(stage.after)) < len(stage.after):
                raise BadInput("names a stage twice", f"{stage.name}.after", ", ".join(stage.after))
            known.add(stage.name)

    @classmethod
    def ordered(cls, stages: Iterable[PipelineStage]) -> Pipeline:
        """Return a pipeline of stages in any order; the given order is kept where possible.

        Raises BadInput for a cycle.
        """
        given = list(stages)
        position = {stage.name: n for n, stage in enumerate(given)}
        if len(position) < len(given):
            return cls(tuple(given))  # raises BadInput for the repeated name
        for stage in given:
            for name in stage.after:
                if name not in position:
                    raise BadInput("is no stage", f"{stage.name}.after", name, known=position)
        sorter = TopologicalSorter({stage.name: stage.after for stage in given})
        try:
            sorter.prepare()
        except CycleError as error:
            raise BadInput("the stages form a circle", "after", " -> ".join(error.args[1])) from None
        order: list[PipelineStage] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=position.__getitem__)
            order += [given[position[name]] for name in ready]
            sorter.done(*ready)
        return cls(tuple(order))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(stage.name for stage in self.stages)

    @property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """The indexes of each stage's predecessors."""
        position = {name: n for n, name in enumerate(self.names)}
        return tuple(tuple(position[name] for name in stage.after) for stage in self.stages)

    @property
    def last(self) -> tuple[int, ...]:
        """The indexes of stages without a successor; their answers complete a query."""
        return tuple(stage for stage, after in enumerate(self.successors) if not after)

    @property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """The indexes of each stage's successors."""
        predecessors = self.predecessors
        stages = range(len(predecessors))
        return tuple(tuple(later for later in stages if stage in predecessors[later]) for stage in stages)

    @property
    def awaits_all(self) -> tuple[bool, ...]:
        """For each stage, whether a query that visits it needs the answers of all stages before it."""
        return tuple(
            awaited and stage.join.needs_all(len(stage.after))
            for stage, awaited in zip(self.stages, self.awaited, strict=True)
        )

    @property
    def awaited(self) -> tuple[bool, ...]:
        """For each stage, whether a query that visits it needs its answer.

        It needs the answers of last stages, and of all predecessors of an awaited stage that waits for all of them.
        """
        predecessors, needed = self.predecessors, set(self.last)
        awaited = [False] * len(predecessors)
        for stage in reversed(range(len(predecessors))):
            awaited[stage] = stage in needed
            if awaited[stage] and self.stages[stage].join.needs_all(len(predecessors[stage])):
                needed.update(predecessors[stage])
        return tuple(awaited)


def needed_s(least_s: Sequence[float], successors: Sequence[Sequence[int]], awaits_all: Sequence[bool]) -> list[float]:
    """Return for each stage the least time from its call to the query's answer, if stages take at least `least_s`.

    A stage is followed by the longest of its successors that wait for all (`Pipeline.awaits_all`), or if none does, by
    the shortest successor. Stages are in topological order.
    """
    needed = list(least_s)
    for stage in reversed(range(len(needed))):
        behind = successors[stage]
        bound = [needed[later] for later in behind if awaits_all[later]]
        needed[stage] += max(bound, default=min((needed[later] for later in behind), default=0.0))
    return needed


@dataclass(frozen=True, eq=False)
class Lineage:
    """The joint distribution of queries' visits: patterns, and the number of queries with each.

    `calls[k, s]` is how often a query of pattern k calls stage s: 0 without a visit, more than 1 for a fan-out.
    InferLine (SoCC '20, section 4.1) keeps one share for each stage and assumes independent visits. Whole patterns keep
    correlations, which matter because joins wait for the slowest of the stages visited together.
    """

    stages: tuple[str, ...]
    calls: NDArray[np.int64]  # (patterns, stages)
    queries: NDArray[np.int64]  # (patterns,)

    def __post_init__(self) -> None:
        if self.calls.shape != (len(self.queries), len(self.stages)) or not len(self.queries):
            raise BadInput("one row a pattern and one column a stage", "calls", self.calls.shape)
        if self.calls.min() < 0 or self.queries.min() < 1:
            raise BadInput("counts of calls are not negative, and those of queries are above zero", "calls")

    @classmethod
    def of(cls, stages: Sequence[str], calls: NDArray[np.int64]) -> Lineage:
        """Return the lineage of one row for each query; patterns are ordered by frequency, the highest first."""
        patterns, queries = np.unique(calls, axis=0, return_counts=True)
        order = np.argsort(-queries, kind="stable")
        return cls(tuple(stages), patterns[order], queries[order])

    @classmethod
    def independent(cls, stages: Sequence[str], shares: Sequence[float]) -> Lineage:
        """Return the lineage of independent single visits by shares (above 0, at most 1) of the queries.

        It is exact if the shares are decimals of few digits, because patterns are counts: 0.4 and 0.25 make 20 queries.
        Otherwise it is rounded to one query in 10^15, and rarer patterns are left out. Raises BadInput for other
        shares, and for more than `MOST_INDEPENDENT` below 1, which would make too many patterns.
        """
        exact = [Fraction(str(share)) for share in shares]
        for stage, share in zip(stages, exact, strict=True):
            if not 0 < share <= 1:
                raise BadInput("a share of the queries is above 0 and 1 at most", f"share of {stage}", float(share))
        free = sum(share < 1 for share in exact)
        if free > MOST_INDEPENDENT:
            what = f"of at most {MOST_INDEPENDENT} stages visits are taken as independent: a lineage file says them all"
            raise BadInput(what, "shares below 1", free)
        total = min(math.prod(share.denominator for share in exact), _MOST_QUERIES)
        calls, queries = [], []
        for visited in itertools.product(*((1,) if share == 1 else (1, 0) for share in exact)):
            law = math.prod((share if here else 1 - share for share, here in zip(exact, visited, strict=True)))
            if (count := round(law * total)) > 0:
                calls.append(visited)
                queries.append(count)
        order = np.argsort(-np.array(queries), kind="stable")
        return cls(tuple(stages), np.array(calls, dtype=np.int64)[order], np.array(queries, dtype=np.int64)[order])

    def of_stages(self, stages: Sequence[str]) -> Lineage:
        """Return the same with its columns in this order. Raises BadInput for other stages."""
        if set(stages) != set(self.stages):
            raise BadInput(f"must have a column for each of {', '.join(stages)}", "stages", ", ".join(self.stages))
        return Lineage(tuple(stages), self.calls[:, [self.stages.index(name) for name in stages]], self.queries)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of the queries that visit each stage: InferLine's scale factors (without fan-out)."""
        visits = self.queries @ (self.calls > 0)
        return np.asarray(visits / self.queries.sum(), dtype=np.float64)

    @property
    def calls_per_query(self) -> NDArray[np.float64]:
        """The mean calls of each stage per query."""
        return np.asarray(self.queries @ self.calls / self.queries.sum(), dtype=np.float64)

    @property
    def by_all(self) -> NDArray[np.bool_]:
        """For each stage, whether every query calls it, all equally often."""
        return np.asarray((self.calls == self.calls[0]).all(axis=0) & (self.calls[0] > 0), dtype=np.bool_)

    def drawn(self, queries: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the calls of `queries` random queries from this distribution, shape (queries, stages)."""
        return self.calls[self.drawn_patterns(queries, rng)]

    def drawn_patterns(self, queries: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the pattern indexes of random queries, shape (queries,)."""
        drawn = rng.choice(len(self.queries), size=queries, p=self.queries / self.queries.sum())
        return np.asarray(drawn, dtype=np.int64)
