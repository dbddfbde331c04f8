"""Calls and models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

import mark
from mark.models.answering import answer
from mark.models.call import Call, Reply


class Echo(mark.Model):
    """Returns each batch as its results, and keeps it in `seen`."""

    def __init__(self, inputs: Sequence[mark.TensorSpec] = (), outputs: Sequence[mark.TensorSpec] = ()) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.seen: list[Any] = []

    def predict(self, batch: list[Any]) -> list[Any]:
        self.seen.append(list(batch))
        return batch


def tensor(name: str = "x", shape: Any = (1, 2), datatype: Any = "FP32", **more: Any) -> dict[str, Any]:
    """Return an input of a request."""
    return {"name": name, "shape": shape, "datatype": datatype} | more


def oip(*inputs: Any, tail: bytes = b"", **more: Any) -> Call:
    """Return an Open Inference request; with a tail it is binary."""
    head = orjson.dumps({"inputs": list(inputs)} | more)
    return Call("oip", "application/json", head + tail, len(head) if tail else None)


def sagemaker(body: bytes, content_type: str = "application/json", accept: str = "") -> Call:
    """Return a call of /invocations."""
    return Call("sagemaker", content_type, body, None, accept)


def one(model: mark.Model, call: Call) -> Reply:
    """Return the reply to one call."""
    (reply,) = answer(model, [call])
    return reply


def outputs(reply: Reply) -> list[dict[str, Any]]:
    """Return the outputs of a successful JSON reply."""
    assert reply.status == 200, bytes(reply.body)
    found: list[dict[str, Any]] = orjson.loads(reply.body)["outputs"]
    return found


def error(reply: Reply) -> str:
    """Return the one line of a refusal."""
    assert reply.status >= 400, bytes(reply.body)
    said = orjson.loads(reply.body)
    assert list(said) == ["error"]
    assert isinstance(said["error"], str)
    assert said["error"]
    assert "\n" not in said["error"]
    return said["error"]
