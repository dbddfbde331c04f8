"""Instances and their phases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from mark.domain.errors import RefusalScope


class Phase(StrEnum):
    """The phase of an instance between launch and end; `TRANSITIONS` has the successors of each."""

    PENDING = "pending"  # launched or resumed, boots; not serving
    READY = "ready"  # serves
    DRAINING = "draining"  # takes no new request, finishes its queue
    STOPPED = "stopped"  # a standby, or in the warm pool: only its disk is paid
    GONE = "gone"


# An illegal transition raises and changes nothing (simulated and real cloud alike).
TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.READY, Phase.DRAINING, Phase.STOPPED, Phase.GONE}),
    Phase.READY: frozenset({Phase.DRAINING, Phase.GONE}),
    Phase.DRAINING: frozenset({Phase.STOPPED, Phase.GONE}),
    Phase.STOPPED: frozenset({Phase.PENDING, Phase.GONE}),
    Phase.GONE: frozenset(),
}


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """The cloud will stop, end or restart an instance at `at_s`, for its own reasons, announced days ahead.

    `code` is the cloud's name for the event.
    """

    code: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance as last seen. `number` is the launch order and the final tie-breaker everywhere."""

    number: int
    offer: str  # Offer.name
    phase: Phase
    launched_s: float
    ready_s: float | None = None  # when it became ready, or is expected to; None: unknown
    interruption_at_s: float | None = None  # an interruption ends it at this time
    standby: bool = False  # kept to be stopped and resumed
    credits: float | None = None  # burstables: CPU credits left
    idle: bool = False  # empty: a draining instance may be ended
    silent_s: float | None = None  # since when its bouncer does not answer, though it runs
    resumed: bool = False  # its last start was from a stop
    stopped_s: float | None = None  # since when it can be started again; infinity while it is stopping
    release: str = ""  # that it booted from; "": releases are unnamed
    event: ScheduledEvent | None = None  # the next known event


@dataclass(frozen=True, slots=True)
class EndedAtLaunch:
    """An instance that the cloud ended for its own `reason`, after accepting its launch and before it ran.

    It counts as a late refusal of the extent `scope`, not as a failed boot or an interruption.
    """

    number: int
    offer: str  # Offer.name
    launched_s: float
    reason: str
    scope: RefusalScope = RefusalScope.OFFER
    release: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot of all instances that are not gone, ascending by number.

    `leaving` instances serve until others have replaced them: their offer or zone may no longer be bought or, in the
    controller's view, a scheduled event is imminent. `refused` were launched recently and are gone.
    """

    instances: tuple[Instance, ...]
    leaving: tuple[Instance, ...] = ()
    refused: tuple[EndedAtLaunch, ...] = ()

    def live(self) -> Counter[str]:
        """Return offer -> instances that serve or will: pending or ready, and not about to be interrupted."""
        serving = (Phase.PENDING, Phase.READY)
        return Counter(i.offer for i in self.instances if i.phase in serving and i.interruption_at_s is None)

    def ready(self) -> Counter[str]:
        """Return offer -> instances that serve now."""
        return Counter(i.offer for i in self.instances if i.phase is Phase.READY)

    def standbys(self) -> tuple[Instance, ...]:
        """Return the stopped instances that are resumed to bridge an interruption."""
        return tuple(i for i in self.instances if i.phase is Phase.STOPPED and i.standby)

    def pooled(self) -> tuple[Instance, ...]:
        """Return the stopped instances that are resumed instead of a launch: the warm pool."""
        return tuple(i for i in self.instances if i.phase is Phase.STOPPED and not i.standby)


@dataclass(frozen=True, slots=True)
class Notice:
    """An interruption notice: `number` will be gone at `gone_s`."""

    number: int
    offer: str
    at_s: float
    gone_s: float
