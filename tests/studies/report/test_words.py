"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.studies.report.words import dollars, duration, per_month, percent, usd


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "-"),
        (0.0, "$0.00"),
        (12.345, "$12.35"),
        (0.0123, "$0.012"),
        (1e-6, "$0.0000010"),
        (6.6e-12, "$0.00"),
        (1234.5, "$1,234.50"),
        (float("nan"), "-"),
    ],
)
def test_dollars_keep_cents_and_tiny_bills_keep_two_digits(amount: float | None, shown: str) -> None:
    assert usd(amount) == shown


@given(st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 3))
def test_a_share_below_one_never_reads_as_all(share: float, digits: int) -> None:
    assert not percent(share, digits).startswith("100")


def test_extrapolations_show_whole_dollars_only() -> None:
    assert dollars(2358.43) == "$2,358"
    assert dollars(9.5) == "$9.50"


def test_a_month_has_730_hours() -> None:
    assert per_month(1.0, 3600.0) == 730.0
    assert per_month(1.0, 0.0) is None


@pytest.mark.parametrize(
    ("seconds", "shown"), [(45.0, "45 s"), (600.0, "10 min"), (86400.0, "24 h"), (7 * 86400.0, "7 days")]
)
def test_durations_take_the_unit_that_reads_naturally(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
