"""What runs inside a function: the handler by itself, and in AWS's own runtime behind the port."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mark_lambda
import pytest
from mark_infra.aws.functions import LambdaFunctions
from mark_lambda.overflow import LONGEST_HOLD_MS, Overflow, loaded

import mark
from mark.domain.errors import BadInput
from mark.models.call import Call
from mark.models.envelope import calls_to_event, replies_from_result
from mark.serving.functions import FunctionsFailed
from tests.infra.lambda_endpoint import Environment, endpoint
from tests.serving.test_functions import LambdaWorld

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
    said = json.loads(one.body)
    assert (one.status, said["model_name"], said["outputs"][0]["data"]) == (200, "service", [6.0])
    sagemaker = Call("sagemaker", "application/json", b'{"instances": [5.0]}', accept="application/json")
    many = replies_from_result(handler(event(oip(1.0, 2.0), sagemaker, oip(4.0))), 3)
    assert [reply.status for reply in many] == [200] * 3
    assert json.loads(many[0].body)["outputs"][0]["data"] == [2.0, 4.0]
    assert json.loads(many[2].body)["outputs"][0]["data"] == [8.0]


def test_the_first_invocation_is_cold_whatever_it_is(folder: Path) -> None:
    handler = loaded(variables(folder))
    results = [handler(event(oip(1.0))) for _ in range(2)]
    assert [result["cold"] for result in results] == [True, False]
    assert results[0]["load_s"] == results[1]["load_s"] > 0.0
    assert all(result["service_s"] > 0.0 for result in results)
    warmed = Overflow(Negative(), 1.5, Pauses())
    assert warmed({"warm": True}) == {"cold": True, "load_s": 1.5}
    assert warmed({"warm": True}) == {"cold": False, "load_s": 1.5}


def test_a_model_is_warmed_up_before_anybody_waits_for_it(folder: Path) -> None:
    assert loaded(variables(folder))._model.warmed == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("hold_ms", "held_s"), [(200, 0.2), (0, 0.0), (-5.0, 0.0), (1e9, LONGEST_HOLD_MS / 1e3), (float("nan"), 0.0)]
)
def test_a_warm_up_holds_its_environment_for_a_moment(hold_ms: float, held_s: float) -> None:
    """So that several at once reach as many environments; never for so long that it costs."""
    pauses = Pauses()
    Overflow(Negative(), 0.0, pauses)({"warm": True, "hold_ms": hold_ms})
    assert pauses == [held_s]


@pytest.mark.parametrize(
    "unknown",
    [
        *({}, {"calls": 1}, {"calls": [{}]}, {"calls": ["x"]}, {"warm": "yes"}, {"warm": True, "hold_ms": "long"}),
        *([], None, "calls", {"calls": [{"protocol": "oip", "content_type": "", "body": "not base64"}]}),
    ],
    ids=str,
)
def test_an_event_that_is_none_of_ours_is_an_error_of_the_invocation(unknown: Any) -> None:
    with pytest.raises(ValueError, match=r"not an event of calls|hold_ms"):
        Overflow(Negative(), 0.0, Pauses())(unknown)


def test_a_model_that_fails_answers_so_and_goes_on(folder: Path) -> None:
    """A bad call is refused alone; a batch the model fails on is 500 for each; the next is served."""
    handler = loaded(variables(folder))
    bad = Call("oip", "application/json", b"{")
    statuses = [reply.status for reply in replies_from_result(handler(event(oip(1.0), bad)), 2)]
    assert statuses == [200, 400]
    failed = replies_from_result(handler(event(oip(13.0), oip(1.0))), 2)
    assert [reply.status for reply in failed] == [500, 500]
    assert json.loads(failed[0].body) == {"error": "the model failed: ArithmeticError"}
    assert replies_from_result(handler(event(oip(1.0))), 1)[0].status == 200


@pytest.mark.parametrize("reference", ["", "nothing", "model_of_overflow:Missing"])
def test_an_environment_without_a_model_does_not_start(folder: Path, reference: str) -> None:
    with pytest.raises(BadInput):
        loaded(variables(folder) | {"MARK_MODEL": reference})


def test_it_brings_neither_server_nor_planner() -> None:
    """Each module more is a longer cold start."""
    code = "import sys, mark_lambda.overflow; print(*sorted(m for m in sys.modules if m.startswith('mark.')))"
    environment = os.environ | {"PYTHONPATH": str(TASK_ROOT)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    packages = {module.split(".")[1] for module in found.stdout.split()}
    assert packages == {"domain", "models"}


def test_in_the_runtime_of_aws_behind_the_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port, Lambda's API, AWS's runtime in a process of its own, our handler, the model, and back."""
    pytest.importorskip("awslambdaric")
    more = variables(folder) | {"PYTHONPATH": str(TASK_ROOT), "LAMBDA_TASK_ROOT": str(TASK_ROOT)}
    with (
        Environment("mark_lambda.overflow.handler", folder, more).running() as environment,
        endpoint(overflow=environment) as there,
    ):
        LambdaWorld(there.url, monkeypatch)
        assert json.loads(environment(b'{"warm": true, "hold_ms": 1}'))["cold"] is True

        async def main() -> None:
            functions = LambdaFunctions("overflow")
            replies = await functions.call([oip(1.0, 2.0), oip(13.5)], 30.0)
            assert [json.loads(reply.body)["outputs"][0]["data"] for reply in replies] == [[2.0, 4.0], [27.0]]
            (unlucky,) = await functions.call([oip(13.0)], 30.0)
            assert unlucky.status == 500
            there.functions["overflow"] = lambda _: environment(b"{}")
            with pytest.raises(FunctionsFailed, match=r"Unhandled: .*not an event of calls"):
                await functions.call([oip(1.0)], 30.0)
            await functions.close()

        asyncio.run(main())
        assert json.loads(environment(calls_to_event([oip(1.0)])))["cold"] is False


def test_in_the_runtime_of_aws_a_model_that_does_not_load_is_reported(folder: Path) -> None:
    pytest.importorskip("awslambdaric")
    more = variables(folder) | {"MARK_MODEL": "model_of_overflow:Missing", "PYTHONPATH": str(TASK_ROOT)}
    with Environment("mark_lambda.overflow.handler", folder, more).running() as environment:
        identity, kind, body = environment.result()
        assert (identity, kind) == ("init", "error")
        assert "has no Missing" in json.loads(body)["errorMessage"]
