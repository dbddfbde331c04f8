"""The controller's manager: the turns of services, the choice of the acting manager, and the views."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import pytest

from mark.cloud.billing.moving_prices import Repriced
from mark.cloud.machine import InstanceLife
from mark.control.controller import Controller
from mark.control.lease import FencedLease, MemoryTerms
from mark.control.manager import ControllerManager
from mark.control.ports import Launched, OverflowTotals, Ran, RecentAnswers, Result
from mark.control.rollout import Rollout, RolloutStage
from mark.control.service_term import BACK, WISH
from mark.control.shared_limits import limited
from mark.control.views import Limits, RolloutSchema
from mark.domain.backoff import START
from mark.domain.errors import BadInput, CapacityError, CloudError, LostLease, RefusalScope, StoreError
from mark.domain.fleet import Phase
from mark.domain.plan import Plan
from mark.domain.price_list import PriceList
from mark.planning.planner import PlanningContext, Policy
from mark.testing.fakes import ScriptedPlanner
from tests.control.control_fakes import ON_DEMAND, SPOT_A
from tests.control.manager_fakes import ORIGIN, FakePrices, InlinePool, Process, World

OD = ON_DEMAND.name


def launches(world: World) -> int:
    """Return the number of different launches, without repetitions."""
    return len({call for call in world.cloud.calls if call[0] == "launch"})


def rolling_out(world: World, release: str) -> Process:
    """Return a process that tries a release beside the serving release a."""
    world.release, world.planner.wanted = "a", {OD: 2}
    first = Process(world)
    first.run(62)
    world.cloud.boot()
    first.run(60)
    first.manager.close()
    world.release = release
    second = Process(world)
    second.run(62)
    return second


def test_a_first_start_plans_and_launches_the_fleet_once() -> None:
    """Neither an instance nor a stored plan exists, so the first plan is made in the first round and followed."""
    world = World()
    world.planner.wanted = {OD: 3}
    process = Process(world)
    process.run(2)
    assert len(world.cloud.instances) == 3
    assert [s.first for s in world.planner.contexts[:1]] == [True]
    process.run(180)
    assert launches(world) == 1


def test_an_empty_plan_still_keeps_one_instance() -> None:
    """A fleet without instances observes nothing."""
    world = World()
    process = Process(world)
    process.run(2)
    assert [i.offer for i in world.cloud.instances.values()] == [OD]
    world.cloud.boot()
    process.run(120)
    assert len(world.cloud.instances) == 1


def test_fast_runs_every_window_and_a_tick_every_minute() -> None:
    """Twelve looks a minute, one of them with a plan."""
    world = World()
    world.planner.wanted = {OD: 1}
    process = Process(world)
    process.run(2)
    before = len(world.planner.contexts)
    process.run(300)
    assert len(world.planner.contexts) - before == 5


def test_a_late_store_failure_costs_no_minute_nor_second_plan() -> None:
    """The minute was written and planned for; only the part that failed is repeated in the next round."""
    world = World()
    process = Process(world)
    process.run(62)
    recorded, minutes = world.store.recorded, len(world.planner.contexts)
    world.telemetry.total = RecentAnswers(600, 600)
    process.run(50)
    world.planner.wanted = {OD: 3}  # so that there is a decision to show
    failed: list[int] = []

    def fails(before_id: int | None, count: int) -> Any:
        if failed:
            return recorded(before_id, count)
        failed.append(1)
        raise StoreError("a hiccup")

    world.store.recorded = fails  # type: ignore[method-assign]
    process.run(22)
    assert failed
    (runtime,) = process.manager._runtimes.values()
    assert runtime.term is not None
    assert {minute: row.requests for minute, row in runtime.term._rows.items()} == {0: 0, 1: 600}
    assert len(world.planner.contexts) == minutes + 1


def test_a_written_wish_takes_a_release_back() -> None:
    """The wish concerns the serving release; one for another release waits for the controller that starts with it."""
    world = World()
    second = rolling_out(world, "b")
    rollout = second.manager.view("inception").rollout
    assert rollout is not None
    assert (rollout.stage, rollout.release, rollout.instances) == ("canary", "a", {"a": 2, "b": 1})
    world.store.put(WISH, {"wish": BACK, "release": "c"})
    second.run(62)
    assert world.store.get(WISH) is not None
    world.store.put(WISH, {"wish": BACK, "release": "b"})
    second.run(130)
    view = second.manager.view("inception")
    assert view.rollout == RolloutSchema("b", "a", "stopped", "", "it was taken back", {"a": 2})
    assert view.conditions == ("release b is not served, but a: it was taken back",)
    assert world.store.get(WISH) is None
    second.manager.roll_out_again("inception")
    second.run(10)
    assert second.manager.view("inception").rollout.stage == "canary"  # type: ignore[union-attr]


def test_rollback_waits_for_a_store_that_does_not_answer() -> None:
    world = World()
    process = rolling_out(world, "b")
    runtime, get = process.manager._runtimes["inception"], world.store.get
    process.manager.roll_back("inception")

    def fails(key: str) -> Any:
        raise StoreError("a hiccup")

    world.store.get = fails  # type: ignore[method-assign]
    assert runtime.term is not None
    with pytest.raises(StoreError):
        runtime.term._roll_out(full=True)
    world.store.get = get  # type: ignore[method-assign]
    process.run(10)
    rollout = process.manager.view("inception").rollout
    assert rollout is not None
    assert rollout.reason == "it was taken back"


def test_a_rollback_is_of_what_was_deployed_last() -> None:
    """Otherwise another release than the intended one would be taken back."""
    world = World()
    process = rolling_out(world, "b")
    process.manager.roll_back("inception")
    process.run(10)
    with pytest.raises(BadInput, match="a is the newest release, and b is taken back already"):
        process.manager.roll_back("inception")
    controller = world.controller
    assert controller is not None
    controller.state = replace(controller.state, rollout=Rollout("c", RolloutStage.ROLLING, before="a"))
    with pytest.raises(BadInput, match="c is the newest release, and b waits until that is over"):
        process.manager.roll_back("inception")


def test_a_paused_service_says_that_its_release_waits() -> None:
    world = World()
    process = rolling_out(world, "b")
    process.manager.pause("inception", True)
    process.run(10)
    assert process.manager.view("inception").conditions == ("roll-out of release b waits: the service is paused",)


def test_a_restarted_room_goes_on_from_store_and_cloud() -> None:
    """There is no second first fleet and no launch; bill, history and decisions continue."""
    world = World()
    world.planner.wanted = {OD: 2}
    first = Process(world)
    first.run(2)
    world.cloud.boot()
    world.changes.told = [Ran(1, OD, True, 1.0), Ran(2, OD, True, 1.0)]
    world.telemetry.total = RecentAnswers(100, 99)
    first.run(240)
    before = first.manager.view("inception")
    rows, decisions = first.manager.history("inception", 1.0, 60), first.manager.decisions("inception", None, 10)
    first.manager.close()  # a killed one would have to wait for its lease to end
    second = Process(world)
    second.run(1)
    assert launches(world) == 1
    after = second.manager.view("inception")
    usd = 2 * (after.at_s - before.at_s) * ON_DEMAND.usd_per_s
    assert after.bill.total == pytest.approx(before.bill.total + usd)
    assert before.bill.total == pytest.approx(2 * (before.at_s - 1.0) * ON_DEMAND.usd_per_s)
    assert second.manager.history("inception", 1.0, 60) == rows
    assert second.manager.decisions("inception", None, 10) == decisions


@pytest.mark.parametrize("lost", [CloudError("no answer in time"), None])
def test_an_interrupted_launch_is_repeated_under_its_token(lost: CloudError | None) -> None:
    """The process dies, or gets no answer, after the launch. The token stays the same, and so do the instances."""
    world = World()
    world.planner.wanted = {OD: 2}
    launch, hidden = world.cloud.launch, dict[int, InstanceLife]()

    def launched_and_lost(offer: str, count: int, token: str, **more: Any) -> Launched:
        launch(offer, count, token, **more)
        hidden.update(world.cloud.lives)
        world.cloud.lives.clear()  # they do not show yet
        if lost is None:
            raise KeyboardInterrupt
        raise lost

    def found_again(offer: str, count: int, token: str, **more: Any) -> Launched:
        world.cloud.lives.update(hidden)
        return launch(offer, count, token, **more)

    world.cloud.launch = launched_and_lost  # type: ignore[method-assign]
    process = Process(world)
    if lost is None:
        with pytest.raises(KeyboardInterrupt):
            process.manager._runtimes["inception"].reconcile(1, ORIGIN)
        process = Process(world)
    else:
        process.run(1)
    world.cloud.launch = found_again  # type: ignore[method-assign]
    process.run(300)
    assert [call[0] for call in world.cloud.calls] == ["launch", "launch"]
    assert launches(world) == 1
    assert len(world.cloud.instances) == 2
    assert world.store.journal[-1][2] == "done"


def test_an_unknown_outcome_blocks_a_second_launch() -> None:
    """Every answer is lost for a while: the launch is repeated, but never made twice."""
    world = World()
    world.planner.wanted = {OD: 2}
    world.cloud.fail = {OD: CloudError("no answer in time")}
    process = Process(world)
    process.run(200)
    assert len({call[3] for call in world.cloud.calls}) == 1
    process.run(200)  # given up after five minutes: its instances would show by now
    assert len({call[3] for call in world.cloud.calls}) == 2
    world.cloud.fail = {}
    process.run(60)
    assert len(world.cloud.instances) == 2


def test_a_standby_manager_takes_over_without_a_second_launch() -> None:
    """The second waits for the lease's end, then continues from store and cloud."""
    world = World()
    world.planner.wanted = {OD: 2}
    one, other = Process(world), Process(world)
    one.run(5)
    other.run(5)
    assert (one.manager.leads(), other.manager.leads()) == (True, False)
    assert other.manager.view("inception").mode == "standing by"
    with pytest.raises(BadInput, match="stands by"):
        other.manager.pause("inception", True)
    other.run(14)  # `one` has ended, or is asleep
    assert other.manager.leads()
    other.run(120)
    assert other.manager.view("inception").mode == "acting"
    assert launches(world) == 1
    one.step()  # awake again: it notices, and gives up the lease
    assert not one.manager.leads()
    assert one.manager.view("inception").mode == "standing by"
    assert world.closed == 1


def test_a_leader_without_descriptors_gives_the_lease_back() -> None:
    """Without this it would renew the lease and never act. It leads again once it can, if no other one leads."""
    world = World()
    one, other = Process(world), Process(world)
    one.run(5)
    one.able = False
    one.run(14)
    assert one.manager.leads(), "a term has not passed"
    one.able = True
    one.run(2)
    one.able = False
    one.run(16)
    assert not one.manager.leads()
    other.run(16)
    assert other.manager.leads()
    one.run(30)
    assert not one.manager.leads()
    other.manager.close()
    one.able = True
    one.run(16)
    assert one.manager.leads()


def test_a_released_lease_is_taken_at_once() -> None:
    """An orderly end releases it."""
    world = World()
    one, other = Process(world), Process(world)
    one.run(2)
    one.manager.close()
    other.run(16)  # it asks again within the last term that it saw
    assert other.manager.leads()
    assert world.closed == 1


def test_lease_is_released_although_a_service_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    terms = MemoryTerms()
    bad, good = World("bad", terms), World("good", terms)
    process = Process(bad, good)

    def broken() -> None:
        raise ZeroDivisionError("so it goes")

    bad.close = broken  # type: ignore[method-assign]
    process.run(2)
    process.manager.close()
    assert good.closed == 1
    assert terms.claim("controller", "other", ORIGIN + 60.0).holder == "other"
    assert "cannot be closed" in caplog.text


def test_a_failed_start_is_tried_again_whatever_the_clock_shows() -> None:
    """If the clock is set back by an hour, the manager does not wait for an hour."""
    world = World()
    world.fail_start = CloudError("no answer")
    runtime = world.member()
    runtime.reconcile(1, ORIGIN + 4000.0)
    assert not runtime.due(1, ORIGIN + 4000.0 + START.first_s - 1.0)
    assert runtime.due(1, ORIGIN + 4000.0 + START.first_s)
    assert runtime.due(1, ORIGIN + 400.0)


def test_one_service_in_trouble_does_not_hold_up_the_others() -> None:
    """A failing start, a failing cloud and a fault of ours stay with their service, and end with their cause."""
    terms = MemoryTerms()
    good, bad = World("good", terms), World("bad", terms)
    bad.fail_start = CloudError("AWS does not answer")
    process = Process(good, bad)
    process.run(5)
    assert process.manager.view("bad").conditions == ("AWS does not answer",)
    assert process.manager.view("good").conditions == ()
    assert len(good.cloud.instances) == 1
    bad.fail_start = None
    process.run(15)
    assert process.manager.view("bad").conditions == ()
    assert len(bad.cloud.instances) == 1

    def broken() -> None:
        raise ZeroDivisionError("so it goes")

    fleet, bad.cloud.fleet = bad.cloud.fleet, broken  # type: ignore[assignment]
    process.run(60)
    assert "a fault of ours: ZeroDivisionError" in process.manager.view("bad").conditions[0]
    assert process.manager.view("good").conditions == ()
    bad.cloud.fleet = fleet
    process.run(6)
    assert process.manager.view("bad").conditions == ()


def test_a_service_still_busy_is_skipped_and_named() -> None:
    """The room never waits for a service's look."""
    world = World()
    process = Process(world)
    process.run(2)
    process.pool.held = True
    process.run(20)
    assert "skipped: its last round began" in process.manager.view("inception").conditions[0]
    process.pool.release()
    process.run(6)
    assert process.manager.view("inception").conditions == ()


def test_services_learn_in_turns_one_a_window() -> None:
    """No two fits overlap, and every turn is used at the next look, with any number of services."""
    terms = MemoryTerms()
    worlds = [World(name, terms) for name in ("one", "two", "three")]
    process = Process(*worlds)
    process.run(10)
    turns: list[str] = []
    for world in worlds:
        assert world.controller is not None
        world.controller.learn = lambda name=world.service: turns.append(name)  # type: ignore[method-assign, misc]
    process.run(60)
    assert len(turns) == 12
    assert turns[3:] == turns[:-3]
    assert set(turns) == {"one", "two", "three"}


@pytest.mark.parametrize("trouble", [None, CloudError("AWS does not answer")])
def test_services_learn_in_turns_after_a_take_over_too(
    trouble: CloudError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the time of standing by nor failed starts save turns for later."""
    learned: list[float] = []
    monkeypatch.setattr(Controller, "learn", lambda self: learned.append(self._clock.now_s()))
    terms = MemoryTerms()
    worlds = [World(name, terms) for name in ("one", "two", "three")]
    leader = Process(*worlds)
    if trouble is None:
        leader.run(2)
    follower = Process(*worlds)
    for world in worlds:
        world.fail_start = trouble
    follower.run(12)
    for world in worlds:
        world.fail_start = None
    learned.clear()
    follower.run(40)
    assert follower.manager.leads()
    assert len(learned) == len(set(learned)) >= 3


def test_a_pause_stops_buying_and_ending_and_survives_a_restart() -> None:
    """Nothing is launched or drained until it is resumed; the view is still updated."""
    world = World()
    process = Process(world)
    process.run(2)
    process.manager.pause("inception", True)
    assert process.manager.view("inception").mode == "paused"
    world.planner.wanted = {OD: 5}
    process.run(130)
    assert len(world.cloud.instances) == 1
    process.manager.close()
    process = Process(world)
    process.run(130)
    assert process.manager.view("inception").mode == "paused"
    assert len(world.cloud.instances) == 1
    process.manager.pause("inception", False)
    process.run(70)
    assert len(world.cloud.instances) == 5


def test_a_pause_that_failed_to_store_is_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause holds until then. A manager that lost the lease before it was stored does not bring it back."""
    world = World()
    process = Process(world)
    process.run(2)

    def fails(key: str, value: object) -> None:
        raise StoreError("a hiccup")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "put", fails)
        process.manager.pause("inception", True)
        world.planner.wanted = {OD: 5}
        process.run(130)
        assert len(world.cloud.instances) == 1
    process.run(10)
    process.manager.close()
    process = Process(world)
    process.run(10)
    assert process.manager.view("inception").mode == "paused"
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "put", fails)
        process.manager.pause("inception", False)
        process.run(10)
        process.lease.release()
        process.run(1)
    process.run(130)
    assert process.manager.view("inception").mode == "paused"


def test_while_it_is_paused_load_is_taken_in() -> None:
    """Otherwise it would be lost with the process."""
    world = World()
    process = Process(world)
    process.run(70)
    process.manager.pause("inception", True)
    process.run(10)
    loads: list[int] = []
    load = world.telemetry.load
    world.telemetry.load = lambda: loads.append(1) or load()  # type: ignore[method-assign, func-returns-value]
    process.run(300)
    assert len(loads) == 5
    assert len(world.cloud.instances) == 1


def test_leadership_ends_with_the_term_while_the_store_hangs() -> None:
    """The room's own thread waits in `hold` then; others ask whether it leads."""
    world, passed_s = World(), [0.0]
    lease = FencedLease(world.terms, "controller", monotonic_s=lambda: passed_s[0])
    room = ControllerManager([world.member()], lease, InlinePool())
    room.step(ORIGIN)
    assert room.leads()
    passed_s[0] = 13.9
    assert room.leads()
    passed_s[0] = 14.1
    assert not room.leads()
    room.close()


def test_while_it_ends_the_lease_is_held() -> None:
    """A look under way still acts; nothing new is begun, and the standby leads when it is over."""
    world = World()
    process = Process(world)
    process.run(2)
    process.pool.held = True
    process.run(5)
    renewed = list[float]()

    def unix_s() -> float:
        world.clock.t_s += 5.0
        renewed.append(ORIGIN + world.clock.t_s)
        if len(renewed) == 3:
            process.pool.release()
        return renewed[-1]

    process.manager.end(unix_s)
    assert len(renewed) == 3
    assert process.manager.leads()
    assert FencedLease(world.terms, "controller").hold(renewed[-1] + 1.0) is None
    process.manager.close()
    assert not process.manager.leads()
    assert FencedLease(world.terms, "controller").hold(renewed[-1] + 2.0) is not None


def test_limits_change_while_it_runs_and_survive_a_restart() -> None:
    """The controller and the planner see them from the next look on."""
    world = World()
    world.planner.wanted = {OD: 5}
    process = Process(world)
    process.run(1)
    world.planner.wanted = {OD: 9}
    limits = Limits(7, 50.0)
    process.manager.set_limits("inception", limits)
    assert process.manager.view("inception").limits == limits
    process.run(65)
    assert len(world.cloud.instances) == 7
    assert world.planner.contexts[-1].resolved.service.max_instances == 7
    process.manager.close()
    process = Process(world)
    process.run(65)
    assert process.manager.view("inception").limits == limits
    assert len(world.cloud.instances) == 7
    for bad in (Limits(0, 1.0), Limits(1, 0.0), Limits(1, float("nan"))):
        with pytest.raises(BadInput):
            process.manager.set_limits("inception", bad)


def test_limits_that_were_not_stored_are_void_with_the_lease() -> None:
    """The next leader may be asked for other limits; this manager starts from the stored ones when it leads again."""
    world = World()
    process = Process(world)
    process.run(2)
    before = process.manager.view("inception").limits
    process.manager.set_limits("inception", Limits(1, 0.1))
    process.lease.release()
    world.planner.wanted = {OD: 5}
    process.run(70)
    assert process.manager.view("inception").limits == before
    assert len(world.cloud.instances) == 5


def test_requests_of_a_term_that_never_began_are_void_with_the_lease() -> None:
    """The service could not be started; the next leader may be asked for the opposite."""
    world = World()
    world.fail_start = CloudError("AWS does not answer")
    process, other = Process(world), Process(world)
    process.run(2)
    before = process.manager.view("inception").limits
    process.manager.pause("inception", True)
    process.manager.set_limits("inception", Limits(1, 0.1))
    process.manager._lease.release()
    world.fail_start = None
    other.run(70)
    process.run(2)
    other.manager.close()
    process.run(70)
    view = process.manager.view("inception")
    assert (view.mode, view.limits) == ("acting", before)


def test_a_round_of_the_last_term_keeps_the_requests_of_this_one() -> None:
    """It waits in the pool until this process leads again and has accepted a request."""
    world = World()
    process = Process(world)
    process.run(2)
    process.pool.held = True
    world.terms.resign("controller", process.lease.holder)
    other = world.terms.claim("controller", "other", ORIGIN)
    process.run(6)
    assert not process.manager.leads()
    world.terms.resign("controller", other.holder)
    process.run(6)
    process.manager.pause("inception", True)
    process.pool.release()
    process.run(10)
    assert process.manager.view("inception").mode == "paused"
    assert world.store.get("paused") is True


def test_a_roll_back_waits_for_a_store_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of the last term finds that its writes are refused, and leaves the request to the next round."""
    world = World()
    process = rolling_out(world, "b")
    process.manager.roll_back("inception")

    def refused(key: str, value: object) -> None:
        raise LostLease("another term has begun")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "put", refused)
        process.run(5)
    process.run(20)
    rollout = process.manager.view("inception").rollout
    assert rollout is not None
    assert rollout.reason == "it was taken back"


def test_pause_waits_for_a_service_that_cannot_be_started_yet() -> None:
    world = World()
    world.fail_start = CloudError("AWS does not answer")
    process = Process(world)
    process.run(2)
    process.manager.pause("inception", True)
    process.run(30)
    world.fail_start = None
    process.run(30)
    assert process.manager.view("inception").mode == "paused"
    assert world.store.get("paused") is True


def test_history_is_empty_after_the_term() -> None:
    """Its minutes count from the clock of the service, which is unknown without a term."""
    world = World()
    process = Process(world)
    process.run(190)
    assert set(process.manager.history("inception", 1.0, 60).usd_per_hour) != {None}
    process.manager._runtimes["inception"].reconcile(None, ORIGIN + world.clock.t_s)
    assert set(process.manager.history("inception", 1.0, 60).usd_per_hour) == {None}


def test_rollback_that_was_not_begun_is_void_with_the_lease() -> None:
    """The next leader is asked again, and this manager may lead again when the release serves well."""
    world = World()
    process = rolling_out(world, "b")
    process.manager.roll_back("inception")
    process.lease.release()
    process.run(20)
    rollout = process.manager.view("inception").rollout
    assert rollout is not None
    assert (rollout.stage, rollout.reason) == ("canary", "")


def test_the_view_shows_instances_costs_and_slo_attainment() -> None:
    """The view is a snapshot: the same object between looks."""
    world = World()
    world.planner.wanted = {OD: 2, SPOT_A.name: 1}
    process = Process(world)
    process.run(1)
    world.cloud.boot()
    world.telemetry.total, world.telemetry.latest = RecentAnswers(1000, 990), RecentAnswers(1000, 995)
    world.telemetry.overflowed = OverflowTotals(50, 0.25)
    world.changes.told = [Ran(1, OD, True, 1.0), Ran(2, OD, True, 1.0)]
    process.run(60)
    view = process.manager.view("inception")
    assert view is process.manager.view("inception")
    assert view.mode == "acting"
    assert view.capacity_rps == 30.0
    assert view.usd_per_hour == pytest.approx(2 * ON_DEMAND.usd_per_hour + SPOT_A.usd_per_hour)
    assert view.prices == {OD: ON_DEMAND.usd_per_hour, SPOT_A.name: SPOT_A.usd_per_hour}
    assert (view.slo.attainment, view.slo.recent) == (0.99, 0.995)
    assert view.slo.error_budget_left == pytest.approx(0.5)
    assert view.bill.functions == 0.25
    assert view.bill.on_demand == pytest.approx(2 * (view.at_s - 1.0) * ON_DEMAND.usd_per_s)
    assert view.at_unix_s == ORIGIN + view.at_s
    assert view.requests == 1000
    assert world.resolved.function is not None
    planned_usd = view.price_list.usd_per_planned_request
    assert planned_usd == pytest.approx(view.usd_per_hour / 3600.0 / view.capacity_rps)
    # Nothing forecasts here.
    assert view.price_list == PriceList(None, world.resolved.function.usd_per_request, planned_usd)
    process.run(60)
    history = process.manager.history("inception", 1.0, 60)
    assert history.instances[OD][-1] == 2
    assert history.rps[-1] == 25.0


def test_a_release_that_cannot_be_launched_is_a_trouble() -> None:
    world = World()
    gone = CapacityError("InvalidAMIID.NotFound: it is gone", RefusalScope.EVERYTHING)
    world.cloud.fail = dict.fromkeys((offer.name for offer in world.resolved.offers), gone)
    process = Process(world)
    process.run(90)
    told = ("every launch is refused of the service: InvalidAMIID.NotFound: it is gone",)
    assert process.manager.view("inception").conditions == told
    world.cloud.fail = {}
    process.run(300)
    assert process.manager.view("inception").conditions == ()


def test_silence_of_what_is_ready_is_a_trouble() -> None:
    """Serving instances that report nothing leave the plan without a basis."""
    world = World()
    process = Process(world)
    process.run(1)
    world.cloud.boot()
    world.telemetry.rps = None
    process.run(6)
    assert "nothing is known of the load" in process.manager.view("inception").conditions[0]


def test_decisions_are_shown_newest_first_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each has one line, with its reason in money."""
    world = World()
    world.planner.wanted = {OD: 1}
    process = Process(world)
    with caplog.at_level(logging.INFO, "mark.control"):
        process.run(1)
        world.planner.wanted = {OD: 1, SPOT_A.name: 1}
        process.run(65)
    newest, oldest = process.manager.decisions("inception", None, 10)
    assert (newest.id, oldest.id) == (2, 1)
    assert "c5.large/spot" in newest.text
    assert newest.outcome == "done"
    assert ORIGIN < newest.at_unix_s <= ORIGIN + 66.0
    assert process.manager.decisions("inception", 2, 10) == [oldest]
    lines = [record for record in caplog.records if record.message == "decided"]
    assert [line.outcome for line in lines] == ["done", "done"]
    assert lines[0].service == "inception"


def test_a_dry_run_says_that_nothing_was_done(caplog: pytest.LogCaptureFixture) -> None:
    """Mode, outcomes and log show it clearly."""
    caplog.set_level(logging.INFO, "mark.control")
    world = World()
    process = Process(world, dry_run=True)
    process.run(2)
    assert process.manager.view("inception").mode == "dry-run"
    (newest,) = process.manager.decisions("inception", None, 1)
    assert (newest.outcome, newest.result, newest.started) == ("dry run: would be done", Result.DRY_RUN, 0)
    decided = [record.decision for record in caplog.records if record.message == "decided"]
    assert decided
    assert all(text.startswith("would launch ") for text in decided)


def test_an_unknown_service_is_a_key_error() -> None:
    """The API expects it."""
    process = Process(World())
    for ask in (process.manager.view, lambda s: process.manager.pause(s, True)):
        with pytest.raises(KeyError):
            ask("absent")
    assert process.manager.services() == ["inception"]


def test_what_the_fleet_loses_is_replaced() -> None:
    """This shows that the control loop is closed."""
    world = World()
    world.planner.wanted = {OD: 2}
    process = Process(world)
    process.run(1)
    world.cloud.boot()
    del world.cloud.lives[1]
    process.run(65)
    assert sorted(i.phase for i in world.cloud.instances.values()) == [Phase.PENDING, Phase.READY]


def one_that_runs(prices: FakePrices) -> tuple[World, Process]:
    world = World()
    world.planner.wanted, world.prices = {OD: 1}, prices
    process = Process(world)
    process.run(2)
    world.cloud.boot()
    world.changes.told = [Ran(1, OD, True, 1.0)]
    process.run(60)
    return world, process


def test_new_prices_are_planned_with_shown_and_billed() -> None:
    """They count from the look that brings them; the same object again changes nothing."""
    world, process = one_that_runs(prices := FakePrices())
    offers = tuple(replace(o, usd_per_hour=2.0 * o.usd_per_hour) for o in world.resolved.offers)
    prices.new = Repriced(replace(world.resolved, offers=offers), {})
    bill = process.manager.view("inception").bill.on_demand
    process.run(60)
    view = process.manager.view("inception")
    assert view.usd_per_hour == pytest.approx(2.0 * ON_DEMAND.usd_per_hour)
    assert view.prices[OD] == pytest.approx(2.0 * ON_DEMAND.usd_per_hour)
    assert view.bill.on_demand - bill == pytest.approx(2.0 * 60.0 * ON_DEMAND.usd_per_s, rel=0.1)
    assert world.planner.contexts[-1].resolved.offers == offers
    prices.old = "prices are 20 minutes old: throttled"
    process.run(6)
    assert process.manager.view("inception").conditions == (prices.old,)


def test_a_restart_without_live_prices_bills_the_deployments_again() -> None:
    """The deployment's prices count from then on; earlier time stays billed at its price."""
    world = World()
    world.planner.wanted = {OD: 1}
    world.prices = FakePrices()
    offers = tuple(replace(o, usd_per_hour=2.0 * o.usd_per_hour) for o in world.resolved.offers)
    world.prices.new = Repriced(replace(world.resolved, offers=offers), {})
    process = Process(world)
    process.run(2)
    world.cloud.boot()
    world.changes.told = [Ran(1, OD, True, 2.0)]
    process.run(60)
    process.manager.close()
    world.prices = None
    before = world.clock.t_s
    again = Process(world)
    again.run(61)
    view = again.manager.view("inception")
    expected = (2.0 * (before + 1.0 - 2.0) + (view.at_s - before - 1.0)) * ON_DEMAND.usd_per_s
    assert view.bill.on_demand == pytest.approx(expected)


def test_new_prices_that_fail_to_plan_are_reported_and_retried() -> None:
    """The controller keeps the old policy; the bill uses the new prices immediately."""
    world, process = one_that_runs(prices := FakePrices())
    assert world.controller is not None
    offers = tuple(replace(o, usd_per_hour=2.0 * o.usd_per_hour) for o in world.resolved.offers)
    prices.new = Repriced(replace(world.resolved, offers=offers), {})
    use, refusals = world.controller.use, [CloudError("no"), CloudError("no")]

    def fails(policy: Policy) -> None:
        if refusals:
            raise refusals.pop()
        use(policy)

    world.controller.use = fails  # type: ignore[method-assign]
    ticks = len(world.planner.contexts)
    process.run(6)
    view = process.manager.view("inception")
    assert view.conditions == ("no",)
    assert view.usd_per_hour == pytest.approx(2.0 * ON_DEMAND.usd_per_hour)
    process.run(70)
    assert refusals == []
    assert process.manager.view("inception").conditions == ()
    assert len(world.planner.contexts) > ticks
    assert world.planner.contexts[-1].resolved.offers == offers


WHOLE = Limits(8, 0.8)


def stages() -> tuple[World, World]:
    """Return two worlds: the first wants six instances, the second one; each may have four to begin with."""
    first, second = World("p-first"), World("p-second")
    second.terms = first.terms
    for world, count in ((first, 6), (second, 1)):
        world.resolved = limited(world.resolved, Limits(4, 0.4))
        world.planner.wanted = {OD: count}
    return first, second


def running(*worlds: World) -> list[int]:
    return [sum(one.phase is not Phase.GONE for one in world.cloud.instances.values()) for world in worlds]


def test_room_moves_to_the_stage_that_needs_it() -> None:
    first, second = stages()
    process = Process(first, second, together=WHOLE)
    process.run(2)
    assert running(first, second) == [4, 1]
    for _ in range(200):
        process.run(1)
        assert sum(running(first, second)) <= 8
        limits = [process.manager.view(world.service).limits for world in (first, second)]
        assert sum(one.max_instances for one in limits) <= 8
    assert running(first, second) == [6, 1]


def test_another_leader_goes_on_with_limits_that_have_moved() -> None:
    first, second = stages()
    process = Process(first, second, together=WHOLE)
    process.run(200)
    for world in (first, second):
        world.cloud.boot()
    process.manager.close()
    other = Process(first, second, together=WHOLE)
    other.step()
    assert other.manager.view("p-first").limits.max_instances == 6
    other.run(130)
    assert running(first, second) == [6, 1]


class Capped(ScriptedPlanner):
    """Wants that number, as far as its limits go."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        service = context.resolved.service
        for_usd = math.floor(service.max_usd_per_hour / ON_DEMAND.usd_per_hour + 1e-9)
        self.wanted = {OD: min(self._most, service.max_instances, for_usd)}
        return super().plan(context, memory)


def capped_stages() -> tuple[World, World]:
    first, second = stages()
    first.planner, second.planner = Capped(6), Capped(1)
    for world in (first, second):
        world.resolved = replace(world.resolved, service=replace(world.resolved.service, min_instances=1))
    return first, second


def run_and_boot(process: Process, seconds: int, *worlds: World) -> None:
    for _ in range(seconds):
        process.run(1)
        for world in worlds:
            world.cloud.boot()


def test_a_stage_that_loses_its_last_instance_gets_one_back() -> None:
    """The dollars are used up, so its share in proportion to its holding would be zero."""
    first, second = capped_stages()
    process = Process(first, second, together=Limits(8, 0.6))
    run_and_boot(process, 400, first, second)
    assert running(first, second) == [5, 1]
    second.cloud.lives.clear()
    run_and_boot(process, 600, first, second)
    assert running(first, second) == [5, 1]


def test_lower_limits_hold_for_what_stages_have() -> None:
    """The pipeline's file was changed, and the controller started again."""
    first, second = capped_stages()
    process = Process(first, second, together=WHOLE)
    run_and_boot(process, 200, first, second)
    assert running(first, second) == [6, 1]
    process.manager.close()
    run_and_boot(Process(first, second, together=Limits(4, 0.8)), 400, first, second)
    assert running(first, second) == [3, 1]


def test_limits_of_one_stage_cannot_be_set() -> None:
    process = Process(*stages(), together=WHOLE)
    process.run(2)
    with pytest.raises(BadInput, match=r"limits of its pipeline's file, \[fleet\], with the other stages: p-f"):
        process.manager.set_limits("p-first", Limits(6, 1.0))
