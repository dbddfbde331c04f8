"""The prices of another RT_max and of a millisecond."""

from __future__ import annotations

import pytest

from mark.domain.price_list import SloPrice, usd_per_hour_per_ms

SHORT, LONG = SloPrice(0.57, 1.30), SloPrice(0.63, 1.00)


def test_a_millisecond_is_the_slope_between_two_promises() -> None:
    assert usd_per_hour_per_ms((SHORT, LONG)) == pytest.approx(0.30 / 60.0)
    assert usd_per_hour_per_ms((SHORT, SloPrice(0.6, 9.0), LONG)) == pytest.approx(0.30 / 60.0)


@pytest.mark.parametrize("known", [(), (SHORT,), (SloPrice(0.57, None), LONG), (SHORT, SloPrice(0.63, None))])
def test_one_promise_has_no_slope(known: tuple[SloPrice, ...]) -> None:
    assert usd_per_hour_per_ms(known) is None


def test_the_difference_is_from_the_own_promise() -> None:
    assert SHORT.as_json(1.25) == {
        "rt_max_ms": pytest.approx(570.0),
        "usd_per_hour": 1.30,
        "difference_usd_per_hour": pytest.approx(0.05),
    }
    assert SloPrice(0.57, None).as_json(1.25)["difference_usd_per_hour"] is None
