"""A pipe is read like a file, and an endless or silent pipe is refused."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces.pipes import PipeLimits, from_pipe
from mark.traffic.traces.reader import open_trace
from tests.traffic.traces.files import alb_line

LOG = "".join(alb_line(k / 10.0) for k in range(3000)).encode()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def fed(fifo: Path, data: bytes) -> threading.Thread:
    def feed() -> None:
        with fifo.open("wb") as file, suppress(BrokenPipeError):
            file.write(data)

    thread = threading.Thread(target=feed)
    thread.start()
    return thread


@pytest.mark.parametrize("data", [LOG, gzip.compress(LOG), b"time,requests\n" + b"".join(
    b"2026-05-01T10:%02d:00Z,50\n" % minute for minute in range(60)
)])  # fmt: skip
def test_a_fifo_is_read_like_a_file(fifo: Path, data: bytes) -> None:
    feeder = fed(fifo, data)
    trace = open_trace(str(fifo))
    feeder.join()
    assert trace.total_counts(0.0, trace.duration_s) == 3000.0
    assert trace.name == "fifo"


def test_errors_and_notes_name_the_pipe(fifo: Path) -> None:
    feeder = fed(fifo, LOG + b"cut")
    trace = open_trace(str(fifo))
    feeder.join()
    assert any("the first at fifo line 3001: cut" in note for note in trace.notes)
    feeder = fed(fifo, b"time,requests\nsoon,1\nlater,2\n")
    with pytest.raises(BadInput) as refused:
        open_trace(str(fifo))
    feeder.join()
    assert refused.value.where.startswith(str(fifo))


def test_binary_data_through_a_pipe_is_refused_before_its_end(fifo: Path) -> None:
    feeder = fed(fifo, bytes(range(256)) * 100_000)
    with pytest.raises(BadInput, match="binary data, not text"):
        open_trace(str(fifo))
    feeder.join()


def test_endless_nul_bytes_are_refused(fifo: Path) -> None:
    feeder = fed(fifo, bytes(80 << 20))
    with pytest.raises(BadInput, match="nothing but NUL bytes"):
        open_trace(str(fifo))
    feeder.join()


def test_an_endless_pipe_is_refused(fifo: Path) -> None:
    feeder = fed(fifo, b"y\n" * (4 << 20))
    with pytest.raises(BadInput, match=r"no access log, and more comes through this pipe than may be held in memory"):
        from_pipe(str(fifo), PipeLimits(most_held_bytes=4 << 20))
    feeder.join()
    feeder = fed(fifo, LOG * 10)
    with pytest.raises(
        BadInput, match=r"more comes through this pipe .*; name the files instead: more than 0.00\d+ GB"
    ):
        from_pipe(str(fifo), PipeLimits(lambda _: True, most_bytes=4 << 20, most_held_bytes=1 << 20))
    feeder.join()


def test_a_silent_pipe_is_refused(fifo: Path) -> None:
    with pytest.raises(BadInput, match=r"fifo: nothing came through this pipe for 0.05 s"):
        from_pipe(str(fifo), PipeLimits(patience_s=0.05))


def test_what_is_no_pipe_is_left_to_others(tmp_path: Path) -> None:
    assert from_pipe(str(tmp_path), PipeLimits()) is None
    assert from_pipe(str(tmp_path / "missing"), PipeLimits()) is None
    assert from_pipe("a\0b", PipeLimits()) is None


READ_TWICE = """
import sys, tempfile
from pathlib import Path
from mark.traffic.traces.reader import open_trace
first, second = open_trace(sys.argv[1]), open_trace(sys.argv[1])
assert (first.rows, first.name) == (second.rows, "standard input") == (3000, "standard input")
print(*Path(tempfile.gettempdir()).glob("mark-*"))
"""


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_read_once_and_its_copy_is_removed(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", READ_TWICE, name]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, input=LOG, capture_output=True, check=True, env=environment)
    assert str(tmp_path) in done.stdout.decode()
    assert not list(tmp_path.glob("mark-*"))


def test_standard_input_that_is_no_pipe_is_refused() -> None:
    code = "from mark.traffic.traces.reader import open_trace\nopen_trace('-')"
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True)
    assert b"standard input is no pipe and no file" in done.stderr
