"""How long the stages of a query take one after the other, where nothing waits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.pipeline import Pipeline


def longest_path_s(pipeline: Pipeline, service_s: Sequence[float]) -> float:
    """Of a query that visits every stage, each for `service_s`: the critical path (InferLine, section 4.3)."""
    return float(pattern_path_s(pipeline, np.ones((1, len(service_s)), dtype=np.int64), service_s)[0])


def pattern_path_s(pipeline: Pipeline, calls: NDArray[np.int64], service_s: Sequence[float]) -> NDArray[np.float64]:
    """The least latency of queries that call stages so, shape (patterns,); `calls` is (patterns, stages).

    A query may go on earlier than all its predecessors answer only where a join says so: by the first answer, or a time
    after it. What joins wait for depends on all of the times, so this is the rule of the kernel for a query alone.
    """
    end_s = np.zeros(calls.shape)
    for stage, before in enumerate(pipeline.predecessors):
        ready_s = np.zeros(len(calls))
        if before:
            earlier, visited = end_s[:, before], calls[:, before] > 0
            ready_s = earlier.max(axis=1)
            join = pipeline.stages[stage].join
            if np.isfinite(join.deadline_s):
                answers = np.sort(np.where(visited, earlier, np.inf), axis=1)
                if join.least <= answers.shape[1]:
                    ready_s = np.minimum(ready_s, answers[:, join.least - 1] + join.deadline_s)
        end_s[:, stage] = ready_s + np.where(calls[:, stage] > 0, service_s[stage], 0.0)
    later = {stage for before in pipeline.predecessors for stage in before}
    last = [stage for stage in range(len(pipeline.stages)) if stage not in later]
    return np.asarray(end_s[:, last].max(axis=1), dtype=np.float64)
