"""Target groups as gateways, whose replicas are the registered targets of running instances.

Each group has a gateway. Groups to which one rule forwards by weight share the gateway of the first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mark.domain.errors import MarkError

log = logging.getLogger(__name__)

_POLL_S = 1.0  # between two reads of the gateways' states
Targets = Mapping[str, Mapping[str, str | None]]  # target group -> target -> URL; None: its instance does not run
Shares = Mapping[str, Mapping[str, float]]  # first group of a rule -> each of its groups -> weight

HEALTHY = ("healthy", None)
INITIAL = ("initial", "Elb.RegistrationInProgress")
FAILED = ("unhealthy", "Target.FailedHealthChecks")
NOT_RUNNING = ("unused", "Target.InvalidState")


class RunningGateway(Protocol):
    """A started gateway."""

    url: str

    def put(self, weights: Mapping[str, float], groups: Mapping[str, str]) -> None:
        """Set the replicas, by URL with the weights of their groups; others are removed. Raises MarkError."""
        ...

    def state(self) -> Mapping[str, Any]:
        """Return the gateway's state, with each of `replicas`, by URL, `ready` or not. Raises MarkError."""
        ...

    def alive(self) -> bool:
        """Return whether the gateway still runs."""
        ...

    def end(self) -> None:
        """End the gateway after it has answered accepted requests."""
        ...


class Gateways(Protocol):
    """Starts gateways."""

    def start(self, target_group: str) -> RunningGateway:
        """Start the gateway of a target group (its ARN), always at the same address. Raises OSError, MarkError."""
        ...


@dataclass(slots=True)
class _Group:
    gateway: RunningGateway
    replicas: dict[str, tuple[float, str]] | None = None  # weight and group as last set; None: unknown
    ready: frozenset[str] = frozenset()  # URLs
    seen: set[str] = field(default_factory=set)  # URLs that were ready once


class GatewaySupervisor:
    """Keeps gateways in line with target groups. Thread-safe.

    `targets` returns the registered targets, `shares` the weights of rules over several groups, which share a gateway.
    """

    def __init__(self, gateways: Gateways, targets: Callable[[], Targets], shares: Callable[[], Shares] = dict) -> None:
        self._gateways, self._targets, self._shares = gateways, targets, shares
        self._groups: dict[str, _Group] = {}  # by the first of the groups that share a gateway
        self._first: dict[str, str] = {}  # by group that shares another group's gateway
        self._syncing = threading.Lock()
        self._awake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Synchronise after changes, and every second."""
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and end all gateways."""
        self._stopped.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join()
        self._end()

    def wake(self) -> None:
        """Synchronise soon, because something may have changed."""
        self._awake.set()

    def url(self, target_group: str) -> str | None:
        """Return the URL of a target group for clients, or None before it exists."""
        group = self._group(target_group)
        return None if group is None else group.gateway.url

    def health(self, target_group: str, target: str) -> tuple[str, str | None]:
        """Return the state and reason of a registered target, as in DescribeTargetHealth."""
        group, url = self._group(target_group), self._targets().get(target_group, {}).get(target)
        if url is None:
            return NOT_RUNNING
        if group is not None and url in group.ready:
            return HEALTHY
        return FAILED if group is not None and url in group.seen else INITIAL

    def sync(self) -> None:
        """Start, end and configure gateways, and read their state. A failing gateway does not affect the others."""
        with self._syncing:
            targets = self._targets()
            shares = {first: groups for first, groups in self._shares().items() if first in targets}
            self._first = {arn: first for first, groups in shares.items() for arn in groups if arn != first}
            wanted = {arn: _replicas(shares.get(arn, {arn: 1.0}), targets) for arn in targets if arn not in self._first}
            for arn in [arn for arn in self._groups if arn not in wanted]:
                self._groups.pop(arn).gateway.end()
            for arn, replicas in wanted.items():
                try:
                    self._sync(arn, replicas)
                except (MarkError, OSError) as error:
                    log.warning("the gateway of %s: %s", arn, error)
                    if arn in self._groups:
                        self._groups[arn].ready = frozenset()

    def _group(self, target_group: str) -> _Group | None:
        return self._groups.get(self._first.get(target_group, target_group))

    def _sync(self, arn: str, replicas: dict[str, tuple[float, str]]) -> None:
        group = self._groups.get(arn)
        if group is None:
            group = self._groups[arn] = _Group(self._gateways.start(arn))
        elif not group.gateway.alive():
            log.warning("the gateway of %s has ended and is started anew", arn)
            group.ready, group.replicas = frozenset(), None
            group.gateway = self._gateways.start(arn)
        if group.replicas != replicas:
            group.gateway.put(
                {url: weight for url, (weight, _) in replicas.items()}, {url: of for url, (_, of) in replicas.items()}
            )
            group.replicas = replicas
        said = group.gateway.state()["replicas"]
        group.ready = frozenset(url for url, replica in said.items() if replica["ready"])
        group.seen = (group.seen | group.ready) & replicas.keys()
        if set(said) != set(replicas):
            group.replicas = None  # another client changed them, so set them again next time

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._awake.clear()
            try:
                self.sync()
            except Exception:
                log.exception("a pass of the balancer failed")
            self._awake.wait(_POLL_S)
        self._end()  # in this thread, because gateways do not outlive the thread that started them

    def _end(self) -> None:
        while self._groups:
            self._groups.popitem()[1].gateway.end()


def _replicas(weights: Mapping[str, float], targets: Targets) -> dict[str, tuple[float, str]]:
    """Return weight and group by URL. A target in two groups, while it moves, has the greater weight."""
    found: dict[str, tuple[float, str]] = {}
    for group, weight in weights.items():
        for url in targets.get(group, {}).values():
            if url is not None and weight >= found.get(url, (0.0, ""))[0]:
                found[url] = (weight, group)
    return found
