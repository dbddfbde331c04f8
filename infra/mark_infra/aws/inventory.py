"""All instances of a site as EC2 last described them, shared by all its services.

EC2 is asked at most once a second, for all callers together. Our own changes show immediately although EC2's answers
may lag by some seconds: each change is applied to the answers until they show it, or for SETTLE_S. An instance that
EC2 reports as ended is gone immediately, even after a recent change.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mark.domain.errors import CloudError
from mark.domain.fleet import Phase
from mark_infra.aws.gate import Gate, scope_of_end
from mark_infra.aws.site import Site

PERIOD_S = 1.0
OLDEST_S = 60.0  # an older answer is no longer used
SETTLE_S = 15.0
# Reading answers may take this share of one core, because an answer with thousands of instances takes long to read.
_SHARE = 0.2

SITE, SERVICE, OFFER, LAUNCH = "mark:site", "mark:service", "mark:offer", "mark:launch"
# Unix times of becoming ready, of the drain's begin and of the last resume; empty if that is not (or no longer) so.
STANDBY, READY, DRAINING, RESUMED = "mark:standby", "mark:ready", "mark:draining", "mark:resumed"
RELEASE = "mark:release"  # the release that it boots from
INTERRUPTED = "mark:interrupted"  # Unix time at which the cloud takes it back
# An interruption is reported for this long after it, for a controller that was away.
INTERRUPTED_KEPT_S = 1800.0
_ENDED = frozenset(("shutting-down", "terminated"))


@dataclass(frozen=True, slots=True)
class DescribedInstance:
    """An instance as EC2 describes it, with our tags read."""

    id: str
    service: str
    offer: str
    launch: str  # the launch token
    state: str  # EC2's: pending, running, stopping, stopped
    launched_unix_s: float  # when it was last started
    address: str = ""
    standby: bool = False
    ready_unix_s: float | None = None  # when it began to serve, healthy for the balancer; kept as long as it runs
    draining_unix_s: float | None = None  # when its drain began
    resumed_unix_s: float | None = None  # when a standby was started again; it is not stopped after that boot
    gone_unix_s: float | None = None  # announced time of its interruption
    release: str = ""
    zone: str = ""  # of the site; "" if it runs outside the site's zones
    left_zone: bool = False  # it runs in a subnet that the site no longer uses
    ended_by: str = ""  # code of EC2's reason for its end
    reason: str = ""  # message of that reason


@dataclass(frozen=True, slots=True)
class InventorySnapshot:
    """The existing instances of a site, by service, each service's in order of (launch time, id).

    `refused` are instances that EC2 ended before they ran, as long as EC2 shows them.
    """

    services: Mapping[str, tuple[DescribedInstance, ...]] = field(default_factory=dict)
    refused: Mapping[str, tuple[DescribedInstance, ...]] = field(default_factory=dict)

    def of(self, service: str) -> tuple[DescribedInstance, ...]:
        return self.services.get(service, ())


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """A recent change by us: an instance was `born` or is `gone`, or has new `tags` or a new `state`.

    `tags` maps names of DescribedInstance's fields to values. While EC2 shows a state in `stale`, it does not show the
    new state yet.
    """

    at_s: float
    born: DescribedInstance | None = None
    gone: bool = False
    tags: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""
    stale: frozenset[str] = frozenset()


class Inventory:
    """The site's instances. `refresh` asks EC2; `snapshot` adds our later changes to the last answer. Thread-safe."""

    def __init__(self, gate: Gate, site: Site, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._site, self._monotonic = gate, site, monotonic
        self._asking = threading.Lock()
        self._lock = threading.Lock()
        self._described: dict[str, DescribedInstance] = {}
        self._refused: dict[str, DescribedInstance] = {}
        self._before_end: dict[str, DescribedInstance | None] = {}  # ended instances as last seen before
        self._asked_s: float | None = None  # when the last good answer was requested
        self._took_s = 0.0
        self._changes: dict[str, list[InventoryChange]] = {}  # recent ones by instance id, in order
        self._snapshot = InventorySnapshot()

    def snapshot(self) -> InventorySnapshot:
        """Return the instances, the same object until something changes. Asks EC2 only before its first answer.

        Raises CloudError if EC2 has not answered for a minute.
        """
        if self._asked_s is None:
            self.refresh()
        with self._lock:
            assert self._asked_s is not None
            age_s = self._monotonic() - self._asked_s
            if age_s > OLDEST_S:
                raise CloudError(f"EC2 has not listed the instances for {age_s:.0f} s")
            return self._snapshot

    def refresh(self, *, at_once: bool = False) -> None:
        """Ask EC2, unless it was asked within the last second and `at_once` is false.

        Raises CloudError and keeps the last good answer.
        """
        with self._asking:
            now_s = self._monotonic()
            period_s = 0.0 if at_once else max(PERIOD_S, self._took_s / _SHARE)
            if self._asked_s is not None and now_s - self._asked_s < period_s:
                return
            began_s = time.thread_time()
            described, over = self._describe()
            self._took_s = time.thread_time() - began_s
            with self._lock:
                self._refused = self._refused_of(over)
                self._described, self._asked_s = described, now_s
                for id in over.keys() & self._changes.keys():  # no change can be newer than the end
                    del self._changes[id]
                self._merge()

    def born(self, machines: Iterable[DescribedInstance]) -> None:
        """Note that these instances were launched."""
        now_s = self._monotonic()
        self._note({machine.id: InventoryChange(now_s, born=machine) for machine in machines})

    def ended(self, ids: Iterable[str]) -> None:
        """Note that these instances were terminated."""
        now_s = self._monotonic()
        self._note({id: InventoryChange(now_s, gone=True) for id in ids})

    def changed(self, ids: Iterable[str], *, state: str = "", stale: frozenset[str] = frozenset(), **tags: Any) -> None:
        """Note new tags or a new state of these instances, see `InventoryChange`."""
        now_s = self._monotonic()
        self._note({id: InventoryChange(now_s, tags=tags, state=state, stale=stale) for id in ids})

    def _note(self, changes: Mapping[str, InventoryChange]) -> None:
        with self._lock:
            for id, change in changes.items():
                self._changes.setdefault(id, []).append(change)
            self._merge()

    def _refused_of(self, over: Mapping[str, DescribedInstance | None]) -> dict[str, DescribedInstance]:
        """Return the ended instances that never ran; `over` is the second result of `_describe`."""
        ended = {id: machine for id, machine in over.items() if machine is not None}
        known = self._before_end
        self._before_end = {
            id: known[id] if id in known else after(self._described.get(id), self._changes.get(id, ())) for id in ended
        }
        refused = {}
        for id, machine in ended.items():
            before = self._before_end[id]
            if machine.ready_unix_s is None and machine.resumed_unix_s is None:
                if before is None:
                    refused[id] = machine
                elif before.state == "pending":
                    refused[id] = replace(machine, offer=before.offer)  # EC2 names no subnet of an ended instance
        return refused

    def _describe(self) -> tuple[dict[str, DescribedInstance], dict[str, DescribedInstance | None]]:
        """Return existing and ended instances by id; EC2 shows ended ones for about an hour.

        An ended instance is None unless EC2 itself ended it.
        """
        ec2 = self._gate.client("ec2")
        filters = [{"Name": f"tag:{SITE}", "Values": [self._site.name]}]
        zone_of = {id: zone for one in self._site.services.values() for zone, id in one.subnets.items()}
        found: dict[str, DescribedInstance] = {}
        over: dict[str, DescribedInstance | None] = {}
        for page in self._gate.pages(ec2.describe_instances, Filters=filters, MaxResults=1000):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    if instance["State"]["Name"] in _ENDED:
                        refused = scope_of_end(instance.get("StateReason", {}).get("Code", "")) is not None
                        over[instance["InstanceId"]] = machine_of(instance, zone_of) if refused else None
                    else:
                        machine = machine_of(instance, zone_of)
                        found[machine.id] = machine
        return found, over

    def _merge(self) -> None:
        merged = dict(self._described)
        since_s = -math.inf if self._asked_s is None else self._asked_s - SETTLE_S
        for id, changes in list(self._changes.items()):
            changes[:] = [change for change in changes if change.at_s > since_s]
            if not changes:
                del self._changes[id]
            machine = after(merged.pop(id, None), changes)
            if machine is not None:
                merged[id] = machine
        snapshot = InventorySnapshot(_by_service(merged.values()), _by_service(self._refused.values()))
        if snapshot != self._snapshot:
            self._snapshot = snapshot


def _by_service(machines: Iterable[DescribedInstance]) -> dict[str, tuple[DescribedInstance, ...]]:
    services: defaultdict[str, list[DescribedInstance]] = defaultdict(list)
    for machine in machines:
        services[machine.service].append(machine)
    return {service: tuple(sorted(those, key=_age)) for service, those in services.items()}


def after(described: DescribedInstance | None, changes: Iterable[InventoryChange]) -> DescribedInstance | None:
    """Return the instance with our changes, which EC2's answer may not show yet; None if it is gone."""
    machine = described
    for change in changes:
        if change.gone:
            return None
        if machine is None:
            machine = change.born
        elif change.born is None:
            state = change.state if machine.state in change.stale else machine.state
            machine = replace(machine, state=state, **change.tags)
    return machine


def phase_of(machine: DescribedInstance) -> Phase:
    """Return the phase of an instance by EC2's state and our tags."""
    if machine.state in ("stopping", "stopped"):
        return Phase.STOPPED
    if machine.draining_unix_s is not None:
        return Phase.DRAINING
    if machine.state == "running" and machine.ready_unix_s is not None:
        return Phase.READY
    return Phase.PENDING


def rests(machine: DescribedInstance) -> bool:
    """Return whether the instance boots only to be stopped as a standby."""
    return machine.standby and machine.resumed_unix_s is None


def takes_requests(machine: DescribedInstance) -> bool:
    """Return whether the instance serves; with a balancer, it was found healthy by it."""
    return phase_of(machine) is Phase.READY


def machine_of(instance: Mapping[str, Any], zone_of: Mapping[str, str] | None = None) -> DescribedInstance:
    """Return an instance from an item of DescribeInstances; `zone_of` maps subnet ids to zones."""
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    # A stopped instance has a reason too, but it is not the reason of an end.
    reason = instance.get("StateReason", {}) if instance["State"]["Name"] in _ENDED else {}
    subnet, zones = instance.get("SubnetId", ""), zone_of or {}
    return DescribedInstance(
        id=instance["InstanceId"],
        service=tags.get(SERVICE, ""),
        offer=as_bought(
            tags.get(OFFER, ""),
            instance.get("InstanceType", ""),
            zones.get(subnet, ""),
        ),
        launch=tags.get(LAUNCH, ""),
        state=instance["State"]["Name"],
        launched_unix_s=instance["LaunchTime"].timestamp(),
        address=instance.get("PrivateIpAddress", ""),
        standby=tags.get(STANDBY) == "true",
        ready_unix_s=_time(tags.get(READY)),
        draining_unix_s=_time(tags.get(DRAINING)),
        resumed_unix_s=_time(tags.get(RESUMED)),
        gone_unix_s=_time(tags.get(INTERRUPTED)),
        release=tags.get(RELEASE, ""),
        zone=zones.get(subnet, ""),
        left_zone=bool(subnet and zones) and subnet not in zones,
        ended_by=reason.get("Code", ""),
        reason=reason.get("Message", ""),
    )


def as_bought(asked: str, instance: str, zone: str) -> str:
    """Return the name of the offer that was bought when `asked` was requested; "" without a tag.

    A launch may bring another type or zone of the same market. Type and zone are EC2's; the market is the tag's, as is
    the zone of a subnet that the site does not know.
    """
    _, market, *zoned = asked.split("/") if asked.count("/") in (1, 2) else ("", "")
    if not market or not instance:
        return asked
    return "/".join((instance, market, *([zone or zoned[0]] if zoned else ())))


def _time(tag: str | None) -> float | None:
    try:
        return float(tag) if tag else None
    except ValueError:  # another program wrote the tag
        return None


def _age(machine: DescribedInstance) -> tuple[float, str]:
    return machine.launched_unix_s, machine.id
