"""One service of the manager: the state that it finds when it begins. Its rounds are tested in `test_manager`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.cloud.machine import InstanceLife
from tests.control.control_fakes import ON_DEMAND, SPOT_A
from tests.control.manager_fakes import Process, World


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
