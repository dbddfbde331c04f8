"""Run by an interpreter that has Ray, which the one of the tests has not: a cluster, or tasks on one.

ray_tasks.py cluster   starts one with 2 CPUs, says its address, and ends it when stdin is closed
ray_tasks.py tasks     the outcomes of some tasks on the cluster that RAY_ADDRESS names, as JSON by their names
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from mark.domain.errors import BadInput
from mark.studies.executor import Share
from mark.studies.ray_executor import RayExecutor


class TwoWordsError(Exception):
    """Cannot be unpickled: it wants two words, and pickle gives it its message."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


class NotThere:
    """A task that only nodes with some other module can read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("no_module_of_this_node",)


def squared(task: int, progress: Share | None = None) -> int:
    """Run tasks of which the first ends last."""
    time.sleep(0.3 if task == 1 else 0.0)
    return task * task


def span(task: int, progress: Share | None = None) -> tuple[float, float]:
    """Return when the task began and ended, by the machine's clock."""
    began_s = time.monotonic()
    time.sleep(0.2)
    return began_s, time.monotonic()


def killed(task: int, progress: Share | None = None) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


def refused(task: int, progress: Share | None = None) -> int:
    """Raise for the first task; the other one would take ten minutes."""
    if task == 0:
        raise BadInput("is no number", "t.csv line 3", "x")
    time.sleep(600.0)
    return task


def failed(task: int, progress: Share | None = None) -> int:
    raise TwoWordsError("oh", f"dear {task}")


def ignored(task: object, progress: Share | None = None) -> None:
    return None


def outcome(work: Any, tasks: list[Any], jobs: int | None = None) -> Any:
    shares: list[float] = []
    try:
        return [RayExecutor(2, jobs).map(work, tasks, shares.append), shares]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def cluster() -> None:
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
    ray.shutdown(wait_for_processes=True)


def tasks() -> None:
    found = {
        "squared": outcome(squared, [1, 2, 3]),
        "none": outcome(squared, []),
        "one at a time": outcome(span, [0, 1, 2], jobs=1),
        "killed": outcome(killed, [0, 1]),
        "refused": outcome(refused, [0, 1]),
        "failed": outcome(failed, [7, 7]),
        "not there": outcome(ignored, [NotThere()]),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    {"cluster": cluster, "tasks": tasks}[sys.argv[1]]()
