"""The control loop: observe, forecast, plan, command. The same one drives the simulator, the testbed and EC2."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mark.control.health import PAUSE_S, given_up, judged, nobody_answers, overdue
from mark.control.interruption import InterruptionHandler
from mark.control.launcher import Launcher, carries
from mark.control.monitor import MonitorState, SloMonitor, favourite
from mark.control.ports import WINDOW_S, Clock, Cloud, Functions, Store, Telemetry
from mark.control.surge import surprise_rps
from mark.control.views import Limits
from mark.domain.command import Command, Drain, Launch, Resume, Stop, Terminate, Warm
from mark.domain.errors import CloudError, LimitError
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.load import Forecast
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.domain.time import STEP_S
from mark.forecasting.conditioning import given
from mark.forecasting.supervised import Supervised
from mark.planning.demand.slo_budget import Answered, Window
from mark.planning.market.spot import without_spares
from mark.planning.port import PlanningContext, Policy

HORIZON_STEPS = 60  # of a minute each
LATEST = 4  # windows that are up to date
LAUNCH_LATE_S = 5.0  # a cloud says that an instance was launched so much later than it was asked for, at most


class Controller:
    """Runs one service. `tick` is called once a minute, `fast` every 5 s and at every notice, `begin` once before.

    `predictor` is fitted by the caller and supervised, so that there is a forecast whatever it does; None for policies
    that need no forecast. To time planner or predictor, hand in objects that wrap them. Clock, telemetry, cloud and
    predictor count seconds from the same origin. `seed` marks the launch tokens of this run, so that two runs against
    one cloud do not share instances. At least `floor` instances are planned for, whatever the planner says: where
    nothing runs, nobody is there to see that requests come.

    Crash-only: plan, memory of the planner, beliefs about the market, stand-ins, launches under way and the SLO's
    window are in the store, everything else is read from the cloud.
    `last_plan` is what the fleet follows and names who forecast for it, `predictors` counts forecasts by that name.
    `fallbacks` counts, by name, where something else had to do (`causes` has the first message of those that have one),
    `failures` commands that the cloud refused, by error. Every command is recorded in the store with its outcome.
    """

    def __init__(
        self,
        policy: Policy,
        predictor: Supervised | None,
        cloud: Cloud,
        functions: Functions | None,
        clock: Clock,
        store: Store,
        telemetry: Telemetry,
        *,
        seed: int = 0,
        floor: int = 0,
    ) -> None:
        resolved = policy.resolved
        self._planner, self._resolved = policy.planner, resolved
        if policy.planner.needs_forecast and predictor is None:
            raise ValueError(f"{policy.planner.name} needs a predictor")
        self._predictor = predictor if policy.planner.needs_forecast else None
        self._cloud, self._functions, self._clock = cloud, functions, clock
        self._store, self._telemetry = store, telemetry
        self._buyer = Launcher(resolved, cloud, store, _limits(resolved), seed)
        self._floor = floor
        self._offers = {offer.name: offer for offer in resolved.offers}
        self._capacity_rps = {o.name: c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
        self._handler = InterruptionHandler(resolved)
        offer = favourite(resolved) if policy.planner.monitors_slo else None
        self._monitor = None if offer is None else SloMonitor(resolved.slo, offer.name, offer.usd_per_hour)
        self._monitor_state = store.get("monitor") or MonitorState()
        memory = store.get("memory")
        self._memory: Any = policy.planner.begin() if memory is None else memory
        self._window: Window | None = store.get("window")
        self._believed: Forecast | None = None  # by the last plan
        self._believed_s = -math.inf
        self._surprised_s = -math.inf  # when more arrived than was believed
        self._seen: Fleet | None = None  # the snapshot that fast() has dealt with
        self._unheard: tuple[Notice, ...] = ()  # notices that could not be dealt with yet
        self._counted: set[Notice] = set()  # those of them that the beliefs know of
        self._gave_up_s: list[float] = []  # when instances were that did not answer
        self._heard_s = -math.inf  # since when anybody answers, infinity while nobody does
        self._leaving = False  # is anything in it that leaves by itself, later?
        self.last_plan: Plan | None = store.get("plan")
        self.predictors: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.fallbacks, self.failures = self._buyer.fallbacks, self._buyer.failures

    def use(self, policy: Policy) -> None:
        """Plan by this one from now on: the same policy within other limits, or at other prices. Its memory goes on."""
        self._planner, self._resolved = policy.planner, policy.resolved
        self._offers = {offer.name: offer for offer in policy.resolved.offers}
        self._handler = InterruptionHandler(policy.resolved)
        self._buyer.use(policy.resolved, _limits(policy.resolved))

    @property
    def believed(self) -> Forecast | None:
        """The forecast that the last plan rests on, on 60 s steps; None without one."""
        return self._believed

    def answered(self) -> Answered:
        """How the promise was kept in the SLO's window."""
        return Answered() if self._window is None else self._window.answered(self._clock.now_s())

    def begin(self) -> Plan:
        """The plan of the first fleet, within the service's limits; the caller makes all of it ready."""
        now_s = self._clock.now_s()
        forecast, rps, _ = self._observe(now_s)
        self._believed, self._believed_s = forecast, now_s
        plan = self._plan(now_s, self._cloud.fleet(), forecast, rps, first=True)
        targets, notes = [], plan.notes
        counts: Counter[str] = Counter()
        for target in plan.targets:
            room, limit = self._buyer.room(self._offers[target.offer], now_s, counts)
            count = min(target.count, room)
            if count < target.count:
                notes += (f"first fleet: {count} of {target.count} {target.offer}: {limit}",)
            counts[target.offer] += count
            targets.append(replace(target, count=count))
        self._keep(replace(plan, targets=tuple(targets), notes=notes))
        assert self.last_plan is not None
        return self.last_plan

    def tick(self) -> None:
        """One round: take in the load, forecast, plan, and bring the fleet to the plan."""
        now_s = self._clock.now_s()
        self._buyer.repeat(now_s)
        forecast, rps, gap = self._observe(now_s)
        fleet = judged(self._cloud.fleet(), now_s)
        self._buyer.watch_market(now_s, fleet)
        # Nothing was seen: nothing is known that the last plan did not know.
        if not gap or self.last_plan is None:
            forecast = self._corrected(now_s, forecast)
            self._believed, self._believed_s = forecast, now_s
            self._keep(self._plan(now_s, fleet, forecast, rps, first=False))
        assert self.last_plan is not None
        self._buyer.refused = False
        self._follow(now_s, self.last_plan, fleet)
        if self._buyer.refused and self._replans:
            self._plan_again(now_s, rps, "the market refused")

    def fast(self) -> None:
        """Between ticks: notices, the SLO monitor, and the end of drained instances."""
        now_s = self._clock.now_s()
        self._buyer.repeat(now_s)
        self._unheard += self._cloud.notices()
        if self._unheard:
            self._on_notices(now_s, self._unheard)
            self._unheard = ()
            self._counted.clear()
        if self._monitor is not None:
            launches, state = self._monitor.check(now_s, self._telemetry.recent(), self._monitor_state)
            if state is not self._monitor_state:
                self._monitor_state = state
                self._store.put("monitor", state)
            for launch in launches:
                self._execute(now_s, launch)
        self._watch_envelope(now_s)
        seen = self._cloud.fleet()
        for i in overdue(seen, now_s):
            self._end(now_s, i, f"not ready {now_s - i.launched_s:.0f} s after its start: it never will be")
        if seen is not self._seen or self._leaving:
            self._seen, fleet = None, judged(seen, now_s)
            self._end_spares(now_s, fleet)
            planned = self.last_plan.counts if self.last_plan is not None else {}
            arriving_rps = self._telemetry.last_minute_rps() or 0.0
            for drain in self._handler.leave(fleet, now_s, planned, arriving_rps):
                self._execute(now_s, drain)
            self._give_up_silent(now_s, seen)
            finished = self._finish_drained(now_s, fleet)
            self._leaving = any(
                i.phase is Phase.READY and (i.standby or i.doomed_s is not None or i.silent_s is not None)
                for i in fleet.instances
            )
            # Whatever raised or was refused is tried again: an instance that was not ended is paid on.
            self._seen = seen if finished else None

    def watch(self) -> None:
        """Instead of a tick: take in the load, and leave everything as it is."""
        load = self._telemetry.load()
        if self._predictor is not None:
            self._predictor.update(load)

    def learn(self) -> None:
        """It is this service's turn among many: a predictor that learns in turns does a piece."""
        if self._predictor is not None:
            self._predictor.learn()

    def _on_notices(self, now_s: float, notices: tuple[Notice, ...]) -> None:
        """Believe what happened, bridge it, and buy what the plan now lacks, wherever that is best."""
        fleet = judged(self._cloud.fleet(), now_s)
        self._buyer.watch_market(now_s, fleet)
        left = Counter(i.offer for i in fleet.instances if carries(i))
        for offer, lost in Counter(notice.offer for notice in notices if notice not in self._counted).items():
            self._counted |= {notice for notice in notices if notice.offer == offer}
            self._buyer.interrupted(now_s, offer, lost / (lost + left[offer]))
        planned = self.last_plan.counts if self.last_plan is not None and not self._replans else {}
        live = Counter(self._buyer.counted_as(fleet, planned).values())
        missing = {offer: count - live[offer] for offer, count in planned.items()}
        for command in self._handler.on_notices(notices, fleet, missing, self._buyer.stands_for):
            self._execute(now_s, command)
        if self._replans:
            self._plan_again(now_s, self._telemetry.last_minute_rps(), f"{len(notices)} interrupted")

    @property
    def _corrects(self) -> bool:
        """Is what is believed to be corrected by what arrives meanwhile?"""
        return self._planner.replans and self._predictor is not None and not self._predictor.foresees

    @property
    def _replans(self) -> bool:
        return self._planner.replans and self._believed is not None

    def _plan_again(self, now_s: float, rps: float | None, why: str, *, shrink: bool = True) -> None:
        """Plan on the forecast that is believed, and once more without whatever the market then refuses."""
        assert self._believed is not None
        forecast = _from_now(self._believed, now_s)
        note = f"planned again: {why}"
        # Every refusal puts one offer more off.
        for _ in range(len(self._offers) + 1):
            fleet = judged(self._cloud.fleet(), now_s)
            plan = self._plan(now_s, fleet, forecast, rps, first=False)
            if not shrink and self.last_plan is not None:
                plan = _not_less(plan, self.last_plan, fleet.live())
            self._keep(replace(plan, notes=(*plan.notes, note)))
            self._buyer.refused = False
            self._follow(now_s, plan, fleet)
            if not self._buyer.refused:
                return

    def _watch_envelope(self, now_s: float) -> None:
        """Plan again at once when more arrives than was planned for; what that plan needs less of can wait."""
        believed = self._believed
        if believed is None or not self._corrects or self.last_plan is None:
            return
        windows_rps = self._telemetry.windows_rps()
        # What was seen before the plan was made is no news to it.
        fresh = min(len(windows_rps), round((now_s - self._believed_s) / WINDOW_S))
        planned_rps = max(float(believed.mean_at(0.5)[0]), self.last_plan.capacity_rps)
        seen_rps = surprise_rps(windows_rps[len(windows_rps) - fresh :], planned_rps)
        if seen_rps is None:
            return
        self._believed, self._believed_s, self._surprised_s = given(believed, seen_rps), now_s, now_s
        self._plan_again(now_s, seen_rps, f"{seen_rps:.0f} requests/s seen", shrink=False)

    def _corrected(self, now_s: float, forecast: Forecast | None) -> Forecast | None:
        """A forecast is made of whole minutes: while a surge goes on that began within the last, it lags behind."""
        if forecast is None or not self._corrects or now_s - self._surprised_s > STEP_S:
            return forecast
        seen_rps = surprise_rps(self._telemetry.windows_rps()[-LATEST:], float(forecast.mean_at(0.5)[0]))
        if seen_rps is None:
            return forecast
        self._surprised_s = now_s
        return given(forecast, seen_rps)

    # -- observe and plan ----------------------------------------------------------------------------------------------

    def _observe(self, now_s: float) -> tuple[Forecast | None, float | None, bool]:
        """(forecast, rate of the last minute, was nothing seen?)."""
        load, rps = self._telemetry.load(), self._telemetry.last_minute_rps()
        gap = rps is None and not bool(np.isfinite(load.mean_rps).any())
        if self._predictor is None:
            return None, rps, gap
        self._predictor.update(load)
        if gap and self.last_plan is not None:
            return None, rps, gap
        # One step more: the forecast begins where the last whole step ended, which may lie behind.
        steps = math.ceil(HORIZON_STEPS * STEP_S / load.step_s) + (1 if load.step_s > STEP_S else 0)
        forecast = self._predictor.predict(steps, rps)
        if self._predictor.stands_in:
            name = f"{forecast.predictor} instead of {self._predictor.name}: {self._predictor.stands_in}"
            self.causes.setdefault(name, self._predictor.causes.get(self._predictor.stands_in, ""))
            self._buyer.fall_back(name)
        self.predictors[forecast.predictor] += 1
        return _from_now(forecast.by_minute(), now_s), rps, gap

    def _plan(self, now_s: float, fleet: Fleet, forecast: Forecast | None, rps: float | None, *, first: bool) -> Plan:
        utilization = {} if first else self._telemetry.utilization()
        answers = self._telemetry.answers()
        late = answers.count - answers.in_time
        self._window = (self._window or Window(now_s, answers.count, late)).seen(now_s, answers.count, late)
        self._store.put("window", self._window)
        context = PlanningContext(
            now_s,
            self._resolved,
            fleet,
            forecast,
            rps,
            utilization,
            first,
            dict(self._buyer.beliefs),
            self._window.answered(now_s),
        )
        plan, self._memory = self._planner.plan(context, self._memory)
        self._store.put("memory", self._memory)
        plan = self._not_empty(plan, fleet)
        return plan if forecast is None else replace(plan, predictor=forecast.predictor)

    def _not_empty(self, plan: Plan, fleet: Fleet) -> Plan:
        """With the floor's instances: of what there is, else of what the SLO monitor would buy."""
        missing = self._floor - sum(plan.counts.values())
        if missing <= 0:
            return plan
        there = sorted((self._offers[name] for name in fleet.live()), key=lambda o: (o.usd_per_hour, o.name))
        offer = there[0] if there else favourite(self._resolved)
        if offer is None:
            return plan
        count = plan.counts.get(offer.name, 0) + missing
        target = Target(offer.name, count, "somebody has to be there when a request comes")
        return replace(plan, targets=(*(t for t in plan.targets if t.offer != offer.name), target))

    def _keep(self, plan: Plan) -> None:
        self.last_plan = plan
        self._store.put("plan", plan)

    # -- bring the fleet to the plan -----------------------------------------------------------------------------------

    def _follow(self, now_s: float, plan: Plan, fleet: Fleet) -> None:
        self._buyer.forget_gone(fleet)
        if plan.leaving:
            for i in fleet.instances:
                if i.number in plan.leaving and carries(i):
                    self._end(now_s, i, "its credits are spent")
            fleet = Fleet(tuple(i for i in fleet.instances if i.number not in plan.leaving))
        have = self._have(fleet, plan)
        standbys: dict[str, list[Instance]] = {}
        for i in fleet.instances:
            if i.standby:
                standbys.setdefault(i.offer, []).append(i)
        promised = self._buyer.promised(standby=False)
        for target in plan.targets:
            missing = target.count - len(have.get(target.offer, ())) - promised[target.offer]
            if missing > 0:
                self._execute(now_s, self._launch_of(target, missing, standby=False))
        if self._buyer.refused and self._replans:
            return  # this plan was made for another market: nothing is ended for it
        self._end_excess(now_s, plan, have)
        self._follow_standbys(now_s, plan, standbys)
        if plan.warm > 0:
            self._execute(now_s, Warm("a cold start would miss the SLO, a ping costs next to nothing", 0.0, plan.warm))

    def _end_excess(self, now_s: float, plan: Plan, have: Mapping[str, list[Instance]]) -> None:
        reasons = {target.offer: target.reason for target in plan.targets}
        for offer, instances in have.items():
            excess = len(instances) - plan.counts.get(offer, 0)
            if excess > 0:
                reason = reasons.get(offer, "the plan needs none of it any more")
                self._shrink(now_s, offer, instances, excess, reason)

    def _end_spares(self, now_s: float, fleet: Fleet) -> None:
        """What was to run until the rest of the plan is ready need not run until the next tick."""
        if self.last_plan is None or not any(target.spare for target in self.last_plan.targets):
            return
        have = self._have(fleet, self.last_plan)
        ready = {offer: sum(i.phase is Phase.READY for i in instances) for offer, instances in have.items()}
        plan = without_spares(self.last_plan, ready, self._capacity_rps)
        if plan.counts != self.last_plan.counts:
            self._keep(plan)
            self._end_excess(now_s, plan, have)

    def _is_rescue(self, instance: Instance, now_s: float) -> bool:
        """Bought by the SLO monitor a moment ago: the next plan, made from the belief that failed, may not undo it."""
        bought_s = self._monitor_state.launched_s
        return (
            self._monitor is not None
            and bought_s is not None
            and -1.0 < instance.launched_s - bought_s < LAUNCH_LATE_S  # whole seconds, by its own clock
            and instance.offer == self._monitor.offer
            and now_s - bought_s < self._monitor.pause_s
        )

    def _shrink(self, now_s: float, planned: str, instances: list[Instance], excess: int, reason: str) -> None:
        """End the burstables with the fewest credits, what serves nobody yet, what stands in, then the youngest."""

        def order(i: Instance) -> tuple[float, bool, bool, float, int]:
            credits = math.inf if i.credits is None else i.credits
            return credits, i.phase is not Phase.PENDING, i.offer == planned, -i.launched_s, -i.number

        instances.sort(key=order)
        for i in [i for i in instances if not self._is_rescue(i, now_s)][:excess]:
            self._end(now_s, i, reason)

    def _end(self, now_s: float, instance: Instance, reason: str) -> None:
        verb = Terminate if instance.phase is Phase.PENDING else Drain
        usd_per_hour = -self._offers[instance.offer].usd_per_hour
        self._execute(now_s, verb(reason, usd_per_hour, instance.offer, instance.number))

    def _follow_standbys(self, now_s: float, plan: Plan, standbys: Mapping[str, Sequence[Instance]]) -> None:
        wanted = {target.offer: target for target in plan.standbys}
        promised = self._buyer.promised(standby=True)
        for target in plan.standbys:
            missing = target.count - len(standbys.get(target.offer, ())) - promised[target.offer]
            if missing > 0:
                self._execute(now_s, self._launch_of(target, missing, standby=True))
        for offer, instances in standbys.items():
            excess = len(instances) - (wanted[offer].count if offer in wanted else 0)
            stopped = [i for i in instances if i.phase is Phase.STOPPED]
            for i in stopped[: max(0, excess)]:
                self._execute(now_s, Terminate("the plan keeps fewer standbys", 0.0, i.offer, i.number))

    def _give_up_silent(self, now_s: float, fleet: Fleet) -> None:
        self._gave_up_s = [at_s for at_s in self._gave_up_s if now_s - at_s < PAUSE_S]
        # A look may come late: it counts when one first saw that somebody answers.
        self._heard_s = math.inf if nobody_answers(fleet) else min(self._heard_s, now_s)
        found = given_up(fleet, now_s, self._gave_up_s, self._heard_s)
        if found and self.last_plan is not None:
            self._follow(now_s, self.last_plan, judged(self._cloud.fleet(), now_s))  # first what replaces them
        for i in found:
            assert i.silent_s is not None
            reason = f"its bouncer has not answered for {now_s - i.silent_s:.0f} s, though the cloud says that it runs"
            if self._execute(now_s, Drain(reason, -self._offers[i.offer].usd_per_hour, i.offer, i.number)):
                self._gave_up_s.append(now_s)

    def _launch_of(self, target: Target, count: int, *, standby: bool) -> Launch:
        # A stopped standby costs its disk only.
        usd_per_hour = 0.0 if standby else count * self._offers[target.offer].usd_per_hour
        return Launch(target.reason, usd_per_hour, target.offer, count, standby)

    def _finish_drained(self, now_s: float, fleet: Fleet) -> bool:
        """End or stop them; has everybody gone who could?"""
        finished = True
        for i in fleet.instances:
            if i.phase is Phase.DRAINING and i.idle:
                verb = Stop if i.standby and i.doomed_s is None else Terminate
                # The price was given back when it was drained.
                finished &= self._execute(now_s, verb("its queue is empty", 0.0, i.offer, i.number))
        return finished

    # -- act -----------------------------------------------------------------------------------------------------------

    def _execute(self, now_s: float, command: Command) -> bool:
        """Carry a command out and record what came of it; a refusal is an outcome, not an error."""
        if isinstance(command, Launch):
            return self._buyer.launch(now_s, command, replans=self._replans)
        outcome = "done"
        try:
            if isinstance(command, Drain):
                self._cloud.drain(command.number)
            elif isinstance(command, Terminate):
                self._cloud.terminate(command.number)
            elif isinstance(command, Resume):
                room, limit = self._buyer.room(self._offers[command.offer], now_s)
                if room == 0:
                    raise LimitError(limit)
                self._cloud.resume(command.number)
            elif isinstance(command, Stop):
                self._cloud.stop(command.number)
            elif isinstance(command, Warm):
                if self._functions is None:
                    outcome = "there are no functions"
                else:
                    started = self._functions.warm(command.environments)
                    if started == 0:
                        return True  # all of them are warm already: nothing was done, nothing is told
                    outcome = f"done, {started} started"
        except CloudError as error:
            outcome = self._buyer.failed(error)
        self._store.record(now_s, command, outcome)
        return outcome.startswith("done")

    def _have(self, fleet: Fleet, plan: Plan) -> dict[str, list[Instance]]:
        """What carries the load, by the planned offer that it counts for."""
        have: dict[str, list[Instance]] = {}
        counted_as = self._buyer.counted_as(fleet, plan.counts)
        for i in fleet.instances:
            if i.number in counted_as:
                have.setdefault(counted_as[i.number], []).append(i)
        return have


def _not_less(plan: Plan, last: Plan, live: Mapping[str, int]) -> Plan:
    """The plan with as much of everything as the last one wanted, as far as it lives."""
    least = {offer: min(count, live.get(offer, 0)) for offer, count in last.counts.items()}
    targets = tuple(replace(t, count=max(t.count, least.get(t.offer, 0))) for t in plan.targets)
    left = tuple(
        replace(t, count=least[t.offer]) for t in last.targets if t.offer not in plan.counts and least.get(t.offer, 0)
    )
    return replace(plan, targets=targets + left)


def _from_now(forecast: Forecast, now_s: float) -> Forecast:
    """The next hour of a forecast on 60 s steps: what lies before `now_s` is cut off.

    Where it does not reach so far, because the observed load ended long ago, its last step stays.
    """
    past = max(0, round((now_s - forecast.origin_s) / STEP_S))
    if past == 0 and forecast.steps == HORIZON_STEPS:
        return forecast
    span = np.minimum(past + np.arange(HORIZON_STEPS), forecast.steps - 1)
    return Forecast(
        now_s,
        STEP_S,
        forecast.levels,
        forecast.mean_rps[:, span],
        forecast.peak_rps[:, span],
        forecast.predictor,
        None if forecast.paths_rps is None else forecast.paths_rps[:, span],
    )


def _limits(resolved: ResolvedService) -> Limits:
    return Limits(resolved.service.max_instances, resolved.service.max_usd_per_hour)
