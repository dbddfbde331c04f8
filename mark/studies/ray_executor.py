"""The runs of a study on a Ray cluster, on many machines or on this one. Ray comes with the extra `ray`."""

from __future__ import annotations

import io
import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from mark.domain.errors import BadInput, MarkError
from mark.domain.version import VERSION
from mark.studies.executor import Share, StudyExecutor, no_interrupt, portable

T = TypeVar("T")
R = TypeVar("R")
OBJECT_STORE_BYTES = 256 * 2**20  # of a cluster started here; results that do not fit go to disk
CONNECT_S = 10.0  # Ray itself tries for many minutes if nothing answers
_LOST = "Ray lost a run (out of memory, perhaps: fewer at a time need less)"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
_LOCAL = "local"  # Ray's address of a cluster that it must start first


@dataclass(frozen=True, slots=True)
class RayExecutor:
    """Runs each task on one CPU of the cluster that RAY_ADDRESS names, or of a cluster started and ended here.

    A cluster started here has `cpus`. On any cluster at most `jobs` tasks run at a time (None: one for each CPU). Every
    node needs this release of mark, Python and Ray, and the files that tasks name, under the same names, because only
    tasks and results are sent. No task is retried.

    Raises BadInput if Ray is not installed or the cluster cannot be joined. Raises MarkError if Ray does not start, is
    already in use by this process, or loses a task: its process was killed, its node left or has another release.
    """

    cpus: int
    jobs: int | None = None

    def __post_init__(self) -> None:
        _ray()

    @property
    def workers(self) -> int:
        return self.jobs or self.cpus

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        if not tasks:
            return []
        ray = _ray()
        results: dict[int, R] = {}
        places: dict[Any, int] = {}  # of the tasks that were submitted and have not ended
        waiting = iter(enumerate(tasks))
        # No task is cancelled separately, because Ray aborts this process if a task ends at that moment. All end with
        # the connection.
        with _cluster(ray, min(self.cpus, len(tasks))):
            remote = ray.remote(num_cpus=1, max_retries=0)(_outcome)
            while len(results) < len(tasks):
                for place, task in islice(waiting, (self.jobs or len(tasks)) - len(places)):
                    places[remote.remote(work, task, VERSION, os.getcwd())] = place
                (ended, *_), _ = ray.wait(list(places))
                try:
                    result, error, where = ray.get(ended)
                except ray.exceptions.RayError as lost:
                    raise MarkError(f"{_LOST}: {_first_line(getattr(lost, 'cause', None) or lost)}") from lost
                if error is not None:
                    raise error from RuntimeError(where)
                results[places.pop(ended)] = result
                if progress is not None:
                    progress(len(results) / len(tasks))
        return [results[place] for place in range(len(tasks))]


_RAY: type[StudyExecutor] = RayExecutor


def _ray() -> Any:
    try:
        import ray  # an extra, which takes half a second to import
    except ModuleNotFoundError:
        raise BadInput("needs ray (pip install 'mark-serving[ray]')", "executor", "ray") from None
    return ray


@contextmanager
def _cluster(ray: Any, cpus: int) -> Iterator[None]:
    """Connect to a cluster, and disconnect afterwards; a cluster that was started here is ended."""
    if ray.is_initialized():
        raise MarkError("this process is connected to Ray already, and would be disconnected")
    address = os.environ.get("RAY_ADDRESS") or _LOCAL
    with ExitStack() as ending:
        ending.enter_context(redirect_stdout(io.StringIO()))  # Ray prints errors here at every log level
        if address == _LOCAL:
            folder = ending.enter_context(TemporaryDirectory(prefix="ray-", dir=os.environ.get("RAY_TMPDIR")))
            ending.callback(ray.shutdown, wait_for_processes=True)
            _start(ray, cpus, folder)
        else:
            ending.callback(ray.shutdown)
            _join(ray, address)
        yield


def _start(ray: Any, cpus: int, folder: str) -> None:
    """Start a cluster with sockets, logs and spilled objects in `folder`. Raises MarkError."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        with no_interrupt():  # takes seconds, and a half-started cluster would stay alive
            ray.init(
                _LOCAL,
                num_cpus=cpus,
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                _temp_dir=folder,
                **_QUIET,
            )
    except Exception as error:  # Ray raises errors of many types
        raise MarkError(f"Ray does not start here: {_first_line(error)}") from error


def _join(ray: Any, address: str) -> None:
    """Join the cluster. Raises BadInput."""
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        ray.init(address, **_QUIET)
    except Exception as error:
        raise BadInput(f"no Ray cluster can be joined ({_first_line(error)})", "RAY_ADDRESS", address) from error


def _outcome(
    work: Callable[[T, Share | None], R], task: T, version: str, folder: str
) -> tuple[R | None, Exception | None, str]:
    """Return, on a node, the result, or the error and its traceback. So `ray.get` raises only Ray's own errors."""
    if version != VERSION:
        return None, MarkError(f"Ray's node {socket.gethostname()} has mark {VERSION}, this machine {version}"), ""
    with suppress(OSError):  # the node needs the folder only if a file is named relative to it
        os.chdir(folder)
    try:
        return portable(work, task), None, ""
    except Exception as error:
        return None, error, traceback.format_exc()


def _first_line(error: BaseException) -> str:
    """Return the first line of an error; Ray's have many."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
