"""A service from Python: what the command line does with a service file, in a notebook or a script."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.errors import BadInput, MarkError
from mark.models.sample import call_from_file
from mark.planning.policies.names import split_policy
from mark.profiling.measure import Measured, profile_csv
from mark.profiling.measure_server import of_service, profile
from mark.profiling.table import load_profiles
from mark.sdk.frames import write_frame
from mark.sdk.running import ServeProcess
from mark.sdk.settings import ServiceOptions, service_text
from mark.simulation.inputs import trace_named_in
from mark.simulation.request import RunRequest
from mark.workload.tables import TableColumns

# Imports within methods: simulator and planner bring numba, half a second that a notebook which only serves or profiles
# need not wait for; deploying brings AWS's libraries, which a plain installation lacks.

if TYPE_CHECKING:
    import pandas as pd
    from mark_infra.deploy.deploy import Deployed

    from mark.reporting.explain import Explanation
    from mark.simulation.result import SimulationResult


# A file, a folder of logs, a generator's name, or a table at hand.
Traffic: TypeAlias = "str | Path | pd.DataFrame | pd.Series"


class RunOptions(TypedDict, total=False):
    """Options of `mark simulate`; docs/cli.md says what they mean."""

    predictor: str | None
    catalog: str | Path
    profile: str | Path
    markets: Sequence[str]
    scale: float
    start_s: float
    duration_s: float
    train_s: float
    gaps: str
    seed: int
    spot_traces: Sequence[str | Path]
    cold_start: bool
    faults: str | Path
    spot_first_hour_free: bool
    log_filter: tuple[str, str]
    columns: TableColumns
    with_bound: bool


class ProfileOptions(TypedDict, total=False):
    """Options of `mark profile`; docs/profiling.md says what they mean."""

    batches: tuple[int, ...]
    instance: str
    precision: float
    seconds: float
    seed: int
    workers: int
    threads: int
    background: int


class DeployOptions(TypedDict, total=False):
    """Where to deploy, and for whom; docs/deploy.md says what they mean."""

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
    session: Any  # boto3's
    cpu_index: str | None
    max_disk_gib: int | None
    newest_images: bool
    bake: bool
    emulated: bool


class Service:
    """A model behind an SLO.

    `Service("service.toml")`, `Service("inception-v3")`, or what a service file says by keyword:
    `Service(name="ranker", model=Ranker, slo_ms=50, slo_attainment=0.98, catalog="aws-2026")`. Files named are
    relative to the current folder. Raises BadInput, here and by every method, for what cannot be used.
    """

    def __init__(self, file: str | Path | None = None, /, **settings: Unpack[ServiceOptions]) -> None:
        self._folders: list[Path] = []
        if file is not None:
            if settings:
                raise BadInput("a file says everything: change it there", "mark.Service", ", ".join(settings))
            self._file = str(file) if file in SERVICE_NAMES else str(Path(file).resolve())
            self._service = load_service(self._file)
            return
        self._text, self._folders = service_text(settings)
        # A file, because everything that follows reads one, in this process or another.
        self._file = str(self._temporary("mark-service-") / "service.toml")
        Path(self._file).write_text(self._text, encoding="utf-8")
        try:
            self._service = load_service(self._file)
        except BadInput as error:
            raise BadInput(error.what, error.where.replace(self._file, "mark.Service"), error.value) from None

    @property
    def name(self) -> str:
        return self._service.name

    def write(self, file: str | Path) -> None:
        """The service as a file for the command line. Never overwrites; profile and catalogue are named absolutely."""
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
        input: str | Path | None = None,  # as the command line calls it
        **options: Unpack[ProfileOptions],
    ) -> Measured:
        """Measure the model by batch size on this machine, in worker processes: up to ten seconds for each size.

        `out` is where the profile file goes, in which rows of other models and instances stay; `input` a file with the
        body of a request, of one item.
        """
        what = replace(of_service(self._service), **options)
        if self._folders:
            what = replace(what, search=self._folders[0])
        if input is not None:
            what = replace(what, calls=(call_from_file(Path(input)),))
        if what.threads is None and "OMP_NUM_THREADS" not in os.environ:
            what = replace(what, threads=1)  # as `mark serve` has it
        if out is not None and Path(out).exists():
            load_profiles(str(out))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            measured = profile(what)
        else:  # a notebook has a loop already, and the profiler wants one of its own
            with ThreadPoolExecutor(1) as thread:
                measured = thread.submit(profile, what).result()
        if out is not None:
            Path(out).write_text(profile_csv([measured], Path(out)), encoding="utf-8")
        return measured

    def simulate(self, trace: Traffic, policy: str = "mark", **options: Unpack[RunOptions]) -> SimulationResult:
        """Bill and latency of one policy (`name[:predictor]`) on a trace. Raises Infeasible where no type will do."""
        from mark.simulation.run import simulate

        return simulate(self._request(trace, policy, options))

    def compare(
        self, trace: Traffic, policies: Sequence[str], *, processes: int = 1, **options: Unpack[RunOptions]
    ) -> dict[str, SimulationResult]:
        """Several policies on the same arrivals, by the names given.

        With more than one process a script needs the usual `if __name__ == "__main__"`.
        """
        from mark.studies.compare import compare
        from mark.studies.executor import executor_for

        return compare(self._request(trace, "mark", options), tuple(policies), executor=executor_for(processes))

    def plan(
        self,
        trace: Traffic,
        at_s: float | None = None,
        policy: str = "mark",
        *,
        running: Mapping[str, int] | None = None,
        **options: Unpack[RunOptions],
    ) -> Explanation:
        """One decision, explained in dollars, `at_s` seconds from the trace's first row (the last minute unless said).

        `running` is the fleet that runs by instance; without it what is planned is a first fleet, ready at once.
        """
        from mark.reporting.explain import explain
        from mark.studies.decision import plan_service_once, slo_prices

        request = self._request(trace, policy, options)
        if at_s is None:
            at_s = max(0.0, trace_named_in(request).duration_s - 60.0)
        fleet = None if running is None else ",".join(f"{name}={count}" for name, count in running.items())
        planned = plan_service_once(request, at_s, fleet)
        return explain(planned.plan, planned.context, at_s, slo_prices(planned))

    def serve(self, host: str = "127.0.0.1", port: int = 8080, **options: str | float | bool | Path) -> None:
        """Serve on this machine, until it is interrupted; options are those of `mark serve`, as `max_batch=32`.

        Raises MarkError where that cannot be, or ends by itself.
        """
        with self.running(host, port, **options) as server:
            if server.wait() != 0:
                raise MarkError(f"{self.name} is served no more: the server failed")

    def running(self, host: str = "127.0.0.1", port: int = 0, **options: str | float | bool | Path) -> ServeProcess:
        """The same in a process of its own while a `with` lasts: `with service.running() as server: ... server.url`."""
        arguments = [self._file, "--host", host, "--port", str(port)]
        for name, value in options.items():
            if value is not False:
                arguments += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        path = [*map(str, self._folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        return ServeProcess(arguments, os.environ | ({"PYTHONPATH": os.pathsep.join(path)} if path else {}))

    def deploy(self, target: str = "aws", **options: Unpack[DeployOptions]) -> Deployed:
        """Put the service on AWS, alone on its site, and return where it is: minutes, and it costs from then on.

        What `mark deploy --yes` does; `mark deploy --destroy --name NAME` ends it. Progress goes to stderr. Raises
        BadInput for what is missing here, MarkError for what fails.
        """
        try:
            from mark_infra.deploy.deploy import DeployTarget, plan, shipment
        except ModuleNotFoundError as error:
            raise BadInput(f"needs the extra `aws` ({error})", "mark.Service.deploy") from None

        if target != "aws":
            raise BadInput("can be deployed to aws only", "target", target)
        where = DeployTarget(**options)
        sent = shipment(self._file, self._folders[0] if self._folders else None)
        return plan([sent], where, lambda text: print(f"mark: {text}", file=sys.stderr)).apply()

    def _temporary(self, prefix: str) -> Path:
        """A folder that goes when this service does."""
        folder = tempfile.mkdtemp(prefix=prefix)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def _request(self, trace: Traffic, policy: str, options: RunOptions) -> RunRequest:
        given: dict[str, Any] = dict(options)
        for name in given:
            if name not in RunOptions.__annotations__:
                raise BadInput(f"unknown option, known are {', '.join(RunOptions.__annotations__)}", "options", name)
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
        policy, predictor = split_policy(policy, given.pop("predictor", None))
        if not isinstance(trace, str | Path):
            trace = write_frame(trace, self._temporary("mark-trace-"))
        return RunRequest(trace=str(trace), service=self._file, policy=policy, predictor=predictor, **given)
