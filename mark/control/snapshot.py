"""What one decision is made from: everything that was observed for it, as a frozen value."""

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
    """What came of a command; for a launch, of one attempt with one offer.

    `text` is the line of the journal. `refused`: there was less than was asked for, and `put_off` are the offers of
    which none is to be had for a while. `whole_release`: nothing else of its release could be launched either, `gone`
    because what that boots from is not there.
    `started` are the numbers of launched instances, and `planned` is the offer that they count for.
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
    """`fleet`, `outcomes` and `unsure` are of this decision, everything else is of its round.

    The forecast is an input: models are heavy and keep a state of their own, so forecasting is done by the shell that
    builds the snapshot. `gap`: nothing was observed. `outcomes` are those of the commands decided last in this round.
    `wanted_release` is to serve, "" where releases have no names; `releases` counts what each answered, by offer.
    `unsure` and `unsure_standbys` count instances by planned offer whose launch has an unknown outcome. `agenda` is
    that of a round that begins; else what is left of it is in the state. `coming` is what a stage of a pipeline will
    get where that is more than what arrives; `last_minute_rps` has it already.
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
