"""A service from Python: the commands for a service or pipeline file, in a notebook or a script."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, Unpack, cast, overload

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.plugins import adapter
from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.catalog.tables import CATALOG_NAMES, load_catalog
from mark.domain.deployed import Deployed
from mark.domain.errors import BadInput, MarkError
from mark.domain.extras import check_installed
from mark.domain.service import ServiceConfig
from mark.planning.policies.names import split_policy
from mark.profiling.machine import room_of
from mark.profiling.table import load_profiles
from mark.sdk.frames import write_frame
from mark.sdk.running import ServeProcess
from mark.sdk.service_settings import (
    ModelReference,
    PipelineOptions,
    ServiceOptions,
    StageOptions,
    pipeline_text,
    service_text,
)
from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest
from mark.traffic.traces.bad_lines import BadLines
from mark.traffic.traces.table_files import TableColumns

# Imported within methods. Simulator and planner load numba, which takes half a second that a notebook for serving or
# profiling does not need; deploying loads AWS's libraries, which a plain installation lacks.

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar

    from mark.profiling.measure import Measured
    from mark.profiling.measure_server import Profiling
    from mark.simulation.result import SimulationResult
    from mark.studies.insure import Insurance
    from mark.studies.pipeline_plan import PlannedPipeline
    from mark.studies.pipeline_result import PipelineRun
    from mark.studies.report.explain import Explanation

    RunT = TypeVar("RunT", default=SimulationResult)
    PlanT = TypeVar("PlanT", default=Explanation)
    ProfileT = TypeVar("ProfileT", default=Measured)
else:
    from typing import TypeVar

    RunT, PlanT, ProfileT = TypeVar("RunT"), TypeVar("PlanT"), TypeVar("ProfileT")


# A file, a folder of logs, a generator's name, or a table.
Traffic: TypeAlias = "str | Path | pd.DataFrame | pd.Series"
# A file in JSON Lines, or the queries.
Queries: TypeAlias = str | Path | Sequence[Any]


class RunOptions(TypedDict, total=False):
    """Options of `mark simulate` by their names there, `no_bound` for `--no-bound`; docs/cli.md explains them.

    `queries` and `lineage` are for pipelines only; `progress` is called with the finished share. `with_bound`,
    `spot_traces` and `columns` are older names of `no_bound`, `spot_trace` and the three options of a table's columns.
    """

    predictor: str | None
    catalog: str | Path
    profile: str | Path
    tail: float
    markets: Sequence[str]
    scale: float
    start_s: float
    duration_s: float
    train_s: float
    gaps: str
    seed: int
    spot_trace: str | Path | Sequence[str | Path]
    spot_traces: Sequence[str | Path]
    cold_start: bool
    faults: str | Path
    hedge_after_ms: float
    spot_first_hour_free: bool
    log_filter: tuple[str, str]
    time_column: str | None
    count_column: str | None
    size_column: str | None
    count_unit: str | None
    columns: TableColumns
    skip_bad_lines: BadLines
    no_bound: bool
    with_bound: bool
    progress: Callable[[float], None] | None
    queries: Queries
    lineage: str | Path


# Options that a pipeline does not take.
_OF_SERVICES = ("tail", "spot_traces", "cold_start", "spot_first_hour_free", "hedge_after_ms")


class ProfileOptions(TypedDict, total=False):
    """Options of `mark profile`; docs/profiles.md explains them."""

    batches: tuple[int, ...]
    instance: str
    precision: float
    seconds: float
    seed: int
    workers: int
    threads: int
    background: int


class DeployOptions(TypedDict, total=False):
    """Options of a deployment; docs/deploy.md explains them."""

    name: str
    region: str
    zones: tuple[str, ...]
    certificate: str | None
    grpc_port: int | None
    domain: str | None
    hosted_zone: str | None
    clients: tuple[str, ...]
    alarm_email: str | None
    budget_usd: float | None
    state: Path | None
    state_bucket: str | None
    profile: str | None
    session: Any  # a session of boto3
    cpu_index: str | None
    max_disk_gib: int | None
    newest_images: bool
    bake: bool
    emulated: bool


class Service(Generic[RunT, PlanT, ProfileT]):
    """A model behind an SLO, or several models as a pipeline.

    `Service("service.toml")`, `Service("inception-v3")`, or a service file's settings by keyword:
    `Service(name="ranker", model=Ranker, slo_ms=50, slo_attainment=0.98, catalog="aws-2026")`. With `stages` it is a
    pipeline, `Service(name="digits", pipeline=classify, stages={"small": Small, "large": Large}, ...)`: `pipeline` is
    its driver; without a driver each of `stages` names its predecessors, `{"model": Large, "after": ["small"]}`. Named
    files are relative to the current folder. This call and every method raise BadInput for unusable input.

    On a pipeline, `simulate` returns a PipelineRun, `plan` a PlannedPipeline, `profile` a list with one entry for each
    model.
    """

    @overload
    def __init__(self, file: str | Path, /) -> None: ...
    @overload
    def __init__(
        self: Service[SimulationResult, Explanation, Measured], /, **settings: Unpack[ServiceOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Service[PipelineRun, PlannedPipeline, list[Measured]],
        /,
        *,
        stages: Mapping[str, ModelReference | StageOptions],
        **settings: Unpack[PipelineOptions],
    ) -> None: ...
    def __init__(
        self, file: str | Path | None = None, /, *, stages: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self._folders: list[Path] = []
        self._stage_folders: dict[str, Path] = {}
        if file is not None:
            if settings or stages is not None:
                said = [*settings, *([] if stages is None else ["stages"])]
                raise BadInput("a file says everything: change it there", "mark.Service", ", ".join(said))
            self._file = str(file) if file in SERVICE_NAMES else str(Path(file).resolve())
            self._said = _read(self._file)
            return
        if stages is not None:
            self._text, self._stage_folders = pipeline_text(stages, settings)
            self._folders = list(dict.fromkeys(self._stage_folders.values()))
        elif "pipeline" in settings:
            raise BadInput("say its models, too: stages={NAME: MODEL}", "mark.Service", "pipeline")
        else:
            self._text, self._folders = service_text(settings)
        # Written to a file because all further steps read one, in this process or another.
        self._file = str(self._temporary("mark-service-") / "service.toml")
        Path(self._file).write_text(self._text, encoding="utf-8")
        try:
            self._said = _read(self._file)
        except BadInput as error:
            raise BadInput(error.what, error.where.replace(self._file, "mark.Service"), error.value) from None

    @property
    def name(self) -> str:
        return self._said.name

    def write(self, file: str | Path) -> None:
        """Write the service as a file for the command line, with absolute paths in it. Never overwrites."""
        if not self._folders:
            raise BadInput("is a file already", self._file)
        try:
            with open(file, "x", encoding="utf-8") as to:
                to.write(self._text)
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", str(file)) from None

    def profile(
        self,
        out: str | Path | None = None,
        *,
        input: str | Path | None = None,  # named as on the command line
        queries: Queries | None = None,
        **options: Unpack[ProfileOptions],
    ) -> ProfileT:
        """Measure the model by batch size on this machine, in worker processes: up to ten seconds for each size.

        `out` is the profile file; its rows of other models and instances stay. `input` is a file with the body of a
        request of one item. A pipeline's stages are measured on the driver's calls for `queries`.
        """
        check_installed("uvloop", "profile")
        from mark.profiling.measure import profile_csv
        from mark.profiling.measure_server import profile

        room = room_of(options.get("instance"), load_catalog(CATALOG_NAMES[-1]))
        asked = [replace(what, **options, room=room) for what in self._profilings(input, queries)]
        if "threads" not in options and "OMP_NUM_THREADS" not in os.environ:
            asked = [replace(what, threads=1) for what in asked]  # the default of `mark serve`
        if out is not None and Path(out).exists():
            load_profiles(str(out))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            measured = [profile(what) for what in asked]
        else:  # a notebook already runs a loop, and the profiler needs its own
            with ThreadPoolExecutor(1) as thread:
                measured = [thread.submit(profile, what).result() for what in asked]
        if out is not None:
            Path(out).write_text(profile_csv(measured, Path(out)), encoding="utf-8")
        return cast("ProfileT", measured[0] if isinstance(self._said, ServiceConfig) else measured)

    def simulate(self, trace: Traffic, policy: str = "mark", **options: Unpack[RunOptions]) -> RunT:
        """Simulate one policy (`name[:predictor]`) on a trace; return bill and latency. Raises Infeasible."""
        request, visits = self._request(trace, policy, options)
        if isinstance(self._said, PipelineConfig):
            from mark.studies.pipeline_run import simulate_pipeline

            (run,) = simulate_pipeline(request, (request.policy,), **visits).values()
            return cast("RunT", run)
        from mark.simulation.run import simulate

        return cast("RunT", simulate(request))

    def compare(
        self, trace: Traffic, policies: Sequence[str], *, processes: int = 1, **options: Unpack[RunOptions]
    ) -> dict[str, RunT]:
        """Simulate several policies on the same arrivals; return results by the given names.

        With more than one process a script needs the usual `if __name__ == "__main__"`.
        """
        from mark.studies.executor import executor_for

        request, visits = self._request(trace, "mark", options)
        executor = executor_for(processes)
        if isinstance(self._said, PipelineConfig):
            from mark.studies.pipeline_run import simulate_pipeline

            return cast("dict[str, RunT]", simulate_pipeline(request, tuple(policies), executor=executor, **visits))
        from mark.studies.compare import compare

        return cast("dict[str, RunT]", compare(request, tuple(policies), executor=executor))

    def insure(
        self, trace: Traffic, instance: str | None = None, *, processes: int = 1, **options: Unpack[RunOptions]
    ) -> Insurance:
        """Find the smallest fixed fleet that keeps the promise, for each protection against slow instances.

        Fleets have one type: `instance`, or the one whose fleet of calm instances costs least. Instances slow down by
        the service file's `[faults]`. Raises Infeasible if calm instances do not keep the promise either.
        """
        from mark.studies.executor import executor_for
        from mark.studies.insure import insure

        request, _ = self._request(trace, "mark", options)
        return insure(replace(request, with_bound=False), instance, executor=executor_for(processes))

    def plan(
        self,
        trace: Traffic,
        at_s: float | None = None,
        policy: str = "mark",
        *,
        running: Mapping[str, int] | None = None,
        **options: Unpack[RunOptions],
    ) -> PlanT:
        """Plan one decision, explained in dollars, `at_s` seconds from the trace's start (default: its last minute).

        `running` is the running fleet by instance; without it the plan is a first fleet, ready immediately. For a
        pipeline the plan is the fleet for the busiest minutes within an hour from `at_s`, by default within the part.
        """
        request, visits = self._request(trace, policy, options)
        if isinstance(self._said, PipelineConfig):
            for name, given in (("policy", policy != "mark"), ("predictor", request.predictor), ("running", running)):
                if given:
                    raise BadInput("a pipeline is planned for a fixed load, without this option", name)
            from mark.studies.pipeline_plan import plan_pipeline_once

            return cast("PlanT", plan_pipeline_once(request, at_s, **visits))
        from mark.studies.decision import plan_service_once, slo_prices
        from mark.studies.next_day import next_day_of_plan
        from mark.studies.report.explain import explain

        if at_s is None:
            at_s = max(0.0, trace_named_in(request, sized=True).duration_s - 60.0)
        fleet = None if running is None else ",".join(f"{name}={count}" for name, count in running.items())
        planned = plan_service_once(request, at_s, fleet)
        read, coming = planned.inputs.trace.read, next_day_of_plan(planned)
        return cast("PlanT", explain(planned.plan, planned.context, at_s, slo_prices(planned), read, next_day=coming))

    def serve(self, host: str = "127.0.0.1", port: int = 8080, **options: str | float | bool | Path) -> None:
        """Serve on this machine until interrupted; options are the ones of `mark serve`, as `max_batch=32`.

        Raises MarkError if the server cannot start, or ends by itself.
        """
        with self.running(host, port, **options) as server:
            if server.wait() != 0:
                raise MarkError(f"{self.name} is served no more: the server failed")

    def running(self, host: str = "127.0.0.1", port: int = 0, **options: str | float | bool | Path) -> ServeProcess:
        """Serve in a separate process during a `with` block: `with service.running() as server: ... server.url`."""
        arguments = [self._file, "--host", host, "--port", str(port)]
        for name, value in options.items():
            if value is not False:
                arguments += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        path = [*map(str, self._folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        return ServeProcess(arguments, os.environ | ({"PYTHONPATH": os.pathsep.join(path)} if path else {}), self)

    def deploy(self, target: str = "aws", **options: Unpack[DeployOptions]) -> Deployed:
        """Deploy the service to AWS, alone on its site, and return its address. It takes minutes, and costs begin.

        It does as `mark deploy --yes` does; `mark deploy --destroy --name NAME` removes it. Progress goes to stderr.
        Raises BadInput for missing prerequisites, MarkError for failed steps.
        """
        if target != "aws":
            raise BadInput("can be deployed to aws only", "target", target)
        if isinstance(self._said, PipelineConfig):
            raise BadInput("a pipeline cannot be deployed yet", "mark.Service.deploy", self.name)
        deployed: Deployed = adapter("deploy", "mark.Service.deploy")(
            self._file, self._folders[0] if self._folders else None, options
        )
        return deployed

    def _temporary(self, prefix: str) -> Path:
        """Return a folder that is deleted with this service."""
        folder = tempfile.mkdtemp(prefix=prefix)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def _profilings(self, input: str | Path | None, queries: Queries | None) -> list[Profiling]:
        """Return the measurements to make: the model, or the models of a pipeline's stages."""
        if isinstance(self._said, ServiceConfig):
            from mark.models.sample import call_from_file
            from mark.profiling.measure_server import of_service

            self._refuse_visits({"queries": queries})
            what = of_service(self._said)
            if self._folders:
                what = replace(what, search=self._folders[0])
            return [what if input is None else replace(what, calls=(call_from_file(Path(input)),))]
        from mark.planning.graphs.stage_profiles import stage_profilings

        if input is not None:
            raise BadInput("is for one model, and a pipeline has several", "input", str(input))
        self._find_modules()
        asked = stage_profilings(self._said, None if queries is None else self._queries_file(queries))
        return [replace(one.what, search=self._stage_folders.get(one.stages[0], one.what.search)) for one in asked]

    def _request(self, trace: Traffic, policy: str, options: RunOptions) -> tuple[RunRequest, dict[str, Any]]:
        """Return the request of a run, and a pipeline's options for visits: `queries` and `lineage`, by their names."""
        given: dict[str, Any] = dict(options)
        for name in given:
            if name not in RunOptions.__annotations__:
                known = RunOptions.__annotations__
                raise BadInput(f"unknown option, known are {', '.join(known)}", "options", name, known=known)
        _rename(given)
        for name in ("scale", "start_s", "duration_s", "train_s"):
            least_is_out = name in ("scale", "duration_s")
            if given.get(name) is not None and not (given[name] > 0.0 or (given[name] == 0.0 and not least_is_out)):
                raise BadInput("must be above zero" if least_is_out else "must be zero or more", name, given[name])
        for name in ("catalog", "profile"):
            if given.get(name) is not None:
                given[name] = str(given[name])
        for name in ("markets", "spot_traces"):
            if given.get(name) is not None:
                given[name] = tuple(map(str, given[name]))
        visits = {name: given.pop(name, None) for name in ("queries", "lineage")}
        if isinstance(self._said, ServiceConfig):
            self._refuse_visits(visits)
            policy, given["predictor"] = split_policy(policy, given.get("predictor"))
        else:
            for name in _OF_SERVICES:
                if given.get(name):
                    raise BadInput("a pipeline is simulated without this option", name)
            self._find_modules()
            if visits["queries"] is not None:
                visits["queries"] = self._queries_file(visits["queries"])
            if visits["lineage"] is not None:
                visits["lineage"] = str(visits["lineage"])
        if not isinstance(trace, str | Path):
            trace = write_frame(trace, self._temporary("mark-trace-"))
        return RunRequest(trace=str(trace), service=self._file, policy=policy, **given), visits

    def _refuse_visits(self, visits: Mapping[str, Any]) -> None:
        for name, value in visits.items():
            if value is not None:
                raise BadInput(f"{self.name} is no pipeline", name)

    def _find_modules(self) -> None:
        """Put the folders of a pipeline's driver and models on the path, because tracing loads them in this process.

        They stay there, because the modules may import their neighbours later.
        """
        sys.path[:0] = [str(folder) for folder in self._folders if str(folder) not in sys.path]

    def _queries_file(self, queries: Queries) -> str:
        if isinstance(queries, str | Path):
            return str(queries)
        file = self._temporary("mark-queries-") / "queries.jsonl"
        try:
            lines = [json.dumps(query, ensure_ascii=False) + "\n" for query in queries]
        except (TypeError, ValueError) as error:
            raise BadInput(f"a query is an object of JSON ({error})", "queries") from None
        file.write_text("".join(lines), encoding="utf-8")
        return str(file)


def _rename(given: dict[str, Any]) -> None:
    """Rename options of the command line to fields of a request."""
    if "no_bound" in given:
        given["with_bound"] = not given.pop("no_bound")
    if "spot_trace" in given:
        files = given.pop("spot_trace")
        given["spot_traces"] = [files] if isinstance(files, str | Path) else files
    said = [given.pop(name, None) for name in ("time_column", "count_column", "count_unit")]
    size = given.pop("size_column", None)
    if any(said) or size:
        given["columns"] = TableColumns(said[0], said[1], said[2], size=size)


def _read(file: str) -> ServiceConfig | PipelineConfig:
    return load_pipeline(file) if names_pipeline(file) else load_service(file, any_unit=True)
