"""A service: a model behind an SLO, and the offers that may be bought for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from mark.domain.errors import BadInput
from mark.domain.faults import NO_FAULTS, Faults
from mark.domain.function_offer import FunctionOffer
from mark.domain.load_unit import REQUESTS, LoadUnit
from mark.domain.offer import Catalog, Market, Offer
from mark.domain.profile import Candidate, Profile
from mark.domain.scaler import CronWindow, ScalerSettings
from mark.domain.slo import Slo


@dataclass(frozen=True, slots=True)
class AsIsPolicy:
    """The user's current autoscaler (`[policy]` of the service file), to be simulated as it is."""

    kind: str  # asg | hpa | keda | knative | ray | cron | sagemaker | fixed
    instance: str
    # asg, hpa: utilisation 0..1; keda, knative with rps: requests/s; knative, ray: requests in flight; sagemaker:
    # requests per instance and minute
    target: float | None = None
    min_instances: int = 1
    max_instances: int = 100
    scale_out_cooldown_s: float = 300.0
    scale_in_cooldown_s: float = 300.0
    settings: ScalerSettings | None = None  # hpa, keda, knative, ray, cron; None: their documented defaults
    windows: tuple[CronWindow, ...] = ()  # keda, cron
    begins: datetime | None = None  # when the evaluated part begins, for these windows; None: the trace may know it


@dataclass(frozen=True, slots=True)
class Commitment:
    """Instances of a type that are paid all the time, running or not: reserved instances, a savings plan.

    `usd_per_hour` is the price of one; None: the list price less `mark.domain.catalog.commitment`'s discount for one
    year.
    """

    instance: str
    count: int
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a service's model from code: its reference, and its share of the requests (0 to 1)."""

    name: str
    model: str
    weight: float


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Values that the MArk paper leaves open in Algorithm 1 (section 4.3), for `mark-paper` and `mark-optimal`."""

    tau_s: float = 300.0  # the boot delay it plans with: the first minute whose demand it covers
    horizon_steps: int = 60  # of a minute each
    cool_down_s: float = 360.0  # an instance that no plan wanted for this long is ended
    launch_overhead_s: float = 180.0  # O_i: this long an instance is paid before it serves


@dataclass(frozen=True, slots=True)
class SloMonitorSettings:
    """Settings of the SLO monitor (MArk, section 4.4).

    It launches L instances of type T when too few of the last M requests were in time.
    """

    window: int = 1000  # M
    count: int = 1  # L
    instance: str | None = None  # T; None: c5.large if it may be bought, else the cheapest type
    pause_s: float = 300.0  # between two launches


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """The replacement of a release by a new one."""

    canary_share: float = 0.1  # of the ready instances, at least one, that try it first; 0: none
    canary_s: float = 300.0  # length of their trial
    surge_share: float = 0.25  # of the plan that may be launched in addition during the roll-out


@dataclass(frozen=True, slots=True)
class FeedbackSettings:
    """Storage and limits of feedback on answers (`[feedback]` of the service file)."""

    log: str  # the folder
    horizon_s: float = 86_400.0  # for which an answer takes feedback
    body_bytes: int = 4096  # of an input and of an output; a longer one is kept as a digest
    memory_mb: int = 64  # of 1e6 bytes: answers that may still take feedback
    log_mb: int = 256  # of 1e6 bytes: each of the three kinds of files
    store: str = ""  # a folder or s3://BUCKET/PREFIX for learned facts; "": they are not kept
    durability: str = "peers"  # or "store": where a learned fact is kept before its client is answered

    @property
    def disk_bytes(self) -> int:
        """The most disk space of the log."""
        return 3 * self.log_mb * 1_000_000


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Answers that are kept in memory for repeated requests (`[cache]` of the service file)."""

    memory_mb: int = 64  # of 1e6 bytes: all answers of a process
    ttl_s: float | None = None  # how long an answer is reused; None: as long as it is in memory


@dataclass(frozen=True, slots=True)
class LayerSection:
    """A section of a service file that an installed package reads (`mark.config.layers`), with the file's name."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)
    source: str


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The service file, read and checked, before names are looked up."""

    name: str
    model: str
    slo: Slo
    catalog: str
    markets: tuple[Market, ...]
    instances: tuple[str, ...]
    max_instances: int
    max_usd_per_hour: float
    functions: tuple[str, ...]  # lambda:MEMORY_MB, of which one is chosen; lambda:* is every size with a profile
    max_function_usd_per_hour: float = math.inf  # limit on the price of functions; calls beyond are throttled
    late: str = "function"  # or "refuse": the fate of a request that would be late everywhere
    batching: str = "work-conserving"  # or "paper"
    routing: str = "alb"  # or "least-completion", "power-of-two-choices", "fewest-in-flight"
    hedge_after_s: float = math.inf  # then a second copy of a request goes to another instance; infinite: never
    request_kb: float = 0.0
    response_kb: float = 0.0
    profile_file: str | None = None
    tail: float | None = None  # p99 over mean of profile rows without a p99; None: such rows are deterministic
    unit: LoadUnit = REQUESTS  # of traces and of the profile
    as_is: AsIsPolicy | None = None
    committed: tuple[Commitment, ...] = ()
    min_instances: int = 1  # 0: functions alone may answer
    warm_pool: int = 0  # most on-demand instances that are kept stopped, to be resumed
    control: ControlSettings = ControlSettings()
    slo_monitor: SloMonitorSettings = SloMonitorSettings()
    rollout: RolloutSettings = RolloutSettings()
    faults: Faults = NO_FAULTS  # in simulator and testbed
    feedback: FeedbackSettings | None = None  # None: feedback is not taken
    cache: CacheSettings | None = None  # None: answers are not kept
    layers: tuple[LayerSection, ...] = ()  # before the model
    versions: tuple[Version, ...] = ()  # served side by side instead of `model`, whose profile they share
    files: tuple[str, ...] = ()  # patterns of the files that are sent with it; empty: the files that its models open
    source: str = ""  # the file it was read from
    stage: str = ""  # the pipeline stage in that file that this service is; "": none
    together: tuple[str, ...] = ()  # the stages of that pipeline that are bought together as this service
    whole: tuple[str, ...] = ()  # all stages of that pipeline, if each instance of this service serves the whole file
    limits_unsaid: tuple[str, ...] = ()  # limits left at defaults, of max_instances and both max_usd_per_hour

    def wants(self, offer: Offer) -> bool:
        """Return whether the offer is in the service's markets, matched by its instance patterns and not retired."""
        return (
            offer.market in self.markets
            and not offer.retired
            and any(fnmatchcase(offer.instance, pattern) for pattern in self.instances)
        )


MOST_TAIL = 14.96  # a lognormal's p99 is at most exp(2.3263^2 / 2) = 14.968 times its mean


def hedge_after_s(hedge_after_ms: float, routing: str, where: str) -> float:
    """Return the seconds after which a second copy of a request is sent.

    Raises BadInput at `where` if none can be sent.
    """
    if not hedge_after_ms > 0.0:
        raise BadInput("must be above zero", where, hedge_after_ms)
    if routing == "alb":
        what = "an ALB sends no second copies: another `routing` does, and parity models work behind it"
        raise BadInput(f"{what} ([insurance] parity)", where, hedge_after_ms)
    return hedge_after_ms / 1e3


def checked_tail(tail: float, where: str) -> float:
    """Return the ratio of p99 to mean. Raises BadInput at `where` if no lognormal has it."""
    if not 1.0 < tail <= MOST_TAIL:
        raise BadInput(f"p99 over mean must be above 1 and at most {MOST_TAIL:g}", where, tail)
    return tail


@dataclass(frozen=True, slots=True)
class FunctionUse:
    """The overflow function of a service: its offer, and the model's times on it."""

    offer: FunctionOffer
    warm_s: float
    cold_s: float  # extra seconds of a cold start, before the warm time
    basis: str

    @property
    def usd_per_request(self) -> float:
        """The price of a warm invocation."""
        return self.offer.usd_per_request(self.warm_s)

    def environments_for(self, usd_per_hour: float) -> float:
        """Return how many environments may work at once for that money: whole, at least 1; infinite without a limit.

        Each answers one request after the other. The number is rounded up, so that a limit never switches functions
        off.
        """
        if math.isinf(usd_per_hour):
            return math.inf
        # 1e-9: the price of exactly three environments must not buy four through binary rounding.
        return max(1, math.ceil(usd_per_hour / (3600.0 * self.usd_per_request / self.warm_s) - 1e-9))


@dataclass(frozen=True, slots=True)
class ResolvedService:
    """A service with all names looked up: the offers it may buy and the model's candidate on each.

    `candidates[i]` belongs to `offers[i]`. `skipped` names offers without a profile or too slow, with the reason.
    `committed` counts, by name of an on-demand offer, the instances that run at no extra cost, because all of them
    together cost `committed_usd_per_hour` anyway. It may name offers that are not among `offers`.
    """

    service: ServiceConfig
    catalog: Catalog
    offers: tuple[Offer, ...]
    candidates: tuple[Candidate, ...]
    function: FunctionUse | None
    skipped: tuple[tuple[str, str], ...] = ()
    profiles: dict[str, Profile] = field(default_factory=dict)  # every profile of the model, by instance
    committed: Mapping[str, int] = field(default_factory=dict)
    committed_usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        if len(self.offers) != len(self.candidates):
            raise BadInput("offers and candidates differ in number", self.service.name)

    @property
    def slo(self) -> Slo:
        return self.service.slo

    @property
    def functions_in_time(self) -> bool:
        """Whether functions answer within RT_max, so that an overflow costs money without being a miss."""
        return self.function is not None and self.function.warm_s <= self.slo.rt_max_s

    @property
    def in_time_usd(self) -> float:
        """The price of a request that a warm function answers in time; infinite without such a function."""
        return self.function.usd_per_request if self.function is not None and self.functions_in_time else math.inf

    @property
    def tail_note(self) -> str:
        """A remark about the number of types that use `[service] tail`; "" if it is 0."""
        rows = {found.profile.instance: found.profile.rows for found in self.candidates}
        types = sum(any(row.tail_derived for row in of_type) for of_type in rows.values())
        whose = "the tail of 1 type is" if types == 1 else f"tails of {types} types are"
        return f"{whose} derived: p99 = {self.service.tail:g} x mean" if types else ""

    def index(self, offer_name: str) -> int:
        """Return the index of an offer by name. Raises KeyError."""
        for i, offer in enumerate(self.offers):
            if offer.name == offer_name:
                return i
        raise KeyError(offer_name)
