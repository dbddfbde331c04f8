"""A function called by a load balancer gives a bouncer's answer, to clients that a bouncer would admit."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import pytest
from mark_infra.deploy.keys import SiteKey, for_bouncers
from mark_lambda.by_balancer import KEPT_S, BalancerRequests, KeyDigests
from mark_lambda.overflow import OverflowHandler

import mark
from mark.models.call import RESULTS, Reply
from mark.models.results import call_with, results_of

CLIENT, READER = "client-key-of-32-characters-0001", "metrics-key-of-32-characters-001"
KEYS = [SiteKey("client", CLIENT, ("infer",)), SiteKey("reader", READER, ("metrics",))]
OIP = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]}]}


class Double(mark.Model):
    name, version = "service", "2"
    inputs = (mark.TensorSpec("x", "FP64"),)
    outputs = (mark.TensorSpec("y", "FP64"),)

    def predict(self, batch: list[Any]) -> list[Any]:
        return [np.float64(2.0 * x) for x in batch]


class Wide(Double):
    """A model whose answer is larger than a balancer takes."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [np.zeros(200_000) for _ in batch]

    outputs = (mark.TensorSpec("y", "FP64", (200_000,)),)


def answers(model: mark.Model | None = None) -> BalancerRequests:
    return BalancerRequests(model or Double(), KeyDigests(lambda: for_bouncers(KEYS)))


def request(
    path: str = "/v2/models/service/infer", body: bytes | str = "", method: str = "POST", **headers: str
) -> dict[str, Any]:
    """Return the event as AWS's documentation shows it."""
    named = {"content-type": "application/json", "x-api-key": CLIENT}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return {
        "requestContext": {"elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/f/1"}},
        "httpMethod": method,
        "path": path,
        "queryStringParameters": {},
        "headers": named,
        "body": body if isinstance(body, str) else b64encode(body).decode(),
        "isBase64Encoded": isinstance(body, bytes),
    }


def said(answer: dict[str, Any]) -> Any:
    body = b64decode(answer["body"]) if answer["isBase64Encoded"] else answer["body"].encode()
    return json.loads(body)


@pytest.mark.parametrize("path", ["/v2/models/service/infer", "/v2/models/service/versions/2/infer"])
@pytest.mark.parametrize("body", [json.dumps(OIP), json.dumps(OIP).encode()], ids=["text", "base64"])
def test_a_request_is_answered_as_by_a_bouncer(path: str, body: bytes | str) -> None:
    answer = answers()(request(path, body, x_request_id="abc"))
    assert answer["statusCode"] == 200
    assert answer["headers"] == {
        "content-type": "application/json",
        "mark-answered-by": "function",
        "x-request-id": "abc",
    }
    assert said(answer)["outputs"][0]["data"] == [2.0, 4.0]
    assert json.loads(json.dumps(answer)) == answer


def test_invocations_are_answered_in_the_form_asked_for() -> None:
    """A default service's requests name no service; the path may be written in another way."""
    answer = answers()(request("/%69nvocations/", '{"instances": [5.0]}', accept="application/json"))
    assert (answer["statusCode"], said(answer)) == (200, {"predictions": [10.0]})


def test_binary_tensors_come_and_go_in_base64() -> None:
    described = {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "parameters": {"binary_data_size": 8}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(described).encode()
    body = head + np.array([3.0]).tobytes()
    answer = answers()(
        request(body=body, content_type="application/octet-stream", inference_header_content_length=str(len(head)))
    )
    assert answer["isBase64Encoded"]
    whole = b64decode(answer["body"])
    rest = whole[int(answer["headers"]["inference-header-content-length"]) :]
    assert np.frombuffer(rest).tolist() == [6.0]
    wrong = answers()(request(body=body, inference_header_content_length=str(len(body) + 1)))
    assert wrong["statusCode"] == 400


def test_compressed_bodies_are_inflated() -> None:
    answer = answers()(request(body=gzip.compress(json.dumps(OIP).encode()), content_encoding="gzip"))
    assert said(answer)["outputs"][0]["data"] == [2.0, 4.0]
    unknown = answers()(request(body=b"x", content_encoding="br"))
    assert (unknown["statusCode"], unknown["headers"]["accept-encoding"]) == (415, "gzip, deflate")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x_api_key": CLIENT}, 200),
        ({"x_api_key": "another-key-of-32-characters-0001"}, 401),
        ({"x_api_key": KEYS[0].digest}, 401),
        ({"x_api_key": KEYS[0].digest.removeprefix("sha256-")}, 401),
        ({"x_api_key": READER}, 403),
        ({"x_api_key": ""}, 401),
    ],
    ids=["client's", "unknown", "digest", "bare digest", "another right", "none"],
)
def test_keys_are_checked_as_bouncers_do(headers: dict[str, str], status: int) -> None:
    assert answers()(request(body=json.dumps(OIP), **headers))["statusCode"] == status


def test_a_key_may_be_a_bearer() -> None:
    event = request(body=json.dumps(OIP))
    del event["headers"]["x-api-key"]
    assert answers()(event)["statusCode"] == 401
    event["headers"]["Authorization"] = f"Bearer {CLIENT}"
    assert answers()(event)["statusCode"] == 200


def test_without_a_parameter_no_client_may_ask() -> None:
    refused = BalancerRequests(Double(), None)(request(body=json.dumps(OIP)))
    assert (refused["statusCode"], refused["headers"]["www-authenticate"]) == (401, "Bearer")
    assert refused["headers"]["mark-answered-by"] == "function"


class Parameter:
    """Systems Manager, which may fail, and a clock."""

    def __init__(self) -> None:
        self.text: str | None = for_bouncers(KEYS)
        self.now_s, self.reads = 0.0, 0

    def read(self) -> str:
        self.reads += 1
        if self.text is None:
            raise OSError("throttled")
        return self.text


def test_a_revoked_key_is_refused_within_a_minute() -> None:
    """Keys are read once a minute, and a key with an end expires on time. If a read fails, the last keys hold."""
    parameter = Parameter()
    parameter.text = for_bouncers([*KEYS, SiteKey("old", "an-old-key-of-32-characters-00001", ("infer",), 30)])
    keys = KeyDigests(parameter.read, lambda: parameter.now_s)
    client, old = {"x-api-key": CLIENT}, {"x-api-key": "an-old-key-of-32-characters-00001"}
    assert keys.refuses(client) is keys.refuses(old) is None
    parameter.now_s, parameter.text = 31.0, None
    assert (keys.refuses(client), keys.refuses(old), parameter.reads) == (None, 401, 1)
    parameter.now_s = KEPT_S
    assert (keys.refuses(client), parameter.reads) == (None, 2)
    parameter.now_s, parameter.text = KEPT_S + 5.0, for_bouncers(KEYS[1:])
    assert keys.refuses(client) == 401


@pytest.mark.parametrize("text", [None, "nonsense"])
def test_keys_that_cannot_be_read_let_no_client_in(text: str | None) -> None:
    parameter = Parameter()
    parameter.text = text
    answer = BalancerRequests(Double(), KeyDigests(parameter.read))(request(body=json.dumps(OIP)))
    assert (answer["statusCode"], answer["headers"]["retry-after"]) == (503, "5")


def test_pages_are_those_of_a_bouncer() -> None:
    found = {
        path: answers()(request(path, method="GET"))
        for path in (
            *("/v2", "/ping", "/v2/health/ready", "/v2/models/service", "/v2/models/service/ready"),
            *("/v2/models/other", "/v2/models/service/versions/1/infer"),
        )
    }
    assert [one["statusCode"] for one in found.values()] == [200, 200, 200, 200, 200, 404, 503]
    assert said(found["/v2/models/service"])["versions"] == ["2"]
    assert said(found["/v2/models/service/ready"]) == {"name": "service", "ready": True}
    wrong = answers()(request(method="GET"))
    assert (wrong["statusCode"], wrong["headers"]["allow"]) == (405, "POST")
    head = answers()(request("/v2/models/service", method="HEAD"))
    assert (head["statusCode"], head["body"]) == (200, "")


def test_health_needs_no_key() -> None:
    assert answers()(request("/v2/health/live", method="GET", x_api_key=""))["statusCode"] == 200


def test_an_answer_too_large_for_a_balancer_is_refused() -> None:
    answer = answers(Wide())(request(body=json.dumps(OIP)))
    assert answer["statusCode"] == 503
    assert "too large" in said(answer)["error"]


@pytest.mark.parametrize("changed", [{"path": None}, {"headers": 3}, {"body": "é?"}], ids=str)
def test_an_event_that_is_no_request_is_an_error(changed: dict[str, Any]) -> None:
    event = request(body=b"{}") | changed
    if changed.get("path", "") is None:
        del event["path"]
    with pytest.raises(ValueError, match="not a request of a balancer"):
        answers()(event)


def test_the_handler_answers_both_bouncers_and_balancers() -> None:
    """A bouncer's invocations are as they were."""
    handler = OverflowHandler(Double(), 1.0, keys=lambda: for_bouncers(KEYS))
    assert handler(request(body=json.dumps(OIP)))["statusCode"] == 200
    assert handler({"warm": True})["cold"] is False
    with pytest.raises(ValueError, match="not an event of calls"):
        handler({"requestContext": {"http": {}}})
    assert OverflowHandler(Double(), 1.0)(request(body=json.dumps(OIP)))["statusCode"] == 401


def test_a_conductors_call_of_a_stage_is_answered_by_value() -> None:
    """The stage's own server would answer the same. A body in this form without the end of its JSON is malformed."""
    call = call_with(np.float64(3.0))
    asked = {"content_type": RESULTS, "inference_header_content_length": str(call.json_bytes)}
    answer = answers()(request(body=bytes(call.body), **asked))
    assert (answer["statusCode"], answer["headers"]["content-type"]) == (200, RESULTS)
    length = int(answer["headers"]["inference-header-content-length"])
    assert results_of(Reply(200, RESULTS, b64decode(answer["body"]), length)) == [6.0]
    del asked["inference_header_content_length"]
    assert answers()(request(body=bytes(call.body), **asked))["statusCode"] == 400
