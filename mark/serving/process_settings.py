"""The settings of one server process: what it serves, and where it listens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mark.domain.pipeline import Pipeline
from mark.domain.price_list import PriceList
from mark.domain.profile import Candidate
from mark.domain.rules.admission import FUNCTION, NEVER_S
from mark.domain.service import CacheSettings, FeedbackSettings
from mark.insurance.insurance_settings import InsuranceSettings
from mark.models.driver import PipelineDriver
from mark.models.versions import Versions
from mark.selection.policy import SelectionPolicy
from mark.selection.settings import SelectionSettings
from mark.serving import interruption_watch as notice
from mark.serving.backend.replica import AnswersLater
from mark.serving.conductor.remote_stage import StageAddress
from mark.serving.conductor.selected import CallPrices
from mark.serving.frontend.auth import Auth
from mark.serving.frontend.http import HttpLimits
from mark.serving.frontend.key_poll import KeyPoll
from mark.serving.frontend.tls import TlsFiles
from mark.serving.layers.layer import Layer
from mark.serving.learned.learner_port import Learner
from mark.serving.learned.peers import PeerAccess
from mark.serving.overflow.functions import FunctionClient
from mark.serving.personal.served import PersonalServing

_UNKNOWN = PriceList()


@dataclass(frozen=True, slots=True)
class PipelineServing:
    """The stages of a pipeline, in order, and the component that takes queries through them.

    That is a `graph`, a `driver`, a `selection` or an `insurance`. With an insurance the first stage is the model and
    the others are its parity models. Without any of them each stage is a separate model. A `graph` also names the head
    of `personal`. The head is not in `stages`, because it runs in the process that takes queries through the graph.

    `stages` has, by name, each stage as if it were served alone, with its part of the pipeline's RT_max as `rt_max_s`.
    Unless each stage is a separate model, a stage may instead be the address where it is served.
    """

    stages: Mapping[str, Serving | StageAddress]
    graph: Pipeline | None = None
    driver: PipelineDriver | None = None
    selection: SelectionServing | None = None
    insurance: InsuredServing | None = None
    personal: PersonalServing | None = None
    keeps_parts: bool = False  # stages leave later ones their parts of RT_max (`mark.domain.rules.stage_horizon`)

    @property
    def apart(self) -> bool:
        """Return whether each stage is a separate model."""
        return all(one is None for one in (self.graph, self.driver, self.selection, self.insurance))


@dataclass(frozen=True, slots=True)
class InsuredServing:
    """The parity models of an insured service.

    `capacity_rps` is the capacity of a parity model served in this process, None if unknown. This process serves the
    part `share` of all queries. `off` is the reason why the parity models cannot be used, or "".
    """

    settings: InsuranceSettings
    capacity_rps: float | None = None
    share: float = 1.0
    off: str = ""


@dataclass(frozen=True, slots=True)
class SelectionServing:
    """How candidates are selected. Tuples are by candidate, in the order of the stages.

    `keys` change with the candidates' models. `planned_usd` is a call's share of the machine's price, `usd_per_call`
    its additional cost. `own_policy` is a policy that does not come with mark.
    """

    settings: SelectionSettings
    keys: tuple[str, ...]
    planned_usd: tuple[float, ...]
    usd_per_call: tuple[float, ...]
    own_policy: SelectionPolicy | None = None

    def prices(self, told: Mapping[str, PriceList]) -> CallPrices:
        """Return the prices of calls. `told` has the controller's prices by stage, and the whole service's under "".

        The current price is the larger of the planned and the marginal price. Otherwise idle capacity would attract
        calls by its low marginal price, and they would keep it busy and paid. A stage without a price from the
        controller has `planned_usd`, times the factor by which a query now costs more than planned.
        """
        whole, factor = told.get("", _UNKNOWN), 1.0
        if whole.usd_per_request and whole.usd_per_planned_request:
            factor = max(1.0, whole.usd_per_request / whole.usd_per_planned_request)
        now, planned = [], []
        for key, own_usd, more_usd in zip(self.keys, self.planned_usd, self.usd_per_call, strict=True):
            said = told.get(key.partition("@")[0], _UNKNOWN)
            told_usd = said.usd_per_planned_request
            known_usd = factor * own_usd if told_usd is None else told_usd
            now.append(max(said.usd_per_request or 0.0, known_usd) + more_usd)
            planned.append((own_usd if told_usd is None else told_usd) + more_usd)
        return CallPrices(now, planned)


@dataclass(frozen=True, slots=True)
class Serving:
    """The settings of one served model or pipeline. Times are in seconds.

    `candidate` has the profile of this machine; without it service times are learned and the batch size adapts to
    RT_max (self-tuning). `candidates` has the profiles of versions that differ from it, by name. `function_s` is the
    service time of a warm function and counts only with `functions`. `late` is the destination of a request that would
    be late everywhere (`mark.domain.rules.admission`). A request that would be in time here with a lower probability
    than `least_in_time` goes to a function that would be in time. If the function would be late, `late_share` is the
    share of requests that may queue late here. A worker process is killed if a batch takes longer than `hang_s`, and
    replaced if it uses more than `worker_memory_bytes`. With a `pipeline` its stages have all these settings, and
    `versions` only names one version.
    """

    name: str
    versions: Versions
    search: Path
    rt_max_s: float
    candidate: Candidate | None = None
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    workers: int = 1
    threads: int | None = None
    functions: FunctionClient | None = None
    function_s: float = NEVER_S
    late: int = FUNCTION
    least_in_time: float = 0.0
    late_share: float = 0.0
    function_timeout_s: float = 30.0
    most_batch: int = 64
    max_queued: int = 10_000
    hang_s: float = 60.0
    worker_memory_bytes: float = math.inf
    drain_s: float = 30.0
    linger_s: float = 0.0
    loader: str = "mark.serving.worker.loaders:load"
    worker_socket: Path | None = None  # of the keeper that starts workers; None: they are children of this process
    pipeline: PipelineServing | None = None
    layers: Sequence[Layer] = ()  # before the model, the first one outermost
    feedback: FeedbackSettings | None = None  # None: no feedback is accepted
    cache: CacheSettings | None = None  # None: no answer is cached
    answers_later_s: AnswersLater | None = None  # None: no slow network is simulated
    learner: Callable[[], Learner] | None = None  # makes the learner of feedback
    peers: PeerAccess = field(default_factory=PeerAccess)  # other processes with the same learner


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """The addresses of the listeners, who may send requests, and which requests are logged.

    `keys` renews the keys of `auth`; `watch` reports interruptions.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    tls: TlsFiles | None = None
    auth: Auth | None = None
    keys: KeyPoll | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)
    watch: notice.MetadataService | None = None
    log_requests: bool = False
    trace_requests: bool = False
