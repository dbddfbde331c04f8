"""One service of the manager: its controller, ports and view. It runs a round in every 5 s window.

The view is made at the end of a round, so reading it neither waits for a round nor disturbs one.
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
from mark.control.history import HalfHour, Minute, MinuteHistory, history_view, next_day_of
from mark.control.ledger import Ledger
from mark.control.ports import WINDOW_S, Changes, Clock, Cloud, RecentAnswers, Recorded, Result, Store, Telemetry
from mark.control.rollout import trouble as rollout_trouble
from mark.control.rollout import view as rollout_view
from mark.control.shared_limits import Holding
from mark.control.views import DecisionSchema, ForecastSchema, HistorySchema, Limits, Mode, ServiceView, SloSchema
from mark.domain.backoff import START
from mark.domain.bill import Bill
from mark.domain.command import Command
from mark.domain.copying import replace
from mark.domain.errors import BadInput, CloudError, Infeasible, LostLease
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
    """A service's controller and its ports, while this process leads. All times are by `clock`.

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


class ServiceRuntime:
    """A service whose controller runs while this process leads.

    `start` builds the parts from the state of store and cloud, and may fail. It is called whenever this process begins
    to lead, so a take-over works like a restart. Its argument is a function with which it must wrap its store. Only
    one thread at a time may run `reconcile`; other threads may call all other methods.
    """

    def __init__(
        self,
        service: str,
        resolved: ResolvedService,
        start: Callable[[Callable[[Store], Store]], RuntimePorts],
        *,
        dry_run: bool = False,
    ) -> None:
        self.service, self._resolved, self._start, self._dry_run = service, resolved, start, dry_run
        self._prices = {offer.name: offer.usd_per_hour for offer in resolved.offers}
        self._capacity_rps = {o.name: c.capacity_rps for o, c in zip(resolved.offers, resolved.candidates, strict=True)}
        self._limits = self._configured_limits
        self._changed_limits: Limits | None = None
        # The share of common limits, and whether to raise it to the holding: for the next round, and as last applied.
        self._share: tuple[Limits, bool] | None = None
        self._applied: tuple[Limits, bool] | None = None
        self._holding: Holding | None = None  # at the end of the last round
        self._paused, self._changed_pause = False, False
        self._rollout_wish = ""
        self._fence: int | None = None
        self._parts: RuntimePorts | None = None
        self._again_unix_s = -math.inf
        self._window = self._minute = -2  # below -1, the number until LAG_S have passed
        self._noted = False
        self._counted = RecentAnswers(0, 0)  # at the last full minute
        self._by_functions = 0
        self._conditions: tuple[str, ...] = ()
        self.late = ""  # set by the manager while a round takes too long
        self.turn = False  # set by the manager: the predictor may train a piece in the next round
        self.shares = False  # set by the manager: this service shares limits with others, so `shared` is needed
        self._decisions: list[DecisionSchema] = []
        self._rows: dict[int, Minute] = {}
        self._halves: dict[int, HalfHour] = {}
        self._repriced: Repriced | None = None
        self._next_day: tuple[int, NextDay | None] = -1, None  # the hour in which it was made, and the value
        self._promise_cost: tuple[ResolvedService, PromiseCost] | None = None  # made again when prices change
        self._forecast: tuple[Forecast | None, ForecastSchema | None] = None, None  # the last one and its view
        self._view = self._empty_view(0.0)

    @property
    def _configured_limits(self) -> Limits:
        """The limits in the service's file, which are used unless the store has others."""
        return Limits(self._resolved.service.max_instances, self._resolved.service.max_usd_per_hour)

    # -- for other threads ---------------------------------------------------------------------------------------------

    def view(self) -> ServiceView:
        """Return the view of the last round."""
        late = (self.late,) if self.late else ()
        view = self._view
        if not late and view.limits == self._limits and view.mode == self._mode():
            return view
        return replace(view, mode=self._mode(), limits=self._limits, conditions=(*late, *view.conditions))

    def decisions(self, before_id: int | None, count: int) -> list[DecisionSchema]:
        """Return decisions, newest first. Raises StoreError if older ones cannot be read."""
        newest, parts = self._decisions, self._parts
        found = [one for one in newest if before_id is None or one.id < before_id][:count]
        if len(found) == count or parts is None or not newest or newest[-1].id <= 1:
            return found
        return self._shown(parts, parts.store.recorded(before_id, count))

    def history(self, hours: float, points: int) -> HistorySchema:
        """Return the last minutes; unknown values while another process leads, because the clock is unknown then."""
        parts = self._parts
        if parts is None:
            return history_view({}, hours, points, start_unix_s=0.0, minute_s=MINUTE_S)
        start_unix_s = parts.unix_s(0.0)
        minute_s = parts.unix_s(MINUTE_S) - start_unix_s
        return history_view(self._rows, hours, points, start_unix_s=start_unix_s, minute_s=minute_s)

    def promise_cost(self) -> PromiseCost:
        """Return the calculator of cost by load and RT_max, at today's prices."""
        resolved = self._resolved if self._repriced is None else self._repriced.resolved
        made = self._promise_cost
        if made is None or made[0] is not resolved:
            self._promise_cost = made = resolved, PromiseCost(resolved)
        return made[1]

    def pause(self, paused: bool) -> None:
        """Pause the service or let it act again, from the next round on."""
        self._paused, self._changed_pause = paused, True

    def set_limits(self, limits: Limits) -> None:
        """Set the limits, from the next round on. Raises BadInput."""
        if limits.max_instances < 1:
            raise BadInput("must be one or more", "max_instances", limits.max_instances)
        if not (math.isfinite(limits.max_usd_per_hour) and limits.max_usd_per_hour > 0.0):
            raise BadInput("must be above zero", "max_usd_per_hour", limits.max_usd_per_hour)
        self._limits = self._changed_limits = limits

    def share_limits(self, limits: Limits, *, keeps: bool) -> None:
        """Set the share of common limits from the next round on; with `keeps`, raise it to the holding of that time."""
        self._share = limits, keeps

    def shared(self) -> Holding | None:
        """Return the holding after the last round; None if it is unknown or new limits are not in force yet."""
        return self._holding if self._share is None else None

    def roll_back(self) -> None:
        """Roll back to the previous release, from the next round on.

        Raises BadInput if no previous release is known, or if the newest release of the roll-out is not the last
        deployed one.
        """
        parts = self._parts
        rollout = None if parts is None else parts.controller.state.rollout
        if parts is not None and rollout is not None and rollout.newest != parts.controller.release:
            wanted = parts.controller.release
            how = "is taken back already" if wanted in rollout.refused else "waits until that is over"
            raise BadInput(f"{rollout.newest} is the newest release, and {wanted} {how}", "service", self.service)
        if rollout is None or not (rollout.before or rollout.candidate):
            raise BadInput("there is no release to go back to", "service", self.service)
        self._rollout_wish = BACK

    def roll_out_again(self) -> None:
        """Try the last deployed release again from the next round on, although it was stopped or taken back."""
        self._rollout_wish = AGAIN

    def due(self, fence: int | None, now_unix_s: float) -> bool:
        """Return whether it is time for a round."""
        parts = self._parts
        if parts is None:
            # The lower bound ends the wait if the wall clock was set back.
            waits = self._again_unix_s - START.first_s <= now_unix_s < self._again_unix_s
            return not waits if fence is not None else self._is_asked
        return fence != self._fence or self._window_of(parts) > self._window

    # -- reconciled ---------------------------------------------------------------------------------------------------

    def reconcile(self, fence: int | None, now_unix_s: float) -> None:
        """Run one round and raise nothing; `fence` is the lease's number, None while another process leads."""
        conditions: list[str] = []
        if fence != self._fence:
            self.stop()
        if fence is None:
            self._drop_requests()
        else:
            self._guard(conditions, lambda: self._begin(fence, now_unix_s))
            if self._parts is not None:
                self._round(self._parts, conditions)
            if self._parts is not None and self.turn:
                self.turn = False
                self._guard(conditions, self._parts.controller.learn)
        if self._parts is None:
            self._view = self._empty_view(now_unix_s)
        self._tell(tuple(conditions))

    def stop(self) -> None:
        """Close the parts; the next round starts them again."""
        parts, self._parts, self._fence = self._parts, None, None
        if parts is not None:
            self._drop_requests()
            self._share, self._holding = None, None
            try:
                parts.close()
            except Exception:  # the other services and the lease must not wait for it
                _log.exception("the parts of a service cannot be closed", extra={"service": self.service})

    @property
    def _is_asked(self) -> bool:
        """Whether requested changes are not stored yet."""
        return self._changed_pause or self._changed_limits is not None or bool(self._rollout_wish)

    def _drop_requests(self) -> None:
        """Drop changes that are not stored yet, because the next leader may get other ones."""
        self._changed_pause, self._changed_limits, self._rollout_wish = False, None, ""

    def _begin(self, fence: int, now_unix_s: float) -> None:
        """Start the parts if they do not run, and restore pause, limits, history and bill from the store."""
        if self._parts is not None:
            return
        self._again_unix_s = now_unix_s + START.first_s
        parts = self._start(lambda store: _Noting(store, self.service, self._dry_run, self._note))
        try:
            store = parts.store
            self._paused = bool(store.get("paused")) if not self._changed_pause else self._paused
            if self._changed_limits is None:
                self._limits = store.get("limits") or self._configured_limits
            parts.controller.use(parts.policy(self._limits))
            scale = 1.0 / (parts.unix_s(1.0) - parts.unix_s(0.0))
            fleet = parts.cloud.fleet()
            leaving = {i.offer for i in fleet.leaving} - {offer.name for offer in self._resolved.offers}
            unsold = [offer for offer in self._resolved.catalog.offers if offer.name in leaving]
            self._prices |= {offer.name: offer.usd_per_hour for offer in unsold}
            self._history, self._ledger = MinuteHistory(store), Ledger(self._resolved, store, scale, unsold=unsold)
            self._rows, self._halves = self._history.rows(), self._history.half_hours()
            self._repriced = None
            answers = parts.telemetry.answers()
            self._counted, self._by_functions = answers, parts.telemetry.overflow().requests
            self._ledger.observe(parts.clock.now_s(), fleet, parts.changes.ran())
            if parts.prices is None:
                # The previous leader may have had other prices.
                self._ledger.reprice(self._resolved, {}, parts.clock.now_s())
            if parts.controller.last_plan is None and not fleet.live() and not self._paused:
                parts.controller.begin()
            self._decisions = self._shown(parts, store.recorded(None, NEWEST))
        except BaseException:
            parts.close()
            raise
        self._window = self._minute = -2
        self.turn = False  # given before: all services have one then, and would train at the same time
        self._parts, self._fence, self._again_unix_s = parts, fence, -math.inf

    def _round(self, parts: RuntimePorts, conditions: list[str]) -> None:
        window, minute = self._window_of(parts), math.floor((parts.clock.now_s() - LAG_S) / MINUTE_S)
        self._window = window
        if parts.prices is not None:
            prices = parts.prices
            if condition := prices.trouble():
                conditions.append(condition)
            self._guard(conditions, lambda: self._reprice(parts, prices.repriced()))
        state = parts.controller.state
        told = (
            trouble(state.boots),
            held_trouble(state.held, parts.clock.now_s()),
            rollout_trouble(state.rollout, parts.controller.release, paused=self._paused),
        )
        conditions += [condition for condition in told if condition]
        controlled = self._guard(conditions, lambda: self._control(parts, minute > self._minute))
        if self.shares:
            self._guard(conditions, lambda: self._hold(parts))
        if not controlled:
            self._guard(conditions, lambda: self._observe(parts, self._minute, conditions))
        elif self._guard(conditions, lambda: self._observe(parts, minute, conditions)):
            self._minute = minute

    def _reprice(self, parts: RuntimePorts, new: Repriced | None) -> None:
        if new is None or new is self._repriced:
            return
        self._prices |= {offer.name: offer.usd_per_hour for offer in new.resolved.offers}
        self._ledger.reprice(new.resolved, new.since_s, parts.clock.now_s())
        parts.controller.use(parts.policy(self._limits))
        self._repriced = new  # last, so that a failed change is repeated

    def _control(self, parts: RuntimePorts, full: bool) -> None:
        """Apply requested changes, then run the controller's rounds. `full`: a minute has passed, so a tick is due."""
        if (limits := self._changed_limits) is not None:
            parts.store.put("limits", limits)
            parts.controller.use(parts.policy(limits))
            if self._changed_limits is limits:
                self._changed_limits = None
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
        if self._changed_pause:
            paused = self._paused
            parts.store.put("paused", paused)
            self._changed_pause = self._paused is not paused
        self._wish(parts, full)
        if self._paused:
            if full:
                parts.controller.watch()
            return
        if parts.controller.last_plan is None and not full:
            return  # without a plan there is nothing to follow
        self._between(parts)
        if full:
            parts.controller.tick()

    def _between(self, parts: RuntimePorts) -> None:
        """Run the steps of every window, also between full minutes."""
        parts.controller.fast()

    def _hold(self, parts: RuntimePorts) -> None:
        self._holding = parts.controller.holding()
        if self._share is self._applied:
            self._share = None

    def _wish(self, parts: RuntimePorts, full: bool) -> None:
        """Carry out a requested roll-back or retry, from the API or stored by `mark deploy`."""
        controller = parts.controller
        # A wish for another release is outdated, or for a controller that will start with that release.
        written = parts.store.get(WISH) if full and controller.release else None
        wish, self._rollout_wish = self._rollout_wish, ""
        granted = written is not None and written.get("release") == controller.release
        if written is not None and granted:
            wish = written.get("wish", "")
        if wish == BACK:
            controller.roll_back()
        elif wish == AGAIN:
            controller.roll_out_again()
        if wish:
            controller.keep()
        if granted:
            parts.store.put(WISH, None)  # last, so that a failure before this line keeps the wish

    def _observe(self, parts: RuntimePorts, minute: int, conditions: list[str]) -> None:
        """Update the bill, add the history row of a minute that has passed, and make the view."""
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
            self._history.add(minute - 1, row)
            self._rows, self._halves = self._history.rows(), self._history.half_hours()
            self._counted, self._by_functions = answers, overflow.requests
            self._minute = minute  # here, so that the next round does not write this row again if the code below fails
        if self._noted:
            self._decisions = self._with_newer(parts)
            self._noted = False
        if rps is None and ready:
            why = parts.load_trouble() or "no request has come yet, or no instance answers for its metrics"
            conditions.append(f"nothing is known of the load: {why}")
        plan = parts.controller.last_plan
        self._view = ServiceView(
            service=self.service,
            mode=self._mode(),
            at_unix_s=parts.unix_s(now_s),
            at_s=now_s,
            rps=rps,
            capacity_rps=capacity_rps,
            usd_per_hour=usd_per_hour,
            instances=tuple(sorted(instances, key=lambda i: i.number)),
            prices=self._shown_prices(fleet, plan),
            plan=plan,
            forecast=self._shown_forecast(parts),
            slo=self._slo(parts, answers),
            bill=self._ledger.bill(now_s, overflow.usd, answers.count),
            requests=answers.count,
            limits=self._limits,
            conditions=tuple(conditions),
            rollout=rollout_view(parts.controller.state.rollout, parts.controller.release, fleet),
            price_list=parts.controller.price_list(ready),
            promise=None if rps is None else self.promise_cost().estimate(self._resolved.slo.rt_max_s, rps),
            next_day=self._coming_day(minute),
            time_scale=1.0 / (parts.unix_s(1.0) - parts.unix_s(0.0)),
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

    def _guard(self, conditions: list[str], action: Callable[[], None]) -> bool:
        """Run the action and return whether it succeeded; an error becomes a condition, so other services continue."""
        try:
            action()
        except LostLease as error:
            conditions.append(f"another controller leads: {error}")
            self.stop()
        except (CloudError, Infeasible, BadInput) as error:
            conditions.append(" ".join(str(error).split()))
        except Exception as error:
            conditions.append(self._unforeseen(error))
        else:
            return True
        return False

    def _unforeseen(self, error: Exception) -> str:
        """Log an unexpected error, and return its text for the service's view."""
        _log.exception("a fault of ours", extra={"service": self.service})
        return f"a fault of ours: {type(error).__name__}: {' '.join(str(error).split())[:200]}"

    def _tell(self, conditions: tuple[str, ...]) -> None:
        """Show the conditions in the view, and log them when they change."""
        if self._view.conditions != conditions:
            self._view = replace(self._view, conditions=conditions)
        for condition in conditions:
            if condition not in self._conditions:
                _log.warning("trouble", extra={"service": self.service, "trouble": condition})
        if self._conditions and not conditions:
            _log.info("all is well again", extra={"service": self.service})
        self._conditions = conditions

    def _note(self) -> None:
        self._noted = True

    def _window_of(self, parts: RuntimePorts) -> int:
        return math.floor((parts.clock.now_s() - LAG_S) / WINDOW_S)

    def _mode(self) -> Mode:
        if self._fence is None:
            return "standing by"
        return "paused" if self._paused else "dry-run" if self._dry_run else "acting"

    def _shown(self, parts: RuntimePorts, lines: list[Recorded]) -> list[DecisionSchema]:
        return [
            DecisionSchema(
                line.id,
                parts.unix_s(line.at_s),
                line.verb,
                line.text,
                line.outcome,
                line.usd_per_hour,
                line.result,
                line.started,
            )
            for line in lines
        ]

    def _with_newer(self, parts: RuntimePorts) -> list[DecisionSchema]:
        """Return the known decisions, which never change, with newer ones in front."""
        known = self._decisions[0].id if self._decisions else 0
        lines = parts.store.recorded(None, _NEWER)
        if len(lines) == _NEWER and lines[-1].id > known + 1:
            return self._shown(parts, parts.store.recorded(None, NEWEST))
        newer = self._shown(parts, [line for line in lines if line.id > known])
        return [*newer, *self._decisions][:NEWEST]

    def _shown_prices(self, fleet: Fleet, plan: Plan | None) -> dict[str, float]:
        names = {i.offer for i in (*fleet.instances, *fleet.leaving)}
        names |= {t.offer for t in (*plan.targets, *plan.standbys)} if plan is not None else set()
        return {name: self._prices[name] for name in sorted(names) if name in self._prices}

    def _shown_forecast(self, parts: RuntimePorts) -> ForecastSchema | None:
        """Return the view of the forecast, made only for a new forecast, because most rounds keep the last one."""
        believed = parts.controller.believed
        if believed is not self._forecast[0]:
            self._forecast = believed, _forecast_view(believed, parts.unix_s)
        return self._forecast[1]

    def _slo(self, parts: RuntimePorts, answers: RecentAnswers) -> SloSchema:
        slo, recent, window = self._resolved.slo, parts.telemetry.recent(), parts.controller.answered()
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

    def _empty_view(self, now_unix_s: float) -> ServiceView:
        slo = self._resolved.slo
        return ServiceView(
            service=self.service,
            mode=self._mode(),
            at_unix_s=now_unix_s,
            at_s=0.0,
            rps=None,
            capacity_rps=0.0,
            usd_per_hour=0.0,
            instances=(),
            prices={},
            plan=None,
            forecast=None,
            slo=SloSchema(slo.rt_max_s * 1e3, slo.attainment, None, None, None, None, None, None),
            bill=Bill(),
            requests=0,
            limits=self._limits,
            conditions=(),
        )


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
