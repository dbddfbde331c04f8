"""The time left for each stage if no call waits for a worker, by the paths of a sample's queries."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.domain.pipeline import Pipeline
from mark.domain.rules.admission import TOLERANCE_S
from mark.domain.slo import Slo
from mark.planning.graphs.critical_paths import pattern_path_s
from mark.planning.graphs.estimate import Choices, QuerySample


class SamplePaths:
    """The stages that the queries of a sample visit together, and their time limit.

    `late_allowed` is the number of queries that may be late.
    """

    def __init__(self, pipeline: Pipeline, sample: QuerySample, slo: Slo) -> None:
        self._pipeline, self._slo = pipeline, slo
        self._patterns, self._queries = np.unique(sample.calls, axis=0, return_counts=True)
        self.late_allowed = math.floor((1.0 - slo.attainment) * len(sample.arrivals_s) + 1e-9)

    def visitors(self, stage: int) -> int:
        """Return how many queries visit the stage."""
        return int(self._queries[self._patterns[:, stage] > 0].sum())

    def fast_enough(self, choices: Choices) -> bool:
        """Return whether enough queries could be in time if nothing waited."""
        path_s = pattern_path_s(self._pipeline, self._patterns, [float(c.option.service_s[1]) for c in choices])
        return int(self._queries[path_s > self._slo.rt_max_s + TOLERANCE_S].sum()) <= self.late_allowed

    def slack_s(self, stage: int, least_s: Sequence[float]) -> float:
        """Return the time left for a visited stage if all others take their least time and nothing waits.

        It is RT_max less the longest path through the stage without the stage's own time, for the queries with the
        shortest such path.
        """
        longest_s = sum(least_s) + self._slo.rt_max_s  # longer than any other path
        times_s = [longest_s if at == stage else time_s for at, time_s in enumerate(least_s)]
        visits = self._patterns[:, stage] > 0
        rest_s = float(pattern_path_s(self._pipeline, self._patterns[visits], times_s).min()) - longest_s
        return self._slo.rt_max_s - max(rest_s, 0.0)
