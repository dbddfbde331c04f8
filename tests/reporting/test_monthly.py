"""What a site costs a month."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.reporting.monthly import ServiceCost, least_usd_per_month, monthly, monthly_table
from tests.reporting.test_table import plain

ONE = ServiceCost("inception", "c5.large/on-demand", 0.085, 5.0, 8.0, "lambda:3008", 19.0)


def test_each_line_by_hand() -> None:
    found = {charge.what: charge.usd_per_month for charge in monthly([ONE], zones=3, alarms=4)}
    assert found["inception, one c5.large/on-demand"] == pytest.approx(62.05)
    assert found["load balancer"] == pytest.approx(16.425)
    assert found["its public addresses"] == pytest.approx(3 * 3.65)
    assert found["NAT gateway"] == pytest.approx(32.85 + 3.65)
    assert found["controller"] == pytest.approx(12.264)
    assert found["its disk"] == pytest.approx(0.64)
    assert found["alarms"] == pytest.approx(0.4)
    assert found["inception, lambda:3008"] is None


def test_the_total_is_the_sum_of_priced_parts() -> None:
    charges = monthly([ONE], zones=3, alarms=4)
    assert least_usd_per_month(charges) == pytest.approx(sum(c.usd_per_month for c in charges if c.usd_per_month))
    twice = monthly([ONE, replace(ONE, name="other")], zones=3, alarms=4)
    assert least_usd_per_month(twice) - least_usd_per_month(charges) == pytest.approx(62.05 + 0.64)


def test_each_load_balancer_is_billed() -> None:
    found = {charge.what: charge.usd_per_month for charge in monthly([ONE], 3, 4, balancers=5, controller_disk_gib=9)}
    assert found["5 load balancers"] == pytest.approx(5 * 16.425)
    assert found["their public addresses"] == pytest.approx(5 * 3 * 3.65)
    assert found["its disk"] == pytest.approx(0.72)


def test_without_a_function_none_is_billed() -> None:
    assert not [c for c in monthly([replace(ONE, function=None)], 3, 4) if c.part == "functions"]


def test_the_table_names_what_is_forgotten() -> None:
    shown = plain(monthly_table(monthly([ONE], zones=3, alarms=4)))
    for forgotten in ("load balancer", "disk", "NAT gateway", "logs", "public addresses", "answers to the internet"):
        assert forgotten in shown
    assert "at least" in shown
