"""The world of a run: one virtual time, one cloud and store for each service, some controllers, and what goes wrong.

A step is 5 s: the cloud goes on, then every controller that is able to has its turn, then the invariants are looked at.
"""

from __future__ import annotations

import math
from collections import Counter, deque

import numpy as np

from mark.control.memory_store import MemoryStore
from mark.control.ports import RECENT_S, WINDOW_S, RecentAnswers
from mark.domain.errors import RefusalScope
from mark.domain.fleet import Phase
from mark.domain.offer import Market
from mark.domain.time import MINUTE_S
from mark.torture.cloud import Conditions, TrueCloud
from mark.torture.faults import Fault, Schedule, clock_text, stream
from mark.torture.invariants import Watch
from mark.torture.process import ControllerProcess, ProcessParts
from mark.torture.roles import Terms
from mark.torture.site import CAPACITY_RPS, OFFERS, site_service

STORY_LINES = 4000  # the newest; more is of no use to a reader
_DEEPEST = 5  # calls that wait inside of each other
_BY_FUNCTIONS = 0.97  # of what no instance has room for, in time
_NOTICE_LATE_S = 100.0
_SAMPLED = 1000  # requests that the SLO monitor looks back at
_LAG_S = 1.0


class ServiceTruth:
    """One service as it is: its load, its instances, what was answered, and what is kept of it."""

    def __init__(self, world: World, name: str, schedule: Schedule) -> None:
        self.name, self.resolved = name, site_service(name)
        self.cloud = TrueCloud(name, OFFERS, schedule.seed, world.tell)
        self.store = MemoryStore()
        self._world = world
        self._rps = _load(schedule, name)
        self._answers: tuple[float, float] = (0.0, 0.0)
        self._recent: deque[tuple[float, float, float]] = deque()

    def rps_in(self, minute: int) -> float:
        return float(self._rps[min(max(minute, 0), len(self._rps) - 1)])

    def rps(self) -> float:
        return self.rps_in(math.floor(self._world.now_s / MINUTE_S))

    def advance(self, now_s: float) -> None:
        passed_s = now_s - self.cloud.now_s
        self.cloud.advance(now_s)
        arrived = self.rps() * passed_s
        ready = sum(m.view.phase is Phase.READY for m in self.cloud.machines.values())
        served = min(arrived, ready * CAPACITY_RPS * passed_s)
        in_time = served + _BY_FUNCTIONS * (arrived - served)
        self._answers = self._answers[0] + arrived, self._answers[1] + in_time
        self._recent.append((now_s, arrived, in_time))
        while self._recent[0][0] < now_s - RECENT_S:
            self._recent.popleft()

    def answers(self) -> RecentAnswers:
        return RecentAnswers(int(self._answers[0]), int(self._answers[1]))

    def recent(self) -> RecentAnswers:
        count = in_time = 0.0
        for _, arrived, timely in reversed(self._recent):
            count, in_time = count + arrived, in_time + timely
            if count >= _SAMPLED:
                break
        return RecentAnswers(int(count), int(in_time + 0.999))

    def state(self) -> str:
        """What a fault meets: one word for the fleet as it is."""
        phases = Counter(m.view.phase for m in self.cloud.machines.values())
        if self._world.leader() is None:
            return "no leader"
        if not phases[Phase.READY]:
            return "none ready"
        if phases[Phase.PENDING]:
            return "booting"
        return "draining" if phases[Phase.DRAINING] else "steady"


STATES = ("steady", "booting", "draining", "none ready", "no leader")


class World:
    """Runs a schedule. `watch` has what is broken; `story` what happened; `met` how often a fault met which state."""

    def __init__(self, schedule: Schedule, parts: ProcessParts | None = None) -> None:
        self.schedule, self._parts = schedule, parts or ProcessParts()
        self.now_s = 0.0
        self.story: deque[str] = deque(maxlen=STORY_LINES)
        self.met: Counter[tuple[str, str]] = Counter()
        self.spent: set[int] = set()  # faults that happen once, and have
        self.terms = Terms()
        self._draws = {fault.number: stream(schedule.seed, "fault", fault.number) for fault in schedule.faults}
        self._active: dict[str, list[tuple[Fault, np.random.Generator]]] = {}
        self._next_change_s = 0.0
        self._begun: set[int] = set()
        self._depth = 0
        self.services = {name: ServiceTruth(self, name, schedule) for name in _names(schedule.services)}
        self.processes = [ControllerProcess(self, index, self._parts) for index in range(schedule.controllers)]
        self.watch = Watch(self)

    @property
    def faulty(self) -> bool:
        return bool(self._active)

    def active(self, kind: str, index: int | None = None) -> list[tuple[Fault, np.random.Generator]]:
        """The faults of that kind now that hit this controller, each with its draws."""
        found = self._active.get(kind)
        if not found:
            return []
        return [one for one in found if one[0].target is None or one[0].target == index]

    def names_active(self) -> tuple[str, ...]:
        return tuple(self._active)

    def meets(self, kind: str, truth: ServiceTruth | None = None) -> None:
        for one in self.services.values() if truth is None else (truth,):
            self.met[kind, one.state()] += 1

    def market_met(self, truth: ServiceTruth) -> None:
        for kind in ("offer refused", "market refused"):
            if kind in self._active:
                self.meets(kind, truth)

    def tell(self, text: str) -> None:
        self.story.append(f"{clock_text(self.now_s)}  {text}")

    def leader(self) -> ControllerProcess | None:
        """The controller whose term lasts, and which is able to act."""
        term = self.terms.term("controller")
        if term is None:
            return None
        for process in self.processes:
            if process.holder == term.holder and not process.dead and not process.paused and process.manager.leads():
                return process
        return None

    def run(self, until_s: float | None = None) -> None:
        """To the end, or to that time; no further than to the first invariant that is broken."""
        end_s = self.schedule.end_s if until_s is None else min(until_s, self.schedule.end_s)
        while self.now_s < end_s and self.watch.broken is None:
            self._advance(min(end_s, math.floor((self.now_s - _LAG_S) / WINDOW_S + 1.0) * WINDOW_S + _LAG_S))
            for index in range(len(self.processes)):
                process = self.processes[index]
                if process.dead and self.now_s >= process.restart_s:
                    self.tell(f"controller {index} is started again")
                    process = self.processes[index] = ControllerProcess(self, index, self._parts)
                if not process.dead and not process.paused:
                    process.step()
            self.watch.look()
        if until_s is None and self.watch.broken is None:
            self.watch.end()

    def wait(self, for_s: float) -> None:
        """A call takes so long: everything else goes on meanwhile."""
        if self._depth < _DEEPEST:
            self._depth += 1
            self.run(self.now_s + for_s)
            self._depth -= 1

    def pause(self, process: ControllerProcess, for_s: float) -> None:
        """The process stands still for so long."""
        if self._depth < _DEEPEST:
            self.tell(f"controller {process.index} stands still for {for_s:.0f} s")
            process.paused += 1
            self.wait(for_s)
            process.paused -= 1
            self.tell(f"controller {process.index} goes on")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _advance(self, now_s: float) -> None:
        self.now_s = now_s
        if now_s >= self._next_change_s:
            self._change()
        for truth in self.services.values():
            truth.advance(now_s)
        if self._active:
            self._afflict()

    def _change(self) -> None:
        """Faults begin and end."""
        self._active, self._next_change_s = {}, math.inf
        for fault in self.schedule.faults:
            if fault.start_s <= self.now_s < fault.end_s:
                self._active.setdefault(fault.kind, []).append((fault, self._draws[fault.number]))
                self._next_change_s = min(self._next_change_s, fault.end_s)
                if fault.number not in self._begun:
                    self._begun.add(fault.number)
                    self.tell(f"a fault begins: {fault}")
                    if fault.kind == "silent":
                        self._silence(fault)
            elif self.now_s < fault.start_s:
                self._next_change_s = min(self._next_change_s, fault.start_s)
        conditions = self._conditions()
        for truth in self.services.values():
            truth.cloud.conditions = conditions

    def _conditions(self) -> Conditions:
        def most(kind: str, least: float = 0.0) -> float:
            return max((fault.share for fault, _ in self.active(kind)), default=least)

        refused: dict[str, RefusalScope] = {}
        for fault, _ in self.active("offer refused"):
            refused[OFFERS[fault.number % len(OFFERS)].name] = RefusalScope.OFFER
        for fault, _ in self.active("market refused"):
            market = Market.SPOT if fault.number % 2 else Market.ON_DEMAND
            refused |= {offer.name: RefusalScope.MARKET for offer in OFFERS if offer.market is market}
        return Conditions(
            tuple(refused.items()), 1 if self.active("launches partial") else 1000,
            most("ended at launch"), most("never boots"), most("boots and dies"), most("boots slow", 1.0),
        )  # fmt: skip

    def _silence(self, fault: Fault) -> None:
        draw = self._draws[fault.number]
        for truth in self.services.values():
            for number, machine in tuple(truth.cloud.machines.items()):
                if machine.view.phase is Phase.READY and float(draw.random()) < fault.share:
                    self.meets(fault.kind, truth)
                    truth.cloud.mute(number, fault.end_s)

    def _afflict(self) -> None:
        """What happens to instances by itself."""
        for kind in ("dies", "interrupted"):
            for fault, draw in self.active(kind):
                for truth in self.services.values():
                    for number, machine in tuple(truth.cloud.machines.items()):
                        if float(draw.random()) >= fault.share:
                            continue
                        if kind == "dies":
                            self.meets(kind, truth)
                            truth.cloud.kill(number, "died")
                        elif "/spot" in machine.view.offer:
                            self.meets(kind, truth)
                            truth.cloud.interrupt(number, self._known_after_s(truth))

    def _known_after_s(self, truth: ServiceTruth) -> float:
        if "notices lost" in self._active:
            self.meets("notices lost", truth)
            return math.inf
        if "notices late" in self._active:
            self.meets("notices late", truth)
            return _NOTICE_LATE_S
        return 0.0


def _names(count: int) -> tuple[str, ...]:
    return ("inception", "bert", "resnet")[:count]


def _load(schedule: Schedule, name: str) -> np.ndarray:
    """Requests/s by minute: a day with noise and a few surges; constant from the calm on."""
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
