"""The place where the runs of a study are executed changes nothing but their duration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from mark.domain.errors import BadInput, MarkError
from mark.studies import executor
from mark.studies.executor import HereExecutor, ProcessExecutor, Share, StudyExecutor, executor_for
from tests.children import new_children

STUDY = """
import os, time
from pathlib import Path
from mark.studies.executor import ProcessExecutor

def work(task, progress=None):
    while task == 0 and not list(Path().glob("*.pid")):
        time.sleep(0.01)
    Path(f"{os.getpid()}.pid").touch()
    time.sleep(600.0 * task)

if __name__ == "__main__":
    ProcessExecutor(2).map(work, [0, 1])
"""


class TwoWordsError(Exception):
    """Cannot be unpickled: it wants two words, and pickle gives it its message."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def squared(task: int, progress: Share | None = None) -> int:
    """Run tasks of which the first ends last."""
    time.sleep(0.3 if task == 1 else 0.0)
    if progress is not None:
        progress(0.5)
        progress(1.0)
    return task * task


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


def interrupting(task: str, progress: Share | None = None) -> None:
    """Interrupt, from a task, only the process that waits for both tasks, after both have begun."""
    Path(task).touch()
    other = Path(task).with_name("b" if Path(task).name == "a" else "a")
    while not other.exists():
        time.sleep(0.01)
    if other.name == "b":
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600.0)


@pytest.mark.parametrize("place", [HereExecutor(), ProcessExecutor(1), ProcessExecutor(2), ProcessExecutor(9)])
def test_answers_come_in_the_order_of_the_tasks(place: StudyExecutor) -> None:
    shares: list[float] = []
    assert place.map(squared, [1, 2, 3], shares.append) == [1, 4, 9]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert place.map(squared, []) == []


def waiting(task: str, progress: Share | None = None) -> None:
    """Tell that half is done, and end when the parent has heard it."""
    assert progress is not None
    progress(0.5)
    while not Path(task).exists():
        time.sleep(0.01)


def test_shares_of_running_tasks_are_told(tmp_path: Path) -> None:
    shares: list[float] = []

    def tell(share: float) -> None:
        shares.append(share)
        if share == 0.5:
            (tmp_path / "heard").touch()

    ProcessExecutor(2).map(waiting, [str(tmp_path / "heard")] * 2, tell)
    assert 0.5 in shares
    assert shares[-1] == 1.0


def process_id(task: int, progress: Share | None = None) -> int:
    return os.getpid()


def test_processes_serve_every_call_and_end_with_the_executor() -> None:
    with new_children() as children:
        executor = ProcessExecutor(2)
        first = {*executor.map(process_id, range(8)), *executor.map(process_id, range(8))}
        assert {child.pid for child in children()} >= first
        assert len(children()) == 2
        del executor
        assert children() == []


def test_one_process_is_this_one() -> None:
    assert executor_for(1) == HereExecutor()
    assert executor_for(2) == ProcessExecutor(2)


def test_an_error_ends_the_other_tasks_and_stays_one_line() -> None:
    with new_children() as children:
        with pytest.raises(BadInput, match=r"^t\.csv line 3: is no number: x$"):
            ProcessExecutor(2).map(refused, [0, 1])
        assert children() == []


def test_an_error_that_does_not_travel_becomes_its_words() -> None:
    with pytest.raises(RuntimeError, match="TwoWordsError: oh dear 7"):
        ProcessExecutor(2).map(failed, [7, 7])


def test_a_process_that_is_killed_is_one_line() -> None:
    with pytest.raises(MarkError, match="ended without an answer"):
        ProcessExecutor(2).map(killed, [0, 1])


def test_interrupted_it_leaves_no_process(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with new_children() as children:
            with pytest.raises(KeyboardInterrupt):
                ProcessExecutor(2).map(interrupting, [str(tmp_path / "a"), str(tmp_path / "b")])
            assert children() == []
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_processes_end_with_it(number: signal.Signals, tmp_path: Path) -> None:
    """One process is in a task of ten minutes, the other waits for its next one."""
    script = tmp_path / "study.py"
    script.write_text(STUDY)
    with subprocess.Popen([sys.executable, str(script)], cwd=tmp_path) as study:
        try:
            while len(list(tmp_path.glob("*.pid"))) < 2:
                assert study.poll() is None
                time.sleep(0.01)
            workers = [psutil.Process(int(path.stem)) for path in tmp_path.glob("*.pid")]
        finally:
            study.send_signal(number)
    assert psutil.wait_procs(workers, timeout=30.0)[1] == []


def test_an_interrupt_while_processes_start_waits_until_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it ends them all; a half-started process would print a traceback."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started: list[object] = []

    class InterruptedPool(ProcessPoolExecutor):
        def submit(self, *args: Any, **keywords: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            started.append(super().submit(*args, **keywords))
            return started[-1]

    monkeypatch.setattr(executor, "ProcessPoolExecutor", InterruptedPool)
    try:
        with new_children() as children:
            with pytest.raises(KeyboardInterrupt):
                ProcessExecutor(2).map(squared, [1, 2, 3])
            assert len(started) == 3
            assert children() == []
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
