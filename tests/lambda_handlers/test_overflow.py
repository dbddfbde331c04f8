"""Code inside a function: the handler by itself, and in AWS's own runtime behind the port."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mark_lambda
import pytest
from mark_infra.aws.lambda_functions import LambdaFunctions
from mark_infra.testbed.local_functions import FunctionConfig
from mark_lambda.overflow import LONGEST_HOLD_MS, OverflowHandler, loaded

import mark
from mark.domain.errors import BadInput
from mark.models.call import Call
from mark.models.envelope import billed_s_from_result, calls_to_event, replies_from_result
from mark.serving.overflow.functions import FunctionsFailed
from tests.infra.testbed.local_lambda import local_lambda
from tests.infra.testbed.real_processes import get
from tests.serving.overflow.test_functions import LambdaWorld

MODEL = """
import os
import mark

class Double(mark.Model):
    inputs = [mark.TensorSpec("x", "FP64")]
    warmed = 0

    def predict(self, batch):
        if any(x == 13.0 for x in batch):
            raise ArithmeticError("unlucky")
        if any(x == 99.0 for x in batch):
            os._exit(3)
        if all(x == 0.0 for x in batch):
            self.warmed += 1
        return [2.0 * x for x in batch]

def other(event, context):
    raise ValueError("not an event of calls")
"""
TASK_ROOT = Path(mark_lambda.__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "model_of_overflow.py").write_text(MODEL)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("model_of_overflow", None)


def variables(folder: Path) -> dict[str, str]:
    return {"MARK_MODEL": "model_of_overflow:Double", "MARK_MODEL_PATH": str(folder), "MARK_NAME": "service"}


def oip(*values: float) -> Call:
    tensor = {"name": "x", "shape": [len(values)], "datatype": "FP64", "data": list(values)}
    return Call("oip", "application/json", json.dumps({"inputs": [tensor]}).encode())


def event(*calls: Call) -> Any:
    return json.loads(calls_to_event(calls))


class Pauses(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


class Negative(mark.Model):
    def predict(self, batch: list[Any]) -> list[Any]:
        return [-item for item in batch]


def test_one_call_and_many_are_answered_in_order(folder: Path) -> None:
    """A batch of calls, of several items each, is one prediction; answers have the service's name."""
    handler = loaded(variables(folder))
    (one,) = replies_from_result(handler(event(oip(3.0))), 1)
    said = json.loads(bytes(one.body))
    assert (one.status, said["model_name"], said["outputs"][0]["data"]) == (200, "service", [6.0])
    sagemaker = Call("sagemaker", "application/json", b'{"instances": [5.0]}', accept="application/json")
    many = replies_from_result(handler(event(oip(1.0, 2.0), sagemaker, oip(4.0))), 3)
    assert [reply.status for reply in many] == [200] * 3
    assert json.loads(bytes(many[0].body))["outputs"][0]["data"] == [2.0, 4.0]
    assert json.loads(bytes(many[2].body))["outputs"][0]["data"] == [8.0]


def test_the_first_invocation_is_cold_whatever_it_is(folder: Path) -> None:
    handler = loaded(variables(folder))
    results = [handler(event(oip(1.0))) for _ in range(2)]
    assert [result["cold"] for result in results] == [True, False]
    assert results[0]["load_s"] == results[1]["load_s"] > 0.0
    assert all(result["service_s"] > 0.0 for result in results)
    warmed = OverflowHandler(Negative(), 1.5, Pauses(), now=lambda: 0.0)
    assert warmed({"warm": True}) == {"cold": True, "load_s": 1.5, "billed_ms": 1500}
    assert warmed({"warm": True}) == {"cold": False, "load_s": 1.5, "billed_ms": 0}


def test_handler_time_is_billed_in_whole_milliseconds() -> None:
    """AWS bills the start, with its imports before the first answer, and rounds each fraction of a millisecond up."""
    now_s = 0.0

    class Slow(mark.Model):
        def predict(self, batch: list[Any]) -> list[Any]:
            nonlocal now_s
            now_s += 0.0123
            return batch

    handler = OverflowHandler(Slow(), 1.0, Pauses(), init_s=1.25, now=lambda: now_s)
    ask = event(Call("sagemaker", "application/json", b'{"instances": [1]}', accept="application/json"))
    results = [handler(ask) for _ in range(3)]
    assert [result["billed_ms"] for result in results] == [1263, 13, 13]
    assert [billed_s_from_result(result) for result in results] == [1.263, 0.013, 0.013]


@pytest.mark.parametrize("said", [{}, [], None, *({"billed_ms": bad} for bad in ("1", None, True, -1, float("nan")))])
def test_what_an_older_handler_does_not_say_is_unknown(said: Any) -> None:
    assert billed_s_from_result(said) is None


def test_the_start_of_a_process_is_known() -> None:
    """It includes the time before any import of ours."""
    code = "import mark_lambda.overflow as o; before = o.process_age_s(); assert 0.0 < before < 60.0; print(before)"
    environment = os.environ | {"PYTHONPATH": str(TASK_ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)


def test_a_model_is_warmed_up_before_its_first_request(folder: Path) -> None:
    assert loaded(variables(folder))._model.warmed == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("hold_ms", "held_s"), [(200, 0.2), (0, 0.0), (-5.0, 0.0), (1e9, LONGEST_HOLD_MS / 1e3), (float("nan"), 0.0)]
)
def test_a_warm_up_holds_its_environment_for_a_moment(hold_ms: float, held_s: float) -> None:
    """So several warm-ups at a time reach several environments, but never for long enough to cost much."""
    pauses = Pauses()
    OverflowHandler(Negative(), 0.0, pauses)({"warm": True, "hold_ms": hold_ms})
    assert pauses == [held_s]


@pytest.mark.parametrize(
    "unknown",
    [
        *({}, {"calls": 1}, {"calls": [{}]}, {"calls": ["x"]}, {"warm": "yes"}, {"warm": True, "hold_ms": "long"}),
        *([], None, "calls", {"calls": [{"protocol": "oip", "content_type": "", "body": "not base64"}]}),
    ],
    ids=str,
)
def test_a_foreign_event_is_an_invocation_error(unknown: Any) -> None:
    with pytest.raises(ValueError, match=r"not an event of calls|hold_ms"):
        OverflowHandler(Negative(), 0.0, Pauses())(unknown)


def test_a_model_that_fails_answers_so_and_goes_on(folder: Path) -> None:
    """A bad call is refused alone. If the model fails on a batch, each call in it gets 500; the next is served."""
    handler = loaded(variables(folder))
    bad = Call("oip", "application/json", b"{")
    statuses = [reply.status for reply in replies_from_result(handler(event(oip(1.0), bad)), 2)]
    assert statuses == [200, 400]
    failed = replies_from_result(handler(event(oip(13.0), oip(1.0))), 2)
    assert [reply.status for reply in failed] == [500, 500]
    assert json.loads(bytes(failed[0].body)) == {"error": "the model failed: ArithmeticError"}
    assert replies_from_result(handler(event(oip(1.0))), 1)[0].status == 200


@pytest.mark.parametrize("reference", ["", "nothing", "model_of_overflow:Missing"])
def test_an_environment_without_a_model_does_not_start(folder: Path, reference: str) -> None:
    with pytest.raises(BadInput):
        loaded(variables(folder) | {"MARK_MODEL": reference})


def test_it_brings_neither_server_nor_planner() -> None:
    """Each further module makes a cold start longer."""
    code = "import sys, mark_lambda.overflow; print(*sorted(m for m in sys.modules if m.startswith('mark.')))"
    environment = os.environ | {"PYTHONPATH": str(TASK_ROOT)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    packages = {module.split(".")[1] for module in found.stdout.split()}
    assert packages == {"domain", "models"}


def test_in_the_runtime_of_aws_behind_the_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port, Lambda's API, AWS's runtime in its own process, our handler, the model, and back."""
    pytest.importorskip("awslambdaric")
    configs = [
        FunctionConfig("overflow", 1024, variables(folder), folder=str(folder)),
        FunctionConfig("other", 1024, handler="model_of_overflow.other", folder=str(folder)),
        FunctionConfig("missing", 1024, variables(folder) | {"MARK_MODEL": "model_of_overflow:Missing"}),
    ]
    began_s = time.monotonic()
    with local_lambda(folder, configs) as there:
        LambdaWorld(there.url, monkeypatch)

        async def main() -> None:
            functions = LambdaFunctions("overflow")
            replies = await functions.call([oip(1.0, 2.0), oip(13.5)], 30.0)
            assert [json.loads(bytes(reply.body))["outputs"][0]["data"] for reply in replies] == [[2.0, 4.0], [27.0]]
            (unlucky,) = await functions.call([oip(13.0)], 30.0)
            assert unlucky.status == 500
            assert functions.spent.calls == 2
            assert 0.002 <= functions.spent.billed_s < time.monotonic() - began_s
            await functions.close()
            for name, said in (("other", "Unhandled: .*not an event of calls"), ("missing", "has no Missing")):
                functions = LambdaFunctions(name)
                with pytest.raises(FunctionsFailed, match=said):
                    await functions.call([oip(1.0)], 30.0)
                assert functions.spent.calls == 1, "a failure is billed as well"
                await functions.close()

        asyncio.run(main())
        # The reported bill is within the measured time; the runtime's own share is the difference.
        began_s = time.monotonic()
        status, result = get(f"{there.url}/2015-03-31/functions/overflow/invocations", {"warm": True, "hold_ms": 50})
        assert (status, result["cold"]) == (200, False)
        assert 50 <= result["billed_ms"] <= 1 + 1e3 * (time.monotonic() - began_s)
