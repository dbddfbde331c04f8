"""Runs on a Ray cluster equal those of this process; Ray is real, in a separate environment, .venv-ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-ray" / "bin" / "python"
TASKS = str(Path(__file__).with_name("ray_tasks.py"))
FRONTIER = ("-m", "mark.cli.main", "frontier")
SERVICE = ("--service", "inception-v3", "--predictor", "seasonal-naive", "--jobs", "2", "--json", "-")
# The trace is named relative to the folder of the command, where no node starts its processes.
SHORT = (*FRONTIER, "traces/diurnal_day_5s.csv.gz", "--duration", "600", "--slo-ms", "450,600", *SERVICE)
LONG = (*FRONTIER, "synthetic:diurnal?rate=200", *SERVICE)
RAY = ("--executor", "ray")
NO_OTHERS: Mapping[str, str] = {}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,  # Ray gives up starting on a machine that is busy for a minute
    pytest.mark.skipif(not PYTHON.is_file(), reason="Ray is not installed: make .venv-ray/.done"),
]


def without_progress(err: str) -> str:
    """Return stderr without the lines of progress, which come after seconds that a machine may need or not."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("simulating"))


@dataclass
class RayHome:
    """A folder for all that Ray writes, its token included, and the processes that were started there."""

    folder: Path
    sessions: list[int]

    def start(self, *argv: str, cwd: Path = ROOT, environment: Mapping[str, str] = NO_OTHERS) -> subprocess.Popen[str]:
        """Start a process with the interpreter that has Ray, in a new session, by which its descendants are known."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own = {"HOME": str(self.folder), "RAY_TMPDIR": str(self.folder), "RAY_AUTH_MODE": "token"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [str(PYTHON), *argv],
            cwd=cwd,
            env={"MARK_CACHE_DIR": str(ROOT / ".kernel")} | kept | own | dict(environment),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
        self.sessions.append(process.pid)
        return process

    def run(self, *argv: str, environment: Mapping[str, str] = NO_OTHERS) -> tuple[int, str, str]:
        process = self.start(*argv, environment=environment)
        out, err = process.communicate(timeout=240)
        return process.returncode, out, without_progress(err)

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError):
                if os.getsid(process.pid) in self.sessions:
                    found.append(process)
        return found

    def at_work(self) -> list[psutil.Process]:
        """Return the processes that run a task now."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                if "ray::_outcome" in " ".join(process.cmdline()):
                    found.append(process)
        return found


@pytest.fixture(scope="module")
def place() -> Iterator[RayHome]:
    """Yield a home directly in the temporary folder: the path of a socket has at most 107 bytes, and Ray takes 80."""
    with tempfile.TemporaryDirectory(prefix="mark-") as folder:
        found = RayHome(Path(folder), [])
        yield found
        for process in found.processes():
            process.kill()


@pytest.fixture(scope="module")
def address(place: RayHome) -> Iterator[str]:
    """Yield the address of a cluster that others started."""
    process = place.start(TASKS, "cluster", cwd=place.folder)
    assert process.stdout is not None
    found = process.stdout.readline().strip()
    assert found, process.communicate()[1]
    yield found
    assert process.poll() is None, "a study has ended a cluster that it did not start"
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def outcomes(place: RayHome, address: str) -> dict[str, Any]:
    code, out, err = place.run(TASKS, "tasks", environment={"RAY_ADDRESS": address})
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture(scope="module")
def expected(place: RayHome) -> str:
    """Return the output of two processes."""
    code, out, err = place.run(*SHORT)
    assert (code, err) == (0, "")
    assert len(json.loads(out)["points"]) == 6
    return out


def test_its_own_cluster_writes_what_processes_write_and_ends(expected: str) -> None:
    """The output is equal byte by byte; no process and no file stays, except Ray's token in the home folder."""
    with tempfile.TemporaryDirectory(prefix="mark-") as folder:
        alone = RayHome(Path(folder), [])
        assert alone.run(*SHORT, *RAY) == (0, expected, "")
        assert psutil.wait_procs(alone.processes(), timeout=10)[1] == []
        assert [path.name for path in Path(folder).iterdir()] == [".ray"]


def test_a_running_cluster_is_joined_and_writes_the_same(place: RayHome, address: str, expected: str) -> None:
    """Its nodes work in another folder; the fixture checks that it survives."""
    assert place.run(*SHORT, *RAY, environment={"RAY_ADDRESS": address}) == (0, expected, "")
    assert place.at_work() == []


def test_answers_come_in_task_order_and_progress_is_told(outcomes: dict[str, Any]) -> None:
    assert outcomes["squared"] == [[1, 4, 9], [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]]
    assert outcomes["none"] == [[], []]


def test_no_more_go_on_at_a_time_than_may(outcomes: dict[str, Any]) -> None:
    spans, _ = outcomes["one at a time"]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_an_error_is_the_same_one_line(outcomes: dict[str, Any]) -> None:
    assert outcomes["refused"] == "BadInput: t.csv line 3: is no number: x"
    assert outcomes["failed"] == "RuntimeError: TwoWordsError: oh dear 7"


def test_a_lost_task_is_one_line(outcomes: dict[str, Any]) -> None:
    for lost, why in (("killed", "died unexpectedly"), ("not there", "No module named 'no_module_of_this_node'")):
        assert outcomes[lost].startswith("MarkError: Ray lost a run (out of memory, perhaps")
        assert why in outcomes[lost]
        assert "\n" not in outcomes[lost]


@pytest.mark.parametrize("joined", [False, True])
def test_interrupted_no_task_goes_on(joined: bool, place: RayHome, request: pytest.FixtureRequest) -> None:
    """The signal reaches the command alone, as from another program; a terminal's reaches its processes too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in processes that a shell runs in the background
    where = {"RAY_ADDRESS": request.getfixturevalue("address")} if joined else {}
    process = place.start(*LONG, *RAY, environment=where)
    deadline_s = time.monotonic() + 120.0
    while len(place.at_work()) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    working = place.at_work()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, without_progress(err)) == ("", "mark: interrupted\n")
    assert process.returncode == 130
    assert psutil.wait_procs(working, timeout=20)[1] == []


@pytest.mark.parametrize(("named", "why"), [("127.0.0.1:1", "refused"), ("nonsense", "Invalid address format")])
def test_where_no_cluster_answers_it_is_one_line(named: str, why: str, place: RayHome) -> None:
    code, out, err = place.run(*SHORT, *RAY, environment={"RAY_ADDRESS": named})
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("mark: error: RAY_ADDRESS: no Ray cluster can be joined (")
    assert why in err
