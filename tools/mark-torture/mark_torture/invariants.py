"""The invariants, each with a name and a sentence, checked against the true state of the world.

A fault may excuse a violation while it lasts and for a stated time afterwards. `Watch` checks every command, and every
service when its fleet changes, or else every `LOOK_S`.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mark.control.health import BOOT_S
from mark.control.launcher import SHOWN_S, UNSURE_S
from mark.control.rollout import Rollout, RolloutStage, canaries
from mark.control.scheduled_events import is_due
from mark.control.state import durable
from mark.control.views import Limits
from mark.domain.command import Drain, Terminate
from mark.domain.fleet import Fleet, Phase
from mark.domain.plan import Plan
from mark.domain.time import MINUTE_S
from mark_torture.drawn_faults import LATE, SPOILS, STAND_IN
from mark_torture.roles import TorturedProcess, TorturedService, TorturedWorld
from mark_torture.site import CAPACITY_RPS, LIMITS, OFFERS, STANDBY, dollars_of
from mark_torture.true_cloud import TrueInstance

LOOK_S = 60.0
ORPHAN_S = 5 * MINUTE_S
STARVED_S = 20 * MINUTE_S
SILENT_S = 12 * MINUTE_S + LOOK_S
LEADERLESS_S = 60.0
GIVEN_UP_S = 15 * MINUTE_S  # a replaced instance that did not answer may run beside its replacement this long
ANSWERED_S = 60.0  # an interruption notice must be known this long before the end to be acted on
LOWERED_S = 10 * MINUTE_S  # lower limits hold for older instances after this time
MOST_LAUNCHES = 100  # in ten minutes: each of five offers every 30 s
PATIENT_S = 30.0
NEW_S = 2 * MINUTE_S  # a controller that has led for less may not have planned yet
PLANNED_S = 3 * MINUTE_S
SETTLES_S = 5 * MINUTE_S  # time after a hindrance in which controllers catch up with their duties of every minute
CROSSED_OUT_S = 10 * MINUTE_S
MOST_STATE_BYTES, MOST_INTENTS = 64_000, 64
GROWS_BYTES = 700  # growth allowed in an hour without faults
MISJUDGED_S = 30 * MINUTE_S
BILLS_S = 20 * MINUTE_S
GROWN_S = 60 * MINUTE_S
# A bad release must be rejected after serving this many seconds beside a good one, with this many requests to each: a
# canary is tried for five minutes, and costs per request are compared from a thousand requests on.
JUDGED = 6 * MINUTE_S, 1500.0

INVARIANTS = {
    "limits": "never above max_instances or max_usd_per_hour, except for replacements of instances that do not answer",
    "within its term": "a command begins only while the term of its controller lasts",
    "one leader": "once a controller has acted, none with an older lease begins a command for that service",
    "one writer": "writes of the holder of an older term are not kept",
    "one need": "a launch never brings more than is planned",
    "no orphan": "an instance that neither serves nor boots nor finishes its queue is ended within 5 minutes",
    "drained first": "a serving instance is drained before it is ended",
    "notices answered": "an instance whose loss was known a minute before, or its end, serves no more when it is lost",
    "silent replaced": "while some are silent and others answer, one is drained every 12 minutes",
    "buys elsewhere": "while something is to be had, a fleet is not short for 20 minutes",
    "planned": "while a controller leads and nothing hinders it, no plan is older than 3 minutes",
    "led": "a controller leads within a minute of one being able to",
    "polite": "no more than 100 launches are asked for in ten minutes",
    "patient": "a refused launch is not repeated within 30 s",
    "crossed out": "a launch whose outcome is known is not among those under way 10 minutes later",
    "explained": "every command that was carried out is in the journal",
    "bounded": "state and launches under way stay below 64 kB and 64, and in calm the state does not grow",
    "warm pool": "no more is kept stopped than the pool may hold",
    "bridged": "where an instance is taken back after its notice and is needed, a standby is resumed if one can be",
    "stands by": "a standby serves no longer than 5 minutes beside a fleet that serves without it",
    "no fault of ours": "no round ends in an error that was not foreseen",
    "bill": "the controllers' bill is that of the events",
    "billed after the end": "an ended instance costs nothing more: in calm both bills grow alike",
    "misjudged": "a good release is taken back only within half an hour of an event that may look like its fault",
    "released": "80 minutes after the last fault one release serves, not a bad one, and the newest that is good",
    "settled": "80 minutes after the last fault the fleet is the plan, and holds the load",
}
_LOSES_LINES = frozenset(
    ("crash", "pause", "store down", "store read-only", "store torn", "lease down", "clock ahead", "clock stands",
     "calls slow", "telemetry fails", "calls fail", "calls throttled", "answers lost", "release", "bad release")
)  # fmt: skip
# Faults that may look like a bad release.
_MISJUDGES = SPOILS | {"end scheduled", "silent", "outage", "dies", "interrupted", "offer refused", "market refused"}


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that was violated."""

    invariant: str
    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class _Done:
    verb: str
    numbers: tuple[int, ...]
    at_s: float


@dataclass(slots=True)
class _Seen:
    """The memory of `Watch` about one service."""

    fleet: Fleet | None = None
    looks_s: float = 0.0  # time of the next check at the latest
    answering_s: float = 0.0  # last time when no instance, or every instance, was silent
    mute: set[int] = field(default_factory=set)
    enough_s: float = 0.0  # last time when capacity was sufficient, or no offer had any
    pooled_s: float = 0.0  # last time when the warm pool was within its limit
    needed_s: float = 0.0  # last time when standbys were needed, or none served
    bridged_s: float = 0.0  # last time when the standbys serving or starting covered the need
    unresumable_s: float = 0.0  # last time when no standby could be resumed
    resumed_s: float = 0.0  # last time when a standby was resumed
    ended: int = 0
    fence: int = 0
    asked_s: list[float] = field(default_factory=list)
    sent_s: dict[int, float] = field(default_factory=dict)  # by instance number: time of the last request to end it
    # by fencing number: time of the term's first launch request
    began_s: dict[int, float] = field(default_factory=dict)
    # by offer: time, fencing number and token of the last refusal
    refused: dict[str, tuple[float, int, str]] = field(default_factory=dict)
    done: list[_Done] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)  # tokens of launches without an answer
    # with the last time when each applied
    limits: list[tuple[float, Limits]] = field(default_factory=lambda: [(0.0, LIMITS)])
    unled_usd: float = 0.0  # paid while no controller led
    paid_usd: float = 0.0
    # seconds and requests of new bad releases beside a good one, see `JUDGED`
    beside: dict[str, tuple[float, float]] = field(default_factory=dict)
    looked_s: float = 0.0
    judged_s: float = 0.0  # last time when the leader's rejected releases were read
    refused_releases: set[str] = field(default_factory=set)  # good releases that were rejected


class Watch:
    """Checks the invariants. `broken` is the first violation, which ends the checks."""

    def __init__(self, world: TorturedWorld) -> None:
        self._world = world
        self.broken: Broken | None = None
        # The last time of each excuse, or the begin of the state that is timed.
        self._hindered_s = self._clocks_s = 0.0
        self._leaderless_s = self._spoiled_s = 0.0
        self._leader: TorturedProcess | None = None
        self._led_s = 0.0  # since when the current leader leads
        self.hindered_for_s = 0.0
        self._looked_s = 0.0
        self._seen = {name: _Seen() for name in world.services}
        self._bills: dict[str, tuple[float, float]] | None = None
        self._sizes: dict[str, int] = {}
        kinds = {fault.kind for fault in world.schedule.faults}
        self._moves = "prices move" in kinds

    # -- called at commands --------------------------------------------------------------------------------------------

    def asks(self, truth: TorturedService, fence: int, offers: Sequence[str], token: str) -> None:
        """Check the pause since the last refusal, right before a launch is sent."""
        now_s, known = self._world.now_s, self._seen[truth.name].refused
        # Skip a term's first round, because the watch may not yet have seen the leader.
        began_s = self._seen[truth.name].began_s.setdefault(fence, now_s)
        if now_s - max(began_s, self._led_s, self._hindered_s) < NEW_S or now_s - self._clocks_s < GIVEN_UP_S:
            return
        for offer in offers:
            at_s, whose, before = known.get(offer, (-math.inf, 0, ""))
            if whose == fence and before != token and now_s - at_s < PATIENT_S:
                self._break("patient", f"{truth.name}: {offer} was refused {now_s - at_s:.0f} s ago")

    def refused(self, truth: TorturedService, fence: int, offers: Sequence[str], token: str) -> None:
        for offer in offers:
            self._seen[truth.name].refused[offer] = self._world.now_s, fence, token

    def asked(self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any) -> None:
        """Check a command right before it is sent."""
        seen = self._seen[truth.name]
        whose = f"{truth.name}: controller {process.index} with the number {fence}"
        if fence < seen.fence:
            self._break("one leader", f"{whose} asks to {verb} {what} after another one with {seen.fence} has acted")
        if not process.in_term():
            self._break("within its term", f"{whose} asks to {verb} {what} though its term is over")
        seen.fence = fence
        if verb == "terminate":
            seen.sent_s[what] = self._world.now_s
        if verb != "launch":
            return
        now_s, asked_s = self._world.now_s, seen.asked_s
        asked_s.append(now_s)
        while asked_s[0] < now_s - 10 * MINUTE_S:
            del asked_s[0]
        if len(asked_s) > MOST_LAUNCHES:
            self._break("polite", f"{truth.name}: {len(asked_s)} launches asked for in ten minutes")

    def carried_out(self, truth: TorturedService, verb: str, what: Any) -> None:
        """Check a command right before the cloud carries it out."""
        machine = truth.cloud.machines.get(what) if verb == "terminate" else None
        if machine is None:
            return
        # Compare with the time of sending, because a slow call cannot be taken back.
        served_s = self._seen[truth.name].sent_s.get(what, self._world.now_s) - (machine.view.ready_s or 0.0)
        if machine.view.phase is Phase.READY and served_s > MINUTE_S:
            self._break("drained first", f"{truth.name}: #{what} serves, and is ended")

    def begins(self, truth: TorturedService) -> None:
        """Note the launches that are open in the store of a controller that begins to lead."""
        for intent in truth.store.get("intents") or ():
            if not (intent.made or intent.throttled):
                self.unanswered(truth, intent.token)

    def unanswered(self, truth: TorturedService, token: str) -> None:
        self._seen[truth.name].unanswered.add(token)

    def done(
        self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any, started: set[int]
    ) -> None:
        """Check the fleet right after a command was carried out."""
        if verb != "launch" or not started:
            return
        self._seen[truth.name].done.append(_Done(verb, tuple(sorted(started)), self._world.now_s))
        self._limits(truth)
        controller = process.controllers.get(truth.name)
        plan = None if controller is None else controller.state.plan
        if controller is None or plan is None or self._world.now_s - self._clocks_s < GIVEN_UP_S:
            return
        machines = truth.cloud.machines
        if fence < self._seen[truth.name].fence:  # sent in an older term, while its controller was paused
            return
        # Skip a launch whose answer was lost: the controller learns its result only by repeating it, and the plan may
        # have shrunk since.
        if what in self._seen[truth.name].unanswered:
            return
        if any(machines[number].view.standby for number in started):
            self._standbys_needed(truth, plan, started)
            return
        monitor = controller.state.monitor
        # A slow call may launch monitor instances after the time in which they were wanted.
        slow = self._world.now_s - self._hindered_s < MINUTE_S
        extra = monitor.extra if slow else monitor.extra_at(process.clocks[truth.name].now_s())
        wanted = sum(plan.counts.values()) + extra
        rollout = controller.state.rollout
        if rollout is not None and all(rollout.on_trial(machines[number].view) for number in started):
            self._canaries_needed(truth, rollout)
            return
        surge: Counter[str] = Counter()
        if rollout is not None and rollout.stage is not RolloutStage.DONE:
            wanted += wanted + 1  # a roll-back launches the planned number again beside the surge, and a canary
            surge.update(plan.counts)
            for offer in {monitor.offer, *(machines[number].view.offer for number in started)}:
                surge[offer] += extra  # instances added by the monitor are replaced too, by any offer
        serving = (Phase.PENDING, Phase.READY)
        live = [
            m.view.offer
            for m in self._counted(truth)
            if m.view.phase in serving and m.view.interruption_at_s is None and not m.view.standby
            if not is_due(m.view, self._world.now_s)  # its replacement is launched before its scheduled end
        ]
        # The next plan drains the rest of a surge of another offer; such instances do not forbid replacements. A
        # refused offer is replaced by another one, up to the number that is missing.
        lacking = {offer: count - live.count(offer) for offer, count in plan.counts.items()}
        more = any(
            -lacking.get(offer, -live.count(offer))
            > extra + surge[offer] + sum(max(0, count) for of_other, count in lacking.items() if of_other != offer)
            for offer in {machines[number].view.offer for number in started}
        )
        if more and len(live) > wanted:
            self._break(
                "one need", f"{truth.name}: {len(live)} instances serve or boot after a launch, {wanted} are wanted"
            )

    def _canaries_needed(self, truth: TorturedService, rollout: Rollout) -> None:
        """Check the number of canaries after a launch; they come on top of all other instances, including a surge."""
        counted = (m.view for m in self._counted(truth) if not is_due(m.view, self._world.now_s))
        on_trial = [view for view in counted if rollout.on_trial(view)]
        there = sum(i.phase is not Phase.DRAINING and i.interruption_at_s is None for i in on_trial)
        wanted = canaries(truth.cloud.fleet(), truth.resolved.service.rollout)
        if there > wanted:
            self._break("one need", f"{truth.name}: {there} canaries after a launch, {wanted} are wanted")

    def _standbys_needed(self, truth: TorturedService, plan: Plan, started: set[int]) -> None:
        """Check the number of standbys after a launch.

        Standbys of another release, silent or slow ones are replaced.
        """
        machines = truth.cloud.machines
        release = machines[min(started)].view.release
        there = sum(
            m.view.standby and m.view.release == release and m.view.interruption_at_s is None
            for m in (m for m in machines.values() if self._world.now_s - m.given_up_s > GIVEN_UP_S)
            if not is_due(m.view, self._world.now_s)
        )
        wanted = sum(target.count for target in plan.standbys)
        if there > wanted:
            self._break("one need", f"{truth.name}: {there} standbys after a launch, {wanted} are wanted")

    def wrote_late(self, truth: TorturedService, process: TorturedProcess, fence: int) -> None:
        self._break("one writer", f"{truth.name}: controller {process.index} wrote with the number {fence}")

    def unforeseen(self, service: str, error: Exception) -> None:
        self._break("no fault of ours", f"{service}: {type(error).__name__}: {error}")

    # -- every step ----------------------------------------------------------------------------------------------------

    def excuses(self) -> None:
        """Note the current excuses at the beginning of a step, which may be inside a call."""
        world, now_s = self._world, self._world.now_s
        if world.hindered:
            self._hindered_s = now_s
        if world.clocks:
            self._clocks_s = now_s
        if world.spoiled:
            self._spoiled_s = now_s

    def look(self) -> None:
        world, now_s = self._world, self._world.now_s
        if self.broken is not None:
            return
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        leader = world.leader()
        if leader is not self._leader:
            self._leader, self._led_s = leader, now_s
        if leader is not None and world.held_up(leader):
            self._hindered_s = now_s
        if leader is not None or not any(not p.dead and not p.paused for p in world.processes):
            self._leaderless_s = now_s
        if leader is None or self._hindered_s == now_s:
            self.hindered_for_s += passed_s
        if now_s - max(self._leaderless_s, self._hindered_s) > LEADERLESS_S and now_s - self._clocks_s > GIVEN_UP_S:
            self._break("led", f"no controller leads for {LEADERLESS_S:.0f} s, though one could")
        for name, truth in world.services.items():
            seen, fleet = self._seen[name], truth.cloud.fleet()
            if fleet is not seen.fleet or now_s >= seen.looks_s:
                seen.fleet, seen.looks_s = fleet, now_s + LOOK_S
                self._look_at(truth, seen, leader)
        if math.floor(now_s / 1800.0) > math.floor((now_s - passed_s) / 1800.0):
            self._bounded()
        left_s = world.schedule.end_s - now_s
        if not self._sizes and left_s <= GROWN_S:
            self._sizes = self._state_bytes(leader)
        if self._bills is None and left_s <= BILLS_S:
            self._bills = dict(self._both_bills())

    def _look_at(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        self._limits(truth)
        self._standing_by(truth, seen, leader)
        self._notices(truth, seen, leader)
        if self._moves:
            paid_usd = truth.cloud.usd()
            if leader is None or self._hindered_s == self._world.now_s:
                seen.unled_usd += paid_usd - seen.paid_usd
            seen.paid_usd = paid_usd
        self._orphans(truth, leader)
        self._silent(truth, seen, leader)
        self._short(truth, seen, leader)
        self._pooled(truth, seen, leader)
        self._planned(truth, leader)
        self._crossed_out(truth, leader)
        self._misjudged(truth, seen, leader)
        now_s = self._world.now_s
        if truth.bad and self._unhindered(leader, MINUTE_S):
            controller = None if leader is None else leader.controllers.get(truth.name)
            rollout = None if controller is None else controller.state.rollout
            serving, newest = Counter(i.release for i in truth.cloud.ready()), truth.release
            # The release that this one is compared with, not the one of a roll-out that it has overtaken.
            other = "" if rollout is None else rollout.release if rollout.candidate else rollout.before
            if newest in truth.bad and other not in truth.bad and min(serving[newest], serving[other]) > 0:
                passed_s = now_s - seen.looked_s
                each = min(CAPACITY_RPS, truth.rps() / serving.total()) * passed_s
                for_s, requests = seen.beside.get(newest, (0.0, 0.0))
                requests += each * min(serving[newest], serving[other])
                seen.beside[newest] = for_s + passed_s, requests
        seen.looked_s = now_s

    def _misjudged(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        controller = None if leader is None else leader.controllers.get(truth.name)
        rollout = None if controller is None else controller.state.rollout
        if rollout is None:
            return
        # The verdict may date from the last round of a controller that was paused for up to an hour.
        now_s, since_s = self._world.now_s, seen.judged_s
        seen.judged_s = now_s
        if truth.good not in rollout.refused or truth.good in seen.refused_releases:
            return
        seen.refused_releases.add(truth.good)
        faults = self._world.schedule.faults
        if not any(f.kind in _MISJUDGES and f.start_s <= now_s and since_s <= f.end_s + MISJUDGED_S for f in faults):
            self._break("misjudged", f"{truth.name}: {truth.good} is taken back: {rollout.reason}")

    def _unhindered(self, leader: TorturedProcess | None, for_s: float) -> bool:
        """Return whether one controller has led for `for_s` seconds without hindrance."""
        return leader is not None and self._world.now_s - max(self._hindered_s, self._led_s) >= for_s

    def _keep_limits(self, truth: TorturedService, seen: _Seen) -> None:
        now_s, kept = self._world.now_s, truth.store.get("limits") or LIMITS
        if kept != seen.limits[-1][1]:
            seen.limits.append((now_s, kept))
        seen.limits[-1] = now_s, kept
        while self._leader is not None and now_s - max(seen.limits[0][0], self._hindered_s, self._led_s) > LOWERED_S:
            del seen.limits[0]

    def _limits(self, truth: TorturedService) -> None:
        seen = self._seen[truth.name]
        self._keep_limits(truth, seen)
        if self._world.now_s - self._clocks_s < GIVEN_UP_S:
            return  # a jump of the clock makes booting instances late
        allowed = [limits for _, limits in seen.limits]
        counted = [m.view.offer for m in self._counted(truth)]
        # Use the lowest price so far, because spot may have been cheaper when the instance was bought.
        usd_per_hour = sum(truth.cloud.least_usd_per_hour[offer] for offer in counted)
        too_many = len(counted) > max(limits.max_instances for limits in allowed)
        if too_many or usd_per_hour > max(limits.max_usd_per_hour for limits in allowed) + 1e-9:
            self._break("limits", f"{truth.name}: {len(counted)} instances at {usd_per_hour:.3f} usd/h")

    def _counted(self, truth: TorturedService) -> Iterator[TrueInstance]:
        """Yield the running instances that cannot have been replaced.

        While controllers are hindered, the time allowed for ending a replaced instance does not run.
        """
        now_s = self._world.now_s
        hindered = self._leader is None or self._hindered_s == now_s
        for m in truth.cloud.machines.values():
            late = m.view.phase is Phase.PENDING and now_s - m.view.launched_s >= BOOT_S
            if late or m.view.silent_s is not None or (hindered and now_s - m.given_up_s <= GIVEN_UP_S):
                m.given_up_s = now_s
            if now_s - m.given_up_s > GIVEN_UP_S and m.view.phase is not Phase.STOPPED:
                yield m

    def _orphans(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        if not self._unhindered(leader, ORPHAN_S):
            return
        now_s = self._world.now_s
        for number, m in truth.cloud.machines.items():
            since_s = m.idle_s if m.view.phase is Phase.DRAINING else math.inf
            if m.view.phase is Phase.PENDING:
                since_s = m.view.launched_s + BOOT_S
            if now_s - since_s > ORPHAN_S:
                self._break("no orphan", f"{truth.name}: #{number} is {m.view.phase} for {now_s - since_s:.0f} s")

    def _notices(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        ended, before, standbys = truth.cloud.ended, seen.ended, self._world.schedule.standbys
        if len(ended) == before:
            return
        seen.ended = len(ended)
        if leader is None or self._world.now_s - self._hindered_s < SETTLES_S:
            return
        for one in ended[before:]:
            view = one.machine.view
            known_s = one.at_s - (one.machine.told_s if one.why == "retired" else one.machine.noticed_s)
            if one.at_s - self._led_s <= ANSWERED_S or known_s < ANSWERED_S or one.why not in ("taken back", "retired"):
                continue
            if one.phase is Phase.READY:
                self._break("notices answered", f"{truth.name}: #{view.number} served when it was {one.why}")
            if one.why == "retired":
                continue
            served = view.ready_s is not None and view.ready_s < one.machine.noticed_s < one.machine.drained_s
            resumed = seen.resumed_s >= one.machine.noticed_s
            if standbys and served and not resumed and one.at_s - max(seen.unresumable_s, seen.bridged_s) > ANSWERED_S:
                self._break("bridged", f"{truth.name}: #{view.number} was taken back, and no standby was resumed")

    def _silent(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        """Check that silent instances are replaced.

        Only few are given up at a time, so each replacement restarts the time limit.
        """
        now_s, before = self._world.now_s, seen.mute
        ready = {i.number for i in truth.cloud.ready()}
        silent = {i.number for i in truth.cloud.ready() if i.silent_s is not None}
        seen.mute = silent
        if not silent or silent == ready or leader is None or before - silent:
            seen.answering_s = now_s
        elif now_s - max(self._hindered_s, self._led_s, seen.answering_s) > SILENT_S:
            self._break("silent replaced", f"{truth.name}: {len(silent)} of {len(ready)} instances are silent")

    def _short(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        """Check that capacity is bought when the load needs it, an offer has capacity and nothing hinders."""
        now_s = self._world.now_s
        serving = (Phase.PENDING, Phase.READY)
        running = [m.view for m in truth.cloud.machines.values() if m.view.phase is not Phase.STOPPED]
        limits = seen.limits[-1][1]
        usd_per_hour = sum(truth.cloud.offers[i.offer].usd_per_hour for i in running)
        dearest = max(truth.cloud.offers[offer.name].usd_per_hour for offer in OFFERS)
        full = len(running) >= limits.max_instances or usd_per_hour + dearest > limits.max_usd_per_hour
        # At a limit a serving standby counts as capacity until its credits are spent.
        there = sum(i.phase in serving and (full or not i.standby) for i in running)
        refused = dict(truth.cloud.conditions.refused)
        sold = any(offer.name not in refused for offer in OFFERS)
        needed = self._needed(truth)
        if there >= needed or leader is None or not sold:
            seen.enough_s = now_s
        elif now_s - max(seen.enough_s, self._hindered_s, self._spoiled_s) > STARVED_S:
            self._break("buys elsewhere", f"{truth.name}: {there} instances for {needed} that are needed")

    def _needed(self, truth: TorturedService) -> int:
        """Return the number of instances that the load needs within the limits.

        It is 1 for policies other than the stand-in, which send load to functions where that is cheaper.
        """
        if self._world.schedule.policy != STAND_IN:
            return 1
        most = min(limits.max_instances for _, limits in self._seen[truth.name].limits)
        # Mixed offers reach the limit in dollars earlier than the cheapest offer alone.
        most = min(most, math.floor(LIMITS.max_usd_per_hour / dollars_of(1)))
        return min(most, max(1, math.ceil(truth.rps() / CAPACITY_RPS)))

    def _pooled(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        stopped = sum(m.view.phase is Phase.STOPPED and not m.view.standby for m in truth.cloud.machines.values())
        if stopped <= truth.resolved.service.warm_pool:
            seen.pooled_s = self._world.now_s
        elif self._unhindered(leader, SETTLES_S) and self._world.now_s - seen.pooled_s > SETTLES_S:
            self._break("warm pool", f"{truth.name}: {stopped} instances are stopped")

    def _standing_by(self, truth: TorturedService, seen: _Seen, leader: TorturedProcess | None) -> None:
        """Check that standbys serve only while plan or load exceeds the capacity of the other ready instances."""
        if not self._world.schedule.standbys:
            return
        now_s, machines = self._world.now_s, truth.cloud.machines
        lasting = [i for i in truth.cloud.ready() if i.interruption_at_s is None]
        others = sum(not i.standby for i in lasting)
        controller = None if leader is None else leader.controllers.get(truth.name)
        plan = None if controller is None else controller.state.plan
        needed = max(0 if plan is None else sum(plan.counts.values()), math.ceil(truth.rps() / CAPACITY_RPS))
        standing = [
            m.view
            for m in machines.values()
            if m.view.standby and (m.view.resumed if m.view.phase is Phase.PENDING else m.view.phase is Phase.READY)
        ]
        seen.resumed_s = max([seen.resumed_s, *(i.launched_s for i in standing)])
        if others + len(standing) >= needed:
            seen.bridged_s = now_s
        refused = dict(truth.cloud.conditions.refused)
        rollout = None if controller is None else controller.state.rollout
        stopped = any(
            i.standby and i.phase is Phase.STOPPED and (i.stopped_s or 0.0) <= now_s
            for i in (m.view for m in machines.values())
            if rollout is None or i.release == rollout.release
        )
        if not (stopped and self._room_for_standby(truth)) or STANDBY.name in refused:
            seen.unresumable_s = now_s
        if others < needed or others == len(lasting):
            seen.needed_s = now_s
        elif self._unhindered(leader, SETTLES_S) and now_s - seen.needed_s > SETTLES_S:
            self._break("stands by", f"{truth.name}: a standby serves beside {others} for {needed} that are needed")

    def _room_for_standby(self, truth: TorturedService) -> bool:
        """Return whether the limits allow one more running standby, to serve or to be set up."""
        running = [m.view.offer for m in truth.cloud.machines.values() if m.view.phase is not Phase.STOPPED]
        limits, prices = self._seen[truth.name].limits[-1][1], truth.cloud.offers
        usd_per_hour = sum(prices[offer].usd_per_hour for offer in (*running, STANDBY.name))
        return len(running) < limits.max_instances and usd_per_hour <= limits.max_usd_per_hour

    def _planned(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        if leader is None or not self._unhindered(leader, SETTLES_S):
            return
        controller = leader.controllers.get(truth.name)
        plan = None if controller is None else controller.state.plan
        age_s = math.inf if plan is None else leader.clocks[truth.name].now_s() - plan.at_s
        if age_s > PLANNED_S:
            self._break("planned", f"{truth.name}: the plan is {age_s:.0f} s old")

    def _crossed_out(self, truth: TorturedService, leader: TorturedProcess | None) -> None:
        """Check that launch intents are removed.

        A successful one is kept until the next, for a controller that takes over.
        """
        if not self._unhindered(leader, CROSSED_OUT_S) or self._world.now_s - self._clocks_s < GIVEN_UP_S:
            return
        intents = truth.store.get("intents") or ()
        newest_s = max((intent.at_s for intent in intents), default=0.0)
        for intent in intents:
            age_s, since_s = self._world.now_s - intent.at_s, newest_s - intent.at_s
            unknown = not intent.made and age_s > UNSURE_S + SETTLES_S
            if unknown or (age_s > CROSSED_OUT_S and since_s > 2.0 * SHOWN_S):
                self._break("crossed out", f"{truth.name}: {intent.token} is {age_s:.0f} s old")

    def _bounded(self) -> None:
        for process in self._world.processes:
            for name, size in self._state_bytes(process).items():
                if size > MOST_STATE_BYTES:
                    self._break("bounded", f"{name}: {size} bytes of state")
        for name, truth in self._world.services.items():
            intents = len(truth.store.get("intents") or ())
            if intents > MOST_INTENTS:
                self._break("bounded", f"{name}: {intents} launches under way")

    def _state_bytes(self, process: TorturedProcess | None) -> dict[str, int]:
        controllers = {} if process is None else process.controllers
        return {name: len(pickle.dumps(durable(one.state))) for name, one in controllers.items()}

    # -- at the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Check the final state, after some time without faults."""
        leader = self._world.leader()
        if leader is None:
            self._break("settled", "no controller leads at the end")
            return
        bills, before = dict(self._both_bills()), self._bills or {}
        sizes = self._state_bytes(leader)
        for name, truth in self._world.services.items():
            self._explained(truth)
            self._settled(truth, leader)
            self._released(truth, leader)
            if name in self._sizes and sizes.get(name, 0) > self._sizes[name] + GROWS_BYTES:
                grown = sizes[name] - self._sizes[name]
                self._break("bounded", f"{name}: the state grew by {grown} bytes in an hour of calm")
            ours, paid = bills[name]
            # Allow one instance while no controller could look, all costs while no leader could learn a new price, and
            # for each start the delay of the cloud's report.
            allowed = 0.05 * paid + 180.0 * truth.cloud.starts * 0.096 / 3600.0 + self.hindered_for_s * 0.096 / 3600.0
            allowed += self._seen[name].unled_usd
            if abs(ours - paid) > allowed:
                self._break("bill", f"{name}: {ours:.3f} usd, by the events {paid:.3f}")
            if name in before:
                grew, truly = ours - before[name][0], paid - before[name][1]
                if abs(grew - truly) > 0.03 * truly + 0.002:
                    self._break("billed after the end", f"{name}: {grew:.4f} usd more in 20 minutes, by the events "
                                f"{truly:.4f}")  # fmt: skip

    def _settled(self, truth: TorturedService, leader: TorturedProcess) -> None:
        """Check that the fleet is the planned one.

        The check is skipped while a late release serves without a good one beside it, because the SLO monitor keeps
        adding.
        """
        late = {i.release for i in truth.cloud.ready() if truth.bad.get(i.release) == LATE}
        if any(not self._judged(truth, release) for release in late):
            return
        controller = leader.controllers.get(truth.name)
        plan = None if controller is None else controller.last_plan
        phases = Counter(m.view.phase for m in truth.cloud.machines.values() if m.view.phase is not Phase.STOPPED)
        planned = 0 if plan is None else sum(plan.counts.values())
        there = phases[Phase.READY]
        standing_by = 0 if plan is None else sum(target.count for target in plan.standbys)
        standbys = sum(m.view.standby for m in truth.cloud.machines.values())
        lacks_standbys = standbys < standing_by and self._room_for_standby(truth)
        unplanned = planned != there or standbys > standing_by or lacks_standbys
        if unplanned or len(phases) > 1 or there < self._needed(truth):
            shown = ", ".join(f"{count} {phase}" for phase, count in phases.items()) or "nothing"
            standing = f" and {standing_by} standbys, of which {standbys} are there" if standing_by or standbys else ""
            self._break(
                "settled", f"{truth.name}: {shown}, planned {planned}{standing}, for {truth.rps():.1f} requests/s"
            )

    def _released(self, truth: TorturedService, leader: TorturedProcess) -> None:
        """Check that only the deployed release serves.

        A good release may be rejected if faults of its instances look like its own. A bad one may stay if no good one
        served beside it for long enough.
        """
        controller = leader.controllers.get(truth.name)
        rollout = None if controller is None else controller.state.rollout
        if not truth.release or rollout is None:
            return
        serving = sorted({i.release for i in truth.cloud.ready()})
        if len(serving) > 1:
            self._break("released", f"{truth.name}: {', '.join(serving)} serve, {truth.release} is deployed")
        for release in serving:
            if release in truth.bad and self._judged(truth, release):
                for_s, requests = self._seen[truth.name].beside[release]
                text = f"{release} serves, though it is bad, as {requests:.0f} requests of {for_s:.0f} s show"
                self._break("released", f"{truth.name}: {text}")
        if truth.good == truth.release and serving != [truth.good] and truth.good not in rollout.refused:
            self._break("released", f"{truth.name}: {', '.join(serving)} serves, {truth.release} is deployed")

    def _judged(self, truth: TorturedService, release: str) -> bool:
        """Return whether a bad release served long enough beside a good one to be judged."""
        for_s, requests = self._seen[truth.name].beside.get(release, (0.0, 0.0))
        return for_s >= JUDGED[0] and requests >= JUDGED[1]

    def _explained(self, truth: TorturedService) -> None:
        lines, done = truth.store.journal, self._seen[truth.name].done
        named = {c.number for _, c, outcome in lines if isinstance(c, Drain | Terminate)}
        started = sum(count for _, count in truth.store.results)
        launched = sum(len(one.numbers) for one in done)
        lossy = [(f.start_s - 120.0, f.end_s + 3600.0) for f in self._world.schedule.faults if f.kind in _LOSES_LINES]
        excused = sum(len(one.numbers) for one in done if any(begin <= one.at_s <= end for begin, end in lossy))
        if started < launched - excused:
            self._break("explained", f"{truth.name}: {launched} instances launched, {started} of them in the journal")
        for one in truth.cloud.ended:
            ours = one.why == "terminated" and one.machine.view.number not in named
            if ours and not any(begin <= one.at_s <= end for begin, end in lossy):
                self._break("explained", f"{truth.name}: the end of #{one.machine.view.number} is not in the journal")

    def _both_bills(self) -> Iterator[tuple[str, tuple[float, float]]]:
        """Yield each service's bill by the controller and by the events, both as of the controller's newest view."""
        leader = self._world.leader()
        if leader is None:
            return
        for name in self._world.services:
            bill = leader.manager.view(name).bill
            yield name, (bill.on_demand + bill.spot + bill.burstable, leader.runtimes[name].paid_usd)

    def _break(self, invariant: str, text: str) -> None:
        if self.broken is None:
            self.broken = Broken(invariant, self._world.now_s, text)
            self._world.tell(f"BROKEN: {invariant} ({INVARIANTS[invariant]}): {text}")
