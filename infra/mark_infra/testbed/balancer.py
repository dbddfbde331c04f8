"""Target groups as gateways: each group has one, whose replicas are the group's registered targets that run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mark.domain.errors import MarkError

log = logging.getLogger(__name__)

_POLL_S = 1.0  # between two reads of what the gateways say
Targets = Mapping[str, Mapping[str, str | None]]  # target group -> target -> URL; None: its instance does not run

HEALTHY = ("healthy", None)
INITIAL = ("initial", "Elb.RegistrationInProgress")
FAILED = ("unhealthy", "Target.FailedHealthChecks")
NOT_RUNNING = ("unused", "Target.InvalidState")


class RunningGateway(Protocol):
    """A gateway that was started."""

    url: str

    def put(self, weights: Mapping[str, float]) -> None:
        """These and no other replicas. Raises MarkError."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What it says of itself: `replicas`, by URL, are `ready` or not. Raises MarkError."""
        ...

    def alive(self) -> bool:
        """Does it still run?"""
        ...

    def end(self) -> None:
        """End it; what it has accepted is answered."""
        ...


class Gateways(Protocol):
    """Starts gateways."""

    def start(self, target_group: str) -> RunningGateway:
        """The gateway of a target group (its ARN), always at the same address. Raises OSError, MarkError."""
        ...


@dataclass(slots=True)
class _Group:
    gateway: RunningGateway
    replicas: dict[str, float] | None = None  # as last put; None: unknown
    ready: frozenset[str] = frozenset()  # URLs
    seen: set[str] = field(default_factory=set)  # URLs that were ready once


class GatewaySupervisor:
    """Keeps gateways equal to target groups. `targets` returns what is registered. Thread-safe."""

    def __init__(self, gateways: Gateways, targets: Callable[[], Targets]) -> None:
        self._gateways, self._targets = gateways, targets
        self._groups: dict[str, _Group] = {}
        self._syncing = threading.Lock()
        self._awake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Sync when something changes, and every second."""
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all gateways."""
        self._stopped.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join()
        self._end()

    def wake(self) -> None:
        """Something may have changed: sync soon."""
        self._awake.set()

    def url(self, target_group: str) -> str | None:
        """Where clients of a target group send requests; None: not yet."""
        group = self._groups.get(target_group)
        return None if group is None else group.gateway.url

    def health(self, target_group: str, target: str) -> tuple[str, str | None]:
        """State and reason of a registered target, as DescribeTargetHealth has them."""
        group, url = self._groups.get(target_group), self._targets().get(target_group, {}).get(target)
        if url is None:
            return NOT_RUNNING
        if group is not None and url in group.ready:
            return HEALTHY
        return FAILED if group is not None and url in group.seen else INITIAL

    def sync(self) -> None:
        """Start, end and configure gateways, and read their state. One failing leaves the others alone."""
        with self._syncing:
            wanted = self._targets()
            for arn in [arn for arn in self._groups if arn not in wanted]:
                self._groups.pop(arn).gateway.end()
            for arn, targets in wanted.items():
                try:
                    self._sync(arn, {url: 1.0 for url in targets.values() if url is not None})
                except (MarkError, OSError) as error:
                    log.warning("the gateway of %s: %s", arn, error)
                    if arn in self._groups:
                        self._groups[arn].ready = frozenset()

    def _sync(self, arn: str, replicas: dict[str, float]) -> None:
        group = self._groups.get(arn)
        if group is None:
            group = self._groups[arn] = _Group(self._gateways.start(arn))
        elif not group.gateway.alive():
            log.warning("the gateway of %s has ended and is started anew", arn)
            group.ready, group.replicas = frozenset(), None
            group.gateway = self._gateways.start(arn)
        if group.replicas != replicas:
            group.gateway.put(replicas)
            group.replicas = replicas
        said = group.gateway.state()["replicas"]
        group.ready = frozenset(url for url, replica in said.items() if replica["ready"])
        group.seen = (group.seen | group.ready) & replicas.keys()
        if set(said) != set(replicas):
            group.replicas = None  # another client changed them: next time they are put again

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._awake.clear()
            try:
                self.sync()
            except Exception:
                log.exception("a pass of the balancer failed")
            self._awake.wait(_POLL_S)
        self._end()  # here: they do not outlive the thread that started them

    def _end(self) -> None:
        while self._groups:
            self._groups.popitem()[1].gateway.end()
