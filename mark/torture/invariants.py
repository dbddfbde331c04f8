"""The invariants: what holds whatever goes wrong, each with a name and a sentence, checked on the truth.

A fault may excuse one for as long as it lasts and a stated time after. `Watch` looks at every command and every step.
"""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mark.control.health import BOOT_S
from mark.control.state import durable
from mark.domain.command import Drain, Launch, Terminate
from mark.domain.fleet import Phase
from mark.domain.time import MINUTE_S
from mark.torture.cloud import TrueInstance
from mark.torture.faults import KINDS
from mark.torture.roles import TorturedProcess, TorturedService, TorturedWorld
from mark.torture.site import CAPACITY_RPS, LIMITS

ORPHAN_S = 15 * MINUTE_S
STARVED_S = 20 * MINUTE_S
SILENT_S = 12 * MINUTE_S
LEADERLESS_S = 60.0
GIVEN_UP_S = 15 * MINUTE_S  # what was replaced because it did not answer may be there beside its replacement
ANSWERED_S = 60.0  # a notice that is known so long before the end
MOST_LAUNCHES = 60  # asked for in ten minutes
MOST_STATE_BYTES, MOST_INTENTS = 64_000, 64
BILLS_S = 20 * MINUTE_S

INVARIANTS = {
    "limits": "never above max_instances or max_usd_per_hour, but for what replaces instances that do not answer",
    "one leader": "once a controller has acted, none with an older lease begins a command for that service",
    "one need": "a launch never brings more than is planned",
    "no orphan": "what neither serves nor boots nor finishes its queue is ended within 15 minutes",
    "drained first": "what serves is drained before it is ended",
    "notices answered": "an instance whose loss was known a minute before serves no more when it is lost",
    "silent replaced": "while some are silent and others answer, one is drained every 12 minutes",
    "buys elsewhere": "while something is to be had, a fleet is not short for 20 minutes",
    "led": "a controller leads within a minute of one being able to",
    "polite": "no more than 60 launches are asked for in ten minutes",
    "explained": "every command that was carried out is in the journal",
    "bounded": "state and launches under way stay below 64 kB and 64",
    "no fault of ours": "no round ends in an error that was not foreseen",
    "bill": "the controllers' bill is that of the events",
    "billed after the end": "what is gone costs nothing more: in calm both bills grow alike",
    "settled": "80 minutes after the last fault the fleet is the plan, and holds the load",
}
_LOSES_LINES = frozenset(
    ("crash", "pause", "store down", "store read-only", "store torn", "lease down", "clock ahead", "clock stands",
     "calls slow", "telemetry fails", "calls fail", "calls throttled", "answers lost")
)  # fmt: skip
_CLOCKS = frozenset(("clock ahead", "clock stands"))
_SPOILS = frozenset(("never boots", "boots and dies", "ended at launch", "boots slow", "launches partial"))
_STARTED = re.compile(r"(?:the market had )?(\d+) of \d+")


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that did not hold."""

    invariant: str
    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class _Done:
    verb: str
    numbers: tuple[int, ...]
    at_s: float


class Watch:
    """Looks on. `broken` is the first invariant that did not hold; nothing after it is looked at."""

    def __init__(self, world: TorturedWorld) -> None:
        self._world = world
        self.broken: Broken | None = None
        # When what excuses was there last, or what is looked for began.
        self._hindered_s = self._clocks_s = 0.0
        self._leaderless_s = self._spoiled_s = 0.0
        self.hindered_for_s = 0.0
        self._looked_s = 0.0
        self._answering_s = dict.fromkeys(world.services, 0.0)  # when none was silent, or none answered
        self._mute: dict[str, set[int]] = {name: set() for name in world.services}
        self._short_s = dict.fromkeys(world.services, 0.0)
        self._ended = Counter[str]()
        self._fences = Counter[str]()
        self._asked: dict[str, list[float]] = {name: [] for name in world.services}
        self._done: dict[str, list[_Done]] = {name: [] for name in world.services}
        self._bills: dict[str, tuple[float, float]] | None = None

    # -- called at commands --------------------------------------------------------------------------------------------

    def asked(self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any) -> None:
        """Right before it is sent."""
        newest = self._fences[truth.name]
        if fence < newest:
            self._break("one leader", f"{truth.name}: controller {process.index} with the number {fence} asks to "
                        f"{verb} {what} after another one with {newest} has acted")  # fmt: skip
        self._fences[truth.name] = fence
        if verb != "launch":
            return
        now_s, asked = self._world.now_s, self._asked[truth.name]
        asked.append(now_s)
        while asked[0] < now_s - 10 * MINUTE_S:
            del asked[0]
        if len(asked) > MOST_LAUNCHES:
            self._break("polite", f"{truth.name}: {len(asked)} launches asked for in ten minutes")

    def carried_out(self, truth: TorturedService, verb: str, what: Any) -> None:
        """Right before it is."""
        machine = truth.cloud.machines.get(what) if verb == "terminate" else None
        if machine is None:
            return
        served_s = self._world.now_s - (machine.view.ready_s or 0.0)
        if machine.view.phase is Phase.READY and served_s > MINUTE_S:
            self._break("drained first", f"{truth.name}: #{what} serves, and is ended")

    def done(self, truth: TorturedService, process: TorturedProcess, verb: str, started: set[int]) -> None:
        """Right after it was carried out."""
        if verb != "launch" or not started:
            return
        self._done[truth.name].append(_Done(verb, tuple(sorted(started)), self._world.now_s))
        self._limits(truth)
        controller = process.controllers.get(truth.name)
        plan = None if controller is None else controller.state.plan
        if controller is None or plan is None or self._world.now_s - self._clocks_s < GIVEN_UP_S:
            return
        wanted = sum(plan.counts.values()) + controller.state.monitor.extra_at(process.clock.now_s())
        serving = (Phase.PENDING, Phase.READY)
        live = sum(m.view.phase in serving and m.view.interruption_at_s is None for m in self._counted(truth))
        if live > wanted:
            self._break("one need", f"{truth.name}: {live} instances serve or boot after a launch, {wanted} are wanted")

    # -- every step ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        world, now_s = self._world, self._world.now_s
        if self.broken is not None:
            return
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        active = world.names_active()
        leader = world.leader()
        if leader is not None or not any(not p.dead and not p.paused for p in world.processes):
            self._leaderless_s = now_s
        # A clock that was set back stands until time has caught up: its controller leads, and finds nothing due.
        stands = any(process.clock.stands for process in world.processes)
        if stands or any(not KINDS[name].market for name in active):
            self._hindered_s = now_s
        if leader is None or self._hindered_s == now_s:
            self.hindered_for_s += passed_s
        if stands or _CLOCKS.intersection(active):
            self._clocks_s = now_s
        if _SPOILS.intersection(active):
            self._spoiled_s = now_s
        if now_s - max(self._leaderless_s, self._hindered_s) > LEADERLESS_S and now_s - self._clocks_s > GIVEN_UP_S:
            self._break("led", f"no controller leads for {LEADERLESS_S:.0f} s, though one could")
        for process in world.processes:
            for name, runtime in process.runtimes.items():
                for condition in runtime.view().conditions:
                    if condition.startswith("a fault of ours"):
                        self._break("no fault of ours", f"{name}: {condition}")
        for truth in world.services.values():
            self._limits(truth)
            self._orphans(truth, leader)
            self._notices(truth, leader)
            self._silent(truth, leader)
            self._short(truth, leader)
        if math.floor(now_s / 1800.0) > math.floor((now_s - passed_s) / 1800.0):
            self._bounded()
        if self._bills is None and now_s >= world.schedule.end_s - BILLS_S:
            self._bills = dict(self._both_bills())

    def _limits(self, truth: TorturedService) -> None:
        if self._world.now_s - self._clocks_s < GIVEN_UP_S:
            return  # by a clock that jumps, instances are late with their boots
        counted = [m.view.offer for m in self._counted(truth)]
        usd_per_hour = sum(truth.cloud.offers[offer].usd_per_hour for offer in counted)
        if len(counted) > LIMITS.max_instances or usd_per_hour > LIMITS.max_usd_per_hour + 1e-9:
            self._break("limits", f"{truth.name}: {len(counted)} instances at {usd_per_hour:.3f} usd/h")

    def _counted(self, truth: TorturedService) -> Iterator[TrueInstance]:
        """Without what others may have replaced."""
        now_s = self._world.now_s
        for m in truth.cloud.machines.values():
            late = m.view.phase is Phase.PENDING and now_s - m.view.launched_s >= BOOT_S
            if late or m.view.silent_s is not None:
                m.given_up_s = now_s
            if now_s - m.given_up_s > GIVEN_UP_S:
                yield m

    def _orphans(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        now_s = self._world.now_s
        if leader is None or now_s - self._hindered_s < ORPHAN_S:
            return
        for number, m in truth.cloud.machines.items():
            since_s = m.idle_s if m.view.phase is Phase.DRAINING else math.inf
            if m.view.phase is Phase.PENDING:
                since_s = m.view.launched_s + BOOT_S
            if now_s - since_s > ORPHAN_S:
                self._break("no orphan", f"{truth.name}: #{number} is {m.view.phase} for {now_s - since_s:.0f} s")

    def _notices(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        ended, before = truth.cloud.ended, self._ended[truth.name]
        if len(ended) == before:
            return
        self._ended[truth.name] = len(ended)
        if leader is None or self._world.now_s - self._hindered_s < 5 * MINUTE_S:
            return
        for one in ended[before:]:
            view = one.machine.view
            known_s = one.at_s - one.machine.noticed_s
            if view.phase is Phase.READY and known_s >= ANSWERED_S and one.why == "taken back":
                self._break("notices answered", f"{truth.name}: #{view.number} served when it was taken back")

    def _silent(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        """Few are given up at a time: what counts is when the last one was."""
        now_s, before = self._world.now_s, self._mute[truth.name]
        ready = {n for n, m in truth.cloud.machines.items() if m.view.phase is Phase.READY}
        silent = {n for n in ready if truth.cloud.machines[n].view.silent_s is not None}
        self._mute[truth.name] = silent
        if not silent or silent == ready or leader is None or before - silent:
            self._answering_s[truth.name] = now_s
        elif now_s - max(self._hindered_s, self._answering_s[truth.name]) > SILENT_S:
            self._break("silent replaced", f"{truth.name}: {len(silent)} of {len(ready)} instances are silent")

    def _short(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        """Below what the load needs, though something is to be had and nothing hinders the controllers."""
        now_s = self._world.now_s
        serving = (Phase.PENDING, Phase.READY)
        there = sum(m.view.phase in serving for m in truth.cloud.machines.values())
        refused = dict(truth.cloud.conditions.refused)
        sold = len(refused) < len(truth.cloud.offers)
        needed = max(1, math.ceil(truth.rps() / CAPACITY_RPS))
        fine = there >= needed or leader is None or not sold
        if fine or now_s in (self._hindered_s, self._spoiled_s):
            self._short_s[truth.name] = now_s
        elif now_s - max(self._short_s[truth.name], self._spoiled_s) > STARVED_S:
            self._break("buys elsewhere", f"{truth.name}: {there} instances for {needed} that are needed")

    def _bounded(self) -> None:
        for process in self._world.processes:
            for name, controller in process.controllers.items():
                size = len(pickle.dumps(durable(controller.state)))
                if size > MOST_STATE_BYTES:
                    self._break("bounded", f"{name}: {size} bytes of state")
        for name, truth in self._world.services.items():
            intents = len(truth.store.get("intents") or ())
            if intents > MOST_INTENTS:
                self._break("bounded", f"{name}: {intents} launches under way")

    # -- at the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everything is calm for a while."""
        leader = self._world.leader()
        if leader is None:
            self._break("settled", "no controller leads at the end")
            return
        bills, before = dict(self._both_bills()), self._bills or {}
        for name, truth in self._world.services.items():
            self._explained(truth)
            self._settled(truth, leader)
            ours, paid = bills[name]
            starts = len(truth.cloud.ended) + len(truth.cloud.machines)
            # One instance while no controller could look, and for each start what the cloud's word may be late.
            allowed = 0.05 * paid + 180.0 * starts * 0.096 / 3600.0 + self.hindered_for_s * 0.096 / 3600.0
            if abs(ours - paid) > allowed:
                self._break("bill", f"{name}: {ours:.3f} usd, by the events {paid:.3f}")
            if name in before:
                grown, truly = ours - before[name][0], paid - before[name][1]
                if abs(grown - truly) > 0.03 * truly + 0.002:
                    self._break("billed after the end", f"{name}: {grown:.4f} usd more in 20 minutes, by the events "
                                f"{truly:.4f}")  # fmt: skip

    def _settled(self, truth: TorturedService, leader: TorturedProcess) -> None:
        controller = leader.controllers.get(truth.name)
        plan = None if controller is None else controller.last_plan
        phases = Counter(m.view.phase for m in truth.cloud.machines.values())
        planned = 0 if plan is None else sum(plan.counts.values())
        there = phases[Phase.READY]
        if planned != there or len(phases) > 1 or there * CAPACITY_RPS < min(truth.rps(), 0.7 * CAPACITY_RPS * 14):
            shown = ", ".join(f"{count} {phase}" for phase, count in phases.items()) or "nothing"
            self._break("settled", f"{truth.name}: {shown}, planned {planned}, for {truth.rps():.1f} requests/s")

    def _explained(self, truth: TorturedService) -> None:
        lines = truth.store.journal
        named = {c.number for _, c, outcome in lines if isinstance(c, Drain | Terminate)}
        started = 0
        for _, command, outcome in lines:
            if isinstance(command, Launch):
                part = _STARTED.match(outcome)
                started += int(part[1]) if part else command.count if outcome.startswith("done") else 0
        launched = sum(len(one.numbers) for one in self._done[truth.name])
        lossy = [(f.start_s - 120.0, f.end_s + 3600.0) for f in self._world.schedule.faults if f.kind in _LOSES_LINES]
        excused = sum(
            len(one.numbers) for one in self._done[truth.name] if any(begin <= one.at_s <= end for begin, end in lossy)
        )
        if started < launched - excused:
            self._break("explained", f"{truth.name}: {launched} instances launched, {started} of them in the journal")
        for one in truth.cloud.ended:
            ours = one.why == "terminated" and one.machine.view.number not in named
            if ours and not any(begin <= one.at_s <= end for begin, end in lossy):
                self._break("explained", f"{truth.name}: the end of #{one.machine.view.number} is not in the journal")

    def _both_bills(self) -> Iterator[tuple[str, tuple[float, float]]]:
        leader = self._world.leader()
        if leader is None:
            return
        for name, truth in self._world.services.items():
            bill = leader.runtimes[name].view().bill
            yield name, (bill.on_demand + bill.spot, truth.cloud.usd())

    def _break(self, invariant: str, text: str) -> None:
        if self.broken is None:
            self.broken = Broken(invariant, self._world.now_s, text)
            self._world.tell(f"BROKEN: {invariant} ({INVARIANTS[invariant]}): {text}")
