"""The controller's bill: from the cloud's reports and the observed fleet, across restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.cloud.billing.extras import extras_usd
from mark.control.ledger import GRACE_S, Ledger
from mark.control.memory_store import MemoryStore
from mark.control.ports import Ran
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.service import ResolvedService
from tests.control.control_fakes import ON_DEMAND, SPOT_A, resolved

OD, USD = ON_DEMAND.name, ON_DEMAND.usd_per_s
EMPTY = Fleet(())


def fleet(*phases: Phase, launched_s: float = 10.0) -> Fleet:
    return Fleet(tuple(Instance(n, OD, phase, launched_s) for n, phase in enumerate(phases, 1)))


class Bench:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.ledger = self.again()
        self.ledger.observe(0.0, EMPTY, ())

    def again(self) -> Ledger:
        self.ledger = Ledger(resolved(), self.store)
        return self.ledger

    def usd(self, now_s: float) -> float:
        return self.ledger.bill(now_s, 0.0, 0).on_demand


def test_an_instance_is_billed_from_running_to_shutting_down() -> None:
    """The cloud's times count, whenever the controller hears of them."""
    bench = Bench()
    bench.ledger.observe(15.0, fleet(Phase.PENDING), ())
    assert bench.usd(15.0) == 0.0
    bench.ledger.observe(40.0, fleet(Phase.PENDING), [Ran(1, OD, True, 30.0)])
    assert bench.usd(100.0) == pytest.approx(70 * USD)
    bench.ledger.observe(300.0, EMPTY, ())
    bench.ledger.observe(305.0, EMPTY, [Ran(1, OD, False, 298.0)])
    assert bench.usd(1000.0) == pytest.approx(268 * USD)
    bench.ledger.observe(1000.0, EMPTY, ())
    assert bench.usd(1000.0) == pytest.approx(268 * USD)


def test_a_minute_is_paid_at_least() -> None:
    """EC2 has this rule."""
    bench = Bench()
    bench.ledger.observe(15.0, fleet(Phase.PENDING), [Ran(1, OD, True, 10.0), Ran(1, OD, False, 12.0)])
    assert bench.usd(100.0) == pytest.approx(60 * USD)


def test_the_end_may_be_told_before_the_beginning() -> None:
    """A queue keeps no order."""
    bench = Bench()
    bench.ledger.observe(15.0, fleet(Phase.PENDING), ())
    bench.ledger.observe(200.0, EMPTY, [Ran(1, OD, False, 190.0)])
    bench.ledger.observe(205.0, EMPTY, [Ran(1, OD, True, 20.0)])
    assert bench.usd(300.0) == pytest.approx(170 * USD)


def test_told_twice_is_told_once() -> None:
    """Queues deliver at least once, and several events report the same stop."""
    bench = Bench()
    bench.ledger.observe(15.0, fleet(Phase.PENDING), [Ran(1, OD, True, 20.0)] * 2)
    bench.ledger.observe(200.0, EMPTY, [Ran(1, OD, False, 190.0)] * 2)
    bench.ledger.observe(400.0, EMPTY, [Ran(1, OD, False, 190.0)])
    assert bench.usd(500.0) == pytest.approx(170 * USD)


def test_without_a_word_the_fleet_has_to_do() -> None:
    """Without events it is billed from its launch until it was missed; that is certain after the grace."""
    bench = Bench()
    bench.ledger.observe(100.0, fleet(Phase.READY), ())
    assert bench.usd(100.0) == 0.0
    bench.ledger.observe(100.0 + GRACE_S, fleet(Phase.READY), ())
    assert bench.usd(200.0) == pytest.approx(190 * USD)
    bench.ledger.observe(400.0, EMPTY, ())
    bench.ledger.observe(400.0 + GRACE_S, EMPTY, ())
    assert bench.usd(1000.0) == pytest.approx(390 * USD)


def test_compressed_time_does_not_shorten_the_grace() -> None:
    """The queue is as slow as before, so a report that comes seconds later counts."""
    ledger = Ledger(resolved(), MemoryStore(), 50.0)
    ledger.observe(0.0, fleet(Phase.PENDING), [Ran(1, OD, True, 10.0)])
    ledger.observe(600.0, EMPTY, ())
    ledger.observe(800.0, EMPTY, [Ran(1, OD, False, 110.0)])
    assert ledger.bill(900.0, 0.0, 0).on_demand == pytest.approx(100 * USD)


def test_what_stops_is_not_billed_and_what_resumes_is_again() -> None:
    """A standby's life."""
    bench = Bench()
    bench.ledger.observe(20.0, fleet(Phase.PENDING), [Ran(1, OD, True, 20.0)])
    bench.ledger.observe(120.0, fleet(Phase.STOPPED), [Ran(1, OD, False, 120.0)])
    assert bench.usd(500.0) == pytest.approx(100 * USD)
    bench.ledger.observe(520.0, fleet(Phase.PENDING, launched_s=500.0), [Ran(1, OD, True, 510.0)])
    assert bench.usd(600.0) == pytest.approx(190 * USD)


def test_an_instance_already_running_is_billed_from_first_sight() -> None:
    """It is billed since the controller first saw the service; a stopped instance is not billed."""
    ledger = Ledger(resolved(), MemoryStore())
    ledger.observe(1000.0, fleet(Phase.READY, Phase.STOPPED), ())
    assert ledger.bill(1100.0, 0.0, 0).on_demand == pytest.approx(100 * USD)


def test_a_restart_bills_on_to_the_cent() -> None:
    """This holds for running and ended instances, also for one that ended during the restart, at the reported time."""
    bench = Bench()
    told = [Ran(n, OD, True, 20.0) for n in (1, 2, 3)]
    bench.ledger.observe(25.0, fleet(*[Phase.PENDING] * 3), told)
    both = fleet(Phase.READY, Phase.READY)
    bench.ledger.observe(220.0, both, [Ran(3, OD, False, 220.0)])
    bench.again()
    assert bench.usd(320.0) == pytest.approx((2 * 300 + 200) * USD)
    one = Fleet(both.instances[1:])
    bench.ledger.observe(330.0, one, ())
    bench.ledger.observe(340.0, one, [Ran(1, OD, False, 300.0)])
    assert bench.usd(420.0) == pytest.approx((400 + 280 + 200) * USD)


def test_disks_of_stopped_standbys_are_billed_if_the_catalogue_does() -> None:
    """They are under `other`, as long as the instance exists."""
    where = resolved()
    where = replace(where, catalog=replace(where.catalog, bills_extras=True))
    ledger = Ledger(where, MemoryStore())
    ledger.observe(0.0, fleet(Phase.STOPPED), ())
    month_s = 730.0 * 3600.0
    assert ledger.bill(month_s, 0.0, 0).other == pytest.approx(8 * 0.08 + extras_usd(month_s, 0, 0.0, 0.0))
    ledger.observe(100.0, EMPTY, ())
    ledger.observe(100.0 + GRACE_S, EMPTY, ())
    disk_usd, balancer_usd = 8 * 0.08 * 100.0 / month_s, extras_usd(1e6, 0, 0.0, 0.0)
    assert ledger.bill(1e6, 0.0, 0).other == pytest.approx(disk_usd + balancer_usd)


def test_a_gpu_type_has_a_larger_disk() -> None:
    """An instance that was counted as another type is counted again with its new disk."""
    where = resolved(replace(ON_DEMAND, gpus=1))
    where = replace(where, catalog=replace(where.catalog, bills_extras=True))
    store, month_s = MemoryStore(), 730.0 * 3600.0
    Ledger(where, store).observe(0.0, fleet(Phase.STOPPED), ())
    kept = store.get("ledger")
    assert kept is not None
    for counted in (12.5, 1.0):
        store.put("ledger", {**kept, "meter": {**kept["meter"], "disks": (counted, 0.0, 0.0)}})
        ledger = Ledger(where, store)
        assert ledger.bill(month_s, 0.0, 0).other == pytest.approx(100 * 0.08 + extras_usd(month_s, 0, 0.0, 0.0))
        ledger.observe(100.0, EMPTY, ())
        ledger.observe(100.0 + GRACE_S, EMPTY, ())
        disk_usd, balancer_usd = 100 * 0.08 * 100.0 / month_s, extras_usd(1e6, 0, 0.0, 0.0)
        assert ledger.bill(1e6, 0.0, 0).other == pytest.approx(disk_usd + balancer_usd)


def test_balancer_addresses_and_data_are_in_the_bill_too() -> None:
    """The simulated bill has them too: from second 0, and by the requests."""
    where = resolved()
    where = replace(where, catalog=replace(where.catalog, bills_extras=True))
    ledger = Ledger(where, MemoryStore())
    ledger.observe(5.0, EMPTY, ())
    ledger.observe(15.0, fleet(Phase.PENDING, launched_s=15.0), [Ran(1, OD, True, 15.0)])
    service, disk_usd = where.service, 8 * 0.08 * 3585.0 / (730.0 * 3600.0)
    expected = extras_usd(3600.0, 1000, service.request_kb, service.response_kb) + disk_usd
    assert ledger.bill(3600.0, 0.0, 1000).other == pytest.approx(expected)


def test_events_redelivered_after_a_restart_are_billed_once() -> None:
    """The queue delivers its start and end again, which were already billed."""
    bench = Bench()
    life = [Ran(1, OD, True, 20.0), Ran(1, OD, False, 190.0)]
    bench.ledger.observe(15.0, fleet(Phase.PENDING), ())
    bench.ledger.observe(200.0, EMPTY, life)
    bench.again()
    for again in (life, life[::-1], life[:1], life[1:]):
        bench.ledger.observe(205.0, EMPTY, again)
        assert bench.usd(400.0) == pytest.approx(170 * USD)
    bench.ledger.observe(500.0, fleet(Phase.PENDING), [Ran(1, OD, True, 450.0), *life])
    assert bench.usd(550.0) == pytest.approx(270 * USD)


@pytest.mark.parametrize("restarts", [False, True])
def test_life_told_again_long_after_its_end_is_billed_once(restarts: bool) -> None:
    """A process that leads again reads all events since its start once more."""
    bench = Bench()
    life = [Ran(1, OD, True, 20.0), Ran(1, OD, False, 190.0)]
    bench.ledger.observe(15.0, fleet(Phase.PENDING), ())
    bench.ledger.observe(200.0, EMPTY, life)
    bench.ledger.observe(200.0 + GRACE_S, EMPTY, ())
    if restarts:
        bench.again()
    for now_s in (400.0, 600.0, 800.0):
        bench.ledger.observe(now_s, EMPTY, life)
    assert bench.usd(1000.0) == pytest.approx(170 * USD)


def test_markets_and_functions_have_their_own_lines() -> None:
    """The total is the sum."""
    bench = Bench()
    bench.ledger.observe(
        20.0, Fleet((Instance(1, SPOT_A.name, Phase.PENDING, 10.0),)), [Ran(1, SPOT_A.name, True, 20.0)]
    )
    bill = bench.ledger.bill(120.0, 0.5, 0)
    assert bill.spot == pytest.approx(100 * SPOT_A.usd_per_s)
    assert bill.functions == 0.5
    assert bill.total == pytest.approx(bill.spot + 0.5)


def test_an_offer_missing_from_the_catalogue_is_no_error() -> None:
    """The catalogue has changed since the last start."""
    bench = Bench()
    bench.ledger.observe(25.0, fleet(Phase.READY), [Ran(1, OD, True, 20.0)])
    ledger = Ledger(resolved(SPOT_A), bench.store)
    ledger.observe(100.0, fleet(Phase.READY), [Ran(1, OD, False, 90.0)])
    assert ledger.bill(200.0, 0.0, 0).total == 0.0


def repriced(usd_per_hour: float) -> ResolvedService:
    was = resolved()
    offers = tuple(replace(o, usd_per_hour=usd_per_hour) if o.name == OD else o for o in was.offers)
    return replace(was, offers=offers)


def test_a_price_change_is_billed_from_its_time_across_restarts() -> None:
    """The change is learned 60 s late; running instances are billed as if it had been known."""
    bench = Bench()
    bench.ledger.observe(15.0, fleet(Phase.PENDING), [Ran(1, OD, True, 100.0)])
    bench.ledger.reprice(repriced(7.2), {OD: 400.0}, 460.0)
    expected = 300 * USD + 600 * 0.002
    assert bench.usd(1000.0) == pytest.approx(expected)
    bench.ledger.observe(460.0, fleet(Phase.READY), ())
    again = bench.again()
    assert bench.usd(1000.0) == pytest.approx(expected)
    again.observe(1000.0, fleet(Phase.READY), [Ran(1, OD, False, 1000.0)])
    assert bench.usd(2000.0) == pytest.approx(expected)


def test_old_prices_are_dropped_when_no_bill_needs_them() -> None:
    """Prices are kept for a day, or as far back as running instances need them.

    The bill is the same after a restart.
    """
    bench = Bench()
    day_s, hours = 86400.0, 100
    bench.ledger.observe(day_s, fleet(Phase.READY, launched_s=day_s), [Ran(1, OD, True, day_s)])
    for hour in range(hours):
        now_s = day_s + 3600.0 * (hour + 1)
        bench.ledger.reprice(repriced(3.6 + 0.01 * hour), {}, now_s)
        bench.ledger.observe(now_s, fleet(Phase.READY, launched_s=day_s), ())
    expected = bench.usd(now_s + 50.0)

    def steps() -> int:
        kept = bench.store.get("ledger")
        assert kept is not None
        return len(kept["tariffs"][OD])

    assert steps() >= hours
    again = bench.again()
    assert bench.usd(now_s + 50.0) == pytest.approx(expected)
    again.observe(now_s + 50.0, EMPTY, [Ran(1, OD, False, now_s + 50.0)])
    again.observe(now_s + 200.0, EMPTY, ())
    assert 24 <= steps() <= 26
    assert bench.usd(now_s + 300.0) == pytest.approx(expected)


def test_a_restart_at_another_price_changes_nothing_of_the_past() -> None:
    """Running instances keep the old price until the new one is reported, even if the price never moved before."""
    bench = Bench()
    day_s = 86400.0
    bench.ledger.observe(day_s, fleet(Phase.READY, launched_s=day_s), [Ran(1, OD, True, day_s)])
    again = Ledger(repriced(7.2), bench.store)
    again.observe(day_s + 60.0, fleet(Phase.READY, launched_s=day_s), ())
    again.reprice(repriced(7.2), {}, day_s + 60.0)
    assert again.bill(day_s + 160.0, 0.0, 0).total == pytest.approx(60 * USD + 100 * 0.002)


def test_state_without_tariffs_is_billed_at_todays_price() -> None:
    """Older versions stored no tariffs: the seconds that ran are billed at the only known price."""
    bench = Bench()
    bench.ledger.observe(86400.0, fleet(Phase.READY), [Ran(1, OD, True, 86400.0)])
    kept = bench.store.get("ledger")
    assert kept is not None
    bench.store.put("ledger", {**kept, "tariffs": {}})
    assert Ledger(repriced(7.2), bench.store).bill(86500.0, 0.0, 0).total == pytest.approx(100 * 0.002)


def test_an_instance_launched_after_a_price_change_costs_the_new() -> None:
    bench = Bench()
    bench.ledger.observe(15.0, fleet(Phase.PENDING), [Ran(1, OD, True, 450.0)])
    bench.ledger.reprice(repriced(7.2), {OD: 400.0}, 460.0)
    assert bench.usd(550.0) == pytest.approx(100 * 0.002)
    bench.ledger.reprice(repriced(3.6), {}, 550.0)
    assert bench.usd(650.0) == pytest.approx(100 * 0.002 + 100 * 0.001)
