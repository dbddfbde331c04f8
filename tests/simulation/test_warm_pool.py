"""Runs with a warm pool: starts are resumes, the disks of stopped instances are paid, and the laws hold."""

from __future__ import annotations

import dataclasses

import pytest

from mark.domain.offer import Delay
from mark.planning.bounds.whole_bound import highest_bound
from mark.simulation.bounding import drawn_problem
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from tests.simulation.laws import check_laws

HOURS = 1.0
DISK_USD_PER_HOUR = 8.0 * 0.08 / 730.0


@pytest.fixture(scope="module")
def bursts() -> Inputs:
    """Return a quarter of an hour at each rate on average, without a function that is in time."""
    return open_inputs(
        RunRequest(
            trace="synthetic:mmpp?rates=5,60&dwell_s=900",
            service="nasnet",
            duration_s=HOURS * 3600.0,
            predictor="seasonal-naive",
            with_bound=False,
        )
    )


def pooling(inputs: Inputs, most: int) -> Inputs:
    service = dataclasses.replace(inputs.resolved.service, warm_pool=most, instances=("c5.*",))
    offers = [k for k, o in enumerate(inputs.resolved.offers) if o.instance == "c5.xlarge"]
    resolved = dataclasses.replace(
        inputs.resolved,
        service=service,
        offers=tuple(inputs.resolved.offers[k] for k in offers),
        candidates=tuple(inputs.resolved.candidates[k] for k in offers),
    )
    return dataclasses.replace(inputs, resolved=resolved)


def run(inputs: Inputs, most: int, policy: str = "mark") -> SimulationResult:
    result = simulate_inputs(pooling(inputs, most), policy, "seasonal-naive")
    check_laws(result)
    return result


@pytest.fixture(scope="module")
def without(bursts: Inputs) -> SimulationResult:
    return run(bursts, 0)


def test_starts_are_resumes_and_more_is_in_time(bursts: Inputs, without: SimulationResult) -> None:
    """A resume takes half of a boot, so half as many requests come before it is ready."""
    pooled = run(bursts, 400)
    assert without.fleet.launched > 10
    assert pooled.fleet.launched == 0
    assert pooled.requests.total == without.requests.total
    assert pooled.requests.late < 0.9 * without.requests.late


def test_the_disks_of_the_pool_are_paid(bursts: Inputs, without: SimulationResult) -> None:
    """Only the stopped instances pay for disks: the catalogue of 2019 bills no others."""
    pooled = run(bursts, 200)
    assert without.bill.other == 0.0
    most = 200 * HOURS * DISK_USD_PER_HOUR
    assert 0.5 * most < pooled.bill.other < most


def test_a_policy_without_a_forecast_uses_the_pool(bursts: Inputs) -> None:
    """It asks for the same fleet at the same times."""
    without, pooled = run(bursts, 0, "reactive"), run(bursts, 200, "reactive")
    assert without.fleet.launched > 0
    assert pooled.fleet.launched == 0
    assert pooled.fleet.instance_hours == pytest.approx(without.fleet.instance_hours, rel=0.01)
    assert pooled.requests.late < without.requests.late


def test_sagemaker_has_no_pool(bursts: Inputs) -> None:
    assert run(bursts, 200, "target-tracking").bill == run(bursts, 0, "target-tracking").bill


def test_a_fixed_fleet_has_no_pool(bursts: Inputs) -> None:
    assert run(bursts, 200, "fixed:c5.xlarge=9").bill == run(bursts, 0, "fixed:c5.xlarge=9").bill


def test_a_cold_start_has_an_empty_pool(bursts: Inputs) -> None:
    cold = dataclasses.replace(bursts, request=dataclasses.replace(bursts.request, cold_start=True))
    assert 0 < run(cold, 200).fleet.launched < run(cold, 0).fleet.launched


def test_the_bound_launches_at_the_price_of_a_resume(bursts: Inputs) -> None:
    """The bound treats every boot as a resume, and never exceeds the bound without a pool."""
    plain = pooling(bursts, 0)
    boots = tuple(dataclasses.replace(o, boot=o.resume or o.boot) for o in plain.resolved.offers)
    quick = dataclasses.replace(plain, resolved=dataclasses.replace(plain.resolved, offers=boots))

    def bound_usd(inputs: Inputs) -> float:
        usd = highest_bound(drawn_problem(inputs)[0]).usd
        assert usd is not None
        return usd

    assert boots[0].boot == Delay(90.0, 120.0)
    assert bound_usd(pooling(bursts, 5)) == bound_usd(quick) <= bound_usd(plain)
