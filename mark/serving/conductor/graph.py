"""Times on a graph: the least time that a query still needs, and each stage's part of RT_max."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.pipeline import Pipeline, needed_s


class StageGraph:
    """A pipeline's graph as a conductor needs it, with stages by position."""

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
        """Return for each stage the least time from its call to the query's answer, from the stages' least times
        `least_s`.
        """
        if least_s != self._least_s:
            self._least_s, self._needed_s = least_s, needed_s(least_s, self.successors, self._awaits_all)
        return self._needed_s

    def query_s(self, least_s: tuple[float, ...]) -> float:
        """Return the least time from a query to its answer, from the stages' least times `least_s`."""
        needed_s = self.needed_s(least_s)
        bound = [needed_s[stage] for stage in self.sources if self._awaited[stage]]
        return max(bound) if bound else min(needed_s[stage] for stage in self.sources)


def parts(weights: Sequence[float], graph: StageGraph | None) -> list[float]:
    """Return each stage's part of RT_max, 0 to 1: its weight divided by that of the heaviest path through it.

    Without a graph a driver decides, and all stages may run one after the other.
    """
    if graph is None:
        return [weight / sum(weights) for weight in weights]
    before, behind = [0.0] * len(weights), [0.0] * len(weights)
    for stage, above in enumerate(graph.predecessors):
        before[stage] = max((before[one] + weights[one] for one in above), default=0.0)
    for stage in reversed(range(len(weights))):
        behind[stage] = max((behind[one] + weights[one] for one in graph.successors[stage]), default=0.0)
    return [weight / (before[n] + weight + behind[n]) for n, weight in enumerate(weights)]
