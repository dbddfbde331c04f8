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
    """The outcome of a command; for a launch, of one attempt with one offer.

    `text` is the line of the journal. `refused`: the market had fewer instances than requested, and `put_off` are the
    offers that are unavailable for a while. `whole_release`: launches of its release are refused for every offer, with
    `gone` because a part that it boots from is missing. `started` are the numbers of launched instances, and `planned`
    is the offer that they count for.
    """

    command: Command
    text: str
    result: Result
    refused: bool = False
    started: tuple[int, ...] = ()
    planned: str = ""
    put_off: tuple[str, ...] = ()
    whole_release: bool = False
    gone: bool = False

    @property
    def done(self) -> bool:
        return self.result is Result.DONE


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The observations for one decision: `fleet`, `outcomes` and `unsure` are read for it, all others once per round.

    The forecast is an input, because models are heavy and keep a state, so the caller that builds the snapshot makes
    it. `gap`: observations of the load are missing. `outcomes` are those of the last commands of this round.
    `wanted_release` is to serve, "" for one without a name; `releases` has each release's counts by offer. `unsure` and
    `unsure_standbys` count the instances of launches with an unknown outcome, by planned offer. `agenda` is set at the
    beginning of a round; later the rest of it is in the state. `coming` are the calls that a stage of a pipeline will
    get, if they exceed the arrivals; `last_minute_rps` includes them.
    """

    now_s: float
    fleet: Fleet
    last_minute_rps: float | None
    windows_rps: FloatArray
    recent: RecentAnswers
    answers: RecentAnswers
    utilization: Mapping[str, float]
    forecast: Forecast | None
    gap: bool
    unsure: Mapping[str, int]
    unsure_standbys: Mapping[str, int]
    outcomes: tuple[Outcome, ...] = ()
    agenda: tuple[AgendaItem, ...] = ()
    wanted_release: str = ""
    releases: Mapping[str, Mapping[str, ReleaseCounts]] = field(default_factory=dict)
    coming: ComingCalls | None = None
