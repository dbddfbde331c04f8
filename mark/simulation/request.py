"""The options of `mark simulate`, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mark.domain.slo import Slo
from mark.traffic.traces.bad_lines import DEFAULT, BadLines
from mark.traffic.traces.table_files import RECOGNISED, TableColumns


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A world with different inputs: all numbers are changed before anything is planned or simulated."""

    capacity: float = 1.0  # of every instance type: 0.85 makes service times 1 / 0.85 as long
    boot_add_s: float = 0.0
    certain_boots: bool = False  # every boot takes its mean
    function_latency: float = 1.0
    interruptions: float = 1.0


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The names and numbers of the command line, before anything is looked up."""

    trace: str
    service: str
    policy: str = "mark"
    predictor: str | None = None  # None: the policy's own
    catalog: str | None = None
    profile: str | None = None
    tail: float | None = None  # p99 over mean of profile rows without a p99; None: the service file's
    markets: tuple[str, ...] | None = None
    slo: Slo | None = None  # None: the service file's
    scale: float = 1.0
    start_s: float = 0.0
    duration_s: float | None = None
    train_s: float | None = None
    gaps: str = "bridge"
    seed: int = 0
    forecast_seed: int | None = None  # of the paths that are drawn for a forecast; None: `seed`
    spot_traces: tuple[str, ...] = ()
    cold_start: bool = False
    faults: str | None = None  # a file with `[faults]`; None: the service file's
    hedge_after_ms: float | None = None  # None: the service file's
    spot_first_hour_free: bool = False
    log_filter: tuple[str, str] | None = None
    columns: TableColumns = RECOGNISED  # of a trace that is a table
    skip_bad_lines: BadLines = DEFAULT
    sensitivity: Sensitivity = Sensitivity()
    with_bound: bool = True
    explain: bool = False  # keep the alternatives of every decision
    foresight: bool = False  # perfect forecasts, whatever `predictor` says
    progress: Callable[[float], None] | None = None
