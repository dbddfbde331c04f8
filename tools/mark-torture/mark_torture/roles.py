"""What the parts of a tortured world see of each other: the world, its services, its controllers' processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from mark.cloud.billing.moving_prices import Repriced
from mark.control.controller import Controller
from mark.control.lease import MemoryTerms, Term
from mark.control.memory_store import MemoryStore
from mark.control.ports import RecentAnswers, ReleaseCounts
from mark.control.views import ServiceView
from mark.domain.service import ResolvedService
from mark_torture.drawn_faults import Fault, Schedule
from mark_torture.true_cloud import TrueCloud


class Terms(MemoryTerms):
    """The truth about the lease."""

    def term(self, name: str) -> Term | None:
        """As it was claimed last."""
        return self._terms.get(name)


class TorturedService(Protocol):
    """One service as it is."""

    name: str
    resolved: ResolvedService  # at today's prices
    repriced: Repriced | None  # its prices, where they have moved
    cloud: TrueCloud
    store: MemoryStore
    release: str  # what was deployed last; "": releases have no names
    bad: dict[str, str]  # releases that are, with what is wrong with them
    good: str  # the last one that is not

    def rps_in(self, minute: int) -> float:
        """The load of a minute of the world's time."""

    def rps(self) -> float:
        """The load now."""

    def answers(self) -> RecentAnswers:
        """Since the beginning."""

    def recent(self) -> RecentAnswers:
        """The last thousand or so."""

    def release_counts(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        """Since the beginning, by release and offer."""


class TorturedClock(Protocol):
    """The clock of a service in a process."""

    def now_s(self) -> float:
        """Never goes back while the process leads."""


class TorturedRuntime(Protocol):
    """What looks after one service in a process."""

    paid_usd: float  # by the events, when the newest view was made

    def view(self) -> ServiceView:
        """What is shown of the service."""


class TorturedProcess(Protocol):
    """One controller of several."""

    index: int
    dead: bool
    paused: int  # calls within which it stands still
    controllers: dict[str, Controller]  # of the last start, by service

    @property
    def clocks(self) -> Mapping[str, TorturedClock]:
        """By service; they may differ from the world's time."""

    @property
    def runtimes(self) -> Mapping[str, TorturedRuntime]:
        """By service."""

    def wall_s(self) -> float:
        """What its machine's clock shows."""

    def in_term(self) -> bool:
        """Does the term last that it was told of?"""

    def die(self, for_s: float) -> None:
        """Raises what ends whatever it is doing."""


class Onlooker(Protocol):
    """What is told of every command."""

    def asks(self, truth: TorturedService, fence: int, offers: Sequence[str], token: str) -> None:
        """A launch of one of these offers is about to be sent."""

    def refused(self, truth: TorturedService, fence: int, offers: Sequence[str], token: str) -> None:
        """None of them was to be had."""

    def asked(self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any) -> None:
        """Right before it is sent."""

    def carried_out(self, truth: TorturedService, verb: str, what: Any) -> None:
        """The cloud has done it."""

    def begins(self, truth: TorturedService) -> None:
        """A controller begins to lead."""

    def unanswered(self, truth: TorturedService, token: str) -> None:
        """Whether it was made is not known."""

    def done(
        self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any, started: set[int]
    ) -> None:
        """The controller has its answer; `started` are the numbers of new instances."""

    def wrote_late(self, truth: TorturedService, process: TorturedProcess, fence: int) -> None:
        """A store without a fence took what the holder of an older term wrote."""

    def unforeseen(self, service: str, error: Exception) -> None:
        """A round of this service ended in an error that was not foreseen."""


class TorturedWorld(Protocol):
    """What goes on, and what goes wrong."""

    now_s: float
    schedule: Schedule
    spent: set[int]  # faults that happen once, and have
    terms: Terms
    strikes: bool  # may a call be slow, or its process die or stand still in it?
    hindered: bool  # one that keeps controllers from acting?
    clocks: bool  # is the clock of one set?
    spoiled: bool  # does one keep what was bought from serving?

    @property
    def kinds(self) -> Mapping[str, Any]:
        """Of the faults that are active."""

    @property
    def services(self) -> Mapping[str, TorturedService]:
        """By name."""

    @property
    def processes(self) -> Sequence[TorturedProcess]:
        """The dead ones, too."""

    @property
    def watch(self) -> Onlooker:
        """Looks on."""

    def active(self, kind: str, index: int | None = None) -> Sequence[tuple[Fault, np.random.Generator]]:
        """The faults of that kind now that hit this controller, each with its draws."""

    def rests(self, truth: Any, controller: Controller, index: int, *, minute: bool = False) -> bool:
        """Would a round of this service by the process `index`, or the part of a full one that comes first, find what
        the last one found?"""

    def meets(self, kind: str, truth: Any = None) -> None:
        """A fault has met a service, or all of them."""

    def market_met(self, truth: Any) -> None:
        """A launch has met what the market refuses."""

    def tell(self, text: str) -> None:
        """A line of the story."""

    def leader(self) -> TorturedProcess | None:
        """The controller whose term lasts, and which is able to act."""

    def wait(self, process: Any, for_s: float) -> None:
        """A call of the process takes so long: everything else goes on meanwhile."""

    def held_up(self, process: TorturedProcess) -> bool:
        """Would a call of the process be over, but for one that began within it?"""

    def pause(self, process: Any, for_s: float) -> None:
        """The process stands still for so long."""
