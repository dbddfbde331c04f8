"""EC2 behind the port `Cloud`: one service's instances.

An instance's state is kept in its tags, so that a restarted controller knows it; its number is kept in the store.
Reading tags and states is pure (`phase_of`). Work that must happen soon, but not within a tick, is in `upkeep`, which
a thread calls about every second (`mark_infra.aws.keeper`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol

from mark.control import health
from mark.control.ports import Clock, Cloud, Launched
from mark.domain.errors import CapacityError, CloudError, NotFoundError, RefusalScope, ThrottledError
from mark.domain.fleet import TRANSITIONS, EndedAtLaunch, Fleet, Instance, Notice, Phase, ScheduledEvent
from mark.domain.offer import Market, Offer
from mark_infra.aws import zone_spread
from mark_infra.aws.balancer import Balancer
from mark_infra.aws.gate import Gate, fleet_refusal, is_mismatch, launch_refusal, scope_of_end
from mark_infra.aws.inventory import (
    DRAINING,
    INTERRUPTED,
    INTERRUPTED_KEPT_S,
    LAUNCH,
    OFFER,
    READY,
    RELEASE,
    RESUMED,
    SERVICE,
    SITE,
    STANDBY,
    DescribedInstance,
    Inventory,
    as_bought,
    phase_of,
    rests,
    takes_requests,
)
from mark_infra.aws.pools import launch_configs, templates_of
from mark_infra.aws.readiness import Bouncers
from mark_infra.aws.site import Site
from mark_infra.aws.termination import end, in_turn

# A bouncer's queue lasts RT_max at most. One that has not finished after this time, or does not answer, never will, and
# its instance would be paid for.
LONGEST_DRAIN_S = 300.0
# After its drain began a balancer may use an instance for this long if no other instance is healthy.
STAND_BY_S = 120.0
_REMEMBERED = 1000  # launches
_STOPPED = frozenset(("stopping", "stopped"))
_RUNNING = frozenset(("pending", "running"))


class UnixClock(Clock, Protocol):
    """A clock that also converts Unix times and times of this process's monotonic clock."""

    def at_s(self, unix_s: float) -> float:
        """Return the control seconds at a Unix time."""

    def at_monotonic_s(self, t_s: float) -> float:
        """Return the control seconds at a time of the process's monotonic clock."""


class Numbers(Protocol):
    """The numbers of one service's instances, in the store."""

    def numbers(self, ids: Sequence[str]) -> Mapping[str, int]:
        """Return the number of each instance id. New ids get the next numbers, in the order given, permanently."""

    def forget_numbers(self, there: Collection[str]) -> None:
        """Forget ids that are missing from `there`, the ids that the cloud shows, once they are a day old."""


class NoticeSource(Protocol):
    """The interruptions announced for the instances of a site. Never waits for the cloud."""

    def interruptions(self) -> Sequence[tuple[str, float, float]]:
        """Return (instance id, announced at, gone at), in Unix seconds, of all recent interruptions of every service.

        Interruptions that were returned before are returned again.
        """


class EventSource(Protocol):
    """The events that the cloud has scheduled for instances. Never waits for the cloud."""

    def of(self, instance_id: str) -> tuple[str, float] | None:
        """Return the next event of an instance: its code and its time in Unix seconds."""


@dataclass(frozen=True, slots=True)
class InstancePorts:
    """What serves on the instances and in front of them, and the sources of news about them."""

    bouncers: Bouncers
    balancer: Balancer
    notices: NoticeSource
    events: EventSource | None = None


class Ec2Cloud:
    """The port `Cloud` for one service in one term of the process. Thread-safe.

    `offers` may be bought; an instance of any other offer, or in a zone that the site no longer uses, is leaving. The
    attribute `templates` names the launch template version of each release, `platforms` the versions of its platforms;
    a release without one is launched from the newest version.
    """

    def __init__(
        self,
        service: str,
        offers: Iterable[Offer],
        site: Site,
        gate: Gate,
        inventory: Inventory,
        numbers: Numbers,
        clock: UnixClock,
        around: InstancePorts,
        *,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self.service = service
        self.templates: dict[str, str] = {}
        self.platforms: dict[str, Mapping[str, Mapping[str, str]]] = {}
        self.offers: Mapping[str, Offer] = {offer.name: offer for offer in offers}
        self._site, self._there = site, site.service(service)
        self._gate, self._inventory, self._store, self._clock = gate, inventory, numbers, clock
        self._bouncers, self._balancer = around.bouncers, around.balancer
        self._notices, self._events = around.notices, around.events
        self._unix_s = unix_s
        self._lock = RLock()
        self._number: dict[str, int] = {}  # by instance id; a cache of the store's
        self._last = 0  # highest number seen
        self._launched: dict[str, Launched] = {}  # by token
        self._throttled: Counter[str] = Counter()  # answers in which all pools were throttled, by the part's token
        self._told: set[str] = set()  # ids of instances whose interruption was returned
        self._fleet = Fleet(())

    # -- the port ------------------------------------------------------------------------------------------------------

    def fleet(self) -> Fleet:
        """Return the same object until the fleet changes. Raises CloudError if EC2 has not answered for a minute."""
        machines = self._machines()
        # Tags hold the notices of an earlier controller. An instance that long outlives its notice is not interrupted.
        since_s = self._unix_s() - INTERRUPTED_KEPT_S
        doomed = {m.id: m.gone_unix_s for m in machines.values() if (m.gone_unix_s or 0.0) >= since_s}
        doomed |= {id: gone_s for id, _, gone_s in self._notices.interruptions()}
        stay, leave = list[Instance](), list[Instance]()
        for number, m in machines.items():
            stays = m.offer in self.offers and not m.left_zone
            (stay if stays else leave).append(self._seen(number, m, doomed.get(m.id)))
        fleet = Fleet(tuple(stay), tuple(leave), self._refused())
        with self._lock:
            if fleet != self._fleet:
                self._fleet = fleet
            return self._fleet

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        with self._lock:
            if token in self._launched:
                return self._launched[token]
        # The launch's answer was lost, or a crashed controller made it. EC2 may not show all its instances yet, and
        # repeats its answer.
        ids = [m.id for m in self._machines().values() if m.launch == token]
        refused: CapacityError | ThrottledError | None = None
        if len(ids) < count:
            try:
                offers = [self.offers[name] for name in (offer, *alternatives)]
                ids, refused = self._launch(offers, count, token, standby=standby, release=release)
            except CloudError as error:
                raise launch_refusal(error) from error.__cause__
        launched = Launched(tuple(sorted(self._numbered(ids).values())), refused)
        with self._lock:
            self._launched[token] = launched
            if len(self._launched) > _REMEMBERED:
                del self._launched[next(iter(self._launched))]
            if len(self._throttled) > _REMEMBERED:
                del self._throttled[next(iter(self._throttled))]
        return launched

    def drain(self, number: int) -> None:
        machine = self._find(number)
        if phase_of(machine) is Phase.DRAINING:
            return
        self._check(number, machine, Phase.DRAINING)
        now_s = self._unix_s()
        self._tag([machine.id], {DRAINING: f"{now_s:.3f}"})
        self._inventory.changed([machine.id], draining_unix_s=now_s)

    def terminate(self, number: int) -> None:
        try:
            machine = self._find(number)
        except NotFoundError:
            if 0 < number <= self._last:
                return
            raise
        end(self._gate, self._inventory, [machine.id])

    def stop(self, number: int) -> None:
        machine = self._find(number)
        if phase_of(machine) is Phase.STOPPED:
            return
        self._check(number, machine, Phase.STOPPED)
        self._stop([machine.id])

    def resume(self, number: int) -> None:
        machine = self._find(number)
        self._check(number, machine, Phase.PENDING)
        now_s = self._unix_s()
        # Tag first, because an instance that starts without these tags would be stopped again or stay drained.
        self._tag([machine.id], {RESUMED: f"{now_s:.3f}", READY: "", DRAINING: ""})
        self._gate.call(self._ec2.start_instances, InstanceIds=[machine.id])
        self._inventory.changed(
            [machine.id], state="pending", stale=_STOPPED, ready_unix_s=None, draining_unix_s=None, resumed_unix_s=now_s
        )

    def notices(self) -> tuple[Notice, ...]:
        machines = {m.id: (number, m) for number, m in self._machines().items()}
        found, untagged = [], []
        with self._lock:
            for id, at_s, gone_s in self._notices.interruptions():
                if id not in machines:
                    continue
                number, machine = machines[id]
                if machine.gone_unix_s is None:
                    untagged.append((id, gone_s))
                if id not in self._told:
                    self._told.add(id)
                    found.append(Notice(number, machine.offer, self._clock.at_s(at_s), self._clock.at_s(gone_s)))
            self._told &= machines.keys()
        for id, gone_s in untagged:  # for the next controller, which gets no message from the queue
            with suppress(CloudError):
                self._tag([id], {INTERRUPTED: f"{gone_s:.3f}"})
                self._inventory.changed([id], gone_unix_s=gone_s)
        return tuple(found)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def upkeep(self) -> None:
        """Stop booted standbys; register other booted instances, and mark them ready once they get requests.

        Raises CloudError.
        """
        try:
            if resting := [m.id for m in self._booted() if rests(m)]:
                in_turn(resting, self._stop)
        finally:  # the failure concerns other instances
            self._let_serve()

    def _let_serve(self) -> None:
        """Register booted instances, and mark those as ready that get requests. Raises CloudError."""
        silent = {m.id for m in self._machines().values() if self._bouncers.silent_since_s(m) is not None}
        try:
            self._balancer.sync(self._for_balancer, silent)
        finally:  # the failure may concern other instances
            if serving := [m.id for m in self._booted() if not rests(m) and self._balancer.serves(m.id)]:
                in_turn(serving, self._note_ready)

    def _note_ready(self, ids: list[str]) -> None:
        now_s = self._unix_s()
        self._tag(ids, {READY: f"{now_s:.3f}"})
        self._inventory.changed(ids, ready_unix_s=now_s)

    def _booted(self) -> list[DescribedInstance]:
        """Return the instances that are not serving yet and whose bouncers are ready."""
        return [m for m in self._machines().values() if _boots(m) and self._bouncers.ready(m)]

    def _for_balancer(self) -> list[DescribedInstance]:
        """Return the instances to register: serving, joining, and recently drained in case no other one is healthy."""
        return [m for m in self._machines().values() if takes_requests(m) or self._joins(m) or self._stands_by(m)]

    def _joins(self, machine: DescribedInstance) -> bool:
        # A registered instance stays registered when one answer of its bouncer is late.
        was_ready = self._bouncers.ready(machine) or self._balancer.registered(machine.id)
        return _boots(machine) and not rests(machine) and was_ready

    def _stands_by(self, machine: DescribedInstance) -> bool:
        since_s = machine.draining_unix_s
        if since_s is None or phase_of(machine) is not Phase.DRAINING or machine.gone_unix_s is not None:
            return False
        return machine.state == "running" and self._unix_s() - since_s < STAND_BY_S

    def forget_ghosts(self) -> None:
        """Remove the numbers of long gone instances from the store. Raises CloudError."""
        snapshot = self._inventory.snapshot()
        there = {m.id for m in (*snapshot.of(self.service), *snapshot.refused.get(self.service, ()))}
        self._store.forget_numbers(there)
        with self._lock:
            self._number = {id: number for id, number in self._number.items() if id in there}

    def number_of(self, instance_id: str) -> int | None:
        """Return the number of an instance, or None if it was never seen."""
        with self._lock:
            return self._number.get(instance_id)

    def _machines(self) -> dict[int, DescribedInstance]:
        """Return the service's instances by number, ascending."""
        machines = [m for m in self._inventory.snapshot().of(self.service) if m.launch]
        numbers = self._numbered([m.id for m in machines])
        return dict(sorted((numbers[m.id], m) for m in machines))

    def _refused(self) -> tuple[EndedAtLaunch, ...]:
        machines = [m for m in self._inventory.snapshot().refused.get(self.service, ()) if m.launch]
        numbers = self._numbered([m.id for m in machines])
        found = []
        for m in machines:
            reason = m.reason if m.reason.startswith(m.ended_by) else f"{m.ended_by}: {m.reason}"
            scope = scope_of_end(m.ended_by) or RefusalScope.OFFER
            launched_s = self._clock.at_s(m.launched_unix_s)
            found.append(EndedAtLaunch(numbers[m.id], m.offer, launched_s, reason, scope, m.release))
        return tuple(sorted(found, key=lambda one: one.number))

    def _numbered(self, ids: Sequence[str]) -> dict[str, int]:
        with self._lock:
            found = {id: self._number[id] for id in ids if id in self._number}
        if unseen := [id for id in ids if id not in found]:
            given = self._store.numbers(unseen)
            found.update(given)
            with self._lock:
                self._number.update(given)
                self._last = max(self._last, *given.values())
        return found

    def _seen(self, number: int, machine: DescribedInstance, gone_unix_s: float | None) -> Instance:
        phase = phase_of(machine)
        at_s = self._clock.at_s
        # EC2's time of the last start may appear late, so our tag counts too.
        launched_s, ready_s = at_s(max(machine.launched_unix_s, machine.resumed_unix_s or 0.0)), None
        if phase is Phase.PENDING and (offer := self.offers.get(machine.offer)) is not None:
            ready_s = launched_s + (offer.boot if machine.resumed_unix_s is None else offer.resume or offer.boot).mean_s
        elif machine.ready_unix_s is not None and phase is not Phase.STOPPED:
            ready_s = at_s(machine.ready_unix_s)
        silent_s = None
        if phase is Phase.READY and (since_s := self._bouncers.silent_since_s(machine)) is not None:
            # Bouncers run in wall time, so a silence lasts `time_scale` times longer in control time.
            silent_s = self._clock.at_monotonic_s(since_s) + (self._site.time_scale - 1.0) * health.SILENT_S
        return Instance(
            number=number,
            offer=machine.offer,
            phase=phase,
            launched_s=launched_s,
            ready_s=ready_s,
            interruption_at_s=None if gone_unix_s is None else at_s(gone_unix_s),
            standby=machine.standby,
            idle=phase is Phase.DRAINING and self._is_idle(machine),
            silent_s=silent_s,
            resumed=machine.resumed_unix_s is not None,
            stopped_s=None if phase is not Phase.STOPPED else self._stopped_s(machine),
            release=machine.release,
            event=None if phase is Phase.STOPPED else self._event(machine),
        )

    def _event(self, machine: DescribedInstance) -> ScheduledEvent | None:
        found = None if self._events is None else self._events.of(machine.id)
        return None if found is None else ScheduledEvent(found[0], self._clock.at_s(found[1]))

    def _stopped_s(self, machine: DescribedInstance) -> float:
        """Return when the instance was stopped: right after its drain or, for a standby, after its first boot."""
        if machine.state == "stopping":
            return math.inf
        return self._clock.at_s(machine.draining_unix_s or machine.launched_unix_s)

    def _is_idle(self, machine: DescribedInstance) -> bool:
        if machine.state == "pending":
            return True  # no request could reach it yet
        if self._unix_s() - (machine.draining_unix_s or 0.0) > LONGEST_DRAIN_S:
            return True
        return not self._balancer.has(machine.id) and self._bouncers.idle(machine)

    def _find(self, number: int) -> DescribedInstance:
        try:
            return self._machines()[number]
        except KeyError:
            raise NotFoundError(f"there is no instance #{number} of {self.service}") from None

    def _check(self, number: int, machine: DescribedInstance, to: Phase) -> None:
        phase = phase_of(machine)
        if to not in TRANSITIONS[phase]:
            raise CloudError(f"#{number} {machine.offer} cannot go from {phase} to {to}")

    # -- EC2 -----------------------------------------------------------------------------------------------------------

    @property
    def _ec2(self) -> Any:
        return self._gate.client("ec2")

    def _launch(
        self, offers: Sequence[Offer], count: int, token: str, *, standby: bool, release: str
    ) -> tuple[list[str], CapacityError | ThrottledError | None]:
        """Launch instances of the first offer, or of its alternatives in this order; return their ids, at least one.

        The second value is the reason if there are fewer than `count`. All offers are of one market. The tag names the
        first offer; the type that was bought is EC2's. Offers without a zone are spread over the site's zones.
        """
        zones = list(self._there.subnets) if not offers[0].zone else []
        parts = zone_spread.shares(count, len(zones))
        first = self._emptiest(zones, token)
        found: list[str] = []
        for k, share in enumerate(parts):
            # The first part has the launch's own token, as launches of one instance always had.
            part = token if k == 0 else f"{token}#{k}"
            try:
                ids, refused = self._launch_part(
                    offers, share, token, part, zones, first + k, standby=standby, release=release
                )
            except CloudError as error:
                why = launch_refusal(error)
                if not found or not isinstance(why, CapacityError):
                    raise
                return sorted(found), why
            found += ids
            if refused is not None:  # all zones refused
                return sorted(found), refused
        return sorted(found), None

    def _emptiest(self, zones: Sequence[str], token: str) -> int:
        """Return the position of the zone with the fewest of the service's instances, without those of this launch."""
        there = (m for m in self._machines().values() if m.launch != token and m.draining_unix_s is None)
        return zone_spread.emptiest(zones, Counter(m.zone for m in there))

    def _launch_part(
        self,
        offers: Sequence[Offer],
        count: int,
        token: str,
        part: str,
        zones: Sequence[str],
        first: int,
        *,
        standby: bool,
        release: str,
    ) -> tuple[list[str], CapacityError | ThrottledError | None]:
        """Launch one part with one call; the zones are preferred in turn, beginning with position `first`.

        When a part is repeated, another zone may be the emptiest. EC2 accepts only the original request under the same
        token, so the other orders are tried too.
        """
        for turn in range(max(1, len(zones))):
            order = zone_spread.rotated(zones, first + turn)
            try:
                return self._create_fleet(offers, count, token, part, order, standby=standby, release=release)
            except CloudError as error:
                if not is_mismatch(error):
                    raise
                mismatch = error
        raise mismatch

    def _create_fleet(
        self,
        offers: Sequence[Offer],
        count: int,
        token: str,
        part: str,
        zones: Sequence[str],
        *,
        standby: bool,
        release: str,
    ) -> tuple[list[str], CapacityError | ThrottledError | None]:
        """Call CreateFleet once; the result is that of `_launch`."""
        offer, subnets = offers[0], self._there.subnets
        templates = templates_of(self._there, release, self.templates, self.platforms)
        configs = launch_configs(self._there, offers, templates, self._site.name, zones)
        tags = {
            SITE: self._site.name, SERVICE: self.service, OFFER: offer.name, LAUNCH: token,
            STANDBY: "true" if standby else "false", **({RELEASE: release} if release else {}),
        }  # fmt: skip
        answer = self._gate.call(
            self._gate.client("ec2", patient=True).create_fleet,
            patient=True,
            Type="instant",
            ClientToken=self._client_token(part),
            LaunchTemplateConfigs=configs,
            TargetCapacitySpecification={
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": "spot" if offer.market is Market.SPOT else "on-demand",
            },
            SpotOptions={"AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate"},
            OnDemandOptions={"AllocationStrategy": "prioritized"},
            TagSpecifications=[
                {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
                for kind in ("fleet", "instance")
            ],
        )
        zone_of = {subnet: zone for zone, subnet in subnets.items()}
        bought: dict[str, tuple[str, str]] = {}  # offer's name and zone, by instance id
        for pool in answer.get("Instances", ()):
            zone = zone_of.get(_pool_of(pool).get("SubnetId", ""), "")
            kind = pool.get("InstanceType") or _instance_of(pool)
            bought |= dict.fromkeys(pool.get("InstanceIds", ()), (as_bought(offer.name, kind, zone), zone))
        refused: CapacityError | ThrottledError | None = None
        if len(bought) < count:
            refused = fleet_refusal(answer.get("Errors", ()), f"no reason was given for {offer.name}", offer)
            if not bought:
                if isinstance(refused, ThrottledError):
                    self._throttled[part] += 1
                raise refused
        now_s = self._unix_s()
        self._inventory.born(
            DescribedInstance(
                id, self.service, name, token, "pending", now_s, standby=standby, release=release, zone=zone
            )
            for id, (name, zone) in bought.items()
        )
        return sorted(bought), refused

    def _client_token(self, part: str) -> str:
        """Return the call's token, of 64 characters, under which a repeated call returns the same instances.

        EC2 repeats an answer in which all pools were throttled under the same token, so the next call gets a new one.
        A controller that takes over repeats the same sequence of tokens.
        """
        attempt = self._throttled[part]
        named = f"{self._site.name}/{self.service}/{part}" + (f"~{attempt}" if attempt else "")
        return hashlib.sha256(named.encode()).hexdigest()

    def _stop(self, ids: list[str]) -> None:
        self._gate.call(self._ec2.stop_instances, InstanceIds=ids)
        self._inventory.changed(ids, state="stopping", stale=_RUNNING)

    def _tag(self, ids: list[str], tags: Mapping[str, str]) -> None:
        described = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._gate.call(self._ec2.create_tags, Resources=ids, Tags=described)


def _pool_of(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pool that a part of CreateFleet's answer is about."""
    pool: Mapping[str, Any] = part.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return pool


def _instance_of(part: Mapping[str, Any]) -> str:
    return str(_pool_of(part).get("InstanceType", ""))


def _boots(machine: DescribedInstance) -> bool:
    return machine.state == "running" and phase_of(machine) is Phase.PENDING


_: type[Cloud] = Ec2Cloud
