"""A rescue by the SLO monitor that the market refuses, where the policy plans again: the plan does not replace it."""

from __future__ import annotations

from dataclasses import replace

from mark.cloud.machine import InstanceLife
from mark.control.monitor import MonitorState
from mark.control.ports import RecentAnswers, Result
from mark.control.refused_launch import Rescue
from mark.control.snapshot import Outcome
from mark.domain.command import Launch, Resume
from mark.domain.errors import CapacityError, CloudError
from mark.domain.service import RolloutSettings, SloMonitorSettings
from mark.testing.fakes import RampPredictor, ScriptedPlanner
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, SPOT_B, Bench, offer, resolved

OD, SPOT, OTHER_SPOT = ON_DEMAND.name, SPOT_A.name, SPOT_B.name
BIG = offer("m5.large", usd_per_hour=0.096)
BROKEN, BETTER, KEPT = RecentAnswers(1000, 900), RecentAnswers(1000, 950), RecentAnswers(1000, 1000)
ALL = (OD, SPOT, OTHER_SPOT, BIG.name)
REASON = "SLO monitor"


def troubled(
    *refused: str, most: int = 200, usd: float = 100.0, count: int = 1, warm_pool: int = 0, release: str = ""
) -> Bench:
    """Return a bench on which one planned instance serves, requests are late, and the market has none of `refused`.

    Equivalent offers are asked for in the same launch, so the offers of two zones are refused in one line.
    """
    where = resolved(ON_DEMAND, SPOT_A, SPOT_B, BURSTABLE, BIG, max_instances=most, max_usd_per_hour=usd)
    settings, rollout = SloMonitorSettings(count=count), RolloutSettings(canary_share=0.0)
    where = replace(where, service=replace(where.service, warm_pool=warm_pool, slo_monitor=settings, rollout=rollout))
    planner = ScriptedPlanner(needs_forecast=True, monitors_slo=True, replans=True)
    bench = Bench(planner, where, predictor=RampPredictor(), release=release)
    planner.capacity_rps = 1e6  # no surge
    bench.fast()
    bench.tick({BIG.name: 1})
    bench.cloud.boot()
    bench.fast()
    bench.cloud.fail = {name: CapacityError(f"no {name}") for name in refused}
    bench.telemetry.latest = BROKEN
    return bench


def rescues(bench: Bench) -> list[tuple[str, str]]:
    """Return offer and outcome of the monitor's launches."""
    return [(c.offer, outcome) for _, c, outcome in bench.store.journal if c.reason.startswith(REASON)]


def test_a_refused_rescue_is_bought_elsewhere_in_its_round() -> None:
    bench = troubled(OD, SPOT, OTHER_SPOT)
    bench.fast()
    assert rescues(bench) == [(OD, f"no {OD}"), (SPOT, f"no {SPOT}"), (BIG.name, "done")]
    assert bench.controller.state.monitor.extra == 1
    (_, command, _) = bench.store.journal[-1]
    assert command.reason.endswith(f"600 ms, promised 98.0 %; {OD} is not to be had"), "said once"


def test_a_stand_in_is_kept_through_the_pause() -> None:
    bench = troubled(OD)
    bench.fast()
    bench.cloud.boot()
    for _ in range(3):
        bench.tick()
    assert bench.cloud.fleet().live() == {BIG.name: 1, SPOT: 1}
    bench.telemetry.latest = KEPT
    bench.tick(at_s=bench.clock.t_s + 900.0)
    bench.fast()
    bench.tick()
    assert rescues(bench) == [(OD, f"no {OD}"), (SPOT, "done")]
    assert bench.journal()[-2:] == [(f"drain #2 {SPOT}", "done"), (f"terminate #2 {SPOT}", "done")]


def test_without_anything_to_be_had_there_is_no_rescue() -> None:
    """It counts as not made: no instance is kept for it, and it is made in the first round in which it can be."""
    bench = troubled(OD, SPOT, OTHER_SPOT, BIG.name)
    bench.fast()
    tried = [name for name, _ in rescues(bench)]
    assert tried == [OD, SPOT, BIG.name]
    assert bench.controller.state.monitor == MonitorState()
    for _ in range(3):
        bench.fast()
    assert len(rescues(bench)) == 3, "none is asked for again while it is put off"
    bench.cloud.fail.clear()
    bench.tick(at_s=bench.clock.t_s + 300.0)
    bench.fast()
    assert rescues(bench)[3:] == [(OD, "done")]


def test_what_is_put_off_is_not_asked_for_first() -> None:
    bench = troubled(OD)
    bench.tick({BIG.name: 1, OD: 1})
    assert bench.journal()[-1] == (f"launch 1 {OD}", f"no {OD}")
    bench.planner.wanted = {BIG.name: 1}
    bench.fast()
    assert rescues(bench) == [(SPOT, "done")]


def test_only_what_is_lacking_of_two_is_bought_elsewhere() -> None:
    bench = troubled(SPOT, OTHER_SPOT, count=2)
    bench.cloud.left = {OD: 1, BIG.name: 1}
    bench.fast()
    assert [(c.offer, c.count) for _, c, _ in bench.store.journal[1:]] == [(OD, 2), (SPOT, 1), (BIG.name, 1)]
    assert bench.controller.state.monitor.extra == 2


def test_what_is_lacking_of_a_rescue_is_not_counted_on() -> None:
    bench = troubled(SPOT, OTHER_SPOT, BIG.name, count=2)
    bench.cloud.left = {OD: 1}
    bench.fast()
    assert bench.controller.state.monitor.extra == 1
    bench.fast()
    assert len(rescues(bench)) == 3, "until its pause is over"


def test_what_the_own_limit_forbids_waits_out_its_pause() -> None:
    """Another offer has no capacity either, and each round would write that to the journal."""
    bench = troubled(most=1)
    for _ in range(3):
        bench.fast()
    assert len(rescues(bench)) == 1
    assert bench.controller.state.monitor.extra == 1


def test_a_burstable_does_not_rescue() -> None:
    """It would spend its credits, and be slow from then on."""
    bench = troubled(OD, SPOT, OTHER_SPOT, BIG.name)
    bench.fast()
    assert BURSTABLE.name not in [name for name, _ in rescues(bench)]


def pooled(bench: Bench) -> None:
    """Put a stopped instance of the monitor's offer into the warm pool."""
    bench.cloud.lives[9] = InstanceLife(9, OD, 0.0)
    bench.cloud.lives[9].stop(0.0)


def test_a_start_whose_answer_was_lost_is_the_rescue() -> None:
    """The fleet shows that it was made."""
    bench = troubled(warm_pool=1)
    pooled(bench)
    resume = bench.cloud.resume

    def lost(number: int) -> None:
        resume(number)
        raise CloudError("the answer was lost")

    bench.cloud.resume = lost  # type: ignore[method-assign]
    bench.fast()
    assert bench.journal()[1:] == [(f"resume #9 {OD}", "the answer was lost")]
    assert bench.controller.state.monitor.extra == 1


def test_a_start_that_was_refused_is_replaced_by_a_launch() -> None:
    bench = troubled(warm_pool=1)
    pooled(bench)
    bench.cloud.fail = {"resume": CapacityError("no host has room")}
    bench.fast()
    assert bench.journal()[1:] == [(f"resume #9 {OD}", "no host has room"), (f"launch 1 {OD}", "done")]
    assert bench.controller.state.monitor.extra == 1


def test_what_is_pooled_starts_while_its_offer_is_put_off() -> None:
    """A refused launch says nothing about stopped instances."""
    bench = troubled(OD, warm_pool=1)
    bench.tick({BIG.name: 1, OD: 1})
    bench.planner.wanted = {BIG.name: 1}
    pooled(bench)
    bench.fast()
    assert bench.journal()[-1] == (f"resume #9 {OD}", "done")


def test_an_earlier_rescue_stays_while_no_other_can_be_had() -> None:
    """It helped: with less there would be more trouble. In a minute and a half the next one is asked for again."""
    bench = troubled()
    bench.fast()
    bench.cloud.boot()
    bench.telemetry.latest = BETTER
    bench.clock.t_s += 300.0
    bench.cloud.fail = {name: CapacityError(f"no {name}") for name in ALL}
    bench.fast()
    assert [name for name, _ in rescues(bench)] == [OD, OD, SPOT, BIG.name]
    bench.tick()
    assert bench.cloud.fleet().live() == {BIG.name: 1, OD: 1}
    for _ in range(7):
        bench.fast()
    bench.tick()
    assert bench.controller.state.monitor.extra == 1, "put off all the time, and kept"
    bench.cloud.fail = {}
    bench.clock.t_s += 90.0
    bench.fast()
    assert rescues(bench)[-1] == (OD, "done")
    assert bench.controller.state.monitor.extra == 2


def test_a_stand_in_has_room_by_its_own_price() -> None:
    """$0.226 an hour is within the limit; with the instance that it replaces it would be $0.277."""
    bench = troubled(OD, usd=0.26)
    bench.fast()
    bench.cloud.boot()
    bench.tick({BIG.name: 2})
    bench.cloud.boot()
    bench.fast()
    bench.tick()
    assert bench.cloud.fleet().live() == {BIG.name: 2, SPOT: 1}


def test_a_new_release_replaces_a_stand_in_by_another() -> None:
    """The offer that it stands in for still has no capacity."""
    bench = troubled(OD, release="r1")
    bench.fast()
    bench.cloud.boot()
    assert bench.cloud.fleet().live() == {BIG.name: 1, SPOT: 1}
    bench.release = "r2"
    bench.controller = bench.controller_again(RampPredictor())
    for _ in range(3):  # within the pause
        bench.tick()
        answering = bench.cloud.fleet().ready()
        assert answering.keys() >= {SPOT}, "until the other one is ready"
        bench.cloud.boot()
        bench.fast()
    releases = {i.offer: i.release for i in bench.cloud.fleet().instances}
    assert releases == {BIG.name: "r2", SPOT: "r2"}


def resumed(number: int, *, done: bool = False, refused: bool = False) -> Outcome:
    return Outcome(Resume(REASON, 0.0, OD, number), "", Result.DONE if done else Result.FAILED, refused)


def test_a_resume_whose_answer_was_lost_counts() -> None:
    """It is not stopped any more, so it was started; for a refused one another offer may have capacity."""
    rescue = Rescue(MonitorState(), 2, REASON)
    lost, refused = resumed(1, refused=True), resumed(2, refused=True)
    assert rescue.after([lost, refused], stopped=[2]) == replace(rescue, lacking=1)
    assert rescue.after([lost, refused], stopped=[1, 2]) == rescue
    assert rescue.after([lost, refused], stopped=[]) is None
    assert rescue.after([lost, resumed(2, done=True)], stopped=[]) is None
    assert rescue.after([resumed(1, done=True), refused], stopped=[2]) == replace(rescue, lacking=1)


def test_what_was_launched_and_resumed_counts_together() -> None:
    launch = Launch(REASON, 0.0, OD, 2)
    part = Outcome(launch, "", Result.PART, refused=True, started=(7,))
    rescue = Rescue(MonitorState(), 4, REASON)
    assert rescue.after([resumed(1, refused=True), part], stopped=[]) == replace(rescue, lacking=2)
    assert rescue.after([Outcome(launch, "", Result.PART, started=(7,))], stopped=[]) is None, "nothing was refused"
