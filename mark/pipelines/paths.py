"""What the stages of a query take one after the other: at least, where nothing waits, and as simulated."""

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
    return np.asarray(end_s[:, _last(pipeline)].max(axis=1), dtype=np.float64)


def critical_path_s(
    pipeline: Pipeline, ready_s: NDArray[np.float64], answer_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each stage adds to each query's latency along its critical path, shape (queries, stages).

    Given are, of the same shape, when a stage could be called and when it was done with the query. The path is followed
    from the last answer back to the arrival, at each stage to the answer that it went on with; time that a join waited
    beyond that is the stage's own. So a query's row sums to its latency, and stages beside the path have 0.
    """
    queries = np.arange(len(ready_s))
    path_s = np.zeros(ready_s.shape)
    last = np.array(_last(pipeline))
    here = last[answer_s[:, last].argmax(axis=1)]  # the stage of the path that each query is followed to
    until_s = answer_s[queries, here]
    for stage in reversed(range(len(pipeline.stages))):
        followed = np.flatnonzero(here == stage)
        before = np.array(pipeline.predecessors[stage], dtype=np.int64)
        since_s = ready_s[followed, stage]
        if len(before):
            answers = answer_s[np.ix_(followed, before)]
            # What a join did not wait for comes later; the tolerance is for sums in another order.
            answers = np.where(answers <= since_s[:, None] + 1e-9, answers, -np.inf)
            here[followed] = before[answers.argmax(axis=1)]
            since_s = answers.max(axis=1)
        path_s[followed, stage] = until_s[followed] - since_s
        until_s[followed] = since_s
    return path_s


def _last(pipeline: Pipeline) -> list[int]:
    """Stages that none comes after."""
    later = {stage for before in pipeline.predecessors for stage in before}
    return [stage for stage in range(len(pipeline.stages)) if stage not in later]
