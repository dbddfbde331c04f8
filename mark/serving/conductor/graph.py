"""What a graph says of time: what a query still takes at least, and which part of RT_max is a stage's."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.pipeline import Pipeline, needed_s


class StageGraph:
    """A pipeline with what a conductor asks of it; stages by their position."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.joins = tuple(stage.join for stage in pipeline.stages)
        self.predecessors = pipeline.predecessors
        count = len(self.predecessors)
        self.successors = pipeline.successors
        self.sources = tuple(stage for stage in range(count) if not self.predecessors[stage])
        self.sinks = pipeline.last
        self._awaited, self._awaits_all = pipeline.awaited, pipeline.awaits_all
        self._least_s: tuple[float, ...] = ()
        self._needed_s: Sequence[float] = ()

    def needed_s(self, least_s: tuple[float, ...]) -> Sequence[float]:
        """Of each stage the least time from its call to the query's answer, where a stage takes `least_s` at least."""
        if least_s != self._least_s:
            self._least_s, self._needed_s = least_s, needed_s(least_s, self.successors, self._awaits_all)
        return self._needed_s

    def query_s(self, least_s: tuple[float, ...]) -> float:
        """The least time from a query to its answer, where a stage takes `least_s` at least."""
        needed_s = self.needed_s(least_s)
        bound = [needed_s[stage] for stage in self.sources if self._awaited[stage]]
        return max(bound) if bound else min(needed_s[stage] for stage in self.sources)


def parts(weights: Sequence[float], graph: StageGraph | None) -> list[float]:
    """Which part of RT_max each stage has, 0 to 1: its weight by that of the heaviest way through it.

    Without a graph, where a driver decides, all stages may follow each other.
    """
    if graph is None:
        return [weight / sum(weights) for weight in weights]
    before, behind = [0.0] * len(weights), [0.0] * len(weights)
    for stage, above in enumerate(graph.predecessors):
        before[stage] = max((before[one] + weights[one] for one in above), default=0.0)
    for stage in reversed(range(len(weights))):
        behind[stage] = max((behind[one] + weights[one] for one in graph.successors[stage]), default=0.0)
    return [weight / (before[n] + weight + behind[n]) for n, weight in enumerate(weights)]
