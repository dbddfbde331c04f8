"""Random files of common tools are read right or refused: never with a wrong number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from tests.traffic.traces.made_traffic import Made, made, made_kind

CLOSE = 0.005


def read(path: Path, file: Made) -> tuple[float, float] | str:
    """Return the number of requests read and the seconds that they cover, or the refusal."""
    path.write_bytes(file.data)
    try:
        trace = open_trace(str(path))
    except BadInput as refused:
        return str(refused)
    return trace.total_counts(0.0, trace.duration_s), trace.duration_s


def outcomes(folder: Path, seeds: range, make: Callable[[int], Made] = made) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"right": [], "refused": [], "wrong": []}
    for seed in seeds:
        file = make(seed)
        got = read(folder / "traffic", file)
        said = f"{seed} {file.tool} ({file.said}): {got}, in it {file.requests} in {file.seconds} s"
        right = (
            not isinstance(got, str)
            and abs(got[0] - file.requests) <= CLOSE * file.requests
            and (file.seconds is None or abs(got[1] - file.seconds) <= CLOSE * file.seconds)
        )
        found["refused" if isinstance(got, str) else "right" if right else "wrong"].append(said)
    return found


def check(found: dict[str, list[str]]) -> None:
    assert found["wrong"] == []
    # Most files have one reading; the others are averages, parts of an answer, several series, unclear dates.
    assert len(found["right"]) >= 0.6 * sum(map(len, found.values()))
    assert all("\n" not in refused for refused in found["refused"])


def test_a_made_file_is_read_right_or_refused(tmp_path: Path) -> None:
    check(outcomes(tmp_path, range(60)))


def test_a_made_kind_of_trouble_is_read_right_or_refused(tmp_path: Path) -> None:
    found = outcomes(tmp_path, range(100), made_kind)
    assert found["wrong"] == []
    assert len(found["right"]) >= 25  # overflows and units; sums, ratings and other numbers are refused


MANY = [pytest.param(100, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.acceptance)]


@pytest.mark.parametrize("files", MANY)
def test_many_made_kinds_of_trouble_are_read_right_or_refused(tmp_path: Path, files: int) -> None:
    assert outcomes(tmp_path, range(1000, 1000 + files), made_kind)["wrong"] == []


@pytest.mark.parametrize("files", MANY)
def test_many_made_files_are_read_right_or_refused(tmp_path: Path, files: int) -> None:
    check(outcomes(tmp_path, range(1000, 1000 + files)))
