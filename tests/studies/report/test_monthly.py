"""The monthly cost of a site."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.studies.report.monthly import ConductorsCost, ServiceCost, least_usd_per_month, monthly, monthly_report
from tests.studies.report.test_simulate_report import plain

ONE = ServiceCost("inception", "c5.large/on-demand", 0.085, 5.0, 8.0, "lambda:3008", 19.0)


def test_each_line_by_hand() -> None:
    found = {charge.what: charge.usd_per_month for charge in monthly([ONE], zones=3)}
    assert found["inception, one c5.large/on-demand"] == pytest.approx(62.05)
    assert found["load balancer"] == pytest.approx(16.425)
    assert found["its public addresses"] == pytest.approx(3 * 3.65)
    assert found["NAT gateway"] == pytest.approx(32.85 + 3.65)
    assert found["controller"] == pytest.approx(12.264)
    assert found["its disk"] == pytest.approx(0.64)
    assert found["alarms"] == pytest.approx(1.0)  # 2 of the site, 2 of its balancer, 6 of the service
    assert found["metrics"] == pytest.approx(3.0)  # 1 of the site, 8 of the service, 1 of its offer
    assert found["sending them"] == pytest.approx(0.438)
    assert found["notices (SQS)"] == pytest.approx(0.3504)
    assert found["inception, lambda:3008"] is None


def test_the_total_is_the_sum_of_priced_parts() -> None:
    charges = monthly([ONE], zones=3)
    assert least_usd_per_month(charges) == pytest.approx(sum(c.usd_per_month for c in charges if c.usd_per_month))
    twice = monthly([ONE, replace(ONE, name="other")], zones=3)
    assert least_usd_per_month(twice) - least_usd_per_month(charges) == pytest.approx(
        62.05 + 0.64 + 6 * 0.1 + 9 * 0.3 + 0.438
    )


def test_each_load_balancer_is_billed() -> None:
    found = {charge.what: charge.usd_per_month for charge in monthly([ONE], 3, balancers=5, controller_disk_gib=9)}
    assert found["5 load balancers"] == pytest.approx(5 * 16.425)
    assert found["their public addresses"] == pytest.approx(5 * 3 * 3.65)
    assert found["its disk"] == pytest.approx(0.72)


def test_a_pipeline_has_conductors_and_a_private_balancer() -> None:
    stages = [replace(ONE, name=name, function=None) for name in ("two-first", "two-second")]
    conductors = [ConductorsCost("two", 3, 9.0)]
    charges = monthly(stages, 3, stage_balancers=1, conductors=conductors)
    found = {charge.what: charge.usd_per_month for charge in charges}
    assert found["two, 3 conductors"] == pytest.approx(3 * 12.264)
    assert found["two, their disks"] == pytest.approx(3 * 0.72)
    assert found["load balancer of stages"] == pytest.approx(16.425)
    assert found["its public addresses"] == pytest.approx(3 * 3.65), "clients' balancer alone has such"
    assert found["alarms"] == pytest.approx(0.1 * (2 + 2 * 2 + 2 * 5 + 4))
    assert found["metrics"] == pytest.approx(0.3 * (1 + 2 * 9 + 1))
    assert {charge.part for charge in charges if charge.what.startswith("two, ")} == {"other"}


def test_a_stages_function_is_a_line_of_its_own() -> None:
    """It is billed by traffic, up to its part of the limit for all functions."""
    stage = replace(ONE, name="two-first", max_function_usd_per_hour=1.0)
    charges = monthly([stage, replace(ONE, name="two-second", function=None)], 3, stage_balancers=1)
    (line,) = (charge for charge in charges if charge.part == "functions")
    assert (line.what, line.usd_per_month) == ("two-first, lambda:3008", None)
    assert line.basis == "$19.00 a million requests, $730 at most"


def test_without_a_function_none_is_billed() -> None:
    assert not [c for c in monthly([replace(ONE, function=None)], 3) if c.part == "functions"]


def test_the_table_names_what_is_forgotten() -> None:
    shown = plain(monthly_report(monthly([ONE], zones=3)))
    for forgotten in ("load balancer", "disk", "NAT gateway", "logs", "public addresses", "answers to the internet"):
        assert forgotten in shown
    assert "at least" in shown


def test_what_functions_may_cost_is_told() -> None:
    shown = plain(monthly_report(monthly([replace(ONE, max_function_usd_per_hour=2.0)], zones=3)))
    assert "$1,460 at most" in " ".join(shown.split())


def test_a_baked_image_costs_its_snapshot() -> None:
    what = f"{ONE.name}, its image (snapshot)"
    assert what not in {charge.what for charge in monthly([ONE], zones=3)}
    charges = monthly([replace(ONE, image=True, disk_gib=12.0)], zones=3)
    assert {charge.what: charge.usd_per_month for charge in charges}[what] == pytest.approx(12.0 * 0.05)


def test_types_of_another_platform_have_a_disk_of_another_size() -> None:
    """The disk is paid only if such a type is bought; the image exists in any case."""
    two = replace(ONE, other_disks_gib={"x86_64-gpu": 91.0})
    disk, image = "inception, a disk on x86_64-gpu", "inception, its image on x86_64-gpu (snapshot)"
    charges = {charge.what: charge for charge in monthly([two], zones=3)}
    assert (charges[disk].usd_per_month, charges[disk].basis) == (None, "$7.28 each, 91 GiB")
    assert image not in charges
    assert least_usd_per_month(monthly([two], 3)) == least_usd_per_month(monthly([ONE], 3))
    charges = {charge.what: charge for charge in monthly([replace(two, image=True)], zones=3)}
    assert charges[image].usd_per_month == pytest.approx(91.0 * 0.05)


def test_a_functions_image_is_billed_by_its_size() -> None:
    def images(image_gb: float) -> list[float | None]:
        cost = ServiceCost("words", "c5.large/on-demand", 0.085, 5.0, 8.0, "lambda:1024", 19.0, image_gb=image_gb)
        return [line.usd_per_month for line in monthly([cost], 3) if "ECR" in line.what]

    assert images(1.5) == [pytest.approx(0.15)]
    assert images(0.0) == []
