"""Deciding is a function of snapshot and state: the same values give the same commands, and nothing else happens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mark.control.agenda import FAST, TICK, AgendaItem
from mark.control.decide import Decider
from mark.control.monitor import MonitorState
from mark.control.ports import RecentAnswers, Result
from mark.control.rollout import Rollout, RolloutStage
from mark.control.snapshot import Outcome, Snapshot
from mark.control.state import ControllerState, begin_round, durable, is_stored, learn
from mark.domain.command import Drain, Launch, Terminate
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.late_shares import LateShares
from mark.domain.load import Forecast
from mark.domain.plan import Plan, Target
from mark.planning.planner import Policy
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, ScriptedPlanner, resolved

OD, A, B = ON_DEMAND.name, SPOT_A.name, SPOT_B.name
NOTHING = RecentAnswers(0, 0)


def snapshot(*instances: Instance, **more: Any) -> Snapshot:
    seen = Snapshot(60.0, Fleet(instances), 25.0, np.empty(0), NOTHING, NOTHING, {}, None, False, {}, {})
    return replace(seen, **more)


def decider(wanted: dict[str, int], *, replans: bool = False) -> Decider:
    planner = ScriptedPlanner(replans=replans)
    planner.wanted = wanted
    return Decider(Policy(planner, resolved(), bouncers=True), foresees=False)


def forecast() -> Forecast:
    rates = np.full((2, 60), 25.0)
    return Forecast(60.0, 60.0, np.array([0.1, 0.9]), rates, rates, "flat")


def ready(number: int, offer: str = OD, **more: Any) -> Instance:
    return Instance(number, offer, Phase.READY, 0.0, 0.0, **more)


def refused(command: Any, planned: str = A) -> Outcome:
    return Outcome(command, f"out of {planned}", result=Result.FAILED, refused=True, planned=planned)


def test_equal_snapshots_and_states_give_equal_decisions() -> None:
    one, seen, state = decider({OD: 2, A: 1}), snapshot(ready(1), agenda=TICK), ControllerState()
    assert one.decide(seen, state) == one.decide(seen, state)


def test_a_decision_leaves_its_state_as_it_was() -> None:
    state = ControllerState()
    before = repr(state)
    decider({OD: 2}).decide(snapshot(agenda=TICK), state)
    assert repr(state) == before


def test_ends_wait_for_the_outcome_of_launches() -> None:
    """One A replaces one OD: first the launch, then, when its outcome is known, the drain."""
    one = decider({A: 1})
    commands, state = one.decide(snapshot(ready(1), agenda=TICK), ControllerState())
    assert [type(command) for command in commands] == [Launch]
    sold = Outcome(commands[0], "done", result=Result.DONE, started=(2,), planned=A)
    commands, state = one.decide(snapshot(ready(1), outcomes=(sold,)), state)
    assert [type(command) for command in commands] == [Drain]
    commands, state = one.decide(snapshot(outcomes=(Outcome(commands[0], "done", result=Result.DONE),)), state)
    assert (commands, state.agenda) == ((), ())


def test_a_refusal_is_an_input_of_the_next_decision() -> None:
    """While the planner can be asked again, nothing is terminated for a plan that the market refused."""
    one = decider({A: 1}, replans=True)
    asked = snapshot(ready(1), forecast=forecast())
    (launch,), state = one.decide(replace(asked, agenda=TICK), ControllerState())
    again, state = one.decide(replace(asked, outcomes=(refused(launch),)), state)
    assert again == (launch,)
    assert state.plan is not None
    assert state.plan.notes == ("planned again: the market refused",)


@pytest.mark.parametrize(("release", "again"), [("b", True), ("a", False)])
def test_a_refused_candidate_does_not_stop_replanning_for_what_serves(release: str, again: bool) -> None:
    """The refusal of a candidate release does not stop replanning around the market's refusal."""
    one, rollout = decider({A: 1}, replans=True), Rollout("a", RolloutStage.CANARY, candidate="b")
    asked = snapshot(ready(1, release="a"), forecast=forecast())
    (launch,), state = one.decide(replace(asked, agenda=TICK), ControllerState(rollout=rollout))
    whole = Outcome(Launch("", 0.0, OD, 1, release=release), "no image", result=Result.FAILED, whole_release=True)
    commands, state = one.decide(replace(asked, outcomes=(whole, refused(launch))), state)
    assert bool(commands) is again
    assert state.deferred == () or again


def test_planning_again_ends_after_each_offer_was_refused() -> None:
    one, asked = decider({A: 1}, replans=True), snapshot(forecast=forecast())
    commands, state = one.decide(replace(asked, agenda=TICK), ControllerState())
    rounds = 0
    while commands:
        rounds += 1
        commands, state = one.decide(replace(asked, outcomes=(refused(commands[0]),)), state)
    assert rounds == len(resolved().offers) + 2
    assert state.agenda == ()
    assert state.replanning is None


def test_a_refusal_defers_an_offer_until_a_launch_succeeds() -> None:
    launch = Launch("needed", 0.0, A, 2)
    state = learn(ControllerState(), refused(launch), 60.0)
    assert state.beliefs[A].refusals == 1
    state = learn(state, Outcome(launch, "done", result=Result.DONE, started=(4, 5), planned=A), 120.0)
    assert state.beliefs[A].refusals == 0
    assert state.stands_for == {}


def test_what_was_launched_instead_of_an_offer_stands_for_it() -> None:
    launch = Launch("needed", 0.0, OD, 1)
    state = learn(ControllerState(), Outcome(launch, "done", result=Result.DONE, started=(4,), planned=A), 60.0)
    assert state.stands_for == {4: A}
    assert learn(state, Outcome(Drain("spare", 0.0, OD, 4), "done", result=Result.DONE), 60.0) is state


def blind(
    wanted: dict[str, int],
    *,
    own: dict[str, int] | None = None,
    replans: bool = True,
    max_instances: int = 200,
    **more: Any,
) -> tuple[Decider, ControllerState]:
    """Return a controller that has just begun to lead and has no forecast yet.

    `wanted` is the plan of another controller, `own` the plan that this one will make.
    """
    planner = ScriptedPlanner(needs_forecast=True, replans=replans)
    planner.wanted = own or {}
    targets = tuple(Target(offer, count, "planned an hour ago") for offer, count in wanted.items())
    one = Decider(Policy(planner, resolved(max_instances=max_instances), bouncers=True), foresees=False)
    return one, ControllerState(plan=Plan(0.0, targets), **more)


@pytest.mark.parametrize("replans", [True, False])
def test_nothing_ends_for_the_plan_of_another_process(replans: bool) -> None:
    """That plan may be for another market, and older than some serving instances.

    One of the two instances is equivalent.
    """
    one, state = blind({A: 2}, replans=replans)
    seen = snapshot(ready(1, B), ready(2, BURSTABLE.name), gap=True)
    (launch,), state = one.decide(replace(seen, agenda=TICK), state)
    assert isinstance(launch, Launch)
    assert (launch.offer, launch.count) == (A, 1)
    again, state = one.decide(replace(seen, outcomes=(refused(launch),)), state)
    assert (again, state.agenda) == ((), ())


def test_lowered_limits_end_what_such_a_plan_has_too_much() -> None:
    one, state = blind({A: 2}, max_instances=2)
    boots = Instance(1, B, Phase.PENDING, 0.0)
    ends, _ = one.decide(snapshot(boots, *(ready(n, B) for n in range(2, 6)), gap=True, agenda=TICK), state)
    assert [type(c) for c in ends] == [Terminate, Drain, Drain], "what serves not before what boots"


def test_credits_that_were_spent_may_be_there_again() -> None:
    one, state = blind({A: 1})
    assert state.plan is not None
    state = replace(state, plan=replace(state.plan, leaving=(2,)))
    full = ready(2, BURSTABLE.name, credits=500.0)
    assert one.decide(snapshot(ready(1, A), full, gap=True, agenda=TICK), state)[0] == ()


def test_its_own_first_plan_ends_what_is_too_much() -> None:
    one, state = blind({A: 2}, own={B: 1})
    seen = snapshot(ready(1, B), ready(2, BURSTABLE.name), forecast=forecast(), agenda=TICK)
    drains, state = one.decide(seen, state)
    assert [c.number for c in drains if isinstance(c, Drain)] == [2]
    assert state.stands_for == {}, "for a plan that is over"


def test_what_was_added_by_the_monitor_counts_for_nothing_else() -> None:
    one, state = blind({A: 2}, monitor=MonitorState(0.0, 1, offer=OD))
    (launch,), _ = one.decide(snapshot(ready(1, A), ready(2, OD), gap=True, agenda=TICK), state)
    assert isinstance(launch, Launch)
    assert (launch.offer, launch.count) == (A, 1)


def test_a_plan_of_another_process_still_ends_an_old_release() -> None:
    rollout = Rollout("b", RolloutStage.ROLLING, before="a")
    one, state = blind({A: 1}, rollout=rollout)
    drains, _ = one.decide(snapshot(ready(1, A, release="a"), ready(2, A, release="b"), gap=True, agenda=TICK), state)
    assert [c.number for c in drains if isinstance(c, Drain)] == [1]


def test_a_roll_out_replaces_what_counts_for_such_a_plan() -> None:
    """Equivalent instances are not drained immediately, as unplanned ones would be."""
    rollout = Rollout("b", RolloutStage.ROLLING, before="a")
    one, state = blind({A: 4}, rollout=rollout)
    old = snapshot(*(ready(number, B, release="a") for number in range(1, 5)), gap=True)
    (launch,), state = one.decide(replace(old, agenda=TICK), state)
    assert isinstance(launch, Launch)
    assert (launch.offer, launch.count, launch.release) == (A, 1, "b")
    done = Outcome(launch, "done", result=Result.DONE, started=(5,), planned=A)
    there = replace(old.fleet, instances=(*old.fleet.instances, Instance(5, A, Phase.PENDING, 60.0, release="b")))
    assert one.decide(replace(old, fleet=there, outcomes=(done,)), state)[0] == ()


def test_at_a_notice_such_a_plan_lacks_nothing() -> None:
    one, state = blind({A: 2}, notices=(Notice(1, A, 10.0, 130.0),))
    doomed = ready(1, A, interruption_at_s=130.0)
    commands, _ = one.decide(snapshot(doomed, ready(2, B), ready(3, B), gap=True, agenda=FAST), state)
    assert not any(isinstance(command, Launch) for command in commands)


@pytest.mark.parametrize("drained", [True, False])
def test_only_silent_instances_that_were_drained_count_as_given_up(drained: bool) -> None:
    """One of two instances is silent; its replacement is launched first."""
    one = decider({OD: 2})
    state = replace(ControllerState(), plan=Plan(0.0, (Target(OD, 2, "wanted"),)))
    seen = snapshot(ready(1), ready(2, silent_s=0.0))
    (launch,), state = one.decide(replace(seen, agenda=FAST), state)
    assert isinstance(launch, Launch)
    sold = Outcome(launch, "done", result=Result.DONE, started=(3,), planned=OD)
    (drain,), state = one.decide(replace(seen, outcomes=(sold,)), state)
    assert (type(drain), drain.number) == (Drain, 2)  # type: ignore[attr-defined]
    outcome = Outcome(drain, "", Result.DONE if drained else Result.FAILED)
    _, state = one.decide(replace(seen, outcomes=(outcome,)), state)
    assert state.gave_up_s == ((60.0,) if drained else ())


def test_notices_stay_in_the_state_until_they_are_answered() -> None:
    """An unfinished round leaves them, and counts them once."""
    one, notice = decider({A: 1}), Notice(1, A, 60.0, 180.0)
    state = begin_round(replace(ControllerState(), plan=Plan(0.0, (Target(A, 1, "wanted"),))), (notice,))
    seen = snapshot(ready(1, A, interruption_at_s=180.0), agenda=FAST)
    commands, after = one.decide(seen, state)
    assert commands
    losses = after.beliefs[A].losses
    again = begin_round(after, ())
    assert (again.notices, again.agenda) == ((notice,), ())
    _, after = one.decide(seen, again)
    assert after.beliefs[A].losses == losses
    _, after = one.decide(replace(seen, agenda=()), after)
    assert after.notices == ()
    assert begin_round(after, ()) is after


@pytest.mark.parametrize(("instances", "launched"), [(1, 1), (8, 0)])
def test_monitor_expects_more_misses_at_once_of_a_larger_fleet(instances: int, launched: int) -> None:
    """Of 1,000 requests 20 may be late; 60 are too many for one instance, but chance for eight."""
    late, sizes = np.tile([0.001, 0.02, 0.1], (3, 1)), np.array([1, 2, 8])
    clustering = np.repeat([[4.0], [4.0], [16.0]], 3, axis=1)
    counted = LateShares(sizes, np.geomspace(1.0, 9.0, 3), late, 0.0 * late, clustering, 0.6, 20_000)
    of = resolved()
    of = replace(of, candidates=tuple(replace(c, late_shares=counted) for c in of.candidates))
    deciding = Decider(Policy(ScriptedPlanner(monitors_slo=True), of, bouncers=True), foresees=False)
    fleet = [ready(number) for number in range(instances)]
    seen = snapshot(*fleet, recent=RecentAnswers(1000, 935), agenda=(AgendaItem.MONITOR,))
    commands, _ = deciding.decide(seen, ControllerState())
    assert sum(c.count for c in commands if isinstance(c, Launch)) == launched


def test_upkeep_without_a_plan_replaces_nothing() -> None:
    seen = snapshot(ready(1), ready(2, silent_s=0.0), agenda=FAST)
    commands, state = decider({}).decide(seen, ControllerState())
    assert [type(command) for command in commands] == [Drain]
    assert state.agenda == (AgendaItem.COUNT_GIVEN_UP,)


def test_the_stored_state_leaves_out_what_is_observed_again() -> None:
    state = replace(ControllerState(), believed=forecast(), seen=Fleet(()), surprised_s=3.0)
    assert durable(state) == replace(ControllerState(), surprised_s=3.0)
    assert is_stored(state, durable(state))
    assert not is_stored(replace(state, surprised_s=4.0), durable(state))
    assert not is_stored(state, None)


def test_the_second_refusal_puts_off_all_in_its_scope() -> None:
    """The first may stand alone: a quota may have room for a smaller type."""
    both, others = (A, OD), (OD, A)
    first = learn(ControllerState(), replace(refused(Launch("", 0.0, A, 1)), put_off=both), 60.0)
    assert set(first.beliefs) == {A}
    second = learn(first, replace(refused(Launch("", 0.0, OD, 1)), put_off=others), 61.0)
    assert {name: known.refusals for name, known in second.beliefs.items()} == {A: 2, OD: 1}
    later = learn(first, replace(refused(Launch("", 0.0, OD, 1)), put_off=others), 600.0)
    assert later.beliefs[A].refusals == 1, "long ago"


@pytest.mark.parametrize(("unsure", "launched"), [({}, 1), ({A: 1}, 0)])
def test_a_canary_waits_for_the_answer_of_any_launch(unsure: dict[str, int], launched: int) -> None:
    """That launch may have been a canary of another offer."""
    rollout = Rollout("a", RolloutStage.CANARY, candidate="b")
    state = replace(ControllerState(rollout=rollout), plan=Plan(0.0, (Target(OD, 1, "wanted"),)))
    seen = snapshot(ready(1, release="a"), agenda=(AgendaItem.ROLL_OUT,), wanted_release="b", unsure=unsure)
    commands, _ = decider({OD: 1}, replans=True).decide(seen, state)
    assert [c.release for c in commands if isinstance(c, Launch)] == ["b"] * launched
