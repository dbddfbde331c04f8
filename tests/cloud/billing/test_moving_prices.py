"""The cost of an instance while its price moves."""

from __future__ import annotations

import pytest

from mark.cloud.billing.moving_prices import Tariff


def test_every_second_costs_the_price_in_effect() -> None:
    """A change leaves earlier costs as they were."""
    tariff = Tariff(2.0)
    assert tariff(10.0) == 20.0
    assert tariff.change(3.0, 10.0)
    assert [tariff(t_s) for t_s in (5.0, 10.0, 12.0)] == [10.0, 20.0, 26.0]


def test_an_equal_or_older_price_is_no_change() -> None:
    tariff = Tariff(2.0)
    tariff.change(3.0, 10.0)
    assert not tariff.change(3.0, 20.0)
    assert tariff.change(5.0, 4.0)
    assert [tariff(t_s) for t_s in (4.0, 10.0, 11.0)] == [8.0, 20.0, 25.0]


def test_many_changes_keep_the_sum_and_little_else() -> None:
    tariff = Tariff(0.0)
    for hour in range(1, 1001):
        tariff.change(float(hour), hour * 10.0)
    assert tariff(10010.0) == pytest.approx(sum(10.0 * hour for hour in range(1, 1001)))
    late = Tariff(7.0)
    late.restore(tariff.state(9995.0))
    assert len(tariff.state(9995.0)) == 2
    assert [late(t_s) for t_s in (9995.0, 10011.0)] == [tariff(t_s) for t_s in (9995.0, 10011.0)]
    again = Tariff(7.0)
    again.restore(tariff.state())
    assert len(tariff.state()) <= 200
    assert again(10011.0) == tariff(10011.0)
