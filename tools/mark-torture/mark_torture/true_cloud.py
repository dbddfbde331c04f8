"""The true state of one service's instances: their histories and their costs.

Controllers see it through ports that fail (`mark_torture.ports`). The draws of an instance depend only on the seed and
its number. Only on-demand instances and standbys can be stopped and started again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mark.cloud.ec2.lifecycle import State
from mark.cloud.machine import InstanceLife
from mark.control.health import BOOT_S
from mark.control.ports import Launched, Ran
from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S, MINIMUM_BILLED_S, UNBILLED_PENDING_S
from mark.domain.errors import CapacityError, CloudError, NotFoundError, RefusalScope
from mark.domain.fleet import EndedAtLaunch, Fleet, Instance, Notice, Phase, ScheduledEvent
from mark.domain.offer import Market, Offer
from mark_torture.drawn_faults import stream

QUEUE_S, LONGEST_QUEUE_S = 5.0, 60.0  # time in which a drained instance answers its queued requests
SHOWN_S = 600.0  # an instance ended at its launch is listed this long
STOPPING_S = 20.0  # time until a stopping instance can be started again
RESUME = 0.3  # share of a boot's time
CREDITS_S = 900.0  # a serving burstable instance spends its credits in this time


@dataclass(slots=True, kw_only=True)
class TrueInstance(InstanceLife):
    """An instance with all that awaits it. The times of future events are infinite if they may never happen."""

    token: str
    of: int  # the controller that launched it
    runs_s: float
    boots_s: float
    dies_s: float = math.inf
    noticed_s: float = math.inf
    idle_s: float = math.inf
    silent_to_s: float = -math.inf
    told_s: float = math.inf  # when its scheduled end was announced
    given_up_s: float = -math.inf  # when it was last silent or late to boot, so that a replacement is allowed
    paid_to_s: float = 0.0  # settled up to here, at the last price change
    drained_s: float = math.inf
    spent_s: float = math.inf  # when its credits are spent
    has_spent: bool = False
    fault: str = ""  # the fault that its boot will meet

    def credits_left(self) -> float | None:
        return 0.0 if self.has_spent else None


@dataclass(frozen=True, slots=True)
class Ended:
    """An instance that is gone, its last phase, and the reason."""

    machine: TrueInstance
    phase: Phase
    at_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """The current conditions of launches."""

    refused: tuple[tuple[str, RefusalScope], ...] = ()  # unavailable offers, and the scope of each refusal
    most: int = 1000  # instances of one launch
    ends: float = 0.0  # share of instances that end before they run
    never: float = 0.0  # share of instances that never boot
    dies: float = 0.0  # share of instances that end while they boot
    slow: float = 1.0  # factor on boot times


class TrueCloud:
    """The instances of one service.

    `tell(text)` is called with every event of an instance, `meets(kind)` right before a condition acts.
    """

    def __init__(
        self,
        service: str,
        offers: Sequence[Offer],
        seed: int,
        tell: Callable[[str], None],
        meets: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self.service, self._seed, self._tell, self._meets = service, seed, tell, meets
        self.offers = {offer.name: offer for offer in offers}
        self.least_usd_per_hour = {offer.name: offer.usd_per_hour for offer in offers}  # the lowest price so far
        self.conditions = Conditions()
        self.no_boots: set[str] = set()  # releases that never become ready
        self.machines: dict[int, TrueInstance] = {}
        self.ended: list[Ended] = []
        self.launched: dict[str, tuple[int, ...]] = {}  # numbers by token
        self.told: list[Ran] = []
        self.notices: list[tuple[float, Notice]] = []  # with the time from which each is visible
        self.now_s = self.settled_usd = 0.0
        self.starts = 0
        self._refused: list[EndedAtLaunch] = []
        self._next_s = math.inf
        self._fleet: Fleet | None = None
        self._ready: tuple[Instance, ...] = ()
        self._last = 0

    # -- called by controllers -----------------------------------------------------------------------------------------

    def fleet(self) -> Fleet:
        """Return the fleet, the same object until it changes."""
        if self._fleet is None:
            there = tuple(machine.view for machine in self.machines.values())
            self._ready = tuple(i for i in there if i.phase is Phase.READY)
            self._fleet = Fleet(there, refused=tuple(self._refused))
        return self._fleet

    def ready(self) -> tuple[Instance, ...]:
        """Return the serving instances."""
        self.fleet()
        return self._ready

    def launch(
        self,
        of: int,
        offer: str,
        count: int,
        token: str,
        release: str = "",
        alternatives: tuple[str, ...] = (),
        *,
        standby: bool = False,
    ) -> Launched:
        """Launch instances for the controller `of`, like the port Cloud."""
        now, names = self.conditions, (offer, *alternatives)
        if token in self.launched:
            numbers = self.launched[token]
            return Launched(numbers, CapacityError(f"no more of {offer}") if len(numbers) < count else None)
        refused = dict(now.refused)
        sold = [name for name in names if name not in refused]
        if not sold:
            raise CapacityError(f"{offer} is not to be had", refused[offer])
        given = min(count, now.most)
        if given < count:
            self._meets("launches partial")
        fates = [self._fate(self._last + 1 + n, release) for n in range(given)]
        for kind in sorted({kind for kind, _, _ in fates if kind}):
            self._meets(kind)
        numbers = tuple(self._start(of, sold[0], token, release, fate, standby=standby) for fate in fates)
        self.launched[token] = numbers
        self._tell(f"{self.service}: controller {of} launches {given} of {count} {sold[0]}, #{numbers[0]} on")
        for number, (kind, _, _) in zip(numbers, fates, strict=True):
            if kind == "ended at launch":
                one, why = self.machines[number], "no host had room"
                self._refused.append(EndedAtLaunch(number, one.offer_name, one.launched_s, why, release=one.release))
                self._end(number, why)
        return Launched(numbers, CapacityError(f"no more of {offer}") if given < count else None)

    def drain(self, number: int) -> None:
        machine = self._find(number)
        if machine.phase is Phase.DRAINING:
            return
        machine.drain()
        machine.drained_s = self.now_s
        draw = stream(self._seed, "queue", self.service, number)
        queue_s = QUEUE_S + (LONGEST_QUEUE_S - QUEUE_S) * float(draw.random()) ** 2
        machine.idle_s = self.now_s + (0.0 if machine.idle else queue_s)
        self._touch(machine)
        self._tell(f"{self.service}: #{number} is drained")
        self._look()

    def terminate(self, number: int) -> None:
        if number in self.machines:
            self._end(number, "terminated")
        elif not 0 < number <= self._last:
            raise NotFoundError(f"there is no instance #{number}")

    def stop(self, number: int) -> None:
        machine = self._find(number)
        if machine.phase is Phase.STOPPED:
            return
        kept = self.offers[machine.offer_name].market is Market.ON_DEMAND or machine.standby
        if machine.phase is not Phase.DRAINING or not kept:
            raise CloudError(f"#{number} cannot be stopped")
        self._settle(machine, machine.stop(self.now_s + STOPPING_S), self.now_s)
        machine.idle_s = machine.runs_s = machine.boots_s = machine.spent_s = math.inf
        machine.has_spent = machine.standby  # the remaining credits are lost
        self._touch(machine)
        self._tell(f"{self.service}: #{number} is stopped")
        self._look()

    def resume(self, number: int) -> None:
        machine, now = self._find(number), self.conditions
        if machine.phase is Phase.PENDING and machine.start > 0:
            return
        machine.check_start(self.now_s)
        offer, refused = machine.offer_name, dict(now.refused)
        if offer in refused:
            raise CapacityError(f"{offer} is not to be had", refused[offer])
        mean_s = RESUME * self.offers[offer].boot.mean_s
        self.starts += 1
        draw = stream(self._seed, "boot", self.service, number, machine.start + 2)
        boot_s = mean_s * (0.6 + 0.8 * float(draw.random())) * now.slow
        if now.slow > 1.0:
            self._meets("boots slow")
        machine.resume(self.now_s, self.now_s + mean_s)
        machine.has_spent = False
        self._touch(machine)
        machine.runs_s, machine.boots_s = self.now_s + min(UNBILLED_PENDING_S, boot_s), self.now_s + boot_s
        self._tell(f"{self.service}: #{number} is started again")
        self._look()

    # -- called by the world -------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Move to `now_s`; events in between happen at their due times."""
        if now_s >= self._next_s:
            for number, machine in tuple(self.machines.items()):
                self._pass(number, machine, now_s)
            self._refused = [one for one in self._refused if now_s - one.launched_s < SHOWN_S]
            self._fleet = None
            self.now_s = now_s
            self._look()
        self.now_s = now_s

    def reprice(self, offers: Sequence[Offer]) -> None:
        """Use these prices from now on."""
        for machine in self.machines.values():
            if machine.billed_from_s is not None:
                self.settled_usd += self._cost(machine, self.now_s)
                machine.paid_to_s = max(machine.paid_to_s, self.now_s)
        self.offers = {offer.name: offer for offer in offers}
        least = self.least_usd_per_hour
        self.least_usd_per_hour = {name: min(least[name], one.usd_per_hour) for name, one in self.offers.items()}

    def mute(self, number: int, until_s: float) -> None:
        """Make a running instance silent until `until_s`."""
        machine = self.machines[number]
        if machine.silent_s is None:
            machine.fall_silent(self.now_s)
            self._touch(machine)
            self._tell(f"{self.service}: #{number} does not answer")
        machine.silent_to_s = max(machine.silent_to_s, until_s)
        self._look()

    def interrupt(self, number: int, known_after_s: float) -> None:
        """Interrupt an instance in two minutes; the notice comes `known_after_s` late, or never."""
        machine = self.machines[number]
        if machine.interruption_at_s is not None or machine.dies_s < math.inf:
            return
        gone_s = self.now_s + INTERRUPTION_NOTICE_S
        machine.dies_s, machine.noticed_s = gone_s, self.now_s + known_after_s
        self._tell(f"{self.service}: #{number} is to be taken back")
        self._look()

    def schedule_end(self, number: int, at_s: float) -> None:
        """Announce that the instance will be ended at `at_s`, unless it is stopped first."""
        machine = self.machines[number]
        if machine.event is None and machine.dies_s == math.inf:
            machine.told_s = self.now_s
            machine.event = ScheduledEvent("instance-retirement", at_s)
            self._touch(machine)
            self._tell(f"{self.service}: #{number} is to be ended in {at_s - self.now_s:.0f} s")
            self._look()

    def kill(self, number: int, why: str) -> None:
        """End the instance immediately."""
        if number in self.machines:
            self._end(number, why)

    def usd(self) -> float:
        """Return the costs up to now."""
        running = (m for m in self.machines.values() if m.billed_from_s is not None)
        return self.settled_usd + sum(self._cost(m, self.now_s) for m in running)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _fate(self, number: int, release: str) -> tuple[str, float, float]:
        """Return the outcome of a boot: its fault, and the times until ready and until death in mean boot times."""
        now = self.conditions
        ends = float(stream(self._seed, "fate", self.service, number).random())
        draw = stream(self._seed, "boot", self.service, number)
        times, fate = (0.6 + 0.8 * float(draw.random())) * now.slow, float(draw.random())
        if ends < now.ends:
            return "ended at launch", times, math.inf
        if fate < now.never:
            return "never boots", math.inf, math.inf
        if fate < now.never + now.dies:
            return "boots and dies", times, 0.7 * times
        if release in self.no_boots:
            return "", math.inf, 0.7 * times
        return "boots slow" if now.slow > 1.0 else "", times, math.inf

    def _start(
        self, of: int, offer: str, token: str, release: str, fate: tuple[str, float, float], *, standby: bool
    ) -> int:
        self._last = number = self._last + 1
        self.starts += 1
        now_s, mean_s = self.now_s, self.offers[offer].boot.mean_s
        kind, times, dies = fate
        self.machines[number] = TrueInstance(
            number,
            offer,
            now_s,
            now_s + mean_s,
            standby=standby,
            release=release,
            token=token,
            of=of,
            runs_s=now_s + min(UNBILLED_PENDING_S, mean_s * min(times, 1.0)),
            boots_s=now_s + mean_s * times,
            dies_s=now_s + mean_s * dies,
            fault=kind,
        )
        self._fleet = None
        self._look()
        return number

    def _pass(self, number: int, machine: TrueInstance, now_s: float) -> None:
        phase = machine.phase
        if machine.state is State.PENDING and machine.runs_s <= min(now_s, machine.dies_s):
            machine.run(machine.runs_s)
            machine.paid_to_s = machine.runs_s
            self.told.append(Ran(number, machine.offer_name, True, machine.runs_s))
        if machine.dies_s <= now_s:
            noticed = machine.interruption_at_s is not None or machine.noticed_s < math.inf
            if machine.fault == "boots and dies":
                self._meets(machine.fault)
            self._end(number, "taken back" if noticed else "died while it booted", machine.dies_s)
            return
        if machine.event is not None and machine.event.at_s <= now_s:
            if phase is not Phase.STOPPED:
                self._end(number, "retired", machine.event.at_s)
                return
            machine.event = None
        if phase is Phase.PENDING and machine.boots_s <= now_s:
            if machine.fault == "boots slow":
                self._meets(machine.fault)
            if machine.standby and machine.start == 0:
                self._settle(machine, machine.stop(now_s), machine.boots_s)
                machine.boots_s = machine.runs_s = math.inf
            else:
                machine.serve(machine.boots_s)
                if self.offers[machine.offer_name].market is Market.BURSTABLE:
                    machine.spent_s = machine.boots_s + CREDITS_S
        if machine.spent_s <= now_s:
            machine.spent_s, machine.has_spent = math.inf, True
        if phase is Phase.DRAINING and machine.idle_s <= now_s:
            machine.finish()
        if machine.silent_s is not None:
            machine.given_up_s = now_s
            if machine.silent_to_s <= now_s:
                machine.silent_s = None
        if machine.noticed_s <= now_s and machine.interrupt(machine.dies_s):
            self.notices.append((now_s, Notice(number, machine.offer_name, now_s, machine.dies_s)))
        if machine.fault == "never boots" and now_s - machine.launched_s >= BOOT_S:
            self._meets(machine.fault)
            machine.fault = ""
        self._touch(machine)

    def _look(self) -> None:
        """Set the time of the next event without a command, including the time when a boot becomes late."""
        due = [math.inf]
        for m in self.machines.values():
            phase = m.phase
            due += m.dies_s, m.spent_s
            if m.event is not None:
                due.append(m.event.at_s)
            if m.state is State.PENDING:
                due.append(m.runs_s)
            if phase is Phase.PENDING:
                due.append(m.boots_s)
                if m.launched_s + BOOT_S > self.now_s:
                    due.append(m.launched_s + BOOT_S)
            if phase is Phase.DRAINING and not m.idle:
                due.append(m.idle_s)
            if m.silent_s is not None:
                due.append(m.silent_to_s)
            if m.interruption_at_s is None:
                due.append(m.noticed_s)
        if self._refused:
            due.append(self._refused[0].launched_s + SHOWN_S)
        self._next_s = min(due)

    def _end(self, number: int, why: str, at_s: float | None = None) -> None:
        at_s = self.now_s if at_s is None else at_s
        machine = self.machines.pop(number)
        phase = machine.phase
        self._settle(machine, machine.end(), at_s)
        self.ended.append(Ended(machine, phase, at_s, why))
        self._tell(f"{self.service}: #{number} is gone: {why}")
        self._fleet = None

    def _settle(self, machine: TrueInstance, from_s: float | None, at_s: float) -> None:
        """Settle the costs of a start that was billed from `from_s`, if any; at least a minute is billed."""
        if from_s is not None:
            self.settled_usd += self._cost(machine, max(at_s, from_s + MINIMUM_BILLED_S))
            self.told.append(Ran(machine.number, machine.offer_name, False, at_s))

    def _cost(self, machine: TrueInstance, to_s: float) -> float:
        """Return the unsettled costs up to `to_s`."""
        return self.offers[machine.offer_name].usd_per_s * max(0.0, to_s - machine.paid_to_s)

    def _find(self, number: int) -> TrueInstance:
        if number not in self.machines:
            raise NotFoundError(f"there is no instance #{number}")
        return self.machines[number]

    def _touch(self, machine: TrueInstance) -> None:
        machine.touch()
        self._fleet = None
