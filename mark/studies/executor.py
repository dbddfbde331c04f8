"""Where the runs of a study are carried out: in this process, or on several. Another place is one more class here.

Runs share nothing, so they need not wait for each other, and what comes out does not depend on where it was made.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mark.domain.errors import MarkError

T = TypeVar("T")
R = TypeVar("R")
Share = Callable[[float], None]
"""Takes the share that is done, from 0 to 1."""


class StudyExecutor(Protocol):
    """Carries out the runs of a study."""

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        """`work` of every task, in their order, whatever the order in which they end.

        `work` may be carried out elsewhere: it is a function of a module, and what it takes and gives can be pickled.
        It may report the share of its task that is done, where it is given a `Share`. Raises what a task
        raised, the first that is known; then, as when interrupted, no task goes on. Repeating it is safe where
        repeating `work` is.
        """
        ...


@dataclass(frozen=True, slots=True)
class HereExecutor:
    """One task after the other, in this process."""

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        return [work(task, _part_of(progress, place, len(tasks))) for place, task in enumerate(tasks)]


@dataclass(frozen=True, slots=True)
class ProcessExecutor:
    """On at most `workers` processes of this machine (a script that uses it needs the usual `__main__` guard).

    Raises MarkError where a process ends without an answer: killed, mostly for want of memory.
    """

    workers: int

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        workers = min(self.workers, len(tasks))
        if workers <= 1:
            return HereExecutor().map(work, tasks, progress)
        # Spawned, because forking a process that has threads (a progress bar's) may hang.
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
        results: dict[int, R] = {}
        try:
            # The longest first would balance best, but which one that is is not known beforehand.
            with no_interrupt():
                places = {pool.submit(portable, work, task): place for place, task in enumerate(tasks)}
            for future in as_completed(places):
                results[places[future]] = future.result()
                if progress is not None:
                    progress(len(results) / len(tasks))
        except BaseException as error:
            # Ctrl-C on a terminal reaches them too; a signal to this process alone, or another's error, does not.
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            if isinstance(error, BrokenProcessPool):
                raise MarkError(_LOST) from error
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return [results[place] for place in range(len(tasks))]


HERE: StudyExecutor = HereExecutor()
_PROCESSES: type[StudyExecutor] = ProcessExecutor
_LOST = "a process that simulated ended without an answer (out of memory, perhaps): fewer at a time need less"


def executor_for(workers: int) -> StudyExecutor:
    """Processes, or none but this one where one is all there may be."""
    return HereExecutor() if workers <= 1 else ProcessExecutor(workers)


def _part_of(progress: Share | None, place: int, tasks: int) -> Share | None:
    return None if progress is None else (lambda share: progress((place + share) / tasks))


def portable(work: Callable[[T, Share | None], R], task: T) -> R:
    """What `work` gives or raises; an error that would not survive the way back becomes its name and its words."""
    try:
        return work(task, None)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise


@contextmanager
def no_interrupt() -> Iterator[None]:
    """Ctrl-C waits until the processes are started: half a start ends with the traceback of a process that has no name.

    They inherit that they do not hear it, and hear it again once it ends them without a word.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    own = signal.getsignal(signal.SIGINT)
    if callable(own):  # else it is ignored, or ends this process at once
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))  # other threads hear it still
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if callable(own):
            signal.signal(signal.SIGINT, own)
    if came:
        signal.raise_signal(signal.SIGINT)


def _begin() -> None:
    """Ctrl-C ends a worker without a word; the parent says what there is to say. It ends with its parent, whatever
    ended that: it would wait for ever for tasks, as it has both ends of the pipe that they come by."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
