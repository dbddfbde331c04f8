"""Launches are stored before they are made, and crossed out when their outcome is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mark.control.launcher import SHOWN_S, UNSURE_S, Launcher
from mark.control.memory_store import MemoryStore
from mark.control.ports import Launched, Result
from mark.control.shared_limits import Holding
from mark.control.snapshot import Outcome
from mark.control.state import ControllerState, counted_as, stand_in
from mark.control.views import Limits
from mark.domain.backoff import LAUNCH, THROTTLED
from mark.domain.command import Launch
from mark.domain.errors import (
    CapacityError,
    CloudError,
    DeniedError,
    LimitError,
    RefusalScope,
    StoreError,
    ThrottledError,
)
from mark.domain.fleet import Fleet
from mark.planning.planner import Policy
from mark.testing.fakes import FakeCloud, ManualClock, ScriptedPlanner
from tests.control.control_fakes import ON_DEMAND, SPOT_A, SPOT_B, Bench, resolved

OD, A = ON_DEMAND.name, SPOT_A.name


class Shop:
    def __init__(self) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.cloud = FakeCloud(self.clock)
        self.buyer = self.again()

    def again(self, limits: Limits | None = None) -> Launcher:
        self.buyer = Launcher(resolved(), self.cloud, self.clock, self.store, limits or Limits(10, 100.0), 7)
        return self.buyer

    def buy(self, offer: str, count: int, at_s: float = 0.0, *, standby: bool = False) -> bool:
        self.clock.t_s = at_s
        outcomes = list(self.buyer.launch(at_s, Launch("needed", 0.0, offer, count, standby), substitute=False))
        return outcomes[-1].done

    def repeat(self, at_s: float, *, lacking: float = math.inf) -> list[Outcome]:
        self.clock.t_s = at_s
        return list(self.buyer.repeat(at_s, lambda _: lacking))

    def tokens(self) -> list[str]:
        return [call[3] for call in self.cloud.calls]


def failing(*args: object) -> None:
    raise StoreError("the store is down")


def again(shop: Shop, at_s: float) -> None:
    """Let another process repeat the intents that it finds."""
    shop.again()
    shop.repeat(at_s)


def test_the_intent_is_stored_while_the_launch_is_pending() -> None:
    """Afterwards the store has none."""
    shop = Shop()
    launch = shop.cloud.launch
    seen: list[Any] = []

    def watched(offer: str, count: int, token: str, **more: Any) -> Launched:
        seen.extend(shop.store.get("intents") or ())
        return launch(offer, count, token, **more)

    shop.cloud.launch = watched  # type: ignore[method-assign]
    assert shop.buy(OD, 2)
    assert [(intent.offer, intent.count, intent.token) for intent in seen] == [(OD, 2, shop.tokens()[0])]
    assert [intent.made for intent in shop.store.get("intents")] == [True]


def test_a_new_leader_repeats_only_the_launch_just_made() -> None:
    """The cloud may not show it yet, so it would be launched again; a repetition makes it show."""
    shop = Shop()
    assert shop.buy(OD, 2)
    shown, shop.cloud.lives = shop.cloud.lives, {}
    launch = shop.cloud.launch

    def shows(offer: str, count: int, token: str, **more: Any) -> Launched:
        shop.cloud.lives = shown
        return launch(offer, count, token, **more)

    shop.cloud.launch = shows  # type: ignore[method-assign]
    buyer = shop.again()
    shop.repeat(SHOWN_S - 1.0)
    assert len(shop.cloud.fleet().instances) == 2
    assert not buyer.unsure(standby=False)
    assert len(set(shop.tokens())) == 1
    shop.repeat(SHOWN_S - 0.5)
    assert len(shop.tokens()) == 2
    assert len(shop.store.journal) == 1, "it was one decision"
    again(shop, SHOWN_S - 0.2)  # the next process needs it as well
    assert len(shop.tokens()) == 3
    again(shop, SHOWN_S)
    assert len(shop.tokens()) == 3
    assert shop.store.get("intents") == ()


def test_a_launch_is_kept_from_its_call_on() -> None:
    """A call may come long after its round began, and its instances cannot show before it."""
    shop = Shop()
    launch = shop.cloud.launch

    def late(offer: str, count: int, token: str, **more: Any) -> Launched:
        shop.clock.t_s += SHOWN_S + 10.0
        return launch(offer, count, token, **more)

    shop.cloud.launch = late  # type: ignore[method-assign]
    assert shop.buy(OD, 2)
    shop.cloud.launch = launch  # type: ignore[method-assign]
    again(shop, SHOWN_S + 20.0)
    assert len(shop.tokens()) == 2
    again(shop, 2.0 * SHOWN_S + 9.0)
    assert len(shop.tokens()) == 3, "repeating it says nothing of when it was launched"
    again(shop, 2.0 * SHOWN_S + 10.0)
    assert len(shop.tokens()) == 3
    assert shop.store.get("intents") == ()


def test_launches_of_long_ago_are_not_kept() -> None:
    """This keeps the value small that is written at each launch."""
    shop = Shop()
    for at_s in (0.0, 1.0, SHOWN_S, SHOWN_S + 1.0):
        shop.buy(OD, 1, at_s)
    assert [intent.at_s for intent in shop.store.get("intents")] == [SHOWN_S, SHOWN_S + 1.0]


def test_a_late_crossing_out_keeps_nothing_older() -> None:
    """The store failed when the answer came; when it accepts the outcome, the launch before shows already."""
    shop = Shop()
    shop.buy(OD, 1, 0.0)
    put = shop.store.put

    def full(key: str, value: Any) -> None:
        if all(intent.made for intent in value):
            raise StoreError("the disk is full")
        put(key, value)

    shop.store.put = full  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        shop.buy(A, 1, SHOWN_S - 5.0)
    shop.store.put = put  # type: ignore[method-assign]
    assert [intent.made for intent in shop.store.get("intents")] == [False, True], "for the next controller"
    shop.repeat(SHOWN_S + 5.0)
    assert [intent.offer for intent in shop.store.get("intents")] == [A]


def test_what_is_known_to_be_refused_is_not_asked_again() -> None:
    """The launcher knows the refusal although the store failed.

    The plan may differ when the market has capacity again.
    """
    shop = Shop()
    shop.cloud.fail = {OD: CapacityError("none left")}
    put, puts = shop.store.put, []

    def torn(key: str, value: Any) -> None:
        puts.append(value)
        if len(puts) == 2:  # of the outcome
            raise StoreError("the answer was lost")
        put(key, value)

    shop.store.put = torn  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        shop.buy(OD, 2)
    assert [outcome for _, _, outcome in shop.store.journal] == ["none left"], "it is recorded first"
    shop.cloud.fail = {}
    shop.repeat(60.0)
    assert len(shop.cloud.instances) == 0
    assert shop.store.get("intents") == ()


def test_nothing_is_launched_that_could_not_be_written_down() -> None:
    """The store is the fence: a controller without the lease or the store launches nothing."""
    shop = Shop()

    def full(key: str, value: object) -> None:
        raise StoreError("the disk is full")

    shop.store.put = full  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        shop.buy(OD, 2)
    assert shop.cloud.calls == []


def test_a_write_with_a_lost_answer_leaves_no_intent() -> None:
    """Nothing was launched for the intent, so the next process must not find it."""
    shop = Shop()
    put = shop.store.put

    def torn(key: str, value: object) -> None:
        put(key, value)
        raise StoreError("the answer was lost")

    shop.store.put = torn  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        shop.buy(OD, 2)
    shop.store.put = put  # type: ignore[method-assign]
    shop.repeat(5.0)
    again(shop, 6.0)
    assert shop.cloud.calls == []
    assert shop.store.get("intents") == ()


@pytest.mark.parametrize("error", [CapacityError("out"), LimitError("quota"), DeniedError("no")])
def test_a_clear_refusal_is_not_repeated(error: CloudError) -> None:
    """Nothing was launched, so the next plan decides."""
    shop = Shop()
    shop.cloud.fail = {OD: error}
    shop.buy(OD, 2)
    again(shop, 1.0)
    assert len(shop.cloud.calls) == 1


@pytest.mark.parametrize("error", [CloudError("timed out"), ThrottledError("twice"), StoreError("no number")])
def test_a_launch_with_an_unclear_outcome_is_retried_until_clear(error: CloudError) -> None:
    """The token stays the same, also in the next process.

    Until then the launch counts as made, against the limits too.
    """
    shop = Shop()
    shop.cloud.fail = {OD: error}
    shop.buy(OD, 4)
    buyer = shop.again()
    shop.repeat(1.0)
    assert buyer.unsure(standby=False) == {OD: 4}
    assert buyer.headroom(OD, 1.0)[0] == 6
    shop.cloud.fail = {}
    shop.repeat(1.0 + THROTTLED.first_s)
    assert not buyer.unsure(standby=False)
    assert len(set(shop.tokens())) == 1
    assert len(shop.cloud.instances) == 4
    assert [outcome for *_, outcome in shop.store.journal] == [str(error), "done"]


@pytest.mark.parametrize("lacking", [0.0, 3.0])
def test_more_than_is_wanted_by_then_is_given_up(lacking: float) -> None:
    """It counts as launched until the fleet would show its instances; then the remaining need is planned again."""
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 4)
    shop.cloud.fail = {}
    assert not shop.repeat(THROTTLED.first_s - 1.0, lacking=lacking)
    assert shop.buyer.unsure(standby=False) == {OD: 4}
    assert not shop.repeat(THROTTLED.first_s, lacking=lacking)
    assert not shop.buyer.unsure(standby=False)
    assert not shop.store.get("intents")
    assert not shop.repeat(THROTTLED.first_s + 5.0)
    assert len(shop.tokens()) == 1


def test_what_is_given_up_stays_so_where_the_store_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is down at that moment, so the launch is given up again in the next round."""
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 4)
    shop.cloud.fail = {}
    monkeypatch.setattr(shop.store, "put", failing)
    with pytest.raises(StoreError):
        shop.repeat(THROTTLED.first_s, lacking=0.0)
    monkeypatch.undo()
    assert not shop.repeat(THROTTLED.first_s + 5.0, lacking=0.0)
    assert not shop.store.get("intents")
    assert len(shop.tokens()) == 1


def test_a_throttled_launch_that_is_wholly_lacking_is_made() -> None:
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 4)
    shop.cloud.fail = {}
    assert [outcome.done for outcome in shop.repeat(THROTTLED.first_s, lacking=4.0)] == [True]
    assert len(set(shop.tokens())) == 1


def test_a_throttled_launch_of_standbys_is_given_up() -> None:
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 2, standby=True)
    shop.cloud.fail = {}
    assert not shop.repeat(THROTTLED.first_s, lacking=4.0)
    assert not shop.store.get("intents")
    assert len(shop.tokens()) == 1


def test_a_repetition_without_an_answer_is_no_longer_only_throttled() -> None:
    """It may have launched instances, whose outcome belongs in the journal."""
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 2)
    shop.cloud.fail = {OD: CloudError("timed out")}
    shop.repeat(THROTTLED.first_s)
    shop.cloud.fail = {}
    assert [outcome.done for outcome in shop.repeat(3.0 * THROTTLED.first_s, lacking=0.0)] == [True]


def test_what_may_have_started_is_asked_for_wanted_or_not() -> None:
    """The outcome belongs in the journal, even if another process made the launch."""
    shop = Shop()
    shop.cloud.fail = {OD: CloudError("timed out")}
    shop.buy(OD, 2)
    shop.cloud.fail = {}
    shop.again()
    assert [outcome.done for outcome in shop.repeat(2.0, lacking=0.0)] == [True]


def test_another_process_gives_up_what_was_throttled() -> None:
    """It waits as long as the first one would: an attempt before the one that was throttled may have started some."""
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 2)
    shop.clock.t_s, shop.cloud.fail = 10.0, {}
    shop.again()
    assert not shop.repeat(THROTTLED.first_s, lacking=0.0)
    assert shop.buyer.unsure(standby=False) == {OD: 2}
    assert not shop.repeat(10.0 + THROTTLED.first_s, lacking=0.0)
    assert not shop.buyer.unsure(standby=False)
    assert len(shop.tokens()) == 1


def test_a_throttled_launch_that_was_repeated_may_have_started() -> None:
    """The answer is lost: the next process asks again."""
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 2)
    shop.cloud.fail = {OD: CloudError("timed out")}
    shop.repeat(THROTTLED.first_s)
    shop.cloud.fail = {}
    shop.again()
    assert [outcome.done for outcome in shop.repeat(THROTTLED.first_s + 1.0, lacking=0.0)] == [True]


def test_what_was_throttled_is_known_whatever_the_store_does(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.cloud.fail = {OD: ThrottledError("later")}
    shop.buy(OD, 2)
    put, puts = shop.store.put, iter([False, True])

    def torn(key: str, value: object) -> None:
        put(key, value)
        if next(puts):
            raise StoreError("the answer was lost")

    monkeypatch.setattr(shop.store, "put", torn)
    with pytest.raises(StoreError):
        shop.repeat(THROTTLED.first_s)  # throttled again
    monkeypatch.undo()
    shop.cloud.fail = {}
    assert not shop.repeat(3.0 * THROTTLED.first_s, lacking=0.0)
    assert not shop.buyer.unsure(standby=False)


def test_the_last_dollars_buy_what_is_planned() -> None:
    """They are not enough for a dearer alternative, which the limit would have to hold as well."""
    shop = Shop()
    buyer = shop.again(Limits(10, 0.07))
    dearer = Launch("needed", 0.0, A, 2, alternatives=(OD,))
    assert [outcome.text for outcome in buyer.launch(0.0, dearer, substitute=False)] == ["done"]


def test_a_part_of_nothing_has_room_for_one() -> None:
    """Limits in dollars are shared in proportion to each stage's holding, which may be zero."""
    shop = Shop()
    assert shop.buyer.holding(0.0) == Holding(0, 0.0, Limits(10, 100.0))  # functions alone may serve
    shop.buyer = Launcher(resolved(min_instances=1), shop.cloud, shop.clock, shop.store, Limits(10, 100.0), 7)
    assert shop.buyer.holding(0.0) == Holding(0, ON_DEMAND.usd_per_hour, Limits(10, 100.0))
    shop.buy(A, 1)
    assert shop.buyer.holding(0.0).usd_per_hour == SPOT_A.usd_per_hour


@pytest.mark.parametrize(
    ("error", "first_s", "asked"),
    [(CloudError("timed out"), LAUNCH.first_s, 6), (ThrottledError("later"), THROTTLED.first_s, 3)],
)
def test_what_stays_unclear_is_asked_for_less_and_less(error: CloudError, first_s: float, asked: int) -> None:
    """Otherwise every process would repeat the call each five seconds, although the cloud asked for fewer calls."""
    shop = Shop()
    shop.cloud.fail = {OD: error}
    shop.buy(OD, 1)
    for at_s in range(1, 90):
        shop.repeat(float(at_s))
        assert len(shop.cloud.calls) == 1 or at_s >= first_s
    assert len(shop.cloud.calls) == asked
    for at_s in range(90, 150):
        shop.repeat(float(at_s))
    assert len(shop.cloud.calls) > asked  # a minute is the longest


def test_a_launch_from_a_clock_ahead_stays_no_longer() -> None:
    """The next leader counts from its own begin: otherwise it would wait for as much longer as the clock was ahead."""
    shop = Shop()
    shop.cloud.fail = {OD: CloudError("timed out")}
    shop.buy(OD, 2, 900.0)
    shop.clock.t_s = 10.0
    again(shop, 10.0)
    assert shop.buyer.unsure(standby=False) == {OD: 2}
    shop.repeat(10.0 + UNSURE_S)
    assert not shop.buyer.unsure(standby=False)


def test_launch_that_was_made_is_no_doubtful_one_if_the_fleet_cannot_be_read() -> None:
    """The fleet is read after a launch only to tell which alternatives were started."""
    shop = Shop()
    launch, fleet = shop.cloud.launch, shop.cloud.fleet

    def throttled() -> Fleet:
        raise ThrottledError("RequestLimitExceeded")

    def made(*given: Any, **more: Any) -> Launched:
        found = launch(*given, **more)
        shop.cloud.fleet = throttled  # type: ignore[method-assign]
        return found

    shop.cloud.launch = made  # type: ignore[method-assign]
    command = Launch("needed", 0.0, A, 2, alternatives=(SPOT_B.name,))
    (outcome,) = shop.buyer.launch(0.0, command, substitute=False)
    assert (outcome.text, outcome.result, outcome.started) == ("done", Result.DONE, (1, 2))
    assert not shop.buyer.unsure(standby=False)
    shop.cloud.launch, shop.cloud.fleet = launch, fleet  # type: ignore[method-assign]
    assert shop.repeat(600.0) == []
    assert len(shop.store.journal) == 1


def test_an_alternative_that_is_sold_no_more_ends_a_repetition() -> None:
    """Another process may have other offers, so it cannot repeat the same call.

    The fleet shows the launched instances.
    """
    shop = Shop()
    shop.cloud.fail = {OD: CloudError("no answer in time")}
    gone = Launch("needed", 0.0, OD, 1, alternatives=("m1.large/on-demand",))
    shop.buyer._usd_per_hour["m1.large/on-demand"] = 0.08
    list(shop.buyer.launch(0.0, gone, substitute=False))
    assert shop.again().unsure(standby=False) == {OD: 1}
    shop.repeat(1.0)
    assert not shop.buyer.unsure(standby=False)
    assert len(shop.cloud.calls) == 1


@pytest.mark.parametrize("had", [0, 1])
def test_what_a_repeated_launch_is_refused_is_known_as_well(had: int) -> None:
    """The refusal counts with its reason and scope, as if the first answer had arrived. Older knowledge does not."""
    shop = Shop()
    shop.cloud.fail = {A: CloudError("no answer in time")}
    shop.buy(A, 2)
    refusal = CapacityError("MaxSpotInstanceCountExceeded: no more", RefusalScope.MARKET)
    shop.cloud.fail, shop.cloud.left, shop.cloud.why = ({} if had else {A: refusal}), {A: had}, refusal
    (outcome,) = shop.repeat(LAUNCH.first_s)
    assert (outcome.refused, outcome.started) == (True, tuple(range(1, had + 1)))
    assert outcome.put_off == (A, "c5.large/spot/b")
    assert outcome.text == ("the market had 1 of 2: " if had else "") + str(refusal)
    shop.again()
    assert not any(outcome.refused for outcome in shop.repeat(LAUNCH.first_s + 1.0)), "it taught what it could"


def test_all_launches_that_are_unclear_count_against_the_limits() -> None:
    """This includes two launches of one offer."""
    shop = Shop()
    shop.cloud.fail = {OD: CloudError("no answer in time")}
    shop.buy(OD, 4)
    shop.buy(OD, 3, 60.0)
    assert shop.buyer.unsure(standby=False) == {OD: 7}
    assert shop.buyer.headroom(OD, 61.0)[0] == 3


def test_what_stays_unclear_is_given_up() -> None:
    """The fleet shows any launched instances before that."""
    shop = Shop()
    shop.cloud.fail = {OD: CloudError("timed out")}
    shop.buy(OD, 1)
    shop.repeat(UNSURE_S - 1.0)
    assert shop.buyer.unsure(standby=False)
    shop.repeat(UNSURE_S)
    assert not shop.buyer.unsure(standby=False)


def test_an_unclear_launch_of_hours_ago_is_not_made() -> None:
    """The process died with it, and the plan that wanted it is long over."""
    shop = Shop()
    shop.cloud.fail = {OD: CloudError("timed out")}
    shop.buy(OD, 3)
    shop.cloud.fail = {}
    calls = len(shop.cloud.calls)
    again(shop, 36_000.0)
    assert len(shop.cloud.calls) == calls
    assert not shop.buyer.unsure(standby=False)


def test_a_repeated_launch_still_stands_in_for_what_was_planned() -> None:
    """The offer that it stands in for is part of the intent."""
    shop = Shop()
    shop.cloud.fail = {A: CapacityError("out"), "c5.large/spot/b": CapacityError("out"), OD: CloudError("timed out")}
    list(shop.buyer.launch(0.0, Launch("needed", 0.0, A, 1), substitute=True))
    shop.cloud.fail = {}
    shop.again()
    (outcome,) = shop.repeat(1.0)
    state = stand_in(ControllerState(), outcome)
    assert counted_as(state.stands_for, shop.cloud.fleet(), {A: 1}) == {1: A}


def test_a_planner_is_exchanged_for_the_same_within_other_limits() -> None:
    """Its memory is kept; the next plan and launch obey the new limits."""
    bench = Bench()
    bench.tick({OD: 2})
    tight = replace(bench.resolved, service=replace(bench.resolved.service, max_instances=3))
    bench.controller.use(Policy(bench.planner, tight, bouncers=True))
    bench.tick({OD: 5})
    assert len(bench.cloud.instances) == 3
    assert bench.planner.contexts[-1].resolved is tight


def test_min_instances_are_kept_of_the_cheapest_there_is() -> None:
    """If there is no offer to keep, the instances are those that the SLO monitor would buy."""
    bench = Bench(ScriptedPlanner(), resolved(min_instances=1))
    bench.tick({})
    assert [i.offer for i in bench.cloud.instances.values()] == [OD]
    bench.tick({OD: 1, A: 1})
    bench.cloud.boot()
    bench.tick({})
    assert bench.phases() == {1: f"{OD} draining", 2: f"{A} ready"}


def test_a_substitute_for_a_rescue_is_a_rescue() -> None:
    shop = Shop()
    shop.cloud.left = {A: 0}
    outcomes = list(shop.buyer.launch(0.0, Launch("needed", 0.0, A, 1, rescue=True), substitute=True))
    assert len(outcomes) > 1
    assert all(outcome.command.rescue for outcome in outcomes)
