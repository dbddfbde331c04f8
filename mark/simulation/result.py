"""The results of a simulated run, ready for tables, reports and JSON (schema 1 of the stable interface)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mark.domain.arrays import FloatArray
from mark.domain.bill import Bill
from mark.domain.extras import module_of
from mark.domain.function_offer import FunctionCalls
from mark.domain.load_unit import REQUESTS, LoadUnit
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.planning.policies.alternatives import Weighed
from mark.simulation.world.simulated_cloud import FleetResult

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class TraceInfo:
    name: str
    requests: int
    duration_s: float
    read: str = ""  # the range of the trace that was read, in words


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by the kind of their answer. `total` is always the sum of instances, functions and rejected."""

    instances: int
    functions: int
    rejected: int
    late: int = 0  # answered after RT_max; not part of the stable JSON

    @property
    def total(self) -> int:
        return self.instances + self.functions + self.rejected


@dataclass(frozen=True, slots=True)
class SloResult:
    """The attainment: the share of all requests answered within RT_max; None without requests."""

    attainment: float | None
    worst_minute_attainment: float | None
    minutes_below_target: int


@dataclass(frozen=True, slots=True)
class PromiseRun:
    """The shares in time by the promise's windows, and the confidence of the plans.

    `windows` are None without requests; the run may end within the last window. The confidence is None for policies
    that state none.
    """

    windows: tuple[float | None, ...]
    confidence_at_start: float | None = None
    least_confidence: float | None = None
    least_at_s: float | None = None

    def as_json(self, slo: Slo) -> dict[str, Any]:
        return {
            "asked_confidence": slo.confidence,
            "window_s": slo.window_s,
            "confidence_at_start": self.confidence_at_start,
            "least_confidence": self.least_confidence,
            "least_at_s": self.least_at_s,
            "windows": list(self.windows),
            "windows_kept": self.kept(slo),
        }

    def kept(self, slo: Slo) -> int:
        """Return the number of windows that kept the promise, including those without requests."""
        return sum(share is None or share >= slo.attainment for share in self.windows)


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds over answered requests; None without answers. Percentiles are exact to 0.1 %."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p98: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """Wall time of a run, with its parts in kernel, planner and predictor, which do not overlap."""

    wall_s: float
    kernel_s: float
    planner_s: float
    predictor_s: float
    requests_per_wall_s: float
    peak_rss_mb: float


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the journal."""

    at_s: float
    verb: str
    text: str  # the printed command with its reason
    outcome: str  # "done", or the reason why not
    usd_per_hour: float
    weighed: int | None = None  # index in the result's `weighed` of its plan's alternatives


@dataclass(frozen=True, slots=True)
class CrashCounts:
    """Instances that crashed, and requests that these had not answered."""

    crashes: int
    lost: int  # a request counts each time
    retried: int  # lost requests that were sent to another instance


@dataclass(frozen=True, slots=True)
class HedgeCounts:
    """Second copies of requests that took long."""

    hedges: int  # sent
    hedges_won: int  # hedges that answered first
    wasted_s: float  # worker-seconds of instances for copies that did not answer first


@dataclass(frozen=True, slots=True)
class Timeline:
    """One row a minute, `t_s` seconds after the start of the evaluated part; all arrays have its length."""

    t_s: FloatArray
    arrival_rps: FloatArray
    capacity_rps: FloatArray  # of ready instances
    overflow_rps: FloatArray  # answered by functions
    attainment: FloatArray  # NaN in minutes without requests
    instances: dict[str, FloatArray]  # ready instances by offer
    spent_usd: dict[str, FloatArray]  # cumulative, by market name as in Bill


@dataclass(frozen=True, slots=True)
class SimulationResult:
    service: str
    policy: str
    predictor: str  # the requested one
    seed: int
    trace: TraceInfo
    slo: Slo
    requests: Requests
    slo_result: SloResult
    latency_ms: Latency
    bill: Bill
    functions: FunctionCalls
    fleet: FleetResult
    speed: Speed
    timeline: Timeline
    ccdf_ms: FloatArray  # latencies, ascending
    ccdf_share: FloatArray  # share of answered requests slower than that
    decisions: tuple[Decision, ...]
    bound_usd: float | None = None  # a share of (1 - SL_min) of the requests may be late
    bound_own_usd: float | None = None  # the allowance for late requests is this run's number
    bound_fluid_usd: float | None = None  # as `bound_usd`, with divisible instances
    bound_disks_usd: float = 0.0  # the part of `bound_usd` for disks
    controller_usd: float = 0.0  # the part of `bill.other` for mark's controller
    regret: float | None = None
    regret_fluid: float | None = None  # bill over `bound_fluid_usd`
    regret_reason: str = ""  # why it is missing
    bound_note: str = ""  # such as the bin width
    notes: tuple[str, ...] = ()  # gaps, skipped types, fallbacks, costs that the bill leaves out
    assumed_share: float = 0.0  # share of the bill that rests on assumed profile rows
    derived_share: float = 0.0  # share of the bill that rests on derived profile rows
    priced: str = ""  # the catalogue, its region and the day of its prices
    predictors: dict[str, int] = field(default_factory=dict)  # number of plans by their predictor
    crashed: CrashCounts | None = None  # None: in a world without crashes
    hedged: HedgeCounts | None = None  # None: no second copies are sent
    promise: PromiseRun = field(default_factory=lambda: PromiseRun(()))
    weighed: tuple[Weighed, ...] = ()  # of plans that changed the fleet, if requested by `explain`
    extra: dict[str, Any] = field(default_factory=dict)
    unit: LoadUnit = REQUESTS  # of the service's load; every other field counts requests

    @property
    def kept(self) -> bool | None:
        """Whether the promise was kept; None without requests."""
        attainment = self.slo_result.attainment
        return None if attainment is None else attainment >= self.slo.attainment

    @property
    def month_usd(self) -> float | None:
        """The bill of a month of 730 hours at this rate; None for a run without a duration."""
        hours = self.trace.duration_s / HOUR_S
        return self.bill.total * 730.0 / hours if hours > 0.0 else None

    @property
    def usd_per_million(self) -> float | None:
        """The dollars of a million requests, or of a million of the service's unit; None without requests."""
        return self.bill.total / (self.requests.total * self.unit.size) * 1e6 if self.requests.total else None

    def frame(self) -> pd.DataFrame:
        """Return the timeline as a table, one row a minute.

        Its columns are `arrivals`, `capacity`, `overflow` (requests/s), `in_time` (a share), `instances OFFER`, and
        `usd MARKET`, the total up to then.
        """
        # the import takes a third of a second, which no other command should spend
        pandas = module_of("pandas", "frame()")
        line = self.timeline
        columns = {
            "arrivals": line.arrival_rps,
            "capacity": line.capacity_rps,
            "overflow": line.overflow_rps,
            "in_time": line.attainment,
            **{f"instances {offer}": counts for offer, counts in line.instances.items()},
            **{f"usd {market}": spent for market, spent in line.spent_usd.items()},
        }
        frame: pd.DataFrame = pandas.DataFrame(columns, index=pandas.Index(line.t_s, name="t_s"))
        return frame

    def as_json(self) -> dict[str, Any]:
        """Return the stable object that `--json` writes; undefined numbers are None."""
        requests = {"total": self.requests.total} | {k: v for k, v in asdict(self.requests).items() if k != "late"}
        counts = [asdict(one) for one in (self.crashed, self.hedged) if one is not None]
        resilience = {key: value for one in counts for key, value in one.items()}
        return (
            {
                "schema": 1,
                "service": self.service,
                "policy": self.policy,
                "predictor": self.predictor,
                "predictors": self.predictors,
                "priced": self.priced,
                "seed": self.seed,
                "trace": asdict(self.trace),
                "requests": requests,
                "slo": {"rt_max_ms": self.slo.rt_max_s * 1e3, "target": self.slo.attainment, **asdict(self.slo_result)},
                "promise": self.promise.as_json(self.slo),
                "latency_ms": asdict(self.latency_ms),
                "bill_usd": self.bill.as_json(),
                "functions": {**asdict(self.functions), "cold_share": self.functions.cold_share},
                "bound_usd": self.bound_usd,
                "bound_own_usd": self.bound_own_usd,
                "bound_fluid_usd": self.bound_fluid_usd,
                "regret": self.regret,
                "regret_fluid": self.regret_fluid,
                "fleet": asdict(self.fleet),
                "speed": asdict(self.speed),
                "regret_reason": self.regret_reason,
                "notes": list(self.notes),
            }
            | ({"resilience": resilience} if resilience else {})
            | self._in_units()
        )

    def _in_units(self) -> dict[str, Any]:
        """Return the load and its price in the service's unit; nothing for requests."""
        if self.unit.is_requests:
            return {}
        total = self.requests.total * self.unit.size
        return {"unit": {**asdict(self.unit), "total": total, "usd_per_million": self.usd_per_million}}
