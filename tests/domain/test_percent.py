"""Shares as percent."""

from __future__ import annotations

import pytest

from mark.domain.percent import exact_percent, percent


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.99999, 2, "99.99 %"),
        (1.0, 2, "100.00 %"),
        (1.5, 1, "150.0 %"),
        (-0.0, 1, "0.0 %"),
        (-0.25, 0, "-25 %"),
        (None, 1, "-"),
        (float("nan"), 1, "-"),
    ],
)
def test_measured_share_below_one_is_never_rounded_up_to_all(share: float | None, digits: int, text: str) -> None:
    assert percent(share, digits) == text


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.98, 0, "98 %"),
        (0.98, 1, "98.0 %"),
        (0.999, 0, "99.9 %"),
        (0.9995, 1, "99.95 %"),
        (0.99999, 2, "99.999 %"),
        (1.0 - 0.99999, 2, "0.001 %"),
        (0.57, 0, "57 %"),
    ],
)
def test_chosen_share_keeps_all_its_decimals(share: float, digits: int, text: str) -> None:
    assert exact_percent(share, digits) == text
