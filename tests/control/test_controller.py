"""The control loop among fakes: its decisions in every situation, and that each is recorded."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.control.boots import Boots
from mark.control.coming_calls import ComingCalls
from mark.control.comparison import Comparison, Stratum
from mark.control.held_releases import HeldRelease
from mark.control.monitor import MonitorState
from mark.control.ports import RecentAnswers, ReleaseCounts
from mark.control.rollout import Rollout
from mark.control.shared_limits import limited
from mark.control.state import ControllerState, not_ahead
from mark.control.views import Limits
from mark.domain.backoff import OFFER, RELEASE, RESUME, ROLLOUT
from mark.domain.command import Launch
from mark.domain.errors import CapacityError, CloudError, LimitError, RefusalScope, StoreError, ThrottledError
from mark.domain.fleet import Phase
from mark.domain.load import Forecast
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.domain.price_list import PriceList
from mark.domain.service import FunctionUse, ResolvedService
from mark.planning.demand.slo_budget import Answered
from mark.planning.marginal_prices import planned_usd as planned_usd_of
from mark.planning.market.spot import UNKNOWN, Belief
from mark.planning.planner import PlanningContext, Policy
from mark.testing.fakes import RampPredictor, ScriptedPlanner
from mark.traffic.forecast.supervised import Supervised
from tests.control.control_fakes import (
    BURSTABLE,
    ON_DEMAND,
    SAGEMAKER,
    SPOT_A,
    SPOT_B,
    Bench,
    offer,
    resolved,
)
from tests.traffic.forecast.faulty import Faulty

SMALL = offer("t2.small", Market.BURSTABLE, 0.023)
OD, A, B, T2 = ON_DEMAND.name, SPOT_A.name, SPOT_B.name, BURSTABLE.name


def test_a_tick_launches_the_plan_and_journals_price_and_reason() -> None:
    """The journal line of a launch names count, offer, price change and the plan's reason."""
    bench = Bench()
    bench.tick({OD: 2})
    assert bench.phases() == {1: f"{OD} pending", 2: f"{OD} pending"}
    _, command, outcome = bench.store.journal[0]
    assert str(command) == f"launch 2 {OD}, +0.17 $/h: forecast 25 requests/s against capacity 0"
    assert outcome == "done"


def test_a_plan_that_holds_commands_nothing() -> None:
    """A second tick with the same plan and fleet does nothing."""
    bench = Bench()
    bench.tick({OD: 2})
    bench.cloud.boot()
    bench.tick()
    assert len(bench.store.journal) == 1


def test_shrinking_ends_pending_first_and_then_drains_the_youngest() -> None:
    """A pending instance is terminated; ready ones are drained, youngest first, and terminated when idle."""
    bench = Bench()
    bench.tick({OD: 2})
    bench.cloud.boot()
    bench.tick({OD: 3})
    bench.tick({OD: 1})
    assert bench.phases() == {1: f"{OD} ready", 2: f"{OD} draining"}
    bench.fast()
    assert bench.phases() == {1: f"{OD} ready"}
    assert bench.journal()[2:] == [
        (f"terminate #3 {OD}", "done"), (f"drain #2 {OD}", "done"), (f"terminate #2 {OD}", "done"),
    ]  # fmt: skip


def test_the_running_price_is_the_sum_of_the_journal() -> None:
    """The price changes of all commands add up to the price of the instances that still run."""
    bench = Bench()
    bench.tick({OD: 3, A: 2})
    bench.cloud.boot()
    bench.tick({OD: 1})
    bench.fast()
    assert sum(c.usd_per_hour for _, c, _ in bench.store.journal) == pytest.approx(ON_DEMAND.usd_per_hour)


def test_a_gap_keeps_the_last_plan_and_keeps_following_it() -> None:
    """Without observations the planner is not asked, but lost instances are still replaced."""
    bench = Bench()
    bench.tick({OD: 2})
    bench.telemetry.rps = None
    del bench.cloud.lives[1]
    bench.tick({OD: 9})
    assert len(bench.planner.contexts) == 1
    assert len(bench.cloud.instances) == 2


def test_missing_steps_are_a_gap_too() -> None:
    """Steps that are missing values count as nothing observed."""
    bench = Bench()
    bench.tick({OD: 1})
    bench.telemetry.rps, bench.telemetry.steps = None, [np.nan]
    bench.tick({OD: 5})
    assert len(bench.planner.contexts) == 1


def test_begin_returns_the_first_fleet_within_the_limits() -> None:
    """The first fleet is planned as such, launches nothing by itself and obeys max_instances."""
    bench = Bench(where=resolved(max_instances=3))
    bench.planner.wanted = {OD: 2, A: 5}
    plan = bench.controller.begin()
    assert plan.counts == {OD: 2, A: 1}
    assert "max_instances 3" in plan.notes[0]
    assert bench.planner.contexts[0].first
    assert bench.cloud.calls == []
    assert bench.controller.last_plan is plan


@pytest.mark.parametrize(
    ("limits", "launched", "why"),
    [
        ({"max_instances": 4}, 4, "max_instances 4 is reached"),
        ({"max_usd_per_hour": 0.255}, 3, "max_usd_per_hour 0.255 is reached"),
    ],
)
def test_launches_stop_at_the_services_limits(limits: dict, launched: int, why: str) -> None:
    """No policy launches beyond the limits, and the refusal is recorded."""
    bench = Bench(where=resolved(ON_DEMAND, **limits))
    bench.tick({OD: 10})
    assert len(bench.cloud.instances) == launched
    assert bench.journal() == [(f"launch 10 {OD}", f"{launched} of 10: {why}")]
    bench.tick()
    assert bench.journal()[-1] == (f"launch {10 - launched} {OD}", why)
    assert bench.controller.failures["LimitError"] == 1


def test_draining_instances_count_towards_the_limit_stopped_do_not() -> None:
    """The limit is on everything that is billed."""
    bench = Bench(where=resolved(ON_DEMAND, SPOT_A, BURSTABLE, max_instances=2))
    bench.planner.standbys = {T2: 1}
    bench.tick({})
    bench.cloud.boot()
    bench.tick({OD: 2})
    bench.cloud.boot()
    bench.tick({A: 1})
    assert sorted(bench.phases().values()) == [f"{OD} draining", f"{OD} draining", f"{T2} stopped"]


def with_standby(**limits: int) -> Bench:
    """Return a bench with a stopped standby and a spot instance that serves."""
    bench = Bench(where=resolved(SPOT_A, BURSTABLE, **limits))
    bench.planner.standbys = {T2: 1}
    bench.tick({})
    bench.cloud.boot()
    bench.tick({A: 1})
    bench.cloud.boot()
    return bench


def test_a_standby_is_not_resumed_beyond_the_limit() -> None:
    """The doomed instance counts toward the limit while it still runs, even in an emergency."""
    bench = with_standby(max_instances=1)
    bench.cloud.interrupt(2)
    bench.controller.fast()
    assert (f"resume #1 {T2}", "max_instances 1 is reached") in bench.journal()
    assert bench.phases() == {1: f"{T2} stopped", 2: f"{A} ready"}


@pytest.mark.parametrize(("most", "resumed"), [(3, True), (2, False)])
def test_a_standby_that_is_still_stopping_is_resumed_later(most: int, resumed: bool) -> None:
    """It is resumed in the first round in which EC2 would start it, within the limits, and no earlier round tries."""
    bench = with_standby(max_instances=most)
    bench.cloud.lives[1].startable_s = bench.clock.t_s + 10.0
    bench.cloud.interrupt(2)
    for _ in range(4):
        bench.fast()
        bench.clock.t_s += 5.0
    assert [call[0] for call in bench.cloud.calls].count("resume") == resumed
    assert bench.phases()[1] == f"{T2} {'pending' if resumed else 'stopped'}"


def test_standbys_make_room_for_lower_limits() -> None:
    """More requests arrive than ready instances can serve, so standbys are needed, but the new limits hold."""
    bench = Bench(where=resolved(SPOT_A, BURSTABLE))
    bench.planner.standbys = {T2: 2}
    bench.telemetry.rps = 95.0
    bench.tick({})
    bench.cloud.boot()
    bench.tick({A: 3})
    bench.cloud.boot()
    bench.cloud.interrupt(3)
    bench.cloud.interrupt(4)
    bench.fast()
    bench.cloud.boot()
    assert [bench.phases()[n] for n in (1, 2)] == [f"{T2} ready"] * 2
    del bench.cloud.lives[3], bench.cloud.lives[4]
    live = len(bench.cloud.instances)
    bench.controller.use(Policy(bench.planner, limited(bench.resolved, Limits(live - 1, 100.0)), bouncers=True))
    bench.fast()
    assert sorted(bench.phases()[n] for n in (1, 2)) == [f"{T2} draining", f"{T2} ready"]
    bench.fast()
    assert sorted(bench.phases()[n] for n in (1, 2)) == [f"{T2} ready", f"{T2} stopped"]


def test_a_refused_standby_is_asked_for_again_within_the_notice() -> None:
    """It is not asked for in every round."""
    bench = with_standby()
    bench.cloud.interrupt(2)
    bench.cloud.fail = {"resume": ThrottledError("RequestLimitExceeded")}
    for _ in range(9):  # 45 s
        bench.fast()
    assert [call[0] for call in bench.cloud.calls].count("resume") == 3
    bench.cloud.fail = {}
    bench.fast()
    assert bench.phases()[1] == f"{T2} pending"


def test_a_refused_standby_keeps_no_dearer_one() -> None:
    bench = Bench(where=resolved(SPOT_A, BURSTABLE, SMALL))
    bench.planner.standbys = {SMALL.name: 1, T2: 1}
    bench.tick({})
    bench.cloud.boot()
    bench.tick({A: 1})
    bench.cloud.boot()
    bench.cloud.interrupt(3)
    bench.cloud.fail = {"resume": CapacityError("out")}
    bench.fast()
    assert bench.cloud.calls.count(("resume", 1)) == bench.cloud.calls.count(("resume", 2)) == 1


def test_a_sagemaker_endpoint_is_not_bound_by_max_instances() -> None:
    """The baseline scales as it would on AWS."""
    bench = Bench(where=resolved(SAGEMAKER, max_instances=2))
    bench.tick({SAGEMAKER.name: 5})
    assert len(bench.cloud.instances) == 5


def test_missing_capacity_is_bought_elsewhere_and_kept_by_the_plan() -> None:
    """A zone has no capacity: the next zone is tried, then on-demand. The next tick keeps the recorded stand-in."""
    bench = Bench()
    bench.cloud.left = {A: 1, B: 1}
    bench.tick({A: 3})
    assert bench.phases() == {1: f"{A} pending", 2: f"{B} pending", 3: f"{OD} pending"}
    assert bench.journal() == [
        (f"launch 3 {A}", f"the market had 1 of 3: out of {A}"),
        (f"launch 2 {B}", f"the market had 1 of 2: out of {B}"),
        (f"launch 1 {OD}", "done"),
    ]
    assert bench.controller.fallbacks == {f"{B} instead of {A}": 1, f"{OD} instead of {A}": 1}
    bench.cloud.boot()
    bench.tick()
    assert len(bench.cloud.instances) == 3
    bench.tick({A: 2})
    assert bench.phases()[1] == f"{A} ready"  # a stand-in goes first


def test_a_refused_launch_is_journaled_and_retried_at_the_tick() -> None:
    """An account limit ends the attempt, not the controller."""
    bench = Bench()
    bench.cloud.fail = {OD: LimitError("vCPU limit")}
    bench.tick({OD: 1})
    assert bench.journal() == [(f"launch 1 {OD}", "vCPU limit")]
    assert bench.controller.failures == {"LimitError": 1}
    bench.cloud.fail = {}
    bench.tick()
    assert len(bench.cloud.instances) == 1


def test_a_refused_drain_or_terminate_does_not_stop_the_loop() -> None:
    """Every cloud error is an outcome."""
    bench = Bench()
    bench.tick({OD: 1})
    bench.cloud.boot()
    bench.cloud.fail = {"drain": CloudError("throttled")}
    bench.tick({})
    assert bench.journal()[-1] == (f"drain #1 {OD}", "throttled")


def test_a_restarted_controller_repeats_its_tick_without_a_second_launch() -> None:
    """Tokens are a function of service, seed and time, so a repetition after a crash is harmless."""
    bench = Bench()
    bench.tick({OD: 2})
    bench.cloud.lives.clear()  # the second controller sees a fleet that does not show them yet
    bench.controller = bench.controller_again()
    bench.tick(at_s=bench.clock.t_s)
    assert len(bench.cloud.calls) > 1
    assert len(set(bench.cloud.calls)) == 1


def test_a_plan_that_came_down_launches_nothing_more() -> None:
    """The cloud throttled the launches for a spike; when the back-off ends, the spike is over as well."""
    bench = Bench()
    bench.tick({OD: 1})
    bench.cloud.fail = {OD: ThrottledError("later")}
    bench.tick({OD: 5})
    bench.tick({OD: 1})
    bench.cloud.fail = {}
    for _ in range(30):
        bench.fast()
    assert len(bench.cloud.instances) == 1
    bench.tick({OD: 3})
    bench.fast()
    assert len(bench.cloud.instances) == 3, "what is lacking by then, and no more"


def test_a_throttled_rescue_is_still_wanted() -> None:
    """The plan is there, but the SLO monitor wants one more."""
    bench = Bench(ScriptedPlanner(monitors_slo=True))
    bench.tick({OD: 1})
    bench.telemetry.latest = RecentAnswers(1000, 900)
    bench.cloud.fail = {OD: ThrottledError("later")}
    bench.fast()
    bench.cloud.fail = {}
    for _ in range(10):
        bench.fast()
    assert len(bench.cloud.instances) == 2


def test_plan_and_stand_ins_survive_a_restart_of_the_controller() -> None:
    """The controller keeps both in the store."""
    bench = Bench()
    bench.cloud.left = {A: 0, B: 0}
    bench.tick({A: 1})
    bench.controller = bench.controller_again()
    assert bench.controller.last_plan.counts == {A: 1}
    bench.telemetry.rps = None
    bench.tick()
    assert bench.phases() == {1: f"{OD} pending"}


def test_two_launches_at_one_time_have_two_tokens() -> None:
    """Equal offers at equal times are still two launches."""
    bench = Bench(ScriptedPlanner(monitors_slo=True))
    bench.tick({OD: 1})
    bench.telemetry.latest = RecentAnswers(1000, 900)
    bench.controller.fast()
    assert len({call[3] for call in bench.cloud.calls}) == 2
    assert len(bench.cloud.instances) == 2


def test_the_slo_monitor_acts_only_beside_policies_that_want_it() -> None:
    """Baselines run without it."""
    bench = Bench()
    bench.telemetry.latest = RecentAnswers(1000, 0)
    bench.fast()
    assert bench.cloud.calls == []


@pytest.mark.parametrize("late_s", [0.0, -0.9, 3.2])
def test_the_slo_monitors_instances_survive_until_its_pause_ends(late_s: float) -> None:
    """The failed plan may not undo the rescue before the monitor's pause is over.

    The cloud has its own clock, which counts whole seconds, and takes time to launch.
    """
    bench = Bench(ScriptedPlanner(monitors_slo=True))
    bench.telemetry.latest = RecentAnswers(1000, 979)
    bench.fast()
    (bought,) = bench.cloud.lives.values()
    bought.launched_s += late_s
    bench.telemetry.latest = RecentAnswers(1000, 1000)
    bench.tick({})
    assert [i.phase for i in bench.cloud.fleet().instances] == [Phase.PENDING]
    for _ in range(5):
        bench.tick({})
    assert not bench.cloud.fleet().live()


@pytest.mark.parametrize("refused", [True, False])
def test_the_next_rescue_keeps_what_the_last_one_left(refused: bool) -> None:
    """The drain was refused or is not due yet.

    The next plan would terminate instances launched beside the last rescue.
    """
    bench = Bench(ScriptedPlanner(monitors_slo=True, replans=True))
    bench.tick({OD: 1})
    bench.telemetry.latest = RecentAnswers(1000, 900)
    bench.fast()
    bench.cloud.boot()
    bench.clock.t_s, bench.telemetry.latest = 365.0, RecentAnswers(1000, 1000)
    bench.fast()
    if refused:
        bench.cloud.fail = {"drain": CloudError("throttled")}
        bench.tick()
        bench.cloud.fail = {}
    bench.telemetry.latest = RecentAnswers(1000, 900)
    for again in (bench.fast, bench.tick):
        again()
        assert bench.phases() == {1: f"{OD} ready", 2: f"{OD} ready"}
    assert bench.controller.state.monitor.extra == 1


@pytest.mark.parametrize("lower", [Limits(2, 100.0), Limits(100, 0.2)])
def test_a_rescue_makes_room_for_lower_limits(lower: Limits) -> None:
    """A rescue stays beside the plan for minutes, but not beyond the service's new limits."""
    bench = Bench(ScriptedPlanner(monitors_slo=True, replans=True))
    bench.tick({OD: 2})
    bench.telemetry.latest = RecentAnswers(1000, 900)
    bench.fast()
    bench.cloud.boot()
    bench.telemetry.latest = RecentAnswers(1000, 1000)
    bench.controller.use(Policy(bench.planner, limited(bench.resolved, lower), bouncers=True))
    bench.tick()
    assert bench.cloud.fleet().live() == {OD: 2}


def test_a_rescue_stays_though_another_offer_became_cheaper() -> None:
    """The monitor would launch another offer now, but its earlier launches still help."""
    bench = Bench(ScriptedPlanner(monitors_slo=True), resolved(SPOT_A, SPOT_B))
    bench.tick({B: 3})
    bench.cloud.boot()
    bench.telemetry.latest = RecentAnswers(1000, 500)
    bench.fast()
    bench.cloud.boot()
    dearer = replace(bench.resolved, offers=(replace(SPOT_A, usd_per_hour=0.0341), SPOT_B))
    bench.controller.use(Policy(bench.planner, dearer, bouncers=True))
    bench.tick()
    bench.fast()
    assert bench.phases()[4] == f"{A} ready"


def test_a_rescue_is_no_swap_of_equals() -> None:
    """Planned instances and the monitor's run side by side: neither is terminated for the other."""
    bench = Bench(ScriptedPlanner(monitors_slo=True))
    bench.tick({OD: 1})
    bench.telemetry.latest = RecentAnswers(1000, 979)
    bench.fast()
    bench.telemetry.latest = RecentAnswers(1000, 1000)
    bench.tick({OD: 1})
    assert bench.cloud.fleet().live() == {OD: 2}
    bench.cloud.boot()
    for _ in range(6):
        bench.tick({OD: 1})
    assert bench.cloud.fleet().live() == {OD: 1}


def test_what_the_slo_monitor_bought_is_shown_to_the_planner() -> None:
    """The next plan sees it as running."""
    bench = Bench(ScriptedPlanner(monitors_slo=True))
    bench.telemetry.latest = RecentAnswers(1000, 979)
    bench.fast()
    bench.tick({OD: 1})
    assert bench.planner.contexts[0].fleet.live() == {OD: 1}
    assert len(bench.cloud.instances) == 1


def test_an_interrupted_instance_is_bridged_replaced_and_drained() -> None:
    """A standby is resumed, an instance launched and functions warmed; the doomed one leaves just before its end."""
    bench = Bench()
    bench.planner.standbys, bench.telemetry.rps = {T2: 1}, 5.0
    bench.tick({A: 2})
    bench.cloud.boot()
    bench.cloud.interrupt(1)
    bench.fast()
    assert bench.journal()[2:] == [
        (f"resume #3 {T2}", "done"), (f"launch 1 {A}", "done"), ("warm 4 function environments", "done, 4 started"),
    ]  # fmt: skip
    assert bench.functions.warmed == [4]  # ceil(10 requests/s x 0.38 s)
    bench.tick()
    assert bench.phases() == {1: f"{A} ready", 2: f"{A} ready", 3: f"{T2} pending", 4: f"{A} pending"}
    bench.clock.t_s += 115.0
    bench.controller.fast()
    bench.controller.fast()
    assert bench.phases() == {2: f"{A} ready", 3: f"{T2} pending", 4: f"{A} pending"}
    bench.cloud.boot()
    bench.fast()
    bench.fast()
    assert bench.phases() == {2: f"{A} ready", 3: f"{T2} stopped", 4: f"{A} ready"}


def test_a_bridge_stays_while_the_replacement_is_missing() -> None:
    """Only the planned capacity being ready again, or a smaller plan, releases a standby."""
    bench = Bench(where=resolved(SPOT_A, BURSTABLE))
    bench.planner.standbys, bench.telemetry.rps = {T2: 1}, 5.0
    bench.tick({A: 1})
    bench.cloud.boot()
    bench.cloud.fail = {A: CapacityError("out of spot")}
    bench.cloud.interrupt(1)
    bench.fast()
    bench.cloud.boot()
    bench.clock.t_s += 115.0
    bench.controller.fast()
    bench.controller.fast()
    assert bench.phases() == {2: f"{T2} ready"}
    bench.controller = bench.controller_again()
    bench.tick()
    bench.fast()
    assert bench.phases() == {2: f"{T2} ready"}
    bench.tick({})
    bench.fast()
    assert bench.phases() == {2: f"{T2} ready"}  # an instance must serve the arriving requests
    bench.telemetry.rps = 0.0
    bench.fast()
    bench.fast()
    assert bench.phases() == {2: f"{T2} stopped"}


def test_an_interrupted_surplus_instance_is_not_replaced() -> None:
    """The doomed instance was surplus already."""
    bench = Bench()
    bench.tick({A: 2})
    bench.cloud.boot()
    bench.cloud.interrupt(1)
    bench.tick({A: 1})
    bench.controller.fast()
    assert [call[0] for call in bench.cloud.calls] == ["launch"]


def test_standbys_are_launched_kept_and_ended_as_planned() -> None:
    """plan.standbys is followed like targets, on stopped instances."""
    bench = Bench()
    bench.planner.standbys = {T2: 2}
    bench.tick({})
    bench.cloud.boot()
    bench.tick({})
    assert bench.phases() == {1: f"{T2} stopped", 2: f"{T2} stopped"}
    bench.planner.standbys = {T2: 1}
    bench.tick({})
    assert bench.phases() == {2: f"{T2} stopped"}


def test_planned_warm_environments_are_held_warm_every_tick() -> None:
    """Otherwise their keep-alive ends."""
    bench = Bench()
    bench.planner.warm = 3
    bench.tick({})
    bench.tick({})
    assert bench.functions.warmed == [3, 3]


def test_the_predictor_updates_first_and_its_forecast_begins_now() -> None:
    """It gets the new steps, then forecasts 60 steps of a minute from now on."""
    predictor = RampPredictor(origin_s=60.0)
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    bench.telemetry.steps = [25.0]
    bench.tick({})
    assert len(predictor.updates) == 1
    forecast = bench.planner.contexts[0].forecast
    assert (forecast.origin_s, forecast.steps, forecast.predictor) == (60.0, 60, "ramp")
    assert forecast.mean_rps[0, 0] == 0.0


def test_prices_are_by_the_last_belief_and_what_is_ready() -> None:
    """Prices use the last forecast while it is at most five minutes old.

    After that only the price of a miss is known, if functions answer in time.
    """
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=RampPredictor())
    assert bench.resolved.function is not None
    call_usd = bench.resolved.function.usd_per_request
    planned_usd = planned_usd_of(bench.resolved, {})
    assert bench.controller.price_list({}) == PriceList(None, call_usd, planned_usd)
    bench.tick({}, at_s=40 * 60.0)  # 40 requests/s are believed, an instance takes 10
    ready = [bench.controller.price_list({OD: n}).usd_per_request for n in (0, 4, 9)]
    assert ready == [pytest.approx(call_usd), pytest.approx(0.5 * call_usd, rel=0.2), 0.0]
    assert bench.controller.price_list({OD: 4}).usd_per_miss == call_usd
    bench.clock.t_s += 300.0
    assert bench.controller.price_list({OD: 4}).usd_per_request is not None
    bench.clock.t_s += 1.0
    assert bench.controller.price_list({OD: 4}) == PriceList(None, call_usd, planned_usd_of(bench.resolved, {OD: 4}))


def test_a_forecast_that_began_earlier_is_cut_to_now() -> None:
    """Coarse steps: the first minute of the forecast is the minute that begins now."""
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=RampPredictor())
    bench.tick({}, at_s=180.0)
    forecast = bench.planner.contexts[0].forecast
    assert (forecast.origin_s, forecast.steps) == (180.0, 60)
    assert forecast.mean_rps[0, 0] == forecast.paths_rps[0, 0] == 3.0


def test_coarse_steps_are_cut_into_an_hour_of_minutes() -> None:
    """Steps of 5 minutes, two minutes of the current one over: minutes 2 to 61 of the forecast are the next hour."""
    predictor = RampPredictor(origin_s=300.0, step_s=300.0)
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    bench.telemetry.start_s = bench.telemetry.step_s = 300.0
    bench.tick({}, at_s=420.0)
    forecast = bench.planner.contexts[0].forecast
    assert (forecast.origin_s, forecast.step_s, forecast.steps) == (420.0, 60.0, 60)
    assert list(forecast.mean_rps[0, :4]) == [0.0, 0.0, 0.0, 1.0]
    assert predictor.asked == 13


def test_where_a_forecast_does_not_reach_its_last_step_stays() -> None:
    """Observations that come late, or no longer, still leave an hour to plan with."""
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=RampPredictor())
    bench.tick({}, at_s=58 * 60.0)
    forecast = bench.planner.contexts[0].forecast
    assert (forecast.steps, forecast.predictor) == (60, "ramp")
    assert list(forecast.mean_rps[0, :3]) == list(forecast.paths_rps[0, :3]) == [58.0, 59.0, 59.0]
    bench.tick({}, at_s=86400.0)
    assert set(bench.planner.contexts[1].forecast.mean_rps[0]) == {59.0}


def test_a_forecast_with_a_wrong_origin_is_a_predictor_failure() -> None:
    """The last value stands in and the failure is counted, so that no forecast is of another hour."""
    predictor = RampPredictor(origin_s=86400.0)
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    bench.tick({})
    assert bench.planner.contexts[0].forecast.predictor == "last-value"


def test_a_raising_predictor_falls_back_to_the_last_value() -> None:
    """A user's predictor cannot take the service down, and the fallback is reported."""
    predictor = RampPredictor()
    predictor.error = ZeroDivisionError("no data")
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    bench.tick({OD: 1})
    forecast = bench.planner.contexts[0].forecast
    assert forecast.predictor == "last-value"
    assert forecast.mean_at(0.5)[0] == pytest.approx(25.0)
    assert bench.controller.last_plan.predictor == "last-value"
    assert bench.controller.predictors == {"last-value": 1}
    assert bench.controller.fallbacks == {"last-value instead of ramp: its predict raised": 1}
    assert bench.controller.causes == {"last-value instead of ramp: its predict raised": "ZeroDivisionError: no data"}


def test_every_plan_names_its_predictor_and_fallbacks_are_counted() -> None:
    """Good, failing and resting minutes of one predictor: the counts add up, and survive in the store."""
    predictor = Faulty()
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    names = []
    for minute, fault in enumerate(["", "nan", "", "update", "", "", "", "", ""]):
        predictor.fault = fault
        bench.telemetry.start_s, bench.telemetry.steps = 60.0 * minute, [25.0]
        bench.tick({OD: 1})
        names.append(bench.controller.last_plan.predictor)
    assert names == ["faulty", "last-value", "faulty", *["last-value"] * 5, "faulty"]
    assert bench.controller.predictors == {"faulty": 3, "last-value": 6}
    assert bench.controller.fallbacks == {
        "last-value instead of faulty: its forecast was invalid": 1,
        "last-value instead of faulty: its update raised": 5,
    }
    assert len(bench.cloud.instances) == 1


def test_a_slow_predictor_rests_after_three_late_answers() -> None:
    """A shell that has a clock hands it in: after three late answers the predictor rests."""
    predictor = Faulty()
    predictor.fault = "slow"
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=Supervised(predictor, clock=predictor.clock))
    for _ in range(4):
        bench.tick({OD: 1})
    assert bench.controller.fallbacks == {"last-value instead of faulty: it ran out of time": 2}
    assert bench.controller.causes == {"last-value instead of faulty: it ran out of time": "10 s, 1 s allowed"}


def test_a_policy_that_needs_forecasts_needs_a_predictor() -> None:
    """Refused at the start."""
    with pytest.raises(ValueError, match="needs a predictor"):
        Bench(ScriptedPlanner(needs_forecast=True))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from([OD, A, B]), st.integers(0, 6)),
            st.integers(0, 2),  # standbys
            st.booleans(),  # boot
            st.integers(0, 8),  # which instance to interrupt
            st.dictionaries(st.sampled_from([OD, A, B]), st.integers(0, 3)),  # the market's capacity
        ),
        max_size=8,
    )
)
def test_whatever_happens_the_limits_hold_and_every_outcome_is_recorded(script: list) -> None:
    """max_instances and max_usd_per_hour are never exceeded, and each call of the cloud has a line in the journal."""
    where = resolved(max_instances=7, max_usd_per_hour=0.4)
    bench = Bench(where=where)
    price = {o.name: o.usd_per_hour for o in where.offers}
    for wanted, standbys, boot, victim, left in script:
        bench.cloud.left = left
        bench.planner.standbys = {T2: standbys}
        bench.tick(wanted)
        if boot:
            bench.cloud.boot()
        if victim in bench.cloud.instances and bench.cloud.instances[victim].phase is not Phase.STOPPED:
            bench.cloud.interrupt(victim)
        bench.fast()
        running = [i.offer for i in bench.cloud.instances.values() if i.phase is not Phase.STOPPED]
        assert len(running) <= 7
        assert sum(price[o] for o in running) <= 0.4 + 1e-9
        calls = len(bench.cloud.calls) + len(bench.functions.warmed)
        # Refusals by our own limits never reach the cloud.
        assert calls == len(bench.store.journal) - bench.controller.failures["LimitError"]


def surprised(
    windows_rps: list[float],
    *,
    after_s: float = 10.0,
    replans: bool = True,
    predictor: RampPredictor | None = None,
    where: ResolvedService | None = None,
) -> Bench:
    """Return a bench on which one A runs by plan, then `windows_rps` arrive.

    For these the planner wants three A and no OD.
    """
    planner = ScriptedPlanner(needs_forecast=True, replans=replans)
    bench = Bench(planner, where=where, predictor=predictor or RampPredictor())
    bench.tick({A: 1, OD: 1}, at_s=0.0)
    bench.planner.wanted = {A: 3}
    bench.telemetry.windows = windows_rps
    bench.clock.t_s = after_s
    bench.controller.fast()
    return bench


def test_more_arrivals_than_planned_for_are_planned_for_at_once() -> None:
    """The new plan is made 10 s after the tick. Its surplus waits for the next tick, when the surge is expected."""
    bench = surprised([50.0, 50.0])
    assert bench.cloud.fleet().live() == {A: 3, OD: 1}
    assert bench.controller.last_plan is not None
    assert bench.controller.last_plan.notes == ("planned again: 50 requests/s, above the forecast",)
    forecast = bench.planner.contexts[-1].forecast
    assert forecast is not None
    assert forecast.mean_rps[:, 0] == pytest.approx([50.0, 50.0])
    bench.telemetry.windows += [51.0, 50.0]
    bench.clock.t_s += 10.0
    bench.controller.fast()
    assert len(bench.planner.contexts) == 2


@pytest.mark.parametrize(
    ("windows_rps", "after_s", "replans"),
    [
        ([50.0, 50.0], 10.0, False),  # a policy as printed does not react
        ([50.0, 50.0], 5.0, True),  # half of it came before the plan was made
        ([50.0, float("nan")], 10.0, True),  # a gap
        ([0.0, 0.0], 10.0, True),  # as believed
    ],
)
def test_what_is_no_news_is_not_planned_for(windows_rps: list[float], after_s: float, replans: bool) -> None:
    bench = surprised(windows_rps, after_s=after_s, replans=replans)
    assert len(bench.planner.contexts) == 1


def test_what_the_plan_can_serve_is_no_news() -> None:
    """The forecast's median is 0, but the capacity is enough for 60."""
    bench = Bench(ScriptedPlanner(needs_forecast=True, replans=True), predictor=RampPredictor())
    bench.planner.capacity_rps = 60.0
    bench.tick({A: 1}, at_s=0.0)
    bench.telemetry.windows = [50.0, 50.0]
    bench.clock.t_s = 10.0
    bench.controller.fast()
    assert len(bench.planner.contexts) == 1


class BurstPredictor(RampPredictor):
    """Forecasts 10 requests/s with a burst of 50 in each minute."""

    def predict(self, steps: int) -> Forecast:
        rates = np.full((2, steps), 10.0)
        return replace(super().predict(steps), mean_rps=rates, peak_rps=5.0 * rates, paths_rps=None)


def test_burst_of_the_foreseen_peak_is_no_news() -> None:
    """Ten seconds of 50 requests/s are the foreseen burst of a minute of 600 requests; 20 s are more."""
    bench = Bench(ScriptedPlanner(needs_forecast=True, replans=True), predictor=BurstPredictor())
    bench.tick({A: 1}, at_s=0.0)
    bench.telemetry.windows = [50.0, 50.0]
    bench.clock.t_s = 10.0
    bench.controller.fast()
    assert len(bench.planner.contexts) == 1
    bench.telemetry.windows = [50.0] * 4
    bench.clock.t_s = 20.0
    bench.controller.fast()
    assert len(bench.planner.contexts) == 2


def test_a_stage_buys_for_calls_not_yet_reaching_it() -> None:
    """Arrivals are as planned, but the stage before refuses calls of a surge."""
    bench = Bench(ScriptedPlanner(needs_forecast=True, replans=True), predictor=RampPredictor())
    bench.tick({A: 1}, at_s=0.0)
    bench.planner.wanted = {A: 3}
    bench.telemetry.windows = [0.0, 0.0]
    bench.coming = ComingCalls(np.array([500.0, 500.0]), 0.1)
    bench.clock.t_s = 10.0
    bench.controller.fast()
    assert bench.cloud.fleet().live() == {A: 3}
    forecast = bench.planner.contexts[-1].forecast
    assert forecast is not None
    assert forecast.mean_rps[:, 0] == pytest.approx([50.0, 50.0])
    assert bench.planner.contexts[-1].last_minute_rps == 50.0


def test_forecasts_learn_what_comes_not_what_is_let_through() -> None:
    predictor = RampPredictor(origin_s=120.0)
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    bench.telemetry.steps = [25.0, 25.0]
    bench.coming = ComingCalls(np.full(12, 500.0), 0.1)
    bench.tick({A: 1}, at_s=120.0)
    assert bench.planner.contexts[-1].last_minute_rps == 50.0
    assert predictor.updates[-1].mean_rps.tolist() == [25.0, 50.0]


class ForeseenSurge(RampPredictor):
    """A fifth of the futures have 50 requests/s with peaks of 60, the others 10 with peaks of 12."""

    def predict(self, steps: int) -> Forecast:
        mean_rps = np.repeat([[10.0], [10.0], [50.0]], steps, axis=1)
        return Forecast(self.origin_s, self.step_s, np.array([0.1, 0.5, 0.9]), mean_rps, 1.2 * mean_rps, self.name)


@pytest.mark.parametrize(("function", "peak_rps"), [(resolved().function, 300.0), (None, 60.0)])
def test_foreseen_surge_keeps_its_peaks_where_an_overflow_is_late(
    function: FunctionUse | None, peak_rps: float
) -> None:
    """Otherwise all peaks rise with the median, fivefold."""
    where = replace(resolved(), function=function)
    bench = surprised([50.0, 50.0], predictor=ForeseenSurge(), where=where)
    forecast = bench.planner.contexts[-1].forecast
    assert forecast is not None
    assert forecast.peak_rps[-1, 0] == pytest.approx(peak_rps)


def test_scaling_in_after_a_surge_waits_for_the_tick() -> None:
    """Two A and one OD run; then a surge comes for which the planner wants one A and three OD."""
    bench = Bench(ScriptedPlanner(needs_forecast=True, replans=True), predictor=RampPredictor())
    bench.tick({A: 2, OD: 1}, at_s=0.0)
    bench.planner.wanted = {A: 1, OD: 3}
    bench.telemetry.windows = [50.0, 50.0]
    bench.clock.t_s = 10.0
    bench.controller.fast()
    assert bench.cloud.fleet().live() == {A: 2, OD: 3}
    bench.telemetry.windows = []
    bench.tick({A: 1, OD: 3}, at_s=60.0)
    assert bench.cloud.fleet().live() == {A: 1, OD: 3}


def test_during_a_surge_the_tick_plans_for_the_current_rate() -> None:
    """Forecasts are made of whole minutes, so 20 s of another rate replace them while the surge is recent."""
    bench = surprised([50.0, 50.0])
    bench.telemetry.windows += [52.0] * 4
    bench.tick({A: 3}, at_s=60.0)
    forecast = bench.planner.contexts[-1].forecast
    assert forecast is not None
    assert forecast.mean_rps[:, 0] == pytest.approx([52.0, 52.0])
    bench.telemetry.windows += [0.0] * 4
    bench.tick({A: 3}, at_s=120.0)
    forecast = bench.planner.contexts[-1].forecast
    assert forecast is not None
    assert forecast.mean_rps[1, 0] < 10.0  # the surge is over: as forecast


def test_without_a_surge_the_tick_believes_its_forecast() -> None:
    """For a forecast of minutes, arrivals within one minute are noise."""
    bench = Bench(ScriptedPlanner(needs_forecast=True, replans=True), predictor=RampPredictor())
    bench.tick({A: 1}, at_s=0.0)
    bench.telemetry.windows = [50.0] * 4
    bench.tick({A: 1}, at_s=60.0)
    forecast = bench.planner.contexts[-1].forecast
    assert forecast is not None
    assert forecast.mean_rps[0, 0] < 40.0


class MarketReader(ScriptedPlanner):
    """Wants `count` of the first of `offers` that is not put off."""

    def __init__(self, *offers: str, count: int = 2) -> None:
        super().__init__(needs_forecast=True, replans=True)
        self.offers, self.count = offers, count

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        there = [o for o in self.offers if context.now_s >= context.beliefs.get(o, UNKNOWN).until_s]
        self.wanted = {there[0]: self.count} if there else {}
        return super().plan(context, memory)


def reading(*offers: str, count: int = 2) -> Bench:
    """Return a bench with offers that differ in value, so that no offer replaces another."""
    dear = replace(SPOT_B, usd_per_hour=0.04)
    return Bench(MarketReader(*offers, count=count), resolved(ON_DEMAND, SPOT_A, dear), predictor=RampPredictor())


def alike(*offers: str, count: int = 2, where: ResolvedService | None = None) -> Bench:
    """Return a bench on which spot in zone `b` is equivalent to spot in zone `a`."""
    bench = reading(*offers, count=count)
    return Bench(bench.planner, where or resolved(ON_DEMAND, SPOT_A, SPOT_B), predictor=RampPredictor())


def test_what_does_as_well_is_launched_in_one_call() -> None:
    """A has one instance, so another is launched of B; both count for the plan, and nothing more is bought or ended."""
    bench = alike(A, OD)
    bench.cloud.left = {A: 1}
    bench.tick()
    assert bench.journal() == [(f"launch 2 {A}", f"done, 1 of them {B}")]
    assert bench.cloud.fleet().live() == {A: 1, B: 1}
    bench.cloud.boot()
    bench.tick()
    assert bench.cloud.fleet().live() == {A: 1, B: 1}
    assert [call[0] for call in bench.cloud.calls] == ["launch"]


def test_all_that_were_short_together_are_put_off() -> None:
    """One call found capacity neither in A nor in B: the next plan knows both."""
    bench = alike(A, B, OD)
    bench.cloud.left = {A: 0, B: 0}
    bench.tick()
    assert [call[1] for call in bench.cloud.calls if call[0] == "launch"] == [A, OD]
    assert [bench.store.get("state").beliefs[name].refusals for name in (A, B)] == [1, 1]


def test_what_was_refused_is_tried_alone() -> None:
    """The trial shows whether the offer is available again, without spoiling the launches of other offers."""
    bench = alike(A, B, OD)
    bench.cloud.left = {A: 0, B: 0}
    bench.tick(at_s=0.0)
    bench.cloud.left = {A: 0}
    bench.tick(at_s=60.0)
    assert [call[1] for call in bench.cloud.calls if call[0] == "launch"] == [A, OD, A, B]
    assert bench.cloud.fleet().live() == {B: 2}
    state = bench.store.get("state")
    assert (state.beliefs[A].refusals, state.beliefs[B].refusals) == (2, 0)
    there = set(bench.cloud.instances)
    bench.tick(at_s=240.0)  # A is wanted again, and B, which has capacity, is not equivalent
    assert [call[1] for call in bench.cloud.calls if call[0] == "launch"] == [A, OD, A, B, A]
    assert set(bench.cloud.instances) == there


def test_a_plan_of_several_offers_stays_spread() -> None:
    """Both zones are short: neither launch goes to the other zone, and the planner is asked."""
    planner = ScriptedPlanner(needs_forecast=True, replans=True)
    bench = Bench(planner, resolved(ON_DEMAND, SPOT_A, SPOT_B), predictor=RampPredictor())
    bench.tick({A: 2, B: 2})
    assert bench.cloud.fleet().live() == {A: 2, B: 2}
    launched = [command for _, command, _ in bench.store.journal]
    assert [command.alternatives for command in launched if isinstance(command, Launch)] == [(), ()]


def test_limits_hold_whichever_alternative_is_started() -> None:
    """$0.07 is enough for two of A, not for two of the slightly dearer B."""
    dearer = replace(SPOT_B, usd_per_hour=0.0357)
    bench = alike(A, where=resolved(ON_DEMAND, SPOT_A, dearer, max_usd_per_hour=0.07))
    bench.cloud.left = {A: 0}
    bench.tick()
    assert bench.cloud.fleet().live() == {B: 1}


def test_a_refused_launch_is_replanned_without_that_offer() -> None:
    """One zone refuses, so the plan is made again without its offer. Nothing is terminated for the refused plan."""
    bench = reading(A, B, OD)
    bench.cloud.left = {A: 0, B: 1}
    bench.tick()
    assert bench.journal() == [
        (f"launch 2 {A}", f"out of {A}"), (f"launch 2 {B}", f"the market had 1 of 2: out of {B}"),
        (f"launch 2 {OD}", "done"), (f"terminate #1 {B}", "done"),
    ]  # fmt: skip
    assert bench.controller.fallbacks == {"planned again without c5.large/spot": 2}
    assert [s.beliefs.get(A, UNKNOWN).refusals for s in bench.planner.contexts] == [0, 1, 1]
    assert bench.controller.last_plan.notes == ("planned again: the market refused",)


def test_partly_filled_launches_teach_as_much_as_refused_ones() -> None:
    """The journal gives the reason. After two offers met a used-up quota, no other offer under it is asked for."""
    bench = reading(A, B, OD)
    bench.cloud.left = {A: 1, B: 1}
    bench.cloud.why = CapacityError("MaxSpotInstanceCountExceeded: no more", RefusalScope.MARKET)
    bench.tick()
    said = "the market had 1 of 2: MaxSpotInstanceCountExceeded: no more"
    assert bench.journal()[:3] == [(f"launch 2 {A}", said), (f"launch 2 {B}", said), (f"launch 2 {OD}", "done")]
    beliefs = bench.controller.state.beliefs
    assert (beliefs[A].refusals, beliefs[B].refusals) == (2, 1), "by its own refusal, and with the other"
    assert bench.cloud.fleet().live()[OD] == 2, "in the same tick"


def test_what_a_repeated_launch_is_refused_is_believed() -> None:
    """The first answer was lost, and the repeated call says that there is no capacity."""
    bench = reading(A, OD)
    bench.cloud.fail = {A: CloudError("no answer in time")}
    bench.tick()
    bench.cloud.fail = {A: CapacityError("none left")}
    bench.tick()
    assert bench.controller.state.beliefs[A].refusals == 1
    assert bench.cloud.fleet().live() == {OD: 2}


def test_a_refused_offer_is_retried_after_its_back_off() -> None:
    """It is refused in one minute, skipped, and bought in the next; a sale clears the refusals."""
    bench = reading(A, OD)
    bench.cloud.left = {A: 0}
    bench.tick(at_s=0.0)
    bench.tick(at_s=59.0)
    assert [call[1] for call in bench.cloud.calls if call[0] == "launch"] == [A, OD]
    bench.cloud.left = {}
    bench.tick(at_s=60.0)
    assert bench.cloud.fleet().live() == {A: 2}
    assert bench.store.get("state").beliefs[A].refusals == 0


def test_an_interruption_notice_replans_with_the_loss_recorded() -> None:
    """Three of four instances are taken: the belief records the share and time, and the next best offer is bought."""
    bench = reading(A, OD, count=4)
    bench.tick()
    bench.cloud.boot()
    for number in (1, 2, 3):
        bench.cloud.interrupt(number)
    bench.fast()
    belief = bench.planner.contexts[-1].beliefs[A]
    assert (belief.losses, belief.lost_s) == (0.75, bench.clock.t_s)
    assert belief.until_s > bench.clock.t_s
    assert bench.cloud.fleet().live()[OD] == 4
    assert bench.controller.last_plan.notes == ("planned again: 3 interrupted",)


def test_beliefs_grow_with_the_hours_held_and_survive_the_controller() -> None:
    """It is held from the first tick to the third, two minutes.

    The next controller reads the beliefs from the store.
    """
    bench = reading(A)
    for _ in range(3):
        bench.tick()
    held_h = bench.planner.contexts[-1].beliefs[A].held_h
    assert held_h == pytest.approx(120.0 / 3600.0 - 60.0 / 3600.0, rel=0.01)
    bench.controller = bench.controller_again(RampPredictor())
    bench.tick()
    assert bench.planner.contexts[-1].beliefs[A].held_h > held_h


def test_spares_end_as_soon_as_the_target_is_ready() -> None:
    """Two of three are wanted: when two have booted the third goes, without waiting for the tick."""
    bench = Bench()
    bench.tick({OD: 3})
    plan = Plan(60.0, (Target(OD, 3, "two wanted", spare=1),))
    bench.controller.state = replace(bench.controller.state, plan=plan)
    bench.fast()
    assert len(bench.cloud.instances) == 3
    for number in (1, 3):
        bench.cloud.serve(number)
    bench.fast()
    assert bench.phases() == {1: f"{OD} ready", 3: f"{OD} ready"}
    assert bench.controller.last_plan.counts == bench.store.get("state").plan.counts == {OD: 2}


def test_a_stand_in_counts_for_its_own_offer_if_planned() -> None:
    """An on-demand instance stands in for spot. A plan that wants on-demand counts it and launches nothing more."""
    bench = Bench()
    bench.cloud.left = {A: 0, B: 0}
    bench.tick({A: 1})
    bench.cloud.left = {}
    bench.tick({OD: 1})
    assert bench.phases() == {1: f"{OD} pending"}
    bench.tick({OD: 1, A: 1})  # make before break
    assert bench.cloud.fleet().live() == {OD: 1, A: 1}
    bench.tick({A: 1})
    assert bench.cloud.fleet().live() == {A: 1}  # never both beyond the swap


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),  # wanted
            st.dictionaries(st.sampled_from([OD, A, B]), st.integers(0, 3)),  # the market's capacity
            st.booleans(),  # boot
            st.integers(0, 8),  # which instance to interrupt
        ),
        max_size=8,
    )
)
def test_replanning_asks_each_offer_at_most_once_a_tick(script: list) -> None:
    """Each tick ends with exactly the planned instances, so no instance is kept twice."""
    bench = reading(A, B, OD)
    for wanted, left, boot, victim in script:
        bench.planner.count, bench.cloud.left = wanted, left
        before = len(bench.cloud.calls)
        bench.tick()
        asked = [call[1] for call in bench.cloud.calls[before:] if call[0] == "launch"]
        assert len(asked) == len(set(asked))
        assert bench.cloud.fleet().live() == bench.controller.last_plan.counts
        if boot:
            bench.cloud.boot()
        if victim in bench.cloud.instances:
            bench.cloud.interrupt(victim)
        bench.fast()
        assert bench.cloud.fleet().live() == bench.controller.last_plan.counts


def test_slo_counts_for_the_planner_survive_a_restart() -> None:
    """Counts of telemetry since the controller began, refused and late together; they survive the controller."""
    bench = Bench()
    bench.telemetry.total = RecentAnswers(500, 100)  # before its time
    bench.tick({})
    bench.telemetry.total = RecentAnswers(1500, 1080)
    bench.tick()
    assert bench.planner.contexts[-1].answered == Answered(60.0, 1000, 20, 60.0, 1000, 20)
    bench.controller = bench.controller_again()
    bench.telemetry.total = RecentAnswers(1600, 1180)
    bench.tick()
    assert bench.planner.contexts[-1].answered == Answered(120.0, 1100, 20, 120.0, 1100, 20)


def test_an_instance_that_could_not_be_ended_is_ended_later() -> None:
    """The instance is still paid for, so the call is repeated although the cloud shows no change."""
    bench = Bench()
    bench.tick({OD: 1})
    bench.cloud.boot()
    shown = bench.cloud.fleet
    bench.tick({})
    bench.cloud.fail["terminate"] = ThrottledError("slow down")
    same = bench.cloud.fleet()
    bench.cloud.fleet = lambda: same  # type: ignore[method-assign]
    bench.fast()
    assert len(bench.cloud.instances) == 1
    del bench.cloud.fail["terminate"]
    bench.fast()
    bench.cloud.fleet = shown  # type: ignore[method-assign]
    assert bench.cloud.instances == {}


def test_a_notice_that_met_a_store_error_is_handled_later() -> None:
    bench = Bench()
    bench.tick({SPOT_A.name: 2})
    bench.cloud.boot()
    bench.cloud.interrupt(1)
    put, bench.store.put = bench.store.put, _refuse  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        bench.fast()
    bench.store.put = put  # type: ignore[method-assign]
    bench.fast()
    assert [offer for _, offer, count, _ in [c for c in bench.cloud.calls if c[0] == "launch"][1:]] == [SPOT_A.name]


@pytest.mark.parametrize("fails", ["record", "put"])
def test_a_notice_counts_once_however_often_it_is_dealt_with(fails: str) -> None:
    """Otherwise a full store would make the market look as if it took all instances again and again."""
    bench = Bench()
    bench.tick({A: 2})
    bench.cloud.boot()
    bench.cloud.interrupt(1)
    works = getattr(bench.store, fails)

    def refuses(what: object, value: object, *_: object) -> None:
        if fails == "record" or (what == "state" and value.beliefs[A].losses):  # type: ignore[attr-defined]
            raise StoreError("full")
        works(what, value)

    setattr(bench.store, fails, refuses)
    for _ in range(10):
        with pytest.raises(StoreError):
            bench.fast()
    setattr(bench.store, fails, works)
    bench.fast()
    bench.tick()
    assert bench.planner.contexts[-1].beliefs[A].losses == pytest.approx(0.5, abs=0.01)
    bench.cloud.boot()
    bench.cloud.interrupt(2)  # of two
    bench.fast()
    bench.tick()
    assert bench.planner.contexts[-1].beliefs[A].losses == pytest.approx(1.0, abs=0.01)


def _refuse(key: str, value: object) -> None:
    raise StoreError("full")


@pytest.mark.parametrize(("key", "kept"), [("state", {"plan": None}), ("memory", 3)])
def test_the_state_of_another_version_is_left_alone(key: str, kept: object, caplog: pytest.LogCaptureFixture) -> None:
    """The controller starts with an empty state, and logs that."""
    bench = Bench()
    bench.store.put(key, kept)
    bench.controller = bench.controller_again()
    assert "another version's" in caplog.text
    assert bench.controller.last_plan is None
    bench.tick({OD: 1})
    assert bench.cloud.fleet().live() == {OD: 1}


def test_burstables_without_credits_leave_before_they_are_replaced() -> None:
    """Instances that the plan names as leaving do not count; their replacements are launched in the same round."""
    bench = Bench()
    bench.tick({T2: 1})
    bench.cloud.boot()
    planned = bench.planner.plan

    def leaving(context: PlanningContext, memory: int) -> tuple[Plan, int]:
        plan, memory = planned(context, memory)
        return replace(plan, leaving=(1,)), memory

    bench.planner.plan = leaving  # type: ignore[method-assign]
    bench.tick()
    assert bench.phases() == {1: f"{T2} draining", 2: f"{T2} pending"}


def test_watching_takes_in_the_load_and_commands_nothing() -> None:
    predictor = RampPredictor()
    bench = Bench(ScriptedPlanner(needs_forecast=True), predictor=predictor)
    bench.telemetry.steps = [25.0]
    bench.controller.watch()
    bench.controller.learn()
    assert len(predictor.updates) == 1
    assert bench.cloud.calls == []


def test_what_a_clock_ahead_gave_up_delays_nothing() -> None:
    bench = Bench()
    for _ in range(2):
        bench.tick({OD: 4})
        bench.cloud.boot()
        bench.fast()
    bench.clock.t_s += 900.0
    bench.controller = bench.controller_again()
    bench.cloud.lives[1].silent_s = bench.clock.t_s
    for _ in range(14):
        bench.fast()
        bench.cloud.boot()
    assert bench.controller.state.gave_up_s
    bench.clock.t_s -= 900.0
    bench.controller = bench.controller_again()
    bench.cloud.lives[2].silent_s = bench.clock.t_s
    for _ in range(12):
        bench.fast()
        bench.cloud.boot()
    assert 2 not in bench.cloud.instances


def test_times_to_come_are_over_by_now() -> None:
    """A controller whose clock was ahead wrote the state.

    Each of its times is capped at the longest wait, or is over.
    """
    late = 1e6
    stratum = Stratum(ReleaseCounts(), ReleaseCounts(), True, 5.0)
    seen = Comparison({"c5.large": replace(stratum, since_s=late), "m5.large": stratum})
    state = ControllerState(
        monitor=MonitorState(launched_s=late, extra=1, pause_s=60.0),
        beliefs={A: Belief(at_s=late, refusals=3, until_s=late, lost_s=late)},
        not_resumed={T2: late},
        surprised_s=late,
        gave_up_s=(5.0, late),
        answered_since_s=late,
        boots={A: Boots(failed=4, failed_s=late)},
        held={"r2": HeldRelease(2, late, "gone")},
        rollout=Rollout("r1", since_s=late, moved_s=math.inf, retry_s=late, comparison=seen),
        switch_at_s=late,
    )
    found = not_ahead(state, 10.0)
    assert found.monitor.launched_s == found.surprised_s == found.answered_since_s == found.boots[A].failed_s == 10.0
    assert found.beliefs[A] == Belief(at_s=10.0, refusals=3, until_s=10.0 + OFFER.longest_s, lost_s=10.0)
    assert (found.not_resumed, found.gave_up_s) == ({T2: 10.0 + RESUME.first_s}, (5.0,))
    assert found.held["r2"].until_s == 10.0 + RELEASE.longest_s
    seen = Comparison({"m5.large": stratum})
    assert found.rollout == Rollout(
        "r1", since_s=10.0, moved_s=math.inf, retry_s=10.0 + ROLLOUT.first_s, comparison=seen
    )
    assert found.switch_at_s == 10.0 + ROLLOUT.first_s
    assert not_ahead(state, late) is state
