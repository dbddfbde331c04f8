"""The local Lambda: `python -m mark_infra.testbed.local_functions CONFIG`, which runs functions as real processes.

boto3 and aioboto3 reach it by `AWS_ENDPOINT_URL_LAMBDA`: Invoke (synchronous), GetFunction, GetFunctionConfiguration.
Cold starts are real ones of AWS's runtime with the handler in this computer's Python, after a drawn delay for AWS's own
part that no process here performs: finding a place, a sandbox, the code. CONFIG is a file of `Config` in JSON; the port
is printed on its own line. `GET /status` shows each function's counts and cost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlencode
from uuid import UUID

from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionOffer, size_and_processor
from mark.domain.offer import Delay
from mark.domain.service import ServiceConfig
from mark.models.registry_unpacked import PREFIX
from mark.planning.resolve import choose_function, function_size
from mark.profiling.version_profiles import profile_source, service_profiles
from mark.serving.frontend.http import Exchange, HttpLimits, HttpServer
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.function_pool import Account, EnvironmentPool
from mark_infra.testbed.runtime_api import Environment, InvocationOutcome

_FUNCTIONS = b"/2015-03-31/functions/"
_MOST_BYTES = 6 * 1024 * 1024
# Every bouncer may keep a thousand connections.
_LIMITS = HttpLimits(connections=20_000, header_bytes=64 * 1024)
_INIT_LIMIT_S = 10.0  # AWS's limit of the init; a longer init counts toward the time-out
_REFILL_S = 30.0  # spare environments are started only after a burst, so that they do not slow it further
_ACCOUNT = "123456789012"

log = logging.getLogger("mark.testbed")


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """One function. `variables` are its handler's environment; `concurrency` None: the account's.

    `spare` environments are started before requests need them. Here all functions share a few processors, and a dozen
    environments that load a model at the same time would starve the serving processes. A cold start with a spare one
    takes `cold_s`.
    """

    name: str
    memory_mb: int
    variables: Mapping[str, str] = field(default_factory=dict)
    handler: str = "mark_lambda.overflow.handler"
    folder: str = "."
    timeout_s: float = 30.0
    concurrency: int | None = None
    spare: int = 0
    cold_s: float = 0.0
    arm64: bool = False  # for the bill only; this machine's processor runs it

    @property
    def offer_name(self) -> str:
        return f"lambda{'-arm64' if self.arm64 else ''}:{self.memory_mb}"


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of the local Lambda.

    `sandbox_mean_s` and `sandbox_p95_s` describe AWS's own, unbilled part of a cold start. AWS does not publish that
    part; the defaults are assumptions.
    """

    functions: Sequence[FunctionConfig]
    logs: str
    catalog: str = "aws-2026"
    region: str = "us-east-1"
    host: str = "127.0.0.1"
    port: int = 0
    sandbox_mean_s: float = 0.15
    sandbox_p95_s: float = 0.3
    seed: int = 0


def has_function(service: ServiceConfig) -> bool:
    """Return whether the testbed runs a function for the service or stage.

    Like in the simulator, a stage gets a function only if some size has a profile. For a service by itself, a missing
    profile is an error.
    """
    if not service.stage:
        return bool(service.functions)
    profiles = service_profiles(service).get(service.model, {})
    return choose_function(service, load_catalog(service.catalog), profiles)[0] is not None


def overflow_function(service: ServiceConfig, name: str) -> FunctionConfig:
    """Return the function behind the bouncers of a service or stage. Raises BadInput if the file names none.

    The account would allow a thousand environments at a time; as processes on one computer they must be fewer.
    """
    search = str(Path(service.source).resolve().parent)
    profiles = service_profiles(service)
    model, profile, profiled = service.model, service.profile_file, profiles.get(service.model, {})
    size = function_size(service, load_catalog(service.catalog), profiled)
    if size is None:
        where = f"{service.source or service.name} [overflow] function"
        named = ", ".join(service.functions) or "none"
        raise BadInput("no size to run: name one, or profile the model on one", where, named)
    options = {"instance": size, "search": search}
    heaviest = max(service.versions, key=lambda version: version.weight, default=None)
    if heaviest is not None and heaviest.model.startswith(PREFIX):
        model = heaviest.model
        profile, options["profiled"] = profile_source(model, service, profiles)
    options["model"] = model
    if profile is not None:
        options["profile"] = str(Path(profile).resolve())
    kind = "Paced"
    if ":" not in model:
        kind = "Replay"
        del options["search"]
    cold_ms = None
    if size in profiled:
        cold_ms = profiled[size].rows[0].cold_ms
        model = f"mark.profiling.replay:{kind}?{urlencode(options)}"
    sized = size_and_processor(size)
    assert sized is not None
    memory_mb, arm64 = sized
    return FunctionConfig(
        name=name,
        memory_mb=memory_mb,
        arm64=arm64,
        # One core each, because a function below 3.5 GB has hardly more.
        variables={
            "MARK_MODEL": model,
            "MARK_MODEL_PATH": search,
            "MARK_NAME": service.stage or service.name,  # the name that its bouncers use
            "OMP_NUM_THREADS": "1",
        },
        folder=search,
        concurrency=32,
        spare=0 if cold_ms is None else 4,
        cold_s=(cold_ms or 0.0) / 1e3,
    )


@dataclass(slots=True)
class _Invocation:
    exchange: Exchange
    request_id: str
    environment: Environment | None = None
    cold: bool = False


class LocalFunction:
    """One function: passes invocations to environments, and their answers back."""

    def __init__(self, config: FunctionConfig, offer: FunctionOffer, of: Config) -> None:
        self._config, self._of = config, of
        self._loop = asyncio.get_running_loop()
        self._pool: EnvironmentPool[Environment] = EnvironmentPool(offer)
        self.account = Account(offer)
        self.arn = f"arn:aws:lambda:{of.region}:{_ACCOUNT}:function:{config.name}"
        self._sandbox = Delay(of.sandbox_mean_s, of.sandbox_p95_s)
        self._random = random.Random(f"{of.seed} {config.name}")
        self._starting: dict[Environment, _Invocation] = {}
        self._tasks: dict[Environment, asyncio.Task[None]] = {}
        self._expiry: asyncio.TimerHandle | None = None  # timer of the environment that is idle longest
        self._spare: list[Environment] = []
        self._coming: Environment | None = None  # the next spare one
        self._variables = of_aws(os.environ, of.region) | {
            "AWS_LAMBDA_FUNCTION_NAME": config.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(config.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{config.name}",
            "LAMBDA_TASK_ROOT": config.folder,
            **config.variables,
        }
        self._made = 0
        self._keep_spare()

    def invoke(self, exchange: Exchange) -> None:
        """Answer the invocation, now or when its environment has answered."""
        now_s = self._loop.time()
        taken = self._pool.take(now_s)
        if isinstance(taken, str):
            self.account.throttled += 1
            _refuse(exchange, 429, "TooManyRequestsException", "Rate Exceeded.", Reason=taken)
            return
        invocation = _Invocation(exchange, str(UUID(int=self._random.getrandbits(128), version=4)))
        if taken is None:
            self._start(invocation)
        else:
            self._hand(invocation, taken)

    def status(self) -> dict[str, object]:
        """Return counts, dollars, and process ids."""
        counts = {key: value for key, value in asdict(self.account).items() if key != "offer"}
        pids = sorted(pid for environment in self._tasks if (pid := environment.pid) is not None)
        return counts | {
            "environments": len(self._tasks),
            "busy": len(self._pool.at_work),
            "spare": len(self._spare),
            "pids": pids,
        }

    def described(self) -> dict[str, object]:
        """Return the answer to GetFunctionConfiguration."""
        return {
            "FunctionName": self._config.name,
            "FunctionArn": self.arn,
            "Runtime": f"python{sys.version_info.major}.{sys.version_info.minor}",
            "Handler": self._config.handler,
            "MemorySize": self._config.memory_mb,
            "Timeout": round(self._config.timeout_s),
            "Version": "$LATEST",
            "PackageType": "Zip",
            "State": "Active",
            "LastUpdateStatus": "Successful",
        }

    async def close(self) -> None:
        """End all environments and wait for their ends."""
        if self._expiry is not None:
            self._expiry.cancel()
        for environment, task in self._tasks.items():
            if environment.pid is None:
                task.cancel()
            environment.kill()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _start(self, invocation: _Invocation) -> None:
        self.account.cold_starts += 1
        invocation.cold = True
        if self._spare:
            environment = self._spare.pop()
            self._loop.call_later(self._config.cold_s, self._use_spare, environment)
        else:
            environment = self._make(self._sandbox.at(self._random.gauss(0.0, 1.0)))
        self._pool.begin(environment)
        self._starting[environment] = invocation
        self._loop.call_later(_REFILL_S, self._keep_spare)

    def _make(self, sandbox_s: float) -> Environment:
        config = self._config
        self._made += 1
        environment = Environment(
            config.handler,
            Path(config.folder),
            self._variables,
            Path(self._of.logs) / f"{config.name}-{self._made}.log",
            on_idle=self._idle,
            on_gone=self._gone,
        )
        self._tasks[environment] = self._loop.create_task(self._run(environment, sandbox_s))
        return environment

    def _keep_spare(self) -> None:
        """Start the next spare environment; they start one after the other."""
        if self._coming is None and len(self._spare) < self._config.spare:
            self._coming = self._make(0.0)

    def _use_spare(self, environment: Environment) -> None:
        invocation = self._starting.pop(environment, None)
        if invocation is not None:  # the environment still lives
            environment.init_s = self._config.cold_s
            self._hand(invocation, environment)

    async def _run(self, environment: Environment, sandbox_s: float) -> None:
        await asyncio.sleep(sandbox_s)
        late = self._loop.call_later(_INIT_LIMIT_S + self._config.timeout_s, self._init_late, environment)
        try:
            await environment.run()
        except Exception:
            log.exception("an environment of %s could not be started", self._config.name)
        finally:
            late.cancel()
            del self._tasks[environment]

    def _init_late(self, environment: Environment) -> None:
        if environment in self._starting and environment.init_s is None:
            environment.kill()

    def _idle(self, environment: Environment) -> None:
        if environment is self._coming:
            self._coming = None
            self._spare.append(environment)
            self._keep_spare()
            return
        starting = self._starting.pop(environment, None)
        if starting is not None:
            self._hand(starting, environment)
        else:
            self._pool.rest(environment, self._loop.time())
            if self._expiry is None:
                self._expiry = self._loop.call_later(self._pool.offer.keep_alive_s, self._end_expired)

    def _end_expired(self) -> None:
        now_s = self._loop.time()
        for environment in self._pool.expired(now_s):
            environment.kill()
        self._expiry = None
        if self._pool.idle:
            oldest_s = next(iter(self._pool.idle.values()))
            self._expiry = self._loop.call_later(oldest_s + self._pool.offer.keep_alive_s - now_s, self._end_expired)

    def _gone(self, environment: Environment) -> None:
        if environment is self._coming:
            self._coming = None  # the next cold start tries again
        elif environment in self._spare:
            self._spare.remove(environment)
        starting = self._starting.pop(environment, None)
        if starting is not None:
            self._answer(starting, environment.init_s or 0.0, InvocationOutcome(environment.fault, 0.0, failed=True))
        self._pool.lose(environment)

    def _hand(self, invocation: _Invocation, environment: Environment) -> None:
        init_s = (environment.init_s or 0.0) if invocation.cold else 0.0
        done = partial(self._answer, invocation, init_s)
        limit_s = self._config.timeout_s
        environment.invoke(invocation.request_id, self.arn, invocation.exchange.body, limit_s, done)

    def _answer(self, invocation: _Invocation, init_s: float, outcome: InvocationOutcome) -> None:
        billed_ms = self.account.add(outcome.duration_s, init_s, failed=outcome.failed)
        headers = f"x-amzn-requestid: {invocation.request_id}\r\nx-amz-executed-version: $LATEST\r\n"
        if outcome.failed:
            headers += "x-amz-function-error: Unhandled\r\n"
        if invocation.exchange.headers.get(b"x-amz-log-type") == b"Tail":
            report = (
                f"REPORT RequestId: {invocation.request_id}\tDuration: {outcome.duration_s * 1e3:.2f} ms\t"
                f"Billed Duration: {billed_ms} ms\tMemory Size: {self._config.memory_mb} MB"
                + (f"\tInit Duration: {init_s * 1e3:.2f} ms" if invocation.cold else "")
            )
            headers += f"x-amz-log-result: {b64encode(report.encode()).decode()}\r\n"
        invocation.exchange.answer(200, outcome.body, headers=headers.encode())


class Lambda:
    """The HTTP server in front of all functions."""

    def __init__(self, config: Config) -> None:
        catalog = load_catalog(config.catalog)
        self.functions: dict[str, LocalFunction] = {}
        for one in config.functions:
            offer = catalog.function(one.offer_name)
            if one.concurrency is not None:
                offer = replace(offer, concurrency=one.concurrency)
            self.functions[one.name] = LocalFunction(one, offer, config)
        self._by_target = {
            b"%s%s/invocations" % (_FUNCTIONS, name.encode()): function for name, function in self.functions.items()
        }
        self.http = HttpServer(self._handle, _LIMITS)

    async def close(self) -> None:
        """Refuse new requests, and end all environments."""
        self.http.stop_listening()
        self.http.handler = lambda exchange: _refuse(exchange, 503, "ServiceException", "this Lambda ends")
        await asyncio.gather(*(function.close() for function in self.functions.values()))
        await self.http.close(1.0)

    def _handle(self, exchange: Exchange) -> None:
        function = self._by_target.get(exchange.path)
        if function is None:
            self._seldom(exchange)
        elif exchange.method != b"POST":
            _refuse(exchange, 405, "MethodNotAllowed", "invoke by POST")
        elif exchange.headers.get(b"x-amz-invocation-type", b"RequestResponse") != b"RequestResponse":
            _refuse(exchange, 400, "InvalidParameterValueException", "here functions are invoked synchronously only")
        elif len(exchange.body) > _MOST_BYTES:
            _refuse(exchange, 413, "RequestTooLargeException", f"a function takes {_MOST_BYTES:,} bytes")
        else:
            function.invoke(exchange)

    def _seldom(self, exchange: Exchange) -> None:
        if exchange.path == b"/status":
            status = {name: function.status() for name, function in self.functions.items()}
            exchange.answer(200, json.dumps(status).encode())
            return
        if not exchange.path.startswith(_FUNCTIONS):
            _refuse(exchange, 404, "UnknownOperationException", "not in this Lambda")
            return
        asked, _, what = unquote(exchange.path[len(_FUNCTIONS) :].decode()).partition("/")
        name = asked.rpartition("function:")[2].partition(":")[0]  # an ARN or a qualifier is also allowed
        function = self.functions.get(name)
        if function is None:
            message = f"Function not found: arn:aws:lambda:{_ACCOUNT}:function:{name}"
            _refuse(exchange, 404, "ResourceNotFoundException", message)
        elif what == "invocations":
            self._by_target[exchange.path] = function
            self._handle(exchange)
        elif exchange.method == b"GET" and what == "configuration":
            exchange.answer(200, json.dumps(function.described()).encode())
        elif exchange.method == b"GET" and what == "":
            exchange.answer(200, json.dumps({"Configuration": function.described(), "Code": {}}).encode())
        else:
            _refuse(exchange, 404, "UnknownOperationException", "not in this Lambda")


def _refuse(exchange: Exchange, status: int, code: str, message: str, **more: str) -> None:
    body = json.dumps({"Type": "User", "message": message, **more}).encode()
    exchange.answer(status, body, headers=b"x-amzn-errortype: %s\r\n" % code.encode())


def load_config(file: Path) -> Config:
    """Read the JSON file."""
    read = json.loads(file.read_text())
    return Config(**{**read, "functions": [FunctionConfig(**one) for one in read["functions"]]})


async def run(config: Config) -> None:
    """Run until SIGTERM or SIGINT."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    Path(config.logs).mkdir(parents=True, exist_ok=True)
    there = Lambda(config)
    print(await there.http.start(config.host, config.port), flush=True)
    await stop.wait()
    await there.close()


if __name__ == "__main__":
    import uvloop

    from mark.serving.observe.logs import to_stderr

    to_stderr()
    uvloop.run(run(load_config(Path(sys.argv[1]))))
