"""The life of one instance: its phases, its billed time, its credits, and the order of its events."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.cloud.billing.meter import Meter
from mark.cloud.ec2.cpu_credits import CreditAccount
from mark.cloud.ec2.events import InstanceEvent
from mark.cloud.ec2.lifecycle import HOLDS_CAPACITY, IllegalStateChange, State
from mark.cloud.machine import InstanceLife, LifeEvents
from mark.domain.errors import CloudError
from mark.domain.fleet import TRANSITIONS, Phase
from mark.domain.offer import BurstCredits, Delay, Market, Offer

T2 = Offer(
    "t2.medium", Market.BURSTABLE, 3.6, Delay(100.0, 100.0), vcpu=2.0, credits=BurstCredits(0.2, 24.0, 576.0, 60.0)
)


def life(number: int = 1, at_s: float = 0.0, *, standby: bool = False) -> InstanceLife:
    return InstanceLife(number, T2.name, at_s, at_s + 100.0, standby=standby, credits=CreditAccount(T2))


def serving(at_s: float = 100.0) -> InstanceLife:
    one = life()
    one.run(20.0)
    one.serve(at_s)
    return one


def test_instance_boots_serves_drains_and_ends() -> None:
    one = life()
    assert (one.phase, one.view.ready_s, one.billed_from_s) == (Phase.PENDING, 100.0, None)
    one.run(20.0)
    assert (one.phase, one.state, one.billed_from_s) == (Phase.PENDING, State.RUNNING, 20.0)
    one.serve(103.0)
    assert (one.phase, one.view.ready_s) == (Phase.READY, 103.0)
    one.drain()
    assert (one.phase, one.idle) == (Phase.DRAINING, False)
    one.finish()
    assert one.view.idle
    assert one.end() == 20.0
    assert (one.phase, one.state, one.billed_from_s) == (Phase.GONE, State.SHUTTING_DOWN, None)


def test_instance_that_never_ran_is_not_billed() -> None:
    one = life()
    one.drain()
    assert one.idle
    assert one.end() is None


def test_resumed_instance_keeps_its_number_and_begins_anew() -> None:
    one = serving()
    one.interrupt(500.0)
    one.drain()
    assert one.stop(260.0) == 20.0
    seen = one.view
    assert (seen.phase, seen.ready_s, seen.idle, seen.stopped_s) == (Phase.STOPPED, None, False, 260.0)
    with pytest.raises(CloudError, match="is still stopping"):
        one.resume(259.0)
    one.resume(260.0, 300.0)
    seen = one.view
    assert (seen.number, seen.phase, seen.launched_s, seen.ready_s) == (1, Phase.PENDING, 260.0, 300.0)
    assert (seen.resumed, seen.stopped_s, seen.interruption_at_s) == (True, None, None)


def test_interruption_is_announced_once() -> None:
    one = serving()
    assert one.interrupt(220.0)
    assert not one.interrupt(999.0)
    assert one.view.interruption_at_s == 220.0
    gone = life()
    gone.end()
    assert not gone.interrupt(220.0)


def test_silent_instance_shows_while_it_should_answer() -> None:
    one = serving()
    one.fall_silent(150.0)
    assert one.view.silent_s == 150.0
    one.drain()
    assert one.view.silent_s is None


def test_credits_pay_for_work_in_progress_later() -> None:
    """A batch may count in full when it begins: 30 busy seconds after 10 s are paid as 10, then as 20."""
    one = serving()
    assert one.credits is not None
    one.credits_at_s = 100.0
    one.credits.earned = 10.0
    left = []
    for at_s, busy_s in ((110.0, 30.0), (130.0, 30.0)):
        assert one.settle(at_s, busy_s) == 0.0
        left.append(one.credits_left())
    earned, used = 24.0 / 3600.0, 2.0 / 60.0  # credits a second
    assert left == [pytest.approx(10.0 + 10.0 * (earned - used)), pytest.approx(10.0 + 30.0 * (earned - used))]


@pytest.mark.parametrize("event", [event for event in InstanceEvent if event is not InstanceEvent.SHARE])
def test_event_of_an_earlier_start_is_void(event: InstanceEvent) -> None:
    one = serving()
    one.drain()
    one.stop(0.0)
    one.resume(200.0)
    one.run(220.0)
    assert not one.awaits(event, 0)


def test_boot_of_a_drained_instance_is_void() -> None:
    one = life()
    one.run(20.0)
    assert one.awaits(InstanceEvent.BOOTED, 0)
    one.drain()
    assert not one.awaits(InstanceEvent.BOOTED, 0)
    assert one.awaits(InstanceEvent.GONE, 0)


# -- events ------------------------------------------------------------------------------------------------------------


def test_events_come_by_time_kind_and_number() -> None:
    events: LifeEvents[InstanceLife] = LifeEvents(end_s=50.0)
    first, second = life(1), life(2)
    events.push(20.0, InstanceEvent.NOTICE, first)
    events.push(20.0, InstanceEvent.RUNNING, second)
    events.push(20.0, InstanceEvent.RUNNING, first)
    events.push(10.0, InstanceEvent.NOTICE, second)
    events.push_share(20.0, 7)
    events.push(50.1, InstanceEvent.GONE, first)  # after the end
    events.push(math.inf, InstanceEvent.GONE, first)
    assert events.next_s() == 10.0
    assert [(at_s, event, one and one.number, number) for at_s, event, one, number in events.due(math.inf)] == [
        (10.0, InstanceEvent.NOTICE, 2, 2),
        (20.0, InstanceEvent.RUNNING, 1, 1),
        (20.0, InstanceEvent.RUNNING, 2, 2),
        (20.0, InstanceEvent.SHARE, None, 7),
        (20.0, InstanceEvent.NOTICE, 1, 1),
    ]
    assert events.next_s() == math.inf


def test_event_added_or_made_void_by_an_earlier_one_is_respected() -> None:
    events: LifeEvents[InstanceLife] = LifeEvents()
    one, other = life(1), life(2)
    events.push(10.0, InstanceEvent.RUNNING, one)
    events.push(20.0, InstanceEvent.RUNNING, other)
    seen = []
    for at_s, event, of, _ in events.due(30.0):
        seen.append((at_s, event))
        if event is InstanceEvent.RUNNING:
            assert of is one
            one.run(at_s)
            other.end()
            events.push(15.0, InstanceEvent.BOOTED, one)
            events.push(30.5, InstanceEvent.NOTICE, one)
    assert seen == [(10.0, InstanceEvent.RUNNING), (15.0, InstanceEvent.BOOTED)]
    assert events.next_s() == 30.5


# -- laws --------------------------------------------------------------------------------------------------------------

CALLS = ("run", "serve", "drain", "finish", "stop", "resume", "interrupt", "fall_silent", "end", "complete", "settle")


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(CALLS), st.floats(0.0, 300.0), st.floats(0.0, 1.0)), max_size=40))
def test_laws_hold_after_any_calls(script: list[tuple[str, float, float]]) -> None:
    """An illegal call changes nothing; a start is billed for 60 s at least; credits are never negative."""
    one, meter = life(), Meter([T2], [lambda t_s: 0.001 * t_s], end_s=math.inf)
    now_s = least_usd = busy_s = 0.0
    for call, wait_s, busy in script:
        now_s, busy_s = now_s + wait_s, busy_s + busy * wait_s
        before, phase, billed_from_s = replace(one, credits=None), one.phase, one.billed_from_s
        try:
            if call == "run":
                one.run(now_s)
                meter.open(0, now_s)
            elif call in ("stop", "end"):
                from_s = one.stop(now_s + 60.0) if call == "stop" else one.end()
                assert from_s == billed_from_s
                if from_s is not None:
                    meter.close(0, from_s, now_s)
                    least_usd += 0.001 * max(60.0, now_s - from_s)
                    assert least_usd - 1e-9 <= meter.spent_usd(now_s)["burstable"] <= least_usd + 0.001 * len(script)
            elif call == "settle":
                one.settle(now_s, busy_s)
            elif call == "interrupt":
                one.interrupt(now_s + 120.0)
            elif call in ("drain", "finish", "complete"):
                getattr(one, call)()
            else:
                getattr(one, call)(now_s)
        except (CloudError, IllegalStateChange):
            assert replace(one, credits=None) == before
            continue
        assert one.phase is phase or one.phase in TRANSITIONS[phase]
        assert phase is not Phase.GONE or one.phase is Phase.GONE
        assert (one.billed_from_s is not None) == (one.state is State.RUNNING)
        assert (one.phase in (Phase.STOPPED, Phase.GONE)) == (one.state not in HOLDS_CAPACITY[:2])
        assert one.phase is not Phase.READY or one.state is State.RUNNING
        assert one.credits_left() is not None
        assert one.credits_left() >= 0.0
        seen = one.view
        one.touch()
        assert one.view == seen
