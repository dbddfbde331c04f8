"""One service of the manager: the state that it finds when it begins. Its rounds are tested in `test_manager`."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from mark.cloud.billing.moving_prices import Repriced
from mark.cloud.machine import InstanceLife
from mark.config.service_file import load_service
from mark.control.history import HalfHour
from mark.control.ports import RecentAnswers
from mark.control.views import Limits
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import CloudError
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles
from tests.control.control_fakes import ON_DEMAND, SPOT_A
from tests.control.manager_fakes import ORIGIN, FakePrices, Process, World


def test_a_leaving_instance_costs_the_services_or_catalogues_price() -> None:
    """Its own price is twice the catalogue's; of offers that a new deployment left out only the catalogue has one."""
    world = World()
    own = replace(ON_DEMAND, usd_per_hour=2.0 * ON_DEMAND.usd_per_hour)
    world.resolved = replace(world.resolved, offers=(own,), candidates=world.resolved.candidates[:1])
    world.cloud.unsold |= {own.name, SPOT_A.name}
    for number, name in enumerate((own.name, SPOT_A.name), 1):
        world.cloud.lives[number] = InstanceLife(number, name, world.clock.t_s)
    world.cloud.boot()
    world.store.put("paused", True)  # so that nothing is terminated until then
    process = Process(world)
    process.run(62)
    view = process.manager.view("inception")
    assert view.prices == {own.name: own.usd_per_hour, SPOT_A.name: SPOT_A.usd_per_hour}
    assert view.usd_per_hour == pytest.approx(own.usd_per_hour + SPOT_A.usd_per_hour)
    assert view.bill.on_demand == pytest.approx((view.at_s - 1.0) * own.usd_per_s)
    assert view.bill.spot == pytest.approx((view.at_s - 1.0) * SPOT_A.usd_per_s)


def stand_by(process: Process) -> None:
    """End the service's term; the next `run` begins another one."""
    process.manager._runtimes["inception"].reconcile(None, ORIGIN + process.worlds[0].clock.t_s)


def test_standby_shows_neither_decisions_nor_limits_of_its_last_term() -> None:
    """The process that leads may have made others."""
    world = World()
    process = Process(world)
    configured = process.manager.view("inception").limits
    process.run(2)
    process.manager.set_limits("inception", Limits(7, 50.0))
    process.run(10)
    assert process.manager.decisions("inception", None, 10)
    stand_by(process)
    assert process.manager.decisions("inception", None, 10) == []
    assert process.manager.view("inception").limits == configured != Limits(7, 50.0)
    process.run(1)
    assert process.manager.view("inception").limits == Limits(7, 50.0)


def test_troubles_that_end_with_the_term_are_not_logged_as_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.fail_start = CloudError("AWS does not answer")
    process = Process(world)
    with caplog.at_level(logging.INFO):
        process.run(2)
        stand_by(process)
    assert [record.getMessage() for record in caplog.records] == ["trouble"]
    assert process.manager.view("inception").conditions == ()


def test_standby_estimates_costs_at_the_catalogues_prices() -> None:
    """It follows no prices, so those of its last term may be days old."""
    world = World()
    service = replace(load_service("inception-v3-2026"), instances=("g6.xlarge",))
    world.resolved = resolve(service, load_catalog(service.catalog), service_profiles(service))
    world.store.put("paused", True)  # the fake cloud does not sell its offers
    world.prices = FakePrices()
    process = Process(world)
    process.run(2)
    before = process.manager.promise_cost("inception").estimate(1.0, 100.0)
    dear = tuple(replace(offer, usd_per_hour=9.0 * offer.usd_per_hour) for offer in world.resolved.catalog.offers)
    repriced = replace(world.resolved, catalog=replace(world.resolved.catalog, offers=dear))
    world.prices.new = Repriced(repriced, {})
    process.run(5)
    assert process.manager.promise_cost("inception").estimate(1.0, 100.0) != before
    stand_by(process)
    assert process.manager.promise_cost("inception").estimate(1.0, 100.0) == before


def test_next_day_is_estimated_anew_in_each_term() -> None:
    """The history has grown while another process led. Within a term the estimate is made once an hour."""
    world = World()
    process = Process(world)
    process.run(2)
    assert process.manager.view("inception").next_day is None
    for day in range(-3, 0):
        halves = {n: HalfHour(30, 10.0, 1.0, 18_000, 18_000, 0) for n in range(48 * day, 48 * (day + 1))}
        world.store.put(f"half-hours/{day % 46}", halves)
    process.run(10)
    assert process.manager.view("inception").next_day is None
    stand_by(process)
    process.run(1)
    assert process.manager.view("inception").next_day is not None


@pytest.mark.parametrize(("away_s", "rows"), [(0.0, {1: 100, 2: 5000, 3: 0}), (300.0, {1: 100, 8: 0})])
def test_requests_of_an_outage_are_of_no_minute(away_s: float, rows: dict[int, int]) -> None:
    """The minute in which a process leads again has no row then. A short change of leaders loses no row."""
    world = World()
    process = Process(world)
    process.run(62)
    world.telemetry.total = RecentAnswers(100, 100)
    process.run(90)
    process.manager.close()
    world.clock.t_s += away_s
    process = Process(world)
    process.run(1)
    world.telemetry.total = RecentAnswers(5100, 100)  # by the first read of the bouncers
    process.run(100)
    term = process.manager._runtimes["inception"].term
    assert term is not None
    assert {minute: row.requests for minute, row in term._rows.items() if minute > 0} == rows
