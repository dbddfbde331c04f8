"""Executors for the runs of a study: in this process, or in several. To run elsewhere, add a class here.

Runs share nothing, so they need not wait for each other, and the result does not depend on the executor.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from mark.domain.errors import MarkError

T = TypeVar("T")
R = TypeVar("R")
Share = Callable[[float], None]
"""Takes the share that is done, from 0 to 1."""


class StudyExecutor(Protocol):
    """Executes the runs of a study."""

    @property
    def workers(self) -> int:
        """About the number of tasks that run at a time."""
        ...

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        """Return `work` of every task in the order of the tasks, not of their ends.

        `work` may run elsewhere, so it is a function of a module, and its arguments and result can be pickled. If it is
        given a `Share`, it may report the finished share of its task. Raises the first error of a task that is known;
        after that, as after an interrupt, no task continues. A repeated call is safe if repeating `work` is.
        """
        ...


@dataclass(frozen=True, slots=True)
class HereExecutor:
    """Runs one task after the other, in this process."""

    workers: ClassVar[int] = 1

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        return [work(task, part_of(progress, place, len(tasks))) for place, task in enumerate(tasks)]


class _Pool(NamedTuple):
    processes: ProcessPoolExecutor
    others: set[BaseProcess]  # other children of this process
    shares: SimpleQueue[tuple[int, float]]  # the finished share of a task, by its place


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ProcessExecutor:
    """Runs tasks in at most `workers` local processes. A script that uses it needs the usual `__main__` guard.

    The processes stay for the next call of `map`, because starting one takes two seconds; they end with the executor.
    Raises MarkError if a process ends without an answer: it was killed, mostly for lack of memory.
    """

    workers: int
    _idle: list[_Pool] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, _shut_down, self._idle)

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        if min(self.workers, len(tasks)) <= 1:
            return HereExecutor().map(work, tasks, progress)
        pool = self._idle.pop() if self._idle else self._pool()
        results: dict[int, R] = {}
        shares = [0.0] * len(tasks)
        try:
            # Starting the longest task first would balance best, but durations are not known beforehand.
            with no_interrupt():
                places = {pool.processes.submit(_telling, work, task, place): place for place, task in enumerate(tasks)}
            waiting = set(places)
            while waiting:
                ended, waiting = wait(waiting, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                while not pool.shares.empty():
                    place, share = pool.shares.get()
                    shares[place] = share
                for future in ended:
                    results[places[future]] = future.result()
                    shares[places[future]] = 1.0
                if progress is not None:
                    progress(sum(shares) / len(tasks))
        except BaseException as error:
            # Ctrl-C on a terminal reaches the children too; a signal to this process alone, or an error of a task, does
            # not.
            for child in set(multiprocessing.active_children()) - pool.others:
                child.terminate()
            pool.processes.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise MarkError(_LOST) from error
            raise
        self._idle.append(pool)
        return [results[place] for place in range(len(tasks))]

    def _pool(self) -> _Pool:
        """Return a new pool, which starts processes as it needs them."""
        # Spawned, because forking a process that has threads (a progress bar's) may hang.
        context = multiprocessing.get_context("spawn")
        others = set(multiprocessing.active_children())
        shares: SimpleQueue[tuple[int, float]] = context.SimpleQueue()
        return _Pool(ProcessPoolExecutor(self.workers, context, _begin, (shares,)), others, shares)


def _shut_down(idle: list[_Pool]) -> None:
    """Wait until the processes have ended: a pool that ends by itself may still do so while Python exits, and fails."""
    for pool in idle:
        pool.processes.shutdown()


HERE: StudyExecutor = HereExecutor()
_PROCESSES: type[StudyExecutor] = ProcessExecutor
_LOST = "a process that simulated ended without an answer (out of memory, perhaps): fewer at a time need less"


def executor_for(workers: int) -> StudyExecutor:
    """Return an executor with that many processes; one worker needs no other process."""
    return HereExecutor() if workers <= 1 else ProcessExecutor(workers)


def part_of(progress: Share | None, place: int, tasks: int) -> Share | None:
    """Return a `Share` for one of several tasks that are done one after the other."""
    return None if progress is None else (lambda share: progress((place + share) / tasks))


def portable(work: Callable[[T, Share | None], R], task: T, progress: Share | None = None) -> R:
    """Return the result of `work` or raise its error; an error that cannot be pickled becomes a RuntimeError."""
    try:
        return work(task, progress)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise


def _telling(work: Callable[[T, Share | None], R], task: T, place: int) -> R:
    """Do `portable` in a worker, and tell the parent each further hundredth that is done of the task."""
    told = 0.0

    def tell(share: float) -> None:
        nonlocal told
        if share >= told + 0.01:
            told = share
            _SHARES[0].put((place, share))

    return portable(work, task, tell)


@contextmanager
def no_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until the processes are started.

    Otherwise an interrupted start would end with the traceback of an unnamed process. The processes inherit the blocked
    signal; `_begin` unblocks it, and Ctrl-C then ends them silently.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    own = signal.getsignal(signal.SIGINT)
    if callable(own):  # otherwise it is ignored, or ends this process immediately
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))  # other threads still receive it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if callable(own):
            signal.signal(signal.SIGINT, own)
    if came:
        signal.raise_signal(signal.SIGINT)


_SHARES: list[SimpleQueue[tuple[int, float]]] = []  # the pool's, in a worker only
_LOOK_S = 0.25


def _begin(shares: SimpleQueue[tuple[int, float]]) -> None:
    """Prepare a worker: Ctrl-C ends it silently, because the parent reports, and it ends with its parent.

    Without that it would wait forever for tasks, because it holds both ends of the pipe that they come through.
    """
    _SHARES.append(shares)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
