"""A pipeline as its file describes it: stages, fleet and sections, and the services that stand for its stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mark.config.fleet import FleetConfig
from mark.domain.errors import BadInput
from mark.domain.faults import NO_FAULTS, Faults
from mark.domain.offer import Market
from mark.domain.pipeline import Pipeline
from mark.domain.service import CacheSettings, FeedbackSettings, LayerSection, ServiceConfig, Version
from mark.domain.slo import Slo
from mark.insurance.insurance_settings import InsuranceSettings
from mark.personal.settings import PersonalSettings
from mark.selection.settings import SelectionSettings

CHOOSES = "auto"  # `[packs] together`
# For a pipeline whose stages have their own fleets: one conductor may fail, or its zone.
LEAST_CONDUCTORS, MOST_CONDUCTORS = 2, 100
NO_CONDUCTORS = 0  # then every instance serves the whole file


@dataclass(frozen=True, slots=True)
class StageConfig:
    """One model of a pipeline, and its purchase settings; `share` (0 to 1) of all queries visit it."""

    name: str
    model: str
    instances: tuple[str, ...]
    functions: tuple[str, ...]
    share: float = 1.0  # assumed independent of other stages' shares; 1 if a driver decides
    without_gpu: bool = False  # if an instance has GPUs, its workers leave them unused
    workers: int | None = None  # processes that serve it on one machine; None: the number in its profile
    rt_max_s: float | None = None  # its part of the pipeline's RT_max; None: the pipeline's is split if needed
    usd_per_call: float = 0.0  # beside the instances, as for an API that is paid by the call
    code: str = ""  # the reference served with the profile of `model`, as for a parity model; "": `model`
    markets: tuple[Market, ...] = ()  # of its instances; empty: the pipeline's
    attainment: float | None = None  # of its calls; None: an equal part of the pipeline's allowed misses

    @property
    def reference(self) -> str:
        """The model that is loaded."""
        return self.code or self.model


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """The pipeline file, read and checked, all by name without a look-up."""

    name: str
    slo: Slo  # of the whole, from a query to its answer
    stages: tuple[StageConfig, ...]  # in topological order, with a driver in the file's
    driver: str | None  # module:function; None: the file states the graph, or `selection` chooses
    pipeline: Pipeline | None  # the graph; None: to be traced from the driver
    fleet: FleetConfig  # of all stages together; `instances` and `functions` are defaults of each
    packs: str  # auto: stages may share an instance; separate: one stage an instance
    together: tuple[tuple[str, ...], ...]  # stages bought as one: each of their instances has workers of all of them
    profile_file: str | None
    lineage_file: str | None  # the stages that queries visit together, as `mark pipeline trace` writes them
    source: str  # the file it was read from
    feedback: FeedbackSettings | None = None  # on answers of the whole
    selection: SelectionSettings | None = None  # the stages are candidates; their graph is a chain for a cascade
    cache: CacheSettings | None = None  # before each stage
    personal: PersonalSettings | None = None  # heads behind one of the stages, or behind a table
    faults: Faults = NO_FAULTS  # of the instances of each stage, that simulator and testbed play
    layers: tuple[LayerSection, ...] = ()  # before the whole
    chooses_together: bool = False  # a simulation chooses the stages to buy together; until then `together` is empty
    files: tuple[str, ...] = ()  # patterns of the files that are sent with it; empty: the files that are opened
    conductors: int = LEAST_CONDUCTORS  # instances that take queries through the stages; 0: each serves the whole file
    insurance: InsuranceSettings | None = None  # parity models of `insured`, or second calls of all stages
    insured: ServiceConfig | None = None  # the service that parity models protect, without them

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its stages, in order."""
        return tuple(stage.name for stage in self.stages)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """All stages, grouped by joint purchase, mostly alone; in the order of each group's first stage."""
        of = {name: group for group in self.together for name in group}
        return tuple(dict.fromkeys(of.get(name, (name,)) for name in self.names))

    @property
    def whole(self) -> bool:
        """True if it is bought as one fleet in which each instance serves the whole file."""
        return self.conductors == NO_CONDUCTORS

    @property
    def learns(self) -> bool:
        """True if its servers learn from feedback, together."""
        return self.feedback is not None and (self.selection is not None or self.personal is not None)

    def check_visits(self) -> None:
        """Raise BadInput if the file does not tell which queries visit a stage, so that it cannot be served.

        A code without parity models can only be simulated.
        """
        if self.insurance is not None and (parity := self.insurance.parity) is not None and not parity.models:
            what = "has no parity models, so it can only be simulated: train them with `mark insure train`"
            raise BadInput(what, f"{self.source} [insurance] parity", f"{parity.code}, k = {parity.k}")
        for stage in self.stages:
            if self.driver is None and stage.share < 1.0:
                what = "nothing says which queries visit it: serving that takes a driver, [service] pipeline"
                raise BadInput(what, f"{self.source} [stage.{stage.name}] share", stage.share)

    def check_uninsured(self, what: str) -> None:
        """Raise BadInput for a service with parity models; `what` begins its text."""
        if self.insured is not None:
            where = f"{self.source} [insurance] parity"
            raise BadInput(f"{what} is not made of a service with parity models: leave the section out", where)

    def check_unhedged(self) -> None:
        """Raise BadInput if conductors send second calls, which the simulation of a pipeline lacks."""
        if self.insurance is not None and self.insurance.hedge_after_s < math.inf:
            what = "second calls of a pipeline's stages are not simulated: leave it out for a simulation"
            where = f"{self.source} [insurance] hedge_after_ms"
            raise BadInput(what, where, f"{self.insurance.hedge_after_s * 1e3:g}")

    def stage_services(self) -> list[ServiceConfig]:
        """Return each stage as a separate service. Raises BadInput if a stage does not state its part of RT_max."""
        services = []
        for stage in self.stages:
            if stage.rt_max_s is None:
                what = "must be said of each stage to be run by itself (`mark simulate` prints a split of RT_max)"
                raise BadInput(what, f"{self.source} [stage.{stage.name}] slo_ms")
            services.append(self.stage_service(stage, stage.rt_max_s))
        return services

    def bought_services(self) -> list[ServiceConfig]:
        """Return the services to buy instances for, in the order of `groups`: stages, or joined stages.

        Without conductors it is the whole file as one service. Raises BadInput if a stage does not state its part of
        RT_max or the file leaves the joint purchase open, and the errors of `whole_service`.
        """
        if self.whole:
            return [self.whole_service()]
        if self.chooses_together:
            what = "must be said as lists of stages to be run (`mark simulate` prints the ones that it chooses)"
            raise BadInput(what, f"{self.source} [packs] together", CHOOSES)
        alone = {service.stage: service for service in self.stage_services()}
        return [
            alone[group[0]] if len(group) == 1 else self.group_service([alone[name] for name in group])
            for group in self.groups
        ]

    def service_of_stages(self) -> dict[str, str]:
        """Return, by stage, the name of the service that is bought for it, in the order of the stages."""
        of = {name: self._service_name(group) for group in self.groups for name in group}
        return {name: of[name] for name in self.names}

    def _service_name(self, stages: Sequence[str]) -> str:
        return f"{self.name}-{'-'.join(stages)}"

    def stage_service(self, stage: StageConfig, rt_max_s: float) -> ServiceConfig:
        """Return a stage as a separate service, with this part of the pipeline's RT_max.

        Every stage may miss the same share. It begins with an equal part of the instances, dollars and warm pool of all
        groups (a group is the stages bought together); the stages that name functions share the functions' dollars
        equally. Late calls are refused, because their query cannot use them.
        """
        count, fleet = len(self.groups), self.fleet
        most = max(1, fleet.max_instances // count)
        return replace(
            self.service(stage),
            slo=Slo(rt_max_s, self.stage_attainment if stage.attainment is None else stage.attainment),
            late="refuse",
            stage=stage.name,
            min_instances=min(fleet.min_instances, most),
            max_instances=most,
            max_usd_per_hour=fleet.max_usd_per_hour / count,
            warm_pool=fleet.warm_pool // count,
            max_function_usd_per_hour=self.stage_function_usd_per_hour,
            limits_unsaid=fleet.limits_unsaid,
        )

    def group_service(self, stages: Sequence[ServiceConfig]) -> ServiceConfig:
        """Return stages that are bought together, each given as a service, as one service for the calls of one of them.

        Each such call comes with about one call of every other stage, so the service may miss the sum of the stages'
        shares. It has the limits of a stage; a call may take as long as the longest of their parts.
        """
        names = tuple(stage.stage for stage in stages)
        late = (1.0 - self.stage_attainment) * len(stages)
        return replace(
            stages[0],
            name=self._service_name(names),
            model="+".join(stage.model for stage in stages),
            slo=Slo(max(stage.slo.rt_max_s for stage in stages), 1.0 - late),
            instances=tuple(dict.fromkeys(pattern for stage in stages for pattern in stage.instances)),
            functions=(),
            stage="",
            together=names,
        )

    def whole_service(self) -> ServiceConfig:
        """Return the file as one service whose requests are its queries, each instance with all stages (`mark serve`).

        Raises BadInput for settings that only fleets of stages have.
        """
        self.check_visits()
        self._check_whole()
        patterns = tuple(dict.fromkeys(pattern for stage in self.stages for pattern in stage.instances))
        return ServiceConfig(
            name=self.name,
            model="+".join(stage.model for stage in self.stages),
            slo=self.slo,
            **replace(self.fleet, instances=patterns, functions=(), max_function_usd_per_hour=math.inf).settings(),
            late="refuse",
            profile_file=self.profile_file,
            feedback=self.feedback,
            faults=self.faults,
            layers=self.layers,
            files=self.files,
            source=self.source,
            whole=self.names,
        )

    def _check_whole(self) -> None:
        beside = f"leave it out, or give the stages fleets of their own: [conductors] count = {LEAST_CONDUCTORS}"
        for stage in self.stages:
            where = f"{self.source} [stage.{stage.name}]"
            if stage.functions:
                what = f"instances that serve the whole file have no functions yet: {beside}"
                raise BadInput(what, f"{where} function", ", ".join(stage.functions))
            if stage.workers is not None:
                what = f"instances that serve the whole file have as many workers of each stage as fit: {beside}"
                raise BadInput(what, f"{where} workers", stage.workers)
        if self.together or self.chooses_together:
            said = CHOOSES if self.chooses_together else list(map(list, self.together))
            what = f"instances that serve the whole file have all stages together: {beside}"
            raise BadInput(what, f"{self.source} [packs] together", said)
        if self.packs == "separate":
            what = f"instances that serve the whole file have all stages together: {beside}"
            raise BadInput(what, f"{self.source} [packs] allow", self.packs)

    @property
    def stage_function_usd_per_hour(self) -> float:
        """Most dollars an hour for a stage's function: stages that name functions share the limit equally."""
        return self.fleet.max_function_usd_per_hour / max(1, sum(bool(one.functions) for one in self.stages))

    @property
    def stage_attainment(self) -> float:
        """The attainment of each stage with which queries keep the promise even if no query misses on two stages."""
        return 1.0 - (1.0 - self.slo.attainment) / len(self.stages)

    def service(self, stage: StageConfig) -> ServiceConfig:
        """Return a stage as a separate service with all of the pipeline's time; commitments are left out."""
        fleet = self.fleet
        found = ServiceConfig(
            name=self._service_name((stage.name,)),
            model=stage.model,
            versions=(Version("1", stage.code, 1.0),) if stage.code else (),
            slo=self.slo,
            catalog=fleet.catalog,
            markets=stage.markets or fleet.markets,
            instances=stage.instances,
            min_instances=fleet.min_instances,
            max_instances=fleet.max_instances,
            max_usd_per_hour=fleet.max_usd_per_hour,
            functions=stage.functions,
            max_function_usd_per_hour=fleet.max_function_usd_per_hour,
            profile_file=self.profile_file,
            faults=self.faults,
            source=self.source,
        )
        if (one := self.insured) is None:
            return found
        return replace(
            found,
            batching=one.batching,
            routing=one.routing,
            tail=one.tail,
            request_kb=one.request_kb,
            response_kb=one.response_kb,
            control=one.control,
            slo_monitor=one.slo_monitor,
            rollout=one.rollout,
        )
