"""The input of one decision: all observations for it, as a frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mark.control.agenda import AgendaItem
from mark.control.coming_calls import ComingCalls
from mark.control.ports import RecentAnswers, ReleaseCounts, Result
from mark.domain.arrays import FloatArray
from mark.domain.command import Command
from mark.domain.fleet import Fleet
from mark.domain.load import Forecast


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command; for a launch, of one attempt with one offer."""

    command: Command
    text: str  # the line of the journal
    result: Result
    refused: bool = False  # the market had fewer instances than requested
    started: tuple[int, ...] = ()  # the numbers of launched instances
    planned: str = ""  # the offer that they count for
    put_off: tuple[str, ...] = ()  # offers that the refusal makes unavailable for a while
    whole_release: bool = False  # launches of the release are refused for every offer
    gone: bool = False  # a part that the release boots from is missing

    @property
    def done(self) -> bool:
        return self.result is Result.DONE


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The observations for one decision.

    `fleet`, `outcomes`, `unsure` and `unsure_standbys` are read for every decision, all others once per round. The
    caller makes the forecast, because a predictor is heavy and keeps a state.
    """

    now_s: float
    fleet: Fleet
    last_minute_rps: float | None  # of arrivals or `coming`, whichever is higher
    windows_rps: FloatArray
    recent: RecentAnswers
    answers: RecentAnswers
    utilization: Mapping[str, float]
    forecast: Forecast | None
    gap: bool  # whether observations of the load are missing
    unsure: Mapping[str, int]  # planned offer -> instances of launches with an unknown outcome
    unsure_standbys: Mapping[str, int]  # the same for launches of standbys
    outcomes: tuple[Outcome, ...] = ()  # of the last commands of this round
    agenda: tuple[AgendaItem, ...] = ()  # at the beginning of a round; later the rest of it is in the state
    wanted_release: str = ""  # the release that is to serve; "" for one without a name
    releases: Mapping[str, Mapping[str, ReleaseCounts]] = field(default_factory=dict)  # release -> offer -> counts
    coming: ComingCalls | None = None  # the calls that the stages before let through to this stage of a pipeline
