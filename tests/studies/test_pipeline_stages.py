"""Stages that controllers buy: the loads for which RT_max is split among them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest
from mark.studies.pipeline_stages import loads_by_hour


@pytest.fixture
def request_(tmp_path: Path) -> RunRequest:
    """Return a trace of 150 minutes, each with one query/s more than the one before; the last but one is unknown."""
    rows = "".join(f"{60 * minute},{60 * (minute + 1)}\n" for minute in range(150) if minute != 148)
    (tmp_path / "t.csv").write_text("t_seconds,count\n" + rows)
    return RunRequest(str(tmp_path / "t.csv"), "inception-v3")


def test_loads_are_those_of_the_last_whole_hours(request_: RunRequest) -> None:
    trace = trace_named_in(request_)
    part = trace.part(0.0, None, 2.0)
    loads_rps = loads_by_hour(trace, part, 2.0)
    assert loads_rps.shape == (2, 60)
    known = np.arange(31.0, 151.0).reshape(2, 60)
    known[1, 58] = part.requests / part.duration_s / 2.0
    assert loads_rps == pytest.approx(2.0 * known)


def test_less_than_an_hour_is_taken_as_one(request_: RunRequest) -> None:
    trace = trace_named_in(request_)
    assert loads_by_hour(trace, trace.part(600.0, 1200.0), 1.0) == pytest.approx(np.arange(11.0, 31.0)[None, :])
