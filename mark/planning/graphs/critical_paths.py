"""The time that the stages of a query take one after the other: the least, if nothing waits, and as simulated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.pipeline import Pipeline


def longest_path_s(pipeline: Pipeline, service_s: Sequence[float]) -> float:
    """Return the latency of a query that visits each stage for `service_s` (critical path; InferLine, section 4.3)."""
    return float(pattern_path_s(pipeline, np.ones((1, len(service_s)), dtype=np.int64), service_s)[0])


def pattern_path_s(pipeline: Pipeline, calls: NDArray[np.int64], service_s: Sequence[float]) -> NDArray[np.float64]:
    """Return the least latency of queries by their calls of each stage, shape (patterns,); `calls` is (patterns,
    stages).

    A query may go on before all its predecessors answer only where a join says so: at the first answer, or a time after
    it. How long joins wait depends on all the times, so this is the rule of the kernel for a query alone.
    """
    _, end_s = _times_s(pipeline, calls, service_s)
    return _latest_s(pipeline, end_s)


def call_windows_s(
    pipeline: Pipeline, calls: NDArray[np.int64], service_s: Sequence[float], rt_max_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the earliest call and the latest answer of each stage in a query that is answered within `rt_max_s`.

    Both are (patterns, stages), in seconds from the query's arrival: no call is made before the first, and no answer
    that the query needs comes after the second. `service_s` is the least time that a call of each stage may take. The
    second is infinite where the query could be in time without an answer of the stage, because a join goes on without
    it or because the stage is not called; and where the query cannot be in time at all.
    """
    ready_s, end_s = _times_s(pipeline, calls, service_s)
    in_time = _latest_s(pipeline, end_s) <= rt_max_s
    until_s = np.full(calls.shape, np.inf)
    for stage in range(calls.shape[1]):
        called = np.flatnonzero((calls[:, stage] > 0) & in_time)
        never_s = np.full(len(called), np.inf)
        needed = called[_end_with_s(pipeline, calls[called], service_s, stage, never_s) > rt_max_s]
        # A later answer delays the query by at most the same time, so the answer is too late by at least as much as the
        # query. Each round moves it earlier by that much, so it never falls below the latest time that is early enough.
        answer_s = np.full(len(needed), rt_max_s)
        for _ in range(2 + len(service_s)):
            late_s = _end_with_s(pipeline, calls[needed], service_s, stage, answer_s) - rt_max_s
            answer_s -= np.maximum(late_s, 0.0)
        until_s[needed, stage] = answer_s
    return ready_s, until_s


def _end_with_s(
    pipeline: Pipeline,
    calls: NDArray[np.int64],
    service_s: Sequence[float],
    stage: int,
    answer_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the end of queries whose calls of `stage` are answered at `answer_s`, (patterns,), if nothing waits."""
    _, end_s = _times_s(pipeline, calls, service_s, (stage, answer_s))
    return _latest_s(pipeline, end_s)


def _times_s(
    pipeline: Pipeline,
    calls: NDArray[np.int64],
    service_s: Sequence[float],
    answered: tuple[int, NDArray[np.float64]] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the time when each stage can be called, and when it is done with the query; both (patterns, stages).

    `answered` is a stage and the times of its answers, (patterns,), which replace its service time.
    """
    ready_s, end_s = np.zeros(calls.shape), np.zeros(calls.shape)
    for stage, before in enumerate(pipeline.predecessors):
        if before:
            earlier, visited = end_s[:, before], calls[:, before] > 0
            ready_s[:, stage] = earlier.max(axis=1)
            join = pipeline.stages[stage].join
            if np.isfinite(join.deadline_s):
                answers = np.sort(np.where(visited, earlier, np.inf), axis=1)
                if join.least <= answers.shape[1]:
                    goes_on_s = answers[:, join.least - 1] + join.deadline_s
                    ready_s[:, stage] = np.minimum(ready_s[:, stage], goes_on_s)
        called = calls[:, stage] > 0
        if answered is not None and answered[0] == stage:
            end_s[:, stage] = np.where(called, answered[1], ready_s[:, stage])
        else:
            end_s[:, stage] = ready_s[:, stage] + np.where(called, service_s[stage], 0.0)
    return ready_s, end_s


def _latest_s(pipeline: Pipeline, end_s: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(end_s[:, pipeline.last].max(axis=1), dtype=np.float64)


def critical_path_s(
    pipeline: Pipeline, ready_s: NDArray[np.float64], answer_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the time that each stage adds to each query's latency along its critical path, shape (queries, stages).

    `ready_s` and `answer_s`, of the same shape, are when a stage could be called and when it was done with the query.
    The path is followed from the last answer back to the arrival, at each stage to the answer that it went on with;
    time that a join waited beyond that is the stage's own. So a query's row sums to its latency, and stages beside the
    path have 0.
    """
    queries = np.arange(len(ready_s))
    path_s = np.zeros(ready_s.shape)
    last = np.array(pipeline.last)
    here = last[answer_s[:, last].argmax(axis=1)]  # the stage that each query's path has been followed back to
    until_s = answer_s[queries, here]
    for stage in reversed(range(len(pipeline.stages))):
        followed = np.flatnonzero(here == stage)
        before = np.array(pipeline.predecessors[stage], dtype=np.int64)
        since_s = ready_s[followed, stage]
        if len(before):
            answers = answer_s[np.ix_(followed, before)]
            # Answers that a join did not wait for come later; the tolerance is for sums in another order.
            answers = np.where(answers <= since_s[:, None] + 1e-9, answers, -np.inf)
            here[followed] = before[answers.argmax(axis=1)]
            since_s = answers.max(axis=1)
        path_s[followed, stage] = until_s[followed] - since_s
        until_s[followed] = since_s
    return path_s
