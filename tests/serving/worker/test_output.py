"""The output of models: passed on whole, or bounded with a note about it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mark.serving.worker.output import PrintedOutput


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    return tmp_path / "printed"


def output(printed: Path, **limits: float) -> PrintedOutput:
    to = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return PrintedOutput(to, **limits)  # type: ignore[arg-type]


def test_output_is_passed_on_byte_by_byte(printed: Path) -> None:
    made = output(printed, bytes_per_s=0.0, burst_bytes=1 << 20)
    said = bytes(range(256)) * 1000
    os.write(made.fd, said[:1])
    for at in range(1, len(said), 5000):
        os.write(made.fd, said[at : at + 5000])
    made.close()
    assert printed.read_bytes() == said


def test_output_beyond_the_burst_is_left_out_and_counted(printed: Path) -> None:
    made = output(printed, bytes_per_s=0.0, burst_bytes=100_000)
    for _ in range(100):
        os.write(made.fd, b"x" * 10_000)
    made.close()
    text = printed.read_bytes()
    kept = text.count(b"x")
    told = re.findall(rb"\nmark: (\d+) bytes that a model printed were left out: it prints too much\n", text)
    assert 30_000 <= kept <= 100_000
    assert text.endswith(b"it prints too much\n")
    assert sum(map(int, told)) == 1_000_000 - kept  # how many notices depends on how the pipe is read


def test_output_goes_on_after_a_flood(printed: Path) -> None:
    """The number of omitted bytes is printed before the next output."""
    now_s = [0.0]
    made = PrintedOutput(
        os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        bytes_per_s=1000.0, burst_bytes=100_000, now=lambda: now_s[0],
    )  # fmt: skip
    for _ in range(100):
        os.write(made.fd, b"x" * 10_000)
    while b"left out" not in printed.read_bytes():  # a second of quiet
        pass
    now_s[0] = 1000.0
    os.write(made.fd, b"after it\n")
    made.close()
    assert printed.read_bytes().endswith(b"it prints too much\nafter it\n")


def test_output_without_a_reader_is_lost() -> None:
    read, write = os.pipe()
    os.close(read)
    made = PrintedOutput(write)
    os.write(made.fd, b"x" * 100_000)
    made.close()
