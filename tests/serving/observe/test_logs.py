"""Logs are lines of JSON, and logging never waits for a reader."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from typing import TextIO

import pytest

from mark.serving.observe.logs import Aside, JsonLines, say


def test_logging_never_blocks_and_lost_lines_are_reported() -> None:
    """A pipe without a reader is full after some 64 KiB; then it is read."""
    reads, writes = os.pipe()
    with open(reads, "rb") as out, open(writes, "w") as into:
        handler = Aside(into, most_lines=1000)
        handler.FLUSH_S = 0.01
        handler.setFormatter(JsonLines())
        logger = logging.Logger("test")
        logger.addHandler(handler)
        for number in range(5000):
            logger.warning("line %d %s", number, "x" * 500)
        handler.flush()
        assert handler.lost > 3000
        written, lost = 0, 0
        while written + lost < 5000:
            message = json.loads(out.readline())["message"]
            if message.endswith(" lines were lost"):
                lost += int(message.split()[0])
            else:
                written += 1
        assert lost == handler.lost


def test_a_log_call_that_fails_to_format_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    with open(os.devnull, "w") as into:
        handler = Aside(into)
        logger = logging.Logger("test")
        logger.addHandler(handler)
        logger.warning("%d items", "many")
        handler.flush()
    assert "Logging error" in capsys.readouterr().err


def test_a_line_says_all_that_was_given(capfd: pytest.CaptureFixture[str]) -> None:
    """The line has level, logger, message, extras, and the exception."""
    record = logging.LogRecord("mark.x", logging.ERROR, "f", 1, "%s failed", ("it",), None)
    record.request_id = "r-1"
    line = json.loads(JsonLines().format(record))
    assert {key: line[key] for key in ("level", "logger", "message", "request_id")} == {
        "level": "error", "logger": "mark.x", "message": "it failed", "request_id": "r-1",
    }  # fmt: skip


def full() -> TextIO:
    return open("/dev/full", "w")


def closed_pipe() -> TextIO:
    reads, writes = os.pipe()
    os.close(reads)
    return open(writes, "w")


@pytest.mark.parametrize("stream", [full, closed_pipe])
def test_standard_error_that_takes_nothing_ends_nothing(stream: Callable[[], TextIO]) -> None:
    """The disk may be full, or the reader gone."""
    went_on = False
    with suppress(OSError), stream() as out, redirect_stderr(out):  # closing it fails, too
        say("it is ready")
        say("and serves on")
        went_on = True
    assert went_on
