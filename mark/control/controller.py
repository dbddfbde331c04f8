"""The control loop: observe, forecast, decide, act. The simulator, the testbed and EC2 run the same loop."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mark.control.act import Actor
from mark.control.agenda import FAST, FIRST, TICK, AgendaItem
from mark.control.coming_calls import ComingCalls, higher_rps, with_coming
from mark.control.decide import HORIZON_STEPS, Decider, from_now
from mark.control.headroom import limits_of
from mark.control.late_refusals import late_refusals
from mark.control.launcher import Launcher
from mark.control.led_ports import LedCloud, LedFunctions
from mark.control.ports import Clock, Cloud, Functions, RecentAnswers, Store, Telemetry
from mark.control.rollout import Rollout, RolloutStage, asked_again, recalled, remembered, stopped
from mark.control.scheduled_events import leaving_in_time
from mark.control.shared_limits import Holding
from mark.control.snapshot import Outcome, Snapshot
from mark.control.state import (
    ControllerState,
    begin_round,
    counts_toward_target,
    durable,
    is_stored,
    learn,
    not_ahead,
    of_offers,
    stand_in,
)
from mark.domain.arrays import FloatArray
from mark.domain.copying import replace
from mark.domain.fleet import Fleet, Notice
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.domain.price_list import PriceList
from mark.domain.time import STEP_S
from mark.planning.demand.slo_budget import Answered
from mark.planning.marginal_prices import price_list
from mark.planning.planner import Policy
from mark.traffic.forecast.supervised import Supervised

_STATE = "state"
_ROLLOUT = "rollout"  # the part of the state that other versions can read
_OLD_STATE = "memory"  # earlier versions kept a part of the state here
_FRESH_S = 300.0  # an older forecast says nothing about the present load
_NO_WINDOWS: FloatArray = np.empty(0)
_log = logging.getLogger("mark.control")


@dataclass(frozen=True, slots=True)
class Leadership:
    """The term in which this process leads. `lasts` returns whether it still does.

    `seed` marks the launch tokens, so that two runs against one cloud do not share instances.
    """

    seed: int = 0
    lasts: Callable[[], bool] = lambda: True


class Controller:
    """Runs one service. Call `begin` once, then `tick` once a minute and `fast` every 5 s and at every notice.

    A round observes a `Snapshot`; a `Decider` turns it and the state into commands, and an `Actor` carries them out.
    The decider then sees the outcomes, until the round's agenda is done.

    `predictor` is fitted by the caller, and supervised so that there always is a forecast; None for policies that need
    no forecast. To time planner or predictor, pass objects that wrap them. Clock, telemetry, cloud and predictor count
    seconds from the same origin. `release` is the release to serve, "" for one without a name. `coming` returns the
    calls that the stages before let through to this stage of a pipeline (`mark.control.coming_calls`), or None.

    Crash-only: the store holds `state` and the launches under way, everything else is read from the cloud.
    `predictors` counts forecasts by predictor. `fallbacks` counts substitutes by name; `causes` has the first message
    of each that has one. `failures` counts refused commands by error. The store records every command with its outcome.
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
        leadership: Leadership | None = None,
        release: str = "",
        coming: Callable[[], ComingCalls | None] = lambda: None,
    ) -> None:
        if policy.planner.needs_forecast and predictor is None:
            raise ValueError(f"{policy.planner.name} needs a predictor")
        self._predictor = predictor if policy.planner.needs_forecast else None
        leadership = leadership or Leadership()
        leads = leadership.lasts
        cloud = LedCloud(cloud, leads)
        functions = None if functions is None else LedFunctions(functions, leads)
        self._cloud, self._clock, self._store, self._telemetry = cloud, clock, store, telemetry
        self._launcher = Launcher(policy.resolved, cloud, clock, store, limits_of(policy.resolved), leadership.seed)
        self._release = release
        self._actor = Actor(cloud, functions, store, self._launcher, leads)
        self._coming = coming
        self.use(policy)
        self._stored = _restored(store)
        self._stored_rollout = store.get(_ROLLOUT) if release else None
        self._remembered: Rollout | None = None  # the last roll-out whose `remembered` part is in the store
        fresh = ControllerState(rollout=recalled(self._stored_rollout))
        self._kept: ControllerState | None = None  # the last state whose durable part is in the store
        known = not_ahead(self._stored or fresh, clock.now_s())
        # Another process may have planned with other offers.
        self.state = of_offers(known, {offer.name for offer in policy.resolved.offers})
        self.predictors: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.fallbacks, self.failures = self._launcher.fallbacks, self._launcher.failures

    def use(self, policy: Policy) -> None:
        """Use this policy from now on: the same one with other limits or prices. The planner keeps its memory."""
        foresees = self._predictor is not None and self._predictor.foresees
        self._decider = Decider(policy, foresees=foresees)
        self._monitors = policy.planner.monitors_slo
        self._launcher.use(policy.resolved, limits_of(policy.resolved))
        self._resolved = policy.resolved

    def holding(self) -> Holding:
        """Return the instances and dollars that count toward the limits now."""
        return self._launcher.holding(self._clock.now_s())

    @property
    def last_plan(self) -> Plan | None:
        """The plan that the fleet follows, with the name of the predictor that it is based on."""
        return self.state.plan

    @property
    def believed(self) -> Forecast | None:
        """The forecast that the last plan is based on, on 60 s steps; None without one."""
        return self.state.believed

    def answered(self) -> Answered:
        """Return how the SLO was kept in its window."""
        window = self.state.window
        return Answered() if window is None else window.answered(self._clock.now_s(), self._resolved.slo.window_s)

    def price_list(self, ready: Mapping[str, int]) -> PriceList:
        """Return the cost of one more request and one more miss now, by the forecast of the last plan.

        `ready` counts the serving instances by offer. If the last plan is too old, only prices that do not depend on
        the load are given.
        """
        now_s, believed = self._clock.now_s(), self.state.believed
        fresh = believed is not None and now_s - self.state.believed_s <= _FRESH_S
        forecast = from_now(believed, now_s) if believed is not None and fresh else None
        usd_per_miss = None if self.state.plan is None else self.state.plan.usd_per_miss
        return price_list(self._resolved, ready, forecast, usd_per_miss)

    @property
    def repeats(self) -> bool:
        """Whether the next round has to find out the outcome of a launch."""
        return self._launcher.repeats

    def begin(self) -> Plan:
        """Plan the first fleet, within the service's limits, and return the plan. This launches nothing."""
        self._round(FIRST, self._clock.now_s(), forecasts=True)
        assert self.state.plan is not None
        return self.state.plan

    def tick(self) -> None:
        """Run one full round: observe the load, forecast, plan, and bring the fleet to the plan."""
        now_s = self._clock.now_s()
        self._repeat(now_s)
        self._round(TICK, now_s, forecasts=True)

    def plan_between(self) -> None:
        """Plan between ticks without a new forecast, for a policy that decides more often than once a minute."""
        self._round(TICK, self._clock.now_s(), forecasts=False)

    def fast(self) -> None:
        """Run a round between ticks: notices, the SLO monitor, surges, and the end of drained instances."""
        now_s = self._clock.now_s()
        self._repeat(now_s)
        # The roll-out comes before upkeep, so that it sees overdue instances before upkeep terminates them.
        agenda = FAST if not self._release else (*FAST[:-1], AgendaItem.ROLL_OUT, AgendaItem.SWITCH, FAST[-1])
        if self._fleet(now_s).leaving:
            agenda = (*agenda, AgendaItem.LET_GO)
        self._round(agenda, now_s, self._cloud.notices())

    @property
    def release(self) -> str:
        """The release that is to serve; "" for one without a name."""
        return self._release

    def roll_back(self) -> None:
        """Return to the previous release, from the next round on, until another one is requested.

        Do nothing if the roll-out of the wanted release has not begun or is already taken back, because the request
        then means another release.
        """
        rollout = self.state.rollout
        if rollout is not None and rollout.newest == self._release:
            self.state = replace(self.state, rollout=stopped(rollout, "it was taken back"))

    def roll_out_again(self) -> None:
        """Try the wanted release again, although it was stopped or taken back."""
        if self.state.rollout is not None:
            self.state = replace(self.state, rollout=asked_again(self.state.rollout, self._release))

    def watch(self) -> None:
        """Observe the load and change nothing. Use this instead of `tick` while the service is paused."""
        load = self._telemetry.load()
        if self._predictor is not None:
            self._predictor.update(load)

    def learn(self) -> None:
        """Train the predictor a little, if it learns in pieces. Call this in the service's turn, because it is slow."""
        if self._predictor is not None:
            self._predictor.learn()

    # -- a round -------------------------------------------------------------------------------------------------------

    def _round(
        self, agenda: tuple[AgendaItem, ...], now_s: float, notices: tuple[Notice, ...] = (), *, forecasts: bool = False
    ) -> None:
        """Decide and act until the agenda is done. A decision is stored before it is carried out."""
        self.state = begin_round(self.state, notices)
        snapshot = self._with_late_refusals(self._observe(now_s, agenda, forecasts=forecasts))
        while True:
            before = self.state
            commands, self.state = self._decider.decide(snapshot, before)
            try:
                self.keep()
            except BaseException:
                self.state = before  # the decision was not carried out, so it is made again
                raise
            outcomes: list[Outcome] = []
            for outcome in self._actor.act(now_s, commands, substitute=not self._decider.replans(self.state)):
                self.state = learn(self.state, outcome, now_s)
                outcomes.append(outcome)
            if not self.state.agenda:
                break
            snapshot = replace(
                snapshot,
                fleet=self._fleet(now_s),
                unsure=self._launcher.unsure(standby=False),
                unsure_standbys=self._launcher.unsure(standby=True),
                outcomes=tuple(outcomes),
                agenda=(),
            )
        self.keep()

    def _with_late_refusals(self, snapshot: Snapshot) -> Snapshot:
        """Learn of instances that were refused after their launch, and, between ticks, ask for a new plan."""
        state, now_s, offers = self.state, snapshot.now_s, self._launcher.offers
        outcomes, known = late_refusals(state.ended_at_launch, snapshot.fleet, now_s, offers)
        if known != state.ended_at_launch:
            self.state = replace(state, ended_at_launch=known)
        for outcome in outcomes:
            self.state = learn(self.state, outcome, now_s)
            self._store.record(now_s, outcome.command, outcome.text, outcome.result, len(outcome.started))
        if not outcomes or snapshot.agenda == TICK:  # a tick plans in any case
            return snapshot
        return replace(snapshot, outcomes=outcomes, agenda=(AgendaItem.SETTLE, *snapshot.agenda))

    def _repeat(self, now_s: float) -> None:
        for outcome in self._launcher.repeat(now_s, lambda release: self._lacking(release, now_s)):
            teaches = outcome.refused or outcome.whole_release
            self.state = learn(self.state, outcome, now_s) if teaches else stand_in(self.state, outcome)

    def _lacking(self, release: str, now_s: float) -> float:
        """Return how many wanted instances of the release the fleet lacks; infinity if that is not known."""
        plan, rollout = self.state.plan, self.state.rollout
        if rollout is not None and release not in (rollout.release, rollout.candidate):
            return 0.0  # another release is to serve
        if plan is None:
            return math.inf
        shown = sum(map(counts_toward_target, self._fleet(now_s).instances))
        wanted = sum(plan.counts.values()) + self.state.monitor.extra_at(now_s)
        if rollout is not None and rollout.stage is not RolloutStage.DONE:
            wanted += wanted + 1  # the most: a roll-back doubles the fleet, and there may be a canary
        return wanted - shown

    def keep(self) -> None:
        """Store the state if it has changed. Raises StoreError and LostLease."""
        if self.state is self._kept:
            return
        rollout = self.state.rollout
        if rollout is not None and rollout is not self._remembered:
            plain = remembered(rollout)
            if plain != self._stored_rollout:
                self._store.put(_ROLLOUT, plain)
                self._stored_rollout = plain
            self._remembered = rollout
        if not is_stored(self.state, self._stored):
            kept = durable(self.state)
            self._store.put(_STATE, kept)
            self._stored = kept
        self._kept = self.state

    # -- observe -------------------------------------------------------------------------------------------------------

    def _fleet(self, now_s: float) -> Fleet:
        return leaving_in_time(self._cloud.fleet(), now_s)

    def _observe(self, now_s: float, agenda: tuple[AgendaItem, ...], *, forecasts: bool) -> Snapshot:
        telemetry = self._telemetry
        coming = self._coming()
        rps = higher_rps(telemetry.last_minute_rps(), coming)
        forecast, gap = self._forecast(now_s, rps, coming) if forecasts else (None, False)
        return Snapshot(
            now_s,
            self._fleet(now_s),
            rps,
            telemetry.windows_rps() if self._decider.needs_windows else _NO_WINDOWS,
            telemetry.recent() if self._monitors else RecentAnswers(0, 0),
            telemetry.answers(),
            telemetry.utilization(),
            forecast,
            gap,
            self._launcher.unsure(standby=False),
            self._launcher.unsure(standby=True),
            agenda=agenda,
            wanted_release=self._release,
            releases=telemetry.releases() if self._release else {},
            coming=coming,
        )

    def _forecast(self, now_s: float, rps: float | None, coming: ComingCalls | None) -> tuple[Forecast | None, bool]:
        """Return the forecast of the next hour, and whether all observations are missing."""
        load = with_coming(self._telemetry.load(), coming)
        gap = rps is None and not bool(np.isfinite(load.mean_rps).any())
        if self._predictor is None:
            return None, gap
        self._predictor.update(load)
        if gap and self.state.plan is not None:
            return None, gap
        # Forecast one more step, because the forecast begins at the end of the last whole step, which may be past.
        steps = math.ceil(HORIZON_STEPS * STEP_S / load.step_s) + (1 if load.step_s > STEP_S else 0)
        forecast = self._predictor.predict(steps, rps)
        if self._predictor.stands_in:
            name = f"{forecast.predictor} instead of {self._predictor.name}: {self._predictor.stands_in}"
            self.causes.setdefault(name, self._predictor.causes.get(self._predictor.stands_in, ""))
            self._launcher.fall_back(name)
        self.predictors[forecast.predictor] += 1
        return from_now(forecast.by_minute(), now_s), gap


def known_rollout(store: Store) -> Rollout | None:
    """Return the roll-out in the store, even if another version wrote the state, or None."""
    kept = store.get(_STATE)
    rollout = kept.rollout if isinstance(kept, ControllerState) else None
    return recalled(store.get(_ROLLOUT)) if rollout is None else rollout


def _restored(store: Store) -> ControllerState | None:
    """Return the state in the store, or None; log it if another version wrote the state."""
    kept = store.get(_STATE)
    if isinstance(kept, ControllerState):
        return kept
    if kept is not None or store.get(_OLD_STATE) is not None:
        _log.warning("the stored state is another version's: this controller starts afresh")
    return None
