"""The world of a run: one virtual time, one cloud and store for each service, some controllers, and faults.

In each step of 5 s the cloud advances, then every controller that can act has its turn, then the invariants are
checked.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mark.cloud.billing.moving_prices import Repriced
from mark.control.controller import Controller
from mark.control.memory_store import MemoryStore
from mark.control.monitor import DEFAULTS, broken
from mark.control.ports import RECENT_S, WINDOW_S, RecentAnswers, ReleaseCounts
from mark.control.rollout import RolloutStage
from mark.control.views import Limits
from mark.domain.errors import BadInput, RefusalScope
from mark.domain.fleet import Fleet, Phase
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark.domain.time import MINUTE_S
from mark_torture.coverage import BOOTING, DRAINING, NO_LEADER, NONE_READY, STEADY
from mark_torture.drawn_faults import (
    CLOCKS,
    HINDERS,
    LATE,
    RELEASES,
    SPOILS,
    STIRS,
    STRIKES,
    Fault,
    Schedule,
    clock_text,
    stream,
)
from mark_torture.invariants import Watch
from mark_torture.process import ControllerProcess, ProcessParts
from mark_torture.roles import Terms, TorturedProcess
from mark_torture.site import CAPACITY_RPS, LIMITS, OFFERS, STANDBY, dollars_of, site_service
from mark_torture.true_cloud import Conditions, TrueCloud

STORY_LINES = 4000  # only the newest lines are kept
_DEEPEST = 5  # calls that may wait inside each other
_BY_FUNCTIONS = 0.97  # share of the overflow requests that functions answer in time
_NOTICE_LATE_S = 100.0
_SAMPLED = 1000  # requests in the SLO monitor's window
_SOONEST_END_S, _LATEST_END_S = 5 * MINUTE_S, 90 * MINUTE_S  # an announced end comes within this time
_LAG_S = 1.0
_SOON_S = 10.0  # two rounds
_ERRORS = _LATE = 0.2  # share of a bad release's answers
_DEAR = 2.0  # worker time as a multiple of a good release's
_NO_BOOT = "no boot"
_DEPLOYED_S = 60.0  # every controller restarts with the new release within this time
_FIRST = "r0"  # the initial release

_Drawing = tuple[Fault, np.random.Generator]


class ServiceTruth:
    """The true state of one service: its load, instances, answers and store."""

    def __init__(self, world: World, name: str, schedule: Schedule) -> None:
        self.name, self.resolved = name, site_service(name, schedule.warm_pool, standbys=schedule.standbys)
        self.repriced: Repriced | None = None
        self.cloud = TrueCloud(
            name, self.resolved.offers, schedule.seed, world.tell, lambda kind: world.meets(kind, self)
        )
        self.store = MemoryStore()
        self.release = self.good = _FIRST if schedule.releases else ""
        self.bad: dict[str, str] = {}
        self.limits = LIMITS  # that the operator wants
        self._world = world
        self._loads_rps: list[float] = _load(schedule, name).tolist()  # by minute
        self._rps: float = self._loads_rps[0]
        self._answered = self._in_time = 0.0
        self._missed_s = -math.inf
        self._recent: deque[tuple[float, float, float]] = deque()
        self._looked_back: tuple[float, RecentAnswers] = -1.0, RecentAnswers(0, 0)
        self._counts: dict[tuple[str, str], float] = {}  # requests by release and offer
        self._judged: tuple[Fleet | None, str] = None, ""  # the fleet of the last `state` call, and its result

    def rps_in(self, minute: int) -> float:
        return self._loads_rps[min(max(minute, 0), len(self._loads_rps) - 1)]

    def rps(self) -> float:
        return self._rps

    def advance(self, now_s: float) -> None:
        passed_s = now_s - self.cloud.now_s
        self.cloud.advance(now_s)
        self._rps = self.rps_in(int(now_s // MINUTE_S))
        served = arrived = self._rps * passed_s
        in_time = arrived
        ready = self.cloud.ready()
        if arrived > (room := len(ready) * CAPACITY_RPS * passed_s):
            self._missed_s, served = now_s, room
            in_time = served + _BY_FUNCTIONS * (arrived - served)
        if self.release and ready:
            each = served / len(ready)
            for i in ready:
                key = i.release, i.offer
                self._counts[key] = self._counts.get(key, 0.0) + each
                if self.bad.get(i.release) == LATE:
                    self._missed_s = now_s
                    in_time -= _LATE * each
        self._answered += arrived
        self._in_time += in_time
        self._recent.append((now_s, arrived, in_time))
        if self._recent[0][0] < now_s - RECENT_S:
            self._recent.popleft()

    def answers(self) -> RecentAnswers:
        return RecentAnswers(int(self._answered), int(self._in_time))

    def recent(self) -> RecentAnswers:
        if self._looked_back[0] != self._world.now_s:
            count = in_time = 0.0
            for at_s, arrived, timely in reversed(self._recent):
                if at_s < self._world.now_s - RECENT_S:
                    break
                count, in_time = count + arrived, in_time + timely
                if count >= _SAMPLED:
                    break
            self._looked_back = self._world.now_s, RecentAnswers(int(count), int(in_time + 0.999))
        return self._looked_back[1]

    def misses_of_late(self) -> bool:
        """Return whether any answer in the window of `recent` was late."""
        return self._world.now_s - self._missed_s <= RECENT_S + WINDOW_S

    def release_counts(self) -> dict[str, dict[str, ReleaseCounts]]:
        found: dict[str, dict[str, ReleaseCounts]] = {}
        for (release, offer), requests in self._counts.items():
            flaw = self.bad.get(release)
            counts = ReleaseCounts(
                int(requests),
                misses=int(_LATE * requests) if flaw == LATE else 0,
                errors=int(_ERRORS * requests) if flaw == "errors" else 0,
                busy_s=(_DEAR if flaw == "dear" else 1.0) * requests / CAPACITY_RPS,
            )
            found.setdefault(release, {})[offer] = counts
        return found

    def reprice(self, resolved: ResolvedService) -> None:
        """Use these prices from now on."""
        self.resolved = resolved
        self.cloud.reprice(resolved.offers)
        self.repriced = Repriced(resolved, {offer.name: self._world.now_s for offer in resolved.offers})

    def state(self) -> str:
        """Return one word for the state of the fleet in which a fault acts."""
        if self._world.leader() is None:
            return NO_LEADER
        if not self.cloud.ready():
            return NONE_READY
        fleet = self.cloud.fleet()
        if fleet is not self._judged[0]:
            phases = {i.phase for i in fleet.instances}
            word = BOOTING if Phase.PENDING in phases else DRAINING if Phase.DRAINING in phases else STEADY
            self._judged = fleet, word
        return self._judged[1]


class World:
    """Runs a schedule. `watch` has the violation, `story` the events, `met` how often a fault acted in each state.

    With `rests`, rounds that would do nothing are skipped (`mark_torture.process.RestingRuntime`).
    """

    def __init__(self, schedule: Schedule, parts: ProcessParts | None = None, *, rests: bool = True) -> None:
        self.schedule, self._parts, self._rests = schedule, parts or ProcessParts(), rests
        self.now_s = 0.0
        self.hindered = self.strikes = self.clocks = self.spoiled = False
        self._stirs: list[Fault] = []
        self.story: deque[str] = deque(maxlen=STORY_LINES)
        self.met: Counter[tuple[str, str]] = Counter()
        self.spent: set[int] = set()  # numbers of one-time faults that have happened
        self.terms = Terms()
        self._draws = {fault.number: stream(schedule.seed, "fault", fault.number) for fault in schedule.faults}
        self.kinds: dict[str, list[_Drawing]] = {}
        self._next_change_s, self._changed_s = 0.0, -math.inf
        self._begun: set[int] = set()
        # waiting calls, each inside the one before, with their ends
        self._calls: list[tuple[ControllerProcess, float]] = []
        self.services = {name: ServiceTruth(self, name, schedule) for name in _names(schedule.services)}
        self.processes = [self._process(index) for index in range(schedule.controllers)]
        self._operated = any(fault.kind == "limits change" for fault in schedule.faults)
        self.watch = Watch(self)

    def _process(self, index: int) -> ControllerProcess:
        return ControllerProcess(self, index, self._parts, rests=self._rests)

    def active(self, kind: str, index: int | None = None) -> Sequence[_Drawing]:
        """Return the active faults of a kind that hit this controller, each with its draws."""
        found = self.kinds.get(kind)
        if not found:
            return ()
        return [one for one in found if one[0].target is None or one[0].target == index]

    def rests(self, truth: ServiceTruth, controller: Controller, index: int, *, minute: bool = False) -> bool:
        """Return whether a round between two full minutes by the process `index` would repeat the last one.

        With `minute`, the answer is about the matching part of a full minute's round. False if the process's clock is
        set by a fault, or if a call may fail.
        """
        state, cloud = controller.state, truth.cloud
        fleet = cloud.fleet()
        if state.seen is not fleet or cloud.told or cloud.notices:
            return False
        if self._stirs and any(one.target in (None, index) and one.number not in self.spent for one in self._stirs):
            return False
        if len(state.ended_at_launch) != len(fleet.refused):  # the last round saw fewer refusals than there are now
            return False
        if self.now_s - self._changed_s <= _SOON_S:  # telemetry may have become correct again
            return False
        if state.leaving or state.notices or controller.repeats or any(i.event is not None for i in fleet.instances):
            return False
        rollout = state.rollout
        if rollout is None and controller.release:
            return False
        if rollout is not None:
            served = rollout.stage is RolloutStage.DONE and state.switched == rollout.release
            if not served or controller.release not in (rollout.newest, *rollout.refused):
                return False
        monitor = state.monitor  # it acts only after its pause, if requests were late or no longer are
        if monitor.launched_s is None or self.now_s - monitor.launched_s >= monitor.pause_s:
            if monitor.extra:
                return False
            if truth.misses_of_late() and broken(truth.recent(), truth.resolved.slo, DEFAULTS):
                return False
        if state.plan is None or truth.rps() > state.plan.capacity_rps:  # a surge
            return False
        # The progress of boots is checked once a minute.
        return not minute or not any(one.booting or one.given_up for one in state.boots.values())

    def meets(self, kind: str, truth: ServiceTruth | None = None) -> None:
        for one in self.services.values() if truth is None else (truth,):
            self.met[kind, one.state()] += 1

    def market_met(self, truth: ServiceTruth) -> None:
        for kind in ("offer refused", "market refused"):
            if kind in self.kinds:
                self.meets(kind, truth)

    def tell(self, text: str) -> None:
        self.story.append(f"{clock_text(self.now_s)}  {text}")

    def leader(self) -> ControllerProcess | None:
        """Return the controller whose term lasts and that can act."""
        term = self.terms.term("controller")
        if term is None:
            return None
        for process in self.processes:
            if process.holder == term.holder and not process.dead and not process.paused and process.manager.leads():
                return process
        return None

    def run(self, until_s: float | None = None) -> None:
        """Run to the end or to `until_s`, and stop at the first violation."""
        end_s = self.schedule.end_s if until_s is None else min(until_s, self.schedule.end_s)
        while self.now_s < end_s and self.watch.broken is None:
            self._advance(min(end_s, math.floor((self.now_s - _LAG_S) / WINDOW_S + 1.0) * WINDOW_S + _LAG_S))
            for index in range(len(self.processes)):
                process = self.processes[index]
                if process.dead and self.now_s >= process.restart_s:
                    self.tell(f"controller {index} is started again")
                    process = self.processes[index] = self._process(index)
                if not process.dead and not process.paused:
                    process.step()
            self.watch.look()
        if until_s is None and self.watch.broken is None:
            self.watch.end()

    def wait(self, process: ControllerProcess, for_s: float) -> None:
        """Let a call of the process take `for_s` seconds, in which the world continues."""
        if len(self._calls) < _DEEPEST:
            self._calls.append((process, self.now_s + for_s))
            self.run(self.now_s + for_s)
            self._calls.pop()

    def held_up(self, process: TorturedProcess) -> bool:
        """Return whether a call of the process is overdue only because another call began inside it.

        The world runs inside calls, so an outer call ends after the inner one, however long another process is paused.
        """
        return any(whose is process and until_s < self.now_s - WINDOW_S for whose, until_s in self._calls)

    def pause(self, process: ControllerProcess, for_s: float) -> None:
        """Pause the process for `for_s` seconds."""
        if len(self._calls) < _DEEPEST:
            self.tell(f"controller {process.index} stands still for {for_s:.0f} s")
            process.paused += 1
            self.wait(process, for_s)
            process.paused -= 1
            self.tell(f"controller {process.index} goes on")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _advance(self, now_s: float) -> None:
        self.now_s = now_s
        for truth in self.services.values():
            truth.advance(now_s)
        if now_s >= self._next_change_s:
            self._change()
        if self.kinds:
            self.watch.excuses()
            self._afflict()
        if self._operated:
            self._operate()

    def _change(self) -> None:
        """Begin and end faults."""
        before = self.kinds.keys()
        self.kinds, self._next_change_s = {}, math.inf
        begun: list[Fault] = []
        for fault in self.schedule.faults:
            if fault.start_s <= self.now_s < fault.end_s:
                self.kinds.setdefault(fault.kind, []).append((fault, self._draws[fault.number]))
                self._next_change_s = min(self._next_change_s, fault.end_s)
                if fault.number not in self._begun:
                    self._begun.add(fault.number)
                    self.tell(f"a fault begins: {fault}")
                    begun.append(fault)
            elif self.now_s < fault.start_s:
                self._next_change_s = min(self._next_change_s, fault.start_s)
        names = self.kinds.keys()
        if names & HINDERS != before & HINDERS:
            self._changed_s = self.now_s
        self.hindered, self.clocks = not HINDERS.isdisjoint(names), not CLOCKS.isdisjoint(names)
        self.spoiled = not SPOILS.isdisjoint(names)
        self._stirs = [fault for kind in names & STIRS for fault, _ in self.kinds[kind]]
        self.strikes = not STRIKES.isdisjoint(names)
        conditions = self._conditions()
        for truth in self.services.values():
            truth.cloud.conditions = conditions
        self._reprice()
        for fault in begun:
            self._begin(fault)

    def _conditions(self) -> Conditions:
        def most(kind: str, least: float = 0.0) -> float:
            return max((fault.share for fault, _ in self.active(kind)), default=least)

        refused: dict[str, RefusalScope] = {}
        for fault, _ in self.active("offer refused"):
            refused[OFFERS[fault.number % len(OFFERS)].name] = RefusalScope.OFFER
        for fault, _ in self.active("market refused"):
            markets = ((Market.SPOT,), (Market.ON_DEMAND,), (Market.SPOT, Market.ON_DEMAND))[fault.number % 3]
            refused |= {offer.name: RefusalScope.MARKET for offer in OFFERS if offer.market in markets}
            if Market.ON_DEMAND in markets:
                refused[STANDBY.name] = RefusalScope.MARKET
        return Conditions(
            tuple(refused.items()), 1 if self.active("launches partial") else 1000,
            most("ended at launch"), most("never boots"), most("boots and dies"), most("boots slow", 1.0),
        )  # fmt: skip

    def _reprice(self) -> None:
        """Set the spot prices of the fault that began last."""
        moved = self.active("prices move")
        times = moved[-1][0].share if moved else 1.0
        for truth in self.services.values():
            offers = tuple(
                replace(now, usd_per_hour=first.usd_per_hour * times) if first.market is Market.SPOT else now
                for now, first in zip(truth.resolved.offers, (*OFFERS, STANDBY), strict=False)
            )
            if offers != truth.resolved.offers:
                self.meets("prices move", truth)
                truth.reprice(replace(truth.resolved, offers=offers))
                self.tell(f"{truth.name}: spot costs {times:.2f} times as much as first")

    def _begin(self, fault: Fault) -> None:
        """Do the immediate effects of a fault's beginning."""
        draw = self._draws[fault.number]
        if fault.kind == "silent":
            for truth in self.services.values():
                for i in truth.cloud.ready():
                    if float(draw.random()) < fault.share:
                        self.meets(fault.kind, truth)
                        truth.cloud.mute(i.number, fault.end_s)
        elif fault.kind == "end scheduled":
            for truth in self.services.values():
                for number, machine in tuple(truth.cloud.machines.items()):
                    left_s = _SOONEST_END_S + (_LATEST_END_S - _SOONEST_END_S) * float(draw.random())
                    if float(draw.random()) < fault.share and machine.view.phase is not Phase.STOPPED:
                        self.meets(fault.kind, truth)
                        truth.cloud.schedule_end(number, min(self.now_s + left_s, self.schedule.calm_from_s))
        elif fault.kind == "outage":
            for truth in self.services.values():
                there = [n for n, m in truth.cloud.machines.items() if m.view.phase is not Phase.STOPPED]
                if there:
                    self.meets(fault.kind, truth)
                for number in there:
                    truth.cloud.kill(number, "died")
        elif fault.kind in RELEASES:
            self._deploy(fault, draw)

    def _deploy(self, fault: Fault, draw: np.random.Generator) -> None:
        """Deploy a new release and restart the controllers with it."""
        release, flaws = f"r{fault.number + 1}", self.schedule.flaws
        boots = float(draw.random()) < 0.5
        flaw = flaws[fault.number % len(flaws)] if boots else _NO_BOOT
        for truth in self.services.values():
            self.meets(fault.kind, truth)
            truth.release = release
            if fault.kind == "bad release":
                truth.bad[release] = flaw
                self.tell(f"{truth.name}: release {release} is bad: {flaw}")
                if not boots:
                    truth.cloud.no_boots.add(release)
            else:
                truth.good = release
        for process in self.processes:
            if not process.dead:
                process.dies(1.0 + _DEPLOYED_S * float(draw.random()))

    def _operate(self) -> None:
        """Set the limits as an operator would, repeatedly until they are stored."""
        lowered = self.active("limits change")
        share = lowered[-1][0].share if lowered else 1.0
        most = max(1, round(share * LIMITS.max_instances))
        wanted = LIMITS if share == 1.0 else Limits(most, dollars_of(most))
        for name, truth in self.services.items():
            kept = truth.store.get("limits") or LIMITS
            leader = self.leader() if kept != wanted else None
            if leader is not None:
                if truth.limits != wanted:
                    self.meets("limits change", truth)
                    truth.limits = wanted
                try:
                    leader.manager.set_limits(name, wanted)
                except BadInput:
                    continue  # it no longer leads; the next leader is asked

    def _afflict(self) -> None:
        """Let instances die or be interrupted by active faults."""
        for kind in ("dies", "interrupted"):
            for fault, draw in self.active(kind):
                for truth in self.services.values():
                    for number, machine in tuple(truth.cloud.machines.items()):
                        if float(draw.random()) >= fault.share or machine.view.phase is Phase.STOPPED:
                            continue
                        if kind == "dies":
                            self.meets(kind, truth)
                            truth.cloud.kill(number, "died")
                        elif "/spot" in machine.view.offer:
                            self.meets(kind, truth)
                            truth.cloud.interrupt(number, self._known_after_s(truth))

    def _known_after_s(self, truth: ServiceTruth) -> float:
        if "notices lost" in self.kinds:
            self.meets("notices lost", truth)
            return math.inf
        if "notices late" in self.kinds:
            self.meets("notices late", truth)
            return _NOTICE_LATE_S
        return 0.0


def _names(count: int) -> tuple[str, ...]:
    return ("inception", "bert", "resnet")[:count]


def _load(schedule: Schedule, name: str) -> np.ndarray:
    """Return requests/s by minute: a day with noise and a few surges, constant in the final time without faults."""
    draw = stream(schedule.seed, "load", name)
    minutes = np.arange(math.ceil(schedule.hours * 60.0) + 1)
    base = float(draw.uniform(5.0, 60.0))
    rates = base * (1.0 + 0.6 * np.sin(2.0 * np.pi * (minutes / 1440.0 + float(draw.random()))))
    rates *= draw.lognormal(0.0, 0.08, len(minutes))
    for _ in range(int(draw.poisson(schedule.hours / 4.0))):
        begin, length = int(draw.integers(len(minutes))), int(draw.integers(5, 60))
        rates[begin : begin + length] *= float(draw.uniform(0.2, 3.0))
    rates = np.minimum(rates, 0.7 * CAPACITY_RPS * 14)
    calm = math.floor(schedule.calm_from_s / MINUTE_S)
    rates[calm:] = base
    return rates
