"""The local Lambda: real environments behind AWS's own clients and AWS's own runtime."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import boto3
import psutil
import pytest
from botocore.config import Config as ClientConfig
from botocore.exceptions import ClientError
from mark_infra.aws.lambda_functions import LambdaFunctions
from mark_infra.testbed.local_functions import FunctionConfig, has_function, overflow_function
from mark_lambda.overflow import loaded

from mark.config.pipeline_file import load_pipeline
from mark.config.service_file import load_service
from mark.models.call import Call
from mark.models.envelope import calls_to_event, replies_from_result
from mark.models.registry_place import open_registry, pinned
from mark.models.results import call_with, results_of
from tests.infra.testbed.local_lambda import LocalLambda, local_lambda
from tests.infra.testbed.real_processes import processes_of, wait_for
from tests.serving.overflow.test_functions import LambdaWorld

pytest.importorskip("awslambdaric")

HANDLERS = """
import os, time

def handler(event, context):
    if event.get("exit"):
        os._exit(3)
    if event.get("wait_for"):
        while not os.path.exists(event["wait_for"]):
            time.sleep(0.005)
    if event.get("raise"):
        raise ArithmeticError("unlucky")
    return {"pid": os.getpid(), "memory": context.memory_limit_in_mb, "arn": context.invoked_function_arn,
            "left_ms": context.get_remaining_time_in_millis(), "secret": os.environ.get("AWS_SESSION_TOKEN")}
"""
BROKEN = "raise OSError('no weights here')\n"
FUNCTIONS: dict[str, dict[str, Any]] = {
    "plain": {"handler": "handlers.handler"},
    "short": {"handler": "handlers.handler", "timeout_s": 0.3},
    "narrow": {"handler": "handlers.handler", "concurrency": 1},
    "broken": {"handler": "broken.handler"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("functions")
    (made / "handlers.py").write_text(HANDLERS)
    (made / "broken.py").write_text(BROKEN)
    return made


@pytest.fixture(scope="module")
def there(folder: Path) -> Iterator[LocalLambda]:
    """Start one Lambda for all tests, which look at differences only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SESSION_TOKEN", "mine")
        functions = [FunctionConfig(name, 1024, folder=str(folder), **of) for name, of in FUNCTIONS.items()]
        with local_lambda(folder, functions) as made:
            yield made
    assert processes_of(folder) == []


def client(there: LocalLambda) -> Any:
    return boto3.client(
        "lambda",
        endpoint_url=there.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=ClientConfig(retries={"total_max_attempts": 1}, max_pool_connections=20),
    )


def invoke(there: LocalLambda, function: str, **event: Any) -> tuple[Any, dict[str, Any]]:
    """Return the payload and the whole answer."""
    answer = client(there).invoke(FunctionName=function, Payload=json.dumps(event), LogType="Tail")
    return json.loads(answer["Payload"].read()), answer


def report(answer: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of the invocation's last log line, by their names."""
    line = base64.b64decode(answer["LogResult"]).decode()
    return {name: float(number) for name, number in re.findall(r"([\w ]+): ([0-9.]+) (?:ms|MB)", line)}


def test_later_invocations_reuse_the_first_ones_environment(there: LocalLambda) -> None:
    before = there.status("plain")
    first, cold = invoke(there, "plain")
    again, warm = invoke(there, "plain")
    assert first["pid"] == again["pid"] != there.process.pid
    assert (cold["StatusCode"], cold["ExecutedVersion"], "FunctionError" in cold) == (200, "$LATEST", False)
    assert (first["memory"], first["secret"]) == ("1024", None)
    assert first["arn"] == "arn:aws:lambda:us-east-1:123456789012:function:plain"
    assert 0 < first["left_ms"] <= 30_001  # two clocks, and whole milliseconds
    assert report(cold)["Init Duration"] > 0.0
    assert report(cold)["Billed Duration"] >= report(cold)["Init Duration"] + report(cold)["Duration"]
    assert "Init Duration" not in report(warm)
    after = there.status("plain")
    assert after["cold_starts"] - before["cold_starts"] == 1
    billed_ms = report(cold)["Billed Duration"] + report(warm)["Billed Duration"]
    assert after["billed_ms"] - before["billed_ms"] == billed_ms
    # Prices of aws-2026: 1 GB for the billed milliseconds, and two requests.
    assert after["usd"] - before["usd"] == pytest.approx(0.0000166667 * billed_ms / 1e3 + 0.4e-6, rel=1e-9)


def test_the_callers_count_equals_the_billed_milliseconds(there: LocalLambda) -> None:
    """The count is in the log's last line; failed calls and a cold start's init count as well."""

    async def main() -> LambdaFunctions:
        functions = LambdaFunctions("short", region="us-east-1")
        try:
            for _ in range(5):
                await functions.warm(0.0, 60.0)
        finally:
            await functions.close()
        return functions

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL_LAMBDA": there.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        before = there.status("short")
        spent = asyncio.run(main()).spent
    after = there.status("short")
    assert spent.calls == after["invocations"] - before["invocations"] == 5
    assert round(spent.billed_s * 1e3) == after["billed_ms"] - before["billed_ms"] > 0


def test_concurrent_invocations_need_an_environment_each(there: LocalLambda, folder: Path) -> None:
    go = folder / "go"
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(invoke, there, "plain", wait_for=str(go)) for _ in range(3)]
        wait_for(lambda: there.status("plain")["busy"] == 3 and len(there.status("plain")["pids"]) >= 3, "all run")
        go.touch()
        pids = {call.result()[0]["pid"] for call in calls}
    assert len(pids) == 3
    assert pids <= set(there.status("plain")["pids"])
    # A cold start must not take the processor from serving environments.
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids} == {min(19, own + 10)}


def test_a_spare_environment_is_prestarted_and_still_starts_cold(folder: Path, tmp_path: Path) -> None:
    kept = FunctionConfig("kept", 1024, handler="handlers.handler", folder=str(folder), spare=1, cold_s=0.4)
    broken = FunctionConfig("broken", 1024, handler="broken.handler", folder=str(folder), spare=1)
    with local_lambda(tmp_path, [kept, broken]) as there:
        wait_for(lambda: there.status("kept")["spare"] == 1, "it is there")
        spare = there.status("kept")["pids"]
        assert (there.status("kept")["cold_starts"], there.status("kept")["invocations"]) == (0, 0)
        first, cold = invoke(there, "kept")
        assert [first["pid"]] == spare
        assert report(cold)["Init Duration"] == pytest.approx(400.0)
        assert report(cold)["Billed Duration"] >= 400.0 + report(cold)["Duration"]
        again, warm = invoke(there, "kept")
        assert again["pid"] == first["pid"]
        assert "Init Duration" not in report(warm)
        assert there.status("kept")["cold_starts"] == 1
        assert there.status("kept")["pids"] == spare  # the next one comes when the burst is over
        # An environment that cannot start is tried again at the next invocation, and not before.
        wait_for(lambda: there.status("broken")["environments"] == 0, "it has ended")
        assert "no weights here" in str(invoke(there, "broken")[0])


def test_a_handlers_error_is_returned_and_its_environment_survives(there: LocalLambda) -> None:
    before, _ = invoke(there, "plain")
    failed, answer = invoke(there, "plain", **{"raise": True})
    assert answer["FunctionError"] == "Unhandled"
    assert (failed["errorType"], failed["errorMessage"]) == ("ArithmeticError", "unlucky")
    assert invoke(there, "plain")[0]["pid"] == before["pid"]
    assert there.status("plain")["failed"] >= 1


def test_a_crashed_environment_fails_its_invocation_and_is_replaced(
    there: LocalLambda,
) -> None:
    before, _ = invoke(there, "plain")
    failed, answer = invoke(there, "plain", exit=True)
    assert answer["FunctionError"] == "Unhandled"
    assert failed == {"errorType": "Runtime.ExitError", "errorMessage": "Runtime exited with error: exit status 3"}
    assert invoke(there, "plain")[0]["pid"] != before["pid"]


def test_an_invocation_past_its_timeout_is_killed_and_billed(there: LocalLambda) -> None:
    before, _ = invoke(there, "short")
    failed, answer = invoke(there, "short", wait_for="/nowhere")
    assert (failed["errorType"], failed["errorMessage"]) == ("Sandbox.Timedout", "Task timed out after 0.30 seconds")
    assert report(answer)["Duration"] >= 299.0  # uvloop's timers tick in milliseconds
    wait_for(lambda: not psutil.pid_exists(before["pid"]), "it is killed")
    assert "errorType" not in invoke(there, "short")[0]


def test_a_handler_that_fails_to_load_fails_the_invocation(there: LocalLambda) -> None:
    failed, answer = invoke(there, "broken")
    assert answer["FunctionError"] == "Unhandled"
    assert (failed["errorType"], failed["errorMessage"]) == ("OSError", "no weights here")
    assert report(answer)["Init Duration"] > 0.0
    assert "no weights here" in there.logs()


def test_beyond_its_concurrency_invocations_are_throttled(there: LocalLambda, folder: Path) -> None:
    go = folder / "go-narrow"
    with ThreadPoolExecutor(1) as pool:
        one = pool.submit(invoke, there, "narrow", wait_for=str(go))
        wait_for(lambda: there.status("narrow")["busy"] == 1, "it runs")
        with pytest.raises(ClientError) as caught:
            invoke(there, "narrow")
        assert caught.value.response["Error"]["Code"] == "TooManyRequestsException"
        assert caught.value.response["Reason"] == "ConcurrentInvocationLimitExceeded"
        go.touch()
        one.result()
    assert invoke(there, "narrow")[0]["pid"]
    assert there.status("narrow")["throttled"] == 1


def test_functions_are_described_and_found_by_name_and_arn(there: LocalLambda) -> None:
    lambda_ = client(there)
    arn = lambda_.get_function(FunctionName="plain")["Configuration"]["FunctionArn"]
    found = lambda_.get_function_configuration(FunctionName=arn)
    assert (found["FunctionName"], found["MemorySize"], found["Timeout"]) == ("plain", 1024, 30)
    assert lambda_.invoke(FunctionName=arn, Payload="{}")["StatusCode"] == 200
    for asked, code in (
        (lambda: lambda_.invoke(FunctionName="absent", Payload="{}"), "ResourceNotFoundException"),
        (lambda: lambda_.get_function(FunctionName="absent"), "ResourceNotFoundException"),
        (
            lambda: lambda_.invoke(FunctionName="plain", Payload="{}", InvocationType="Event"),
            "InvalidParameterValueException",
        ),
        (lambda: lambda_.invoke(FunctionName="plain", Payload=b" " * 6_291_457), "RequestTooLargeException"),
        (lambda: lambda_.list_functions(), "UnknownOperationException"),
    ):
        with pytest.raises(ClientError) as caught:
            asked()
        assert caught.value.response["Error"]["Code"] == code


def test_idle_environments_end_and_limits_come_from_the_catalogue(folder: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "short.csv"
    columns = (
        "instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,retired,"
        "usd_per_gb_second,usd_per_million_requests,billing_step_ms,concurrency,ramp_per_10s,burst,keep_alive_s"
    )
    catalogue.write_text(f"{columns}\nlambda:1024,function,,,,,,,,,false,0.00001,0.2,100,10,0.001,1,0.1\n")
    functions = [FunctionConfig("plain", 1024, handler="handlers.handler", folder=str(folder))]
    with local_lambda(tmp_path, functions, catalog=str(catalogue)) as there:
        first, answer = invoke(there, "plain")
        assert report(answer)["Billed Duration"] % 100 == 0
        wait_for(lambda: there.status("plain")["environments"] == 0, "its keep-alive is over")
        assert not psutil.pid_exists(first["pid"])
        with pytest.raises(ClientError) as caught:
            invoke(there, "plain")
        assert caught.value.response["Reason"] == "FunctionInvocationRateLimitExceeded"


def test_the_sandbox_part_of_a_cold_start_is_not_billed(folder: Path, tmp_path: Path) -> None:
    functions = [FunctionConfig("plain", 1024, handler="handlers.handler", folder=str(folder))]
    with local_lambda(tmp_path, functions, sandbox_mean_s=1.0, sandbox_p95_s=1.0) as there:
        began = os.times().elapsed
        _, answer = invoke(there, "plain")
        took_ms = (os.times().elapsed - began) * 1e3
        assert report(answer)["Billed Duration"] <= took_ms - 1000.0 + 20.0  # the clock has steps of 10 ms


MODEL = """
import mark

class Double(mark.Model):
    inputs = [mark.TensorSpec("x", "FP64")]

    def predict(self, batch):
        return [2.0 * x for x in batch]
"""


def test_a_function_on_arm64_is_billed_as_such(tmp_path: Path) -> None:
    (tmp_path / "double.toml").write_text(
        '[service]\nname = "double"\nmodel = "double:Double"\nslo_ms = 1000\nslo_attainment = 0.98\n'
        'profile = "own.csv"\n[overflow]\nfunction = "lambda-arm64:1024"\n'
    )
    (tmp_path / "own.csv").write_text("model,instance,batch,latency_ms\ndouble:Double,lambda-arm64:1024,1,5\n")
    config = overflow_function(load_service(str(tmp_path / "double.toml")), "overflow")
    assert (config.memory_mb, config.arm64) == (1024, True)
    assert config.offer_name == "lambda-arm64:1024"


def test_a_stages_function_answers_what_its_conductor_asks(tmp_path: Path) -> None:
    """Bouncers would give the same answer. A stage without a profile of any size has no function, whatever its file
    names."""
    (tmp_path / "doubled.py").write_text(MODEL)
    (tmp_path / "p.csv").write_text(
        "model,instance,batch,latency_ms,cold_ms\ndoubled:Double,c7i.large,1,1,\ndoubled:Double,lambda:1024,1,2,50\n"
        "absent:M,c7i.large,1,1,\n"
    )
    file = tmp_path / "p.toml"
    file.write_text(
        '[service]\nname = "p"\nslo_ms = 100\nslo_attainment = 0.9\nprofile = "p.csv"\n[overflow]\n'
        'function = "lambda:*"\n[stage.a]\nmodel = "doubled:Double"\nslo_ms = 50\n'
        '[stage.b]\nmodel = "absent:M"\nafter = ["a"]\nslo_ms = 50\n'
    )
    stages = load_pipeline(str(file)).stage_services()
    assert [has_function(stage) for stage in stages] == [True, False]
    config = overflow_function(stages[0], "overflow")
    assert (config.spare, config.cold_s, config.variables["MARK_NAME"]) == (4, 0.05, "a")
    event = json.loads(calls_to_event([call_with(4.0)]))
    (reply,) = replies_from_result(loaded(config.variables)(event), 1)
    assert results_of(reply) == [8.0]


@pytest.mark.slow
@pytest.mark.parametrize("profiled", [True, False])
def test_an_overflow_function_answers_bouncers_at_its_profiles_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profiled: bool
) -> None:
    (tmp_path / "double.py").write_text(MODEL)
    row = "double:Double,lambda:1024,1,250\n" if profiled else ""
    (tmp_path / "own.csv").write_text(f"model,instance,batch,latency_ms\ndouble:Double,c7i.large,1,5\n{row}")
    (tmp_path / "double.toml").write_text(
        '[service]\nname = "double"\nmodel = "double:Double"\nslo_ms = 1000\nslo_attainment = 0.98\n'
        'profile = "own.csv"\n[overflow]\nfunction = "lambda:1024"\n'
    )
    config = overflow_function(load_service(str(tmp_path / "double.toml")), "overflow")
    call = Call(
        "oip", "application/json", b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [4]}]}'
    )
    with local_lambda(tmp_path, [config]) as there:
        LambdaWorld(there.url, monkeypatch)

        async def main() -> None:
            functions = LambdaFunctions("overflow")
            for _ in range(2):
                (reply,) = await functions.call([call], 30.0)
                assert json.loads(bytes(reply.body))["outputs"][0]["data"] == [8.0]
            billed_before = there.status("overflow")["billed_ms"]
            await functions.call([call], 30.0)
            await functions.close()
            # The stage's clock and the bill's start some milliseconds apart on a busy machine.
            assert (there.status("overflow")["billed_ms"] - billed_before >= 200) == profiled

        asyncio.run(main())


def test_an_overflow_function_holds_the_version_with_most_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry holds the version; the function has its bytes and the pace of its registered profile."""
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "registry"))
    rows = b"model,instance,batch,latency_ms,cold_ms\nown:M,lambda:1024,1,30,700\n"
    version = open_registry().register("m", "own:M", {}, profile=("own:M", rows))
    file = tmp_path / "service.toml"
    file.write_text(
        f'[service]\nname = "s"\nmodel = "registry:m@{version.short}"\nslo_ms = 600\nslo_attainment = 0.98\n'
        '[overflow]\nfunction = "lambda:1024"\n'
    )
    config = overflow_function(pinned(load_service(str(file))), "overflow")
    said = dict(parse_qsl(config.variables["MARK_MODEL"].partition("?")[2]))
    assert said["model"] == f"version:{tmp_path}/cache/models/{version.id}"
    assert (said["profiled"], said["instance"], config.cold_s) == ("own:M", "lambda:1024", 0.7)
    assert Path(said["profile"]).read_bytes() == rows


def test_environments_end_when_the_local_lambda_is_killed(folder: Path, tmp_path: Path) -> None:
    functions = [FunctionConfig("plain", 1024, handler="handlers.handler", folder=str(folder))]
    with local_lambda(tmp_path, functions) as there:
        environment = invoke(there, "plain")[0]["pid"]
        there.process.kill()
        wait_for(lambda: not psutil.pid_exists(environment), "it ends")
