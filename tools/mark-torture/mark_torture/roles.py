"""Protocols by which the parts of a tortured world know each other: world, services and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from mark.cloud.billing.moving_prices import Repriced
from mark.control.controller import Controller
from mark.control.lease import MemoryTerms, Term
from mark.control.manager import ControllerManager
from mark.control.memory_store import MemoryStore
from mark.control.ports import RecentAnswers, ReleaseCounts
from mark.domain.service import ResolvedService
from mark_torture.drawn_faults import Fault, Schedule
from mark_torture.true_cloud import TrueCloud


class Terms(MemoryTerms):
    """The true state of the lease."""

    def term(self, name: str) -> Term | None:
        """Return the term that was claimed last."""
        return self._terms.get(name)


class TorturedService(Protocol):
    """The true state of one service."""

    name: str
    resolved: ResolvedService  # with current prices
    repriced: Repriced | None  # the newest prices, if they have changed
    cloud: TrueCloud
    store: MemoryStore
    release: str  # the newest deployed release; "" if releases have no names
    bad: dict[str, str]  # bad releases, with their flaws
    good: str  # the newest good release

    def rps_in(self, minute: int) -> float:
        """Return the load of a minute of the world's time."""

    def rps(self) -> float:
        """Return the current load."""

    def answers(self) -> RecentAnswers:
        """Return the answers since the beginning."""

    def recent(self) -> RecentAnswers:
        """Return the last thousand answers or so."""

    def release_counts(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        """Return the requests since the beginning, by release and offer."""


class TorturedClock(Protocol):
    """The clock of one service in a process."""

    def now_s(self) -> float:
        """Return the time; it never goes back while the process leads."""


class TorturedRuntime(Protocol):
    """The runtime of one service in a process."""

    paid_usd: float  # paid by the events at the time of the newest view


class TorturedProcess(Protocol):
    """One of several controller processes."""

    index: int
    dead: bool
    paused: int  # calls inside which the process is paused
    controllers: dict[str, Controller]  # of the newest start, by service
    manager: ControllerManager

    @property
    def clocks(self) -> Mapping[str, TorturedClock]:
        """The clocks by service; they may differ from the world's time."""

    @property
    def runtimes(self) -> Mapping[str, TorturedRuntime]:
        """The runtimes by service."""

    def wall_s(self) -> float:
        """Return the time that the machine's clock shows."""

    def in_term(self) -> bool:
        """Return whether the term that the process knows still lasts."""

    def die(self, for_s: float) -> None:
        """End the process. Raises an exception that ends the current call."""


class Onlooker(Protocol):
    """An observer that is told of every command."""

    def asks(self, truth: TorturedService, fence: int, offers: Sequence[str], token: str) -> None:
        """Note that a launch of one of these offers is about to be sent."""

    def refused(self, truth: TorturedService, fence: int, offers: Sequence[str], token: str) -> None:
        """Note that no offer had capacity."""

    def asked(self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any) -> None:
        """Note a command right before it is sent."""

    def carried_out(self, truth: TorturedService, verb: str, what: Any) -> None:
        """Note a command right before the cloud carries it out."""

    def begins(self, truth: TorturedService) -> None:
        """Note that a controller begins to lead."""

    def unanswered(self, truth: TorturedService, token: str) -> None:
        """Note a launch with an unknown result."""

    def done(
        self, truth: TorturedService, process: TorturedProcess, fence: int, verb: str, what: Any, started: set[int]
    ) -> None:
        """Note that the controller has its answer; `started` are the numbers of new instances."""

    def wrote_late(self, truth: TorturedService, process: TorturedProcess, fence: int) -> None:
        """Note that a store without fencing accepted a write from an older term."""

    def unforeseen(self, service: str, error: Exception) -> None:
        """Note that a round of this service ended in an unexpected error."""


class TorturedWorld(Protocol):
    """The world and the faults in it."""

    now_s: float
    schedule: Schedule
    spent: set[int]  # numbers of one-time faults that have happened
    terms: Terms
    strikes: bool  # whether a call may be slow, or its process die or pause in it
    hindered: bool  # whether an active fault keeps controllers from acting
    clocks: bool  # whether an active fault sets a clock
    spoiled: bool  # whether an active fault keeps new instances from serving

    @property
    def kinds(self) -> Mapping[str, Any]:
        """The active faults, by kind."""

    @property
    def services(self) -> Mapping[str, TorturedService]:
        """The services, by name."""

    @property
    def processes(self) -> Sequence[TorturedProcess]:
        """The processes, including dead ones."""

    @property
    def watch(self) -> Onlooker:
        """The observer of the commands."""

    def active(self, kind: str, index: int | None = None) -> Sequence[tuple[Fault, np.random.Generator]]:
        """Return the active faults of a kind that hit this controller, each with its draws."""

    def rests(self, truth: Any, controller: Controller, index: int, *, minute: bool = False) -> bool:
        """Return whether a round of this service by the process `index` would repeat the last one.

        With `minute`, the answer is about the extra work at the beginning of a full minute's round.
        """

    def meets(self, kind: str, truth: Any = None) -> None:
        """Count that a fault acted on a service, or on all services."""

    def market_met(self, truth: Any) -> None:
        """Count that a launch met the market's refusals."""

    def tell(self, text: str) -> None:
        """Add a line to the story."""

    def leader(self) -> TorturedProcess | None:
        """Return the controller whose term lasts and that can act."""

    def wait(self, process: Any, for_s: float) -> None:
        """Let a call of the process take `for_s` seconds, in which the world continues."""

    def held_up(self, process: TorturedProcess) -> bool:
        """Return whether a call of the process is overdue only because another call began inside it."""

    def pause(self, process: Any, for_s: float) -> None:
        """Pause the process for `for_s` seconds."""
