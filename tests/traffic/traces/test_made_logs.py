"""Logs made at random are read with exactly their requests, or refused; never with another number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces.reader import open_trace
from tests.traffic.traces.files import arrivals
from tests.traffic.traces.made_logs import made_log

REFUSALS = ("are no requests of its format", "is named as", "no file here is")
TWICE = "came twice there, and no line goes back"


def read_as_made(folder: Path, seed: int, most: int = 400) -> bool:
    """Return whether the log is read, with all requests at their times; otherwise it must be refused for its dirt."""
    folder.mkdir()
    log = made_log(folder, seed, most)
    try:
        trace = open_trace(str(log.path), columns=log.columns)
    except BadInput as error:
        if TWICE in str(error):  # few requests do not tell the hour
            assert "zone None" not in log.what
            return False
        assert any(text in str(error) for text in REFUSALS), (log.what, str(error))  # noqa: PT017
        assert "noise" in log.what or "cut" in log.what or "start-up" in log.what, (log.what, str(error))  # noqa: PT017
        return False
    assert trace.rows == log.requests, (log.what, trace.notes)
    assert trace.began_s is not None
    found, came = arrivals(trace, 0.0, trace.duration_s) + trace.began_s, np.array(log.came)
    if log.step_s == 1.0:  # requests of a second are spread over it
        np.testing.assert_array_equal(np.floor(found + 1e-5), np.floor(came), log.what)
    else:
        np.testing.assert_allclose(found, came, atol=1.01 * log.step_s, rtol=0.0, err_msg=log.what)
    return True


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_made_log_is_read_exactly_or_refused(tmp_path: Path, first: int) -> None:
    read = [read_as_made(tmp_path / str(seed), seed) for seed in range(first, first + 10)]
    assert sum(read) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("logs", [20, pytest.param(300, marks=pytest.mark.acceptance)])
def test_many_longer_logs_are_read_exactly_or_refused(tmp_path: Path, logs: int) -> None:
    seeds = range(1000, 1000 + logs)
    read = [read_as_made(tmp_path / str(seed), seed, most=5000 if seed % 10 == 0 else 1000) for seed in seeds]
    assert sum(read) >= 2 * logs // 3
