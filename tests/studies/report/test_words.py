"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.studies.report.words import dollars, duration, number, per_month, percent, usd, usd_apart


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


@pytest.mark.parametrize(
    ("amount", "shown"), [(-3.2, "-$3.20"), (-0.05, "-$0.050"), (-1e-9, "$0.00"), (-123_456.7, "-$123,457")]
)
def test_the_minus_stands_before_the_dollar_sign(amount: float, shown: str) -> None:
    assert usd(amount) == shown


def test_no_zero_has_a_minus() -> None:
    assert [percent(-1e-5), number(-1e-3), dollars(-1e-9)] == ["0.0 %", "0.00", "$0.00"]
    assert dollars(-812.4) == "-$812"


def test_a_difference_is_that_of_the_shown_amounts() -> None:
    assert usd_apart(144.49, 98.6, dollars) == "$45"
    assert usd_apart(26.634, 24.296) == "$2.33"
    assert usd_apart(1217.0, 812_345.0, dollars) == "-$811,128"


def test_a_month_has_730_hours() -> None:
    assert per_month(1.0, 3600.0) == 730.0
    assert per_month(1.0, 0.0) is None


@pytest.mark.parametrize(
    ("seconds", "shown"), [(45.0, "45 s"), (600.0, "10 min"), (86400.0, "24 h"), (7 * 86400.0, "7 days")]
)
def test_durations_take_the_unit_that_reads_naturally(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
