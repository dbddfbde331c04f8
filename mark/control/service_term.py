"""One service of the manager during one term of this process: its controller, ports and view.

All that ends with the term is here, so that a take-over begins like a new process. The view is made at the end of a
round, so reading it neither waits for a round nor disturbs one.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mark.cloud.billing.moving_prices import LivePrices, Repriced
from mark.control.boots import trouble
from mark.control.controller import Controller
from mark.control.held_releases import trouble as held_trouble
from mark.control.history import Minute, MinuteHistory, history_view, next_day_of
from mark.control.ledger import Ledger
from mark.control.ports import WINDOW_S, Changes, Clock, Cloud, RecentAnswers, Recorded, Result, Store, Telemetry
from mark.control.rollout import trouble as rollout_trouble
from mark.control.rollout import view as rollout_view
from mark.control.shared_limits import Holding
from mark.control.views import DecisionSchema, ForecastSchema, HistorySchema, Limits, Mode, ServiceView, SloSchema
from mark.domain.command import Command
from mark.domain.errors import BadInput
from mark.domain.fleet import Fleet, Phase
from mark.domain.load import Forecast
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.domain.time import MINUTE_S
from mark.planning.next_day import NextDay
from mark.planning.planner import Policy
from mark.planning.promise_cost import PromiseCost

LAG_S = 1.0  # a window's requests are counted by this time after its end
NEWEST = 500  # decisions kept in memory
_NEWER = 20  # decisions read after a round; few rounds make more
# In the store: {"wish": BACK or AGAIN, "release": the release it concerns}.
WISH, BACK, AGAIN = "rollout_wish", "back", "again"
FAN = (0.05, 0.25, 0.5, 0.75, 0.95)
_log = logging.getLogger("mark.control")


@dataclass(frozen=True, slots=True)
class RuntimePorts:
    """A service's controller and its ports, for one term. All times are by `clock`.

    `unix_s` converts a time of the clock to Unix time; `policy` makes the service's policy at today's prices and within
    the given limits; `close` ends the threads and connections of the ports.
    """

    controller: Controller
    cloud: Cloud
    telemetry: Telemetry
    changes: Changes
    store: Store
    clock: Clock
    unix_s: Callable[[float], float]
    policy: Callable[[Limits], Policy]
    close: Callable[[], None]
    prices: LivePrices | None = None  # None: use the prices of the resolved service
    load_trouble: Callable[[], str] = str  # returns why the load cannot be read, or ""


# Makes a term's ports from its fencing number and a function that must wrap its store. May fail.
Start = Callable[[int, Callable[[Store], Store]], RuntimePorts]
# Runs an action and returns whether it succeeded; an error is added to the conditions.
Guard = Callable[[list[str], Callable[[], None]], bool]


@dataclass(slots=True)
class RequestedChanges:
    """Changes that a person requested and that are not stored yet."""

    paused: bool | None = None
    limits: Limits | None = None
    rollout: str = ""  # BACK, AGAIN or ""

    def drop(self) -> None:
        self.paused, self.limits, self.rollout = None, None, ""


class ServiceTerm:
    """A service in one term of this process. Building it starts the ports and restores history and bill; may fail.

    `requested` are changes to carry out; other threads add to them. `shares`: the service shares limits with others.
    `guard` runs the steps of a round. Only one thread at a time may run `round` and `learn`; other threads may call the
    methods under "for other threads".
    """

    def __init__(
        self,
        service: str,
        resolved: ResolvedService,
        start: Start,
        requested: RequestedChanges,
        *,
        fence: int,
        dry_run: bool,
        shares: bool,
        guard: Guard,
    ) -> None:
        self.service, self.fence, self._resolved, self._requested = service, fence, resolved, requested
        self._dry_run, self._shares, self._guard = dry_run, shares, guard
        self._capacity_rps = {o.name: c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
        self._noted = False
        self.parts = parts = start(fence, lambda store: _Noting(store, service, dry_run, self._note))
        try:
            store = parts.store
            self._paused: bool = bool(store.get("paused"))
            self._limits: Limits = store.get("limits") or configured_limits(resolved)
            parts.controller.use(parts.policy(self.limits))
            fleet = parts.cloud.fleet()
            leaving = {i.offer for i in fleet.leaving} - {offer.name for offer in resolved.offers}
            unsold = [offer for offer in resolved.catalog.offers if offer.name in leaving]
            self._prices = {offer.name: offer.usd_per_hour for offer in (*resolved.offers, *unsold)}
            self._history = MinuteHistory(store)
            self._ledger = Ledger(resolved, store, self._time_scale, unsold=unsold)
            self._rows, self._halves = self._history.rows(), self._history.half_hours()
            # Requests of a time without a leader are of no minute, so the minute in which that time ended gets no row.
            self._first_row = self._minute_now + (max(self._rows, default=math.inf) < self._minute_now - 1)
            self._counted, self._by_functions = parts.telemetry.answers(), parts.telemetry.overflow().requests
            self._ledger.observe(parts.clock.now_s(), fleet, parts.changes.ran())
            if parts.prices is None:
                # The previous leader may have had other prices.
                self._ledger.reprice(resolved, {}, parts.clock.now_s())
            if parts.controller.last_plan is None and not fleet.live() and not self.paused:
                parts.controller.begin()
            self._decisions = self._shown(store.recorded(None, NEWEST))
        except BaseException:
            parts.close()
            raise
        self.view: ServiceView | None = None  # of the last round
        self.turn = False  # set by the manager: the predictor may train a piece in the next round
        self._window = self._minute = -2  # below -1, the number until LAG_S have passed
        # The share of common limits, and whether to raise it to the holding: for the next round, and as last applied.
        self._share: tuple[Limits, bool] | None = None
        self._applied: tuple[Limits, bool] | None = None
        self._holding: Holding | None = None  # at the end of the last round
        self._repriced: Repriced | None = None
        self._next_day: tuple[int, NextDay | None] = -1, None  # the hour in which it was made, and the value
        self._promise_cost: tuple[ResolvedService, PromiseCost] | None = None  # made again when prices change
        self._forecast: tuple[Forecast | None, ForecastSchema | None] = None, None  # the last one and its view

    # -- for other threads ---------------------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether the service is paused, as last requested."""
        requested = self._requested.paused  # read once, because a round may clear it at any time
        return self._paused if requested is None else requested

    @property
    def mode(self) -> Mode:
        """How the service is run."""
        return "paused" if self.paused else "dry-run" if self._dry_run else "acting"

    @property
    def limits(self) -> Limits:
        """The limits, as last requested."""
        return self._requested.limits or self._limits

    def decisions(self, before_id: int | None, count: int) -> list[DecisionSchema]:
        """Return decisions, newest first. Raises StoreError if older ones cannot be read."""
        newest = self._decisions
        found = [one for one in newest if before_id is None or one.id < before_id][:count]
        if len(found) == count or not newest or newest[-1].id <= 1:
            return found
        return self._shown(self.parts.store.recorded(before_id, count))

    def history(self, hours: float, points: int) -> HistorySchema:
        """Return the last minutes."""
        minute_s = MINUTE_S / self._time_scale
        return history_view(self._rows, hours, points, start_unix_s=self.parts.unix_s(0.0), minute_s=minute_s)

    def promise_cost(self) -> PromiseCost:
        """Return the calculator of cost by load and RT_max, at today's prices."""
        resolved = self._resolved if self._repriced is None else self._repriced.resolved
        made = self._promise_cost
        if made is None or made[0] is not resolved:
            self._promise_cost = made = resolved, PromiseCost(resolved)
        return made[1]

    def share_limits(self, limits: Limits, *, keeps: bool) -> None:
        """Set the share of common limits from the next round on; with `keeps`, raise it to the holding of that time."""
        self._share = limits, keeps

    def shared(self) -> Holding | None:
        """Return the holding after the last round; None if it is unknown or new limits are not in force yet."""
        return self._holding if self._share is None else None

    def check_roll_back(self) -> None:
        """Check that a roll-back is possible.

        Raises BadInput if no previous release is known, or if the newest release of the roll-out is not the last
        deployed one.
        """
        wanted, rollout = self.parts.controller.release, self.parts.controller.state.rollout
        if rollout is not None and rollout.newest != wanted:
            how = "is taken back already" if wanted in rollout.refused else "waits until that is over"
            raise BadInput(f"{rollout.newest} is the newest release, and {wanted} {how}", "service", self.service)
        if rollout is None or not (rollout.before or rollout.candidate):
            raise BadInput("there is no release to go back to", "service", self.service)

    def is_due(self) -> bool:
        """Return whether a window has ended since the last round."""
        return self._window_now > self._window

    # -- one thread at a time ------------------------------------------------------------------------------------------

    def round(self, conditions: list[str]) -> None:
        """Run a round, and add its troubles to the conditions."""
        parts = self.parts
        window, minute = self._window_now, self._minute_now
        self._window = window
        if parts.prices is not None:
            prices = parts.prices
            if condition := prices.trouble():
                conditions.append(condition)
            self._guard(conditions, lambda: self._reprice(prices.repriced()))
        state = parts.controller.state
        told = (
            trouble(state.boots),
            held_trouble(state.held, parts.clock.now_s()),
            rollout_trouble(state.rollout, parts.controller.release, paused=self.paused),
        )
        conditions += [condition for condition in told if condition]
        controlled = self._guard(conditions, lambda: self._control(minute > self._minute))
        if self._shares:
            self._guard(conditions, self._hold)
        if not controlled:
            self._guard(conditions, lambda: self._observe(self._minute, conditions))
        elif self._guard(conditions, lambda: self._observe(minute, conditions)):
            self._minute = minute

    def learn(self, conditions: list[str]) -> None:
        """Train the predictor a little, if it is the service's turn."""
        if self.turn:
            self.turn = False
            self._guard(conditions, self.parts.controller.learn)

    def _reprice(self, new: Repriced | None) -> None:
        if new is None or new is self._repriced:
            return
        self._prices |= {offer.name: offer.usd_per_hour for offer in new.resolved.offers}
        self._ledger.reprice(new.resolved, new.since_s, self.parts.clock.now_s())
        self.parts.controller.use(self.parts.policy(self.limits))
        self._repriced = new  # last, so that a failed change is repeated

    def _control(self, full: bool) -> None:
        """Apply requested changes, then run the controller's rounds. `full`: a minute has passed, so a tick is due."""
        parts, requested = self.parts, self._requested
        if (limits := requested.limits) is not None:
            parts.store.put("limits", limits)
            parts.controller.use(parts.policy(limits))
            self._limits = limits
            if requested.limits is limits:
                requested.limits = None
        if (share := self._share) is not None:
            self._limits, keeps = share
            if keeps:
                held = parts.controller.holding()
                self._limits = Limits(
                    max(self._limits.max_instances, held.instances),
                    max(self._limits.max_usd_per_hour, held.usd_per_hour),
                )
            parts.store.put("limits", self._limits)  # the next leader begins with them
            parts.controller.use(parts.policy(self._limits))
            self._applied = share
        if (paused := requested.paused) is not None:
            parts.store.put("paused", paused)
            self._paused = paused
            if requested.paused is paused:
                requested.paused = None
        self._roll_out(full)
        if self.paused:
            if full:
                parts.controller.watch()
            return
        if parts.controller.last_plan is None and not full:
            return  # without a plan there is nothing to follow
        self._between()
        if full:
            parts.controller.tick()

    def _between(self) -> None:
        """Run the steps of every window, also between full minutes."""
        self.parts.controller.fast()

    def _hold(self) -> None:
        self._holding = self.parts.controller.holding()
        if self._share is self._applied:
            self._share = None

    def _roll_out(self, full: bool) -> None:
        """Carry out a requested roll-back or retry, from the API or stored by `mark deploy`."""
        controller, store = self.parts.controller, self.parts.store
        # A wish for another release is outdated, or for a controller that will start with that release.
        written = store.get(WISH) if full and controller.release else None
        requested = wish = self._requested.rollout
        granted = written is not None and written.get("release") == controller.release
        if written is not None and granted:
            wish = written.get("wish", "")
        if wish == BACK:
            controller.roll_back()
        elif wish == AGAIN:
            controller.roll_out_again()
        if wish:
            controller.keep()
        if self._requested.rollout == requested:
            self._requested.rollout = ""
        if granted:
            store.put(WISH, None)  # last, so that a failure before this line keeps the wish

    def _observe(self, minute: int, conditions: list[str]) -> None:
        """Update the bill, add the history row of a minute that has passed, and make the view."""
        parts = self.parts
        now_s, fleet = parts.clock.now_s(), parts.cloud.fleet()
        self._ledger.observe(now_s, fleet, parts.changes.ran())
        rps, answers, overflow = (
            parts.telemetry.last_minute_rps(),
            parts.telemetry.answers(),
            parts.telemetry.overflow(),
        )
        ready = fleet.ready()
        capacity_rps = sum(self._capacity_rps.get(offer, 0.0) * n for offer, n in ready.items())
        instances = (*fleet.instances, *fleet.leaving)
        paid = Counter(i.offer for i in instances if i.phase is not Phase.STOPPED)
        usd_per_hour = sum(self._prices.get(offer, 0.0) * n for offer, n in paid.items())
        if minute > self._minute >= 0:
            before, by_functions = self._counted, overflow.requests - self._by_functions
            row = Minute(
                rps,
                capacity_rps,
                usd_per_hour,
                answers.count - before.count,
                answers.in_time - before.in_time,
                by_functions,
                dict(ready),
            )
            if minute > self._first_row:
                self._history.add(minute - 1, row)
                self._rows, self._halves = self._history.rows(), self._history.half_hours()
            self._counted, self._by_functions = answers, overflow.requests
            self._minute = minute  # here, so that the next round does not write this row again if the code below fails
        if self._noted:
            self._decisions = self._with_newer()
            self._noted = False
        if rps is None and ready:
            why = parts.load_trouble() or "no request has come yet, or no instance answers for its metrics"
            conditions.append(f"nothing is known of the load: {why}")
        plan = parts.controller.last_plan
        self.view = ServiceView(
            service=self.service,
            mode=self.mode,
            at_unix_s=parts.unix_s(now_s),
            at_s=now_s,
            rps=rps,
            capacity_rps=capacity_rps,
            usd_per_hour=usd_per_hour,
            instances=tuple(sorted(instances, key=lambda i: i.number)),
            prices=self._shown_prices(fleet, plan),
            plan=plan,
            forecast=self._shown_forecast(),
            slo=self._slo(answers),
            bill=self._ledger.bill(now_s, overflow.usd, answers.count),
            requests=answers.count,
            limits=self.limits,
            conditions=tuple(conditions),
            rollout=rollout_view(parts.controller.state.rollout, parts.controller.release, fleet),
            price_list=parts.controller.price_list(ready),
            promise=None if rps is None else self.promise_cost().estimate(self._resolved.slo.rt_max_s, rps),
            next_day=self._coming_day(minute),
            time_scale=self._time_scale,
        )

    def _coming_day(self, minute: int) -> NextDay | None:
        """Return the estimate of the next day, which is made once an hour."""
        hour = minute // 60
        if self._next_day[0] != hour:
            function = self._resolved.function
            call_usd = 0.0 if function is None else function.usd_per_request
            self._next_day = hour, next_day_of(self._halves, 1.0 - self._resolved.slo.attainment, call_usd)
        return self._next_day[1]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        self._noted = True

    @property
    def _window_now(self) -> int:
        return math.floor((self.parts.clock.now_s() - LAG_S) / WINDOW_S)

    @property
    def _minute_now(self) -> int:
        return math.floor((self.parts.clock.now_s() - LAG_S) / MINUTE_S)

    @property
    def _time_scale(self) -> float:
        """Control seconds per second of wall time."""
        return 1.0 / (self.parts.unix_s(1.0) - self.parts.unix_s(0.0))

    def _shown(self, lines: list[Recorded]) -> list[DecisionSchema]:
        return [
            DecisionSchema(
                line.id,
                self.parts.unix_s(line.at_s),
                line.verb,
                line.text,
                line.outcome,
                line.usd_per_hour,
                line.result,
                line.started,
            )
            for line in lines
        ]

    def _with_newer(self) -> list[DecisionSchema]:
        """Return the known decisions, which never change, with newer ones in front."""
        known = self._decisions[0].id if self._decisions else 0
        lines = self.parts.store.recorded(None, _NEWER)
        if len(lines) == _NEWER and lines[-1].id > known + 1:
            return self._shown(self.parts.store.recorded(None, NEWEST))
        newer = self._shown([line for line in lines if line.id > known])
        return [*newer, *self._decisions][:NEWEST]

    def _shown_prices(self, fleet: Fleet, plan: Plan | None) -> dict[str, float]:
        names = {i.offer for i in (*fleet.instances, *fleet.leaving)}
        names |= {t.offer for t in (*plan.targets, *plan.standbys)} if plan is not None else set()
        return {name: self._prices[name] for name in sorted(names) if name in self._prices}

    def _shown_forecast(self) -> ForecastSchema | None:
        """Return the view of the forecast, made only for a new forecast, because most rounds keep the last one."""
        believed = self.parts.controller.believed
        if believed is not self._forecast[0]:
            self._forecast = believed, _forecast_view(believed, self.parts.unix_s)
        return self._forecast[1]

    def _slo(self, answers: RecentAnswers) -> SloSchema:
        slo, parts = self._resolved.slo, self.parts
        recent, window = parts.telemetry.recent(), parts.controller.answered()
        allowed = window.requests * (1.0 - slo.attainment)
        return SloSchema(
            rt_max_ms=slo.rt_max_s * 1e3,
            target=slo.attainment,
            attainment=_share(answers),
            recent=_share(recent),
            error_budget_left=1.0 - window.late / allowed if allowed > 0.0 else None,
            recent_ms=_ms(recent.latency_s),
            recent_p50_ms=_ms(recent.p50_s),
            recent_p99_ms=_ms(recent.p99_s),
        )


def configured_limits(resolved: ResolvedService) -> Limits:
    """Return the limits in the service's file, which are used unless the store has others."""
    return Limits(resolved.service.max_instances, resolved.service.max_usd_per_hour)


class _Noting:
    """A store that also logs each decision and calls `note`. In a dry run it marks decisions as not carried out."""

    def __init__(self, store: Store, service: str, dry_run: bool, note: Callable[[], None]) -> None:
        self._store, self._service, self._dry_run, self._note = store, service, dry_run, note

    def get(self, key: str) -> Any | None:
        return self._store.get(key)

    def put(self, key: str, value: Any) -> None:
        self._store.put(key, value)

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        if self._dry_run and result is Result.DONE:
            outcome, result, started = f"dry run: would be {outcome}", Result.DRY_RUN, 0
        self._store.record(at_s, command, outcome, result, started)
        said: Mapping[str, object] = {
            "service": self._service,
            "verb": command.verb,
            "decision": f"would {command}" if self._dry_run else str(command),
            "outcome": outcome,
            "usd_per_hour": command.usd_per_hour,
        }
        _log.info("decided", extra=dict(said))
        self._note()

    def recorded(self, before_id: int | None, count: int) -> list[Recorded]:
        return self._store.recorded(before_id, count)


def _forecast_view(forecast: Forecast | None, unix_s: Callable[[float], float]) -> ForecastSchema | None:
    if forecast is None:
        return None
    return ForecastSchema(
        origin_unix_s=unix_s(forecast.origin_s),
        step_s=unix_s(forecast.step_s) - unix_s(0.0),
        predictor=forecast.predictor,
        levels=FAN,
        rps=tuple(map(tuple, forecast.means_at(FAN).tolist())),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _share(answers: RecentAnswers) -> float | None:
    return answers.in_time / answers.count if answers.count else None
