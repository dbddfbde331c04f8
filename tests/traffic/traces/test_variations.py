"""Variations of each kind of fault are read with exactly the requests in them, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from tests.traffic.traces.variations import CASES, REFUSED


@pytest.mark.parametrize("case", CASES)
def test_a_variation_is_read_right_or_refused(tmp_path: Path, case: str) -> None:
    data, wanted = CASES[case]
    path = tmp_path / "traffic"
    if isinstance(data, dict):
        path.mkdir()
    for name, content in data.items() if isinstance(data, dict) else [("", data)]:
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if wanted is None or case in REFUSED:
        with pytest.raises(BadInput) as refused:
            open_trace(str(path))
        assert "\n" not in str(refused.value)
        return
    trace = open_trace(str(path))
    assert trace.total_counts(0.0, trace.duration_s) == pytest.approx(wanted, rel=1e-4)


def test_each_letter_has_three_variations() -> None:
    assert all(sum(case.startswith(letter) for case in CASES) >= 3 for letter in "ABCDEFGHIJKL")
    assert set(CASES) >= REFUSED
