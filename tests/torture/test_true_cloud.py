"""The truth: launched once, terminated, and paid instances."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mark_torture.site import OFFERS
from mark_torture.true_cloud import LONGEST_QUEUE_S, RESUME, Conditions, TrueCloud

from mark.domain.ec2_limits import MINIMUM_BILLED_S
from mark.domain.errors import CapacityError, CloudError, NotFoundError, RefusalScope
from mark.domain.fleet import Phase

SPOT = OFFERS[0].name


def cloud() -> TrueCloud:
    return TrueCloud("inception", OFFERS, 7, lambda text: None)


def test_a_token_launches_once() -> None:
    one = cloud()
    assert one.launch(0, SPOT, 2, "a").numbers == one.launch(1, SPOT, 2, "a").numbers == (1, 2)
    assert len(one.fleet().instances) == 2


def test_it_boots_drains_and_is_paid_to_the_end() -> None:
    one = cloud()
    one.launch(0, SPOT, 1, "a")
    one.advance(20.0)
    one.advance(400.0)
    assert one.fleet().instances[0].phase is Phase.READY
    one.drain(1)
    assert not one.fleet().instances[0].idle
    one.advance(400.0 + LONGEST_QUEUE_S)
    assert one.fleet().instances[0].idle
    one.terminate(1)
    one.terminate(1)
    one.advance(4000.0)
    assert one.usd() == pytest.approx(OFFERS[0].usd_per_s * (400.0 + LONGEST_QUEUE_S - 20.0))
    assert [(ran.runs, ran.at_s) for ran in one.told] == [(True, 20.0), (False, 460.0)]


def test_a_start_costs_a_minute_at_least() -> None:
    one = cloud()
    one.launch(0, SPOT, 1, "a")
    one.advance(25.0)
    one.terminate(1)
    assert one.usd() == pytest.approx(OFFERS[0].usd_per_s * MINIMUM_BILLED_S)


def test_conditions_refuse_and_cut_launches() -> None:
    one = cloud()
    one.conditions = Conditions(refused=((SPOT, RefusalScope.MARKET),), most=1)
    with pytest.raises(CapacityError, match="not to be had"):
        one.launch(0, SPOT, 1, "a")
    other = OFFERS[2].name
    launched = one.launch(0, SPOT, 2, "b", alternatives=(other,))
    assert len(launched.numbers) == 1
    assert launched.refused is not None
    assert one.fleet().instances[0].offer == other


def test_what_is_taken_back_gets_its_notice_first() -> None:
    one = cloud()
    one.launch(0, SPOT, 1, "a")
    one.advance(400.0)
    one.interrupt(1, 0.0)
    one.advance(405.0)
    assert [notice.number for _, notice in one.notices] == [1]
    one.advance(520.0)
    assert one.fleet().instances == ()
    assert [(ended.why, ended.phase) for ended in one.ended] == [("taken back", Phase.READY)]


def test_an_unknown_instance_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        cloud().drain(1)


def test_what_is_stopped_is_paid_no_more_and_starts_sooner() -> None:
    one, on_demand = cloud(), OFFERS[2]
    one.launch(0, on_demand.name, 1, "a")
    one.advance(400.0)
    with pytest.raises(CloudError, match="cannot be stopped"):
        one.stop(1)
    one.drain(1)
    one.advance(470.0)
    one.stop(1)
    one.stop(1)
    one.advance(1420.0)
    assert one.fleet().instances[0].phase is Phase.STOPPED
    assert one.usd() == pytest.approx(on_demand.usd_per_s * 450.0)
    one.resume(1)
    one.resume(1)
    one.advance(1420.0 + RESUME * 1.4 * on_demand.boot.mean_s)
    assert [i.number for i in one.ready()] == [1]
    assert [(ran.runs, ran.at_s) for ran in one.told] == [(True, 20.0), (False, 470.0), (True, 1440.0)]


def test_every_second_costs_its_price() -> None:
    one = cloud()
    one.launch(0, SPOT, 1, "a")
    one.advance(120.0)
    one.reprice([replace(offer, usd_per_hour=2.0 * offer.usd_per_hour) for offer in OFFERS])
    one.advance(220.0)
    assert one.usd() == pytest.approx(OFFERS[0].usd_per_s * (100.0 + 2.0 * 100.0))
    one.terminate(1)
    assert one.usd() == pytest.approx(OFFERS[0].usd_per_s * (100.0 + 2.0 * 100.0))


def test_it_is_told_what_a_boot_meets() -> None:
    met: list[str] = []
    one = TrueCloud("inception", OFFERS, 7, lambda text: None, met.append)
    one.conditions = Conditions(most=2, never=0.0, dies=1.0)
    one.launch(0, SPOT, 3, "a")
    one.advance(400.0)
    assert met == ["launches partial", "boots and dies", "boots and dies", "boots and dies"]
    assert one.machines == {}


def test_scheduled_end_is_told_and_comes_unless_it_is_stopped() -> None:
    one, other = cloud(), OFFERS[2].name
    one.launch(0, other, 2, "a")
    one.advance(400.0)
    for number in (1, 2):
        one.schedule_end(number, 2000.0)
    assert [i.event.at_s for i in one.fleet().instances if i.event is not None] == [2000.0, 2000.0]
    one.drain(1)
    one.advance(400.0 + LONGEST_QUEUE_S)
    one.stop(1)
    one.advance(1999.0)
    assert len(one.fleet().instances) == 2
    one.advance(2000.0)
    (left,) = one.fleet().instances
    assert (left.number, left.phase, left.event) == (1, Phase.STOPPED, None)
    assert [(ended.machine.view.number, ended.why, ended.phase, ended.machine.told_s) for ended in one.ended] == [
        (2, "retired", Phase.READY, 400.0)
    ]
