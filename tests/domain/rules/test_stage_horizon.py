"""The time that a stage of a pipeline has for a call: its planned part, and the time that others left."""

from __future__ import annotations

import pytest

from mark.domain.rules.stage_horizon import stage_horizon_s


@pytest.mark.parametrize(
    ("left_s", "expected_s"),
    [
        (0.3, 0.2),  # the one before took its 0.1
        (0.4, 0.3),  # it took nothing
        (0.25, 0.2),  # it took 0.05 too long: the one behind can do with less than its 0.1
        (0.18, 0.15),  # and here that has only the 0.03 that it needs
        (0.03, 0.0),  # nothing can be in time any more
        (0.01, -0.02),
    ],
)
def test_a_stage_has_its_part_and_what_others_left(left_s: float, expected_s: float) -> None:
    """0.1, 0.2 and 0.1 s are planned, the last stage needs 0.03 s."""
    assert stage_horizon_s(left_s, 0.2, 0.1, 0.03) == pytest.approx(expected_s)
