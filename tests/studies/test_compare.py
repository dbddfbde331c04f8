"""Many runs on several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from mark.domain.errors import BadInput
from mark.planning.policies.names import split_policy
from mark.simulation.request import RunRequest
from mark.simulation.stopwatch import MadeForecasts
from mark.studies.attribution import compare_attributed
from mark.studies.compare import _last_trace, compare, map_runs, run_all, run_one
from mark.studies.executor import HERE, ProcessExecutor, Share

T = TypeVar("T")
R = TypeVar("R")

REQUEST = RunRequest(
    trace="synthetic:poisson?rate=20",
    service="inception-v3",
    start_s=1800.0,
    duration_s=300.0,
    policy="mark-paper",
    predictor="seasonal-naive",  # without the imports of `auto`, workers start sooner
)


class Recording:
    """Executes nothing elsewhere, and keeps the tasks."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.tasks: list[Any] = []

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        self.tasks = list(tasks)
        return HERE.map(work, tasks, progress)


def policy_of(request: RunRequest, progress: Share | None, made: MadeForecasts | None) -> str:
    return request.policy


def test_two_processes_give_what_one_gives() -> None:
    """Results come in the order of the requests and do not depend on where they were made."""
    requests = [replace(REQUEST, seed=seed) for seed in range(3)]
    shares: list[float] = []
    alone = run_all(requests)
    spread = run_all(requests, executor=ProcessExecutor(2), progress=shares.append)
    assert [r.as_json() | {"speed": None} for r in alone] == [r.as_json() | {"speed": None} for r in spread]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_runs_with_the_same_forecasts_are_one_task() -> None:
    """They come first, and no worker gets more than its share of them, so that none idles."""
    policies = ("mark", "reactive", "mark-paper", "oracle", "greedy", "mark-paper:artefact")
    requests = [replace(REQUEST, policy=p, predictor=q) for p, q in (split_policy(p, "auto") for p in policies)]
    requests += [replace(requests[0], seed=1), replace(requests[0], foresight=True)]
    for workers, tasks in ((1, [[0, 2, 4], [3], [5], [6], [7], [1]]), (4, [[0, 2], [3], [4], [5], [6], [7], [1]])):
        executor = Recording(workers)
        assert map_runs(policy_of, requests, executor=executor, progress=None) == [r.policy for r in requests]
        assert executor.tasks == [[requests[place] for place in task] for task in tasks]


def test_shared_forecasts_change_no_result() -> None:
    requests = [replace(REQUEST, policy=policy) for policy in ("mark", "mark-paper", "mark")]
    alone = [run_one(request).as_json() | {"speed": None} for request in requests]
    assert [result.as_json() | {"speed": None} for result in run_all(requests)] == alone


def test_comparison_reads_its_trace_once() -> None:
    _last_trace.cache_clear()
    compare(REQUEST, ("mark-paper", "reactive"))
    compare_attributed(REQUEST, ("mark-paper", "reactive"), ())
    info = _last_trace.cache_info()
    assert (info.misses, info.hits) == (1, 2 * (1 + 2) - 1)  # to check the policies, and for every run


@pytest.mark.slow
def test_bad_input_of_a_worker_reaches_the_caller() -> None:
    """An error in another process is the same one line."""
    requests = [REQUEST, replace(REQUEST, trace="synthetic:nonsense")]
    with pytest.raises(BadInput, match="nonsense"):
        run_all(requests, executor=ProcessExecutor(2))


def test_names_are_checked_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="nonsense"):
        compare(REQUEST, ("mark", "nonsense"))
    with pytest.raises(BadInput, match="nonsense"):
        compare(REQUEST, ("mark:nonsense",))
    with pytest.raises(BadInput, match="twice"):
        compare(REQUEST, ("mark", "mark"))


def test_a_policy_name_may_carry_its_predictor() -> None:
    assert split_policy("mark-paper:artefact", "auto") == ("mark-paper", "artefact")
    assert split_policy("mark", "auto") == ("mark", "auto")
    assert split_policy("fixed:c5.xlarge=3", "auto") == ("fixed:c5.xlarge=3", "auto")
