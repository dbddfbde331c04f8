"""Standard clients, unchanged, against a real process: a test for each point of the protocols (docs/protocols.md)."""

from __future__ import annotations

import io
import json
import queue
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import mark
from mark.models.model import DATATYPES
from mark.models.tensors import DTYPES
from tests.serving.conftest import Addresses

JSON = "application/json"


class Client:
    """tritonclient by HTTP or by gRPC: they differ in little."""

    def __init__(self, kind: ModuleType, client: Any) -> None:
        self.kind, self.client = kind, client

    def input(self, name: str, array: np.ndarray[Any, Any], datatype: str, binary: bool = True) -> Any:
        made = self.kind.InferInput(name, list(array.shape), datatype)
        if self.kind is tritonclient.http:
            made.set_data_from_numpy(array, binary_data=binary)
        else:
            made.set_data_from_numpy(array)
        return made

    def infer(self, name: str, inputs: list[Any], **more: Any) -> Any:
        return self.client.infer(name, inputs, **more)


@pytest.fixture
def http_client(addresses: Addresses) -> Iterator[Client]:
    with tritonclient.http.InferenceServerClient(addresses.http) as client:
        yield Client(tritonclient.http, client)


@pytest.fixture
def grpc_client(addresses: Addresses) -> Iterator[Client]:
    with tritonclient.grpc.InferenceServerClient(addresses.grpc) as client:
        yield Client(tritonclient.grpc, client)


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.getfixturevalue(f"{request.param}_client")
    return found


@pytest.fixture
def plain(addresses: Addresses) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{addresses.http}", trust_env=False) as client:
        yield client


ROWS = np.array([[1.0, -2.0], [0.5, 3.0]], dtype=np.float32)


def said(kind: str, answer: Any) -> Any:
    """Return the metadata as a dictionary, of either client."""
    if kind == "tritonclient.http":
        return answer
    named = {"name": answer.name}
    return (
        named
        | {
            key: [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in getattr(answer, key)]
            for key in ("inputs", "outputs")
        }
        | {"versions": list(answer.versions), "platform": answer.platform}
    )


# Open Inference Protocol, both addresses


def test_server_live_and_ready(client: Client) -> None:
    assert client.client.is_server_live()
    assert client.client.is_server_ready()


def test_server_metadata(client: Client) -> None:
    answer = client.client.get_server_metadata()
    if client.kind is tritonclient.http:
        assert answer == {"name": "mark", "version": mark.__version__, "extensions": ["binary_tensor_data"]}
    else:
        assert (answer.name, answer.version) == ("mark", mark.__version__)
        assert list(answer.extensions) == ["binary_tensor_data"]


def test_model_ready_by_name_and_version(client: Client) -> None:
    assert client.client.is_model_ready("plain")
    assert client.client.is_model_ready("plain", "many")


def test_a_model_that_is_not_here_is_not_ready(client: Client) -> None:
    if client.kind is tritonclient.http:
        assert not client.client.is_model_ready("other")
        assert not client.client.is_model_ready("plain", "9")
    else:
        for version in ("", "9"):
            with pytest.raises(InferenceServerException, match="NOT_FOUND"):
                client.client.is_model_ready("other" if not version else "plain", version)


def test_model_metadata(client: Client) -> None:
    answer = said(client.kind.__name__, client.client.get_model_metadata("plain"))
    assert answer["name"] == "plain"
    assert answer["versions"] == ["1", "many", "echo", "slow"]
    assert answer["platform"] == "python"
    assert answer["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]
    many = said(client.kind.__name__, client.client.get_model_metadata("plain", "many"))
    assert [each["name"] for each in many["inputs"]] == ["a", "b", "text"]


def test_the_repository_index_lists_every_version(client: Client) -> None:
    answer = client.client.get_model_repository_index()
    if client.kind is tritonclient.http:
        listed = [(each["name"], each["version"], each["state"]) for each in answer]
    else:
        listed = [(each.name, each.version, each.state) for each in answer.models]
    assert listed == [("plain", version, "READY") for version in ("1", "many", "echo", "slow")]


def test_infer(client: Client) -> None:
    answer = client.infer("plain", [client.input("x", ROWS, "FP32")])
    assert answer.as_numpy("y").tolist() == (2 * ROWS).tolist()


def test_the_id_comes_back_and_the_version_is_said(client: Client) -> None:
    answer = client.infer("plain", [client.input("x", ROWS, "FP32")], request_id="mine").get_response()
    if client.kind is tritonclient.http:
        assert (answer["id"], answer["model_name"], answer["model_version"]) == ("mine", "plain", "1")
    else:
        assert (answer.id, answer.model_name, answer.model_version) == ("mine", "plain", "1")


def many(client: Client, binary: bool = True) -> list[Any]:
    return [
        client.input("a", np.array([1, 2], dtype=np.int64), "INT64", binary),
        client.input("b", np.array([30, -40], dtype=np.int64), "INT64"),
        client.input("text", np.array([["über"], ["two"]], dtype=object), "BYTES", binary),
    ]


def test_several_inputs_and_outputs_with_bytes_by_version(client: Client) -> None:
    answer = client.infer("plain", many(client), model_version="many")
    assert answer.as_numpy("sum").tolist() == [31, -38]
    assert answer.as_numpy("loud").tolist() == [["über".encode().upper()], [b"TWO"]]


def test_only_the_outputs_that_are_asked_for(client: Client) -> None:
    asked = [client.kind.InferRequestedOutput("sum")]
    answer = client.infer("plain", many(client), model_version="many", outputs=asked)
    assert answer.as_numpy("sum").tolist() == [31, -38]
    assert answer.as_numpy("loud") is None


def test_outputs_in_the_order_asked_for(client: Client) -> None:
    asked = [client.kind.InferRequestedOutput(name) for name in ("loud", "sum")]
    answer = client.infer("plain", many(client), model_version="many", outputs=asked)
    assert answer.as_numpy("sum").tolist() == [31, -38]
    assert answer.as_numpy("loud")[1].tolist() == [b"TWO"]


def values(datatype: str) -> np.ndarray[Any, Any]:
    if datatype == "BYTES":
        return np.array([[b"", b"\x00\xff"]], dtype=object)
    dtype = DTYPES[datatype]
    if dtype.kind in "iu":
        return np.array([[np.iinfo(dtype).min, np.iinfo(dtype).max]], dtype)
    return np.array([[True, False]]) if dtype.kind == "b" else np.array([[0.1, np.inf]], dtype)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_there_and_back_to_the_bit(client: Client, datatype: str) -> None:
    tensor = values(datatype)
    asked = [client.kind.InferRequestedOutput("output")]
    answer = client.infer("plain", [client.input("any", tensor, datatype)], model_version="echo", outputs=asked)
    found = answer.as_numpy("output")
    assert found.dtype == tensor.dtype
    assert found.tolist() == tensor.tolist()


def test_unknown_parameters_are_ignored(client: Client) -> None:
    inputs = [client.input("x", ROWS, "FP32")]
    answer = client.infer("plain", inputs, parameters={"weight": 3, "note": "any"}, priority=1, sequence_id=5)
    assert answer.as_numpy("y").shape == (2, 2)


def test_compressed_requests(client: Client) -> None:
    inputs = [client.input("x", np.zeros((16, 2), np.float32), "FP32")]
    for algorithm in ("gzip", "deflate"):
        if client.kind is tritonclient.http:
            more = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        else:
            more = {"compression_algorithm": algorithm}
        assert client.infer("plain", inputs, **more).as_numpy("y").shape == (16, 2)


Wrong = Callable[[Client], list[Any]]


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        (lambda c: [c.input("z", ROWS, "FP32")], "no input 'z'"),
        (lambda c: [c.input("x", ROWS.astype(np.float64), "FP64")], "datatype is FP64"),
        (lambda c: [c.input("x", np.zeros((1, 3), np.float32), "FP32")], r"shape is \[1, 3\]"),
        (lambda c: [c.input("x", ROWS, "FP32"), c.input("w", ROWS, "FP32")], "the model has 1 inputs"),
    ],
)
def test_a_wrong_request_is_the_clients_error(client: Client, inputs: Wrong, what: str) -> None:
    with pytest.raises(InferenceServerException, match=what) as error:
        client.infer("plain", inputs(client))
    assert error.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")


def test_an_unknown_model_or_version_is_not_found(client: Client) -> None:
    for name, version, said in (("other", "", "the model here is plain"), ("plain", "9", "plain")):
        with pytest.raises(InferenceServerException, match=said) as error:
            client.infer(name, [client.input("x", ROWS, "FP32")], model_version=version)
        assert error.value.status() in ("404", "StatusCode.NOT_FOUND")


def test_shared_memory_is_refused_in_words(client: Client) -> None:
    made = client.kind.InferInput("x", [1, 2], "FP32")
    made.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="shared_memory_region is not supported"):
        client.infer("plain", [made])


def test_classification_is_refused_in_words(client: Client) -> None:
    asked = [client.kind.InferRequestedOutput("y", class_count=2)]
    with pytest.raises(InferenceServerException, match="classification is not supported"):
        client.infer("plain", [client.input("x", ROWS, "FP32")], outputs=asked)


# HTTP alone


def test_json_in_and_json_out(http_client: Client) -> None:
    asked = [tritonclient.http.InferRequestedOutput("y", binary_data=False)]
    answer = http_client.infer("plain", [http_client.input("x", ROWS, "FP32", binary=False)], outputs=asked)
    assert answer.get_output("y")["data"] == [2.0, -4.0, 1.0, 6.0]


def test_json_and_binary_inputs_in_one_request(http_client: Client) -> None:
    answer = http_client.infer("plain", many(http_client, binary=False), model_version="many")
    assert answer.as_numpy("sum").tolist() == [31, -38]


def test_each_output_binary_or_not_as_asked(http_client: Client) -> None:
    asked = [
        tritonclient.http.InferRequestedOutput("loud", binary_data=False),
        tritonclient.http.InferRequestedOutput("sum", binary_data=True),
    ]
    answer = http_client.infer("plain", many(http_client), model_version="many", outputs=asked)
    assert answer.get_output("loud")["data"] == ["üBER", "TWO"]  # bytes.upper knows ASCII only
    assert "data" not in answer.get_output("sum")
    assert answer.as_numpy("sum").tolist() == [31, -38]


def test_async_infer_by_http(addresses: Addresses) -> None:
    with tritonclient.http.InferenceServerClient(addresses.http, concurrency=4) as client:
        wrapped = Client(tritonclient.http, client)
        pending = [
            client.async_infer("plain", [wrapped.input("x", np.full((1, 2), n, np.float32), "FP32")]) for n in range(8)
        ]
        assert [float(each.get_result().as_numpy("y")[0, 0]) for each in pending] == [2.0 * n for n in range(8)]


def test_nested_data_and_flat_data_are_the_same(plain: httpx.Client) -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        tensor = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": data}
        got = plain.post("/v2/models/plain/infer", json={"inputs": [tensor]})
        assert got.headers["content-type"] == JSON
        assert got.json()["outputs"][0]["data"] == [2.0, 4.0, 6.0, 8.0]


def test_errors_are_objects_with_one_key(plain: httpx.Client) -> None:
    for path, content in (("/v2/models/plain/infer", b"{"), ("/v2/models/other/infer", b"{}"), ("/invocations", b"{")):
        got = plain.post(path, content=content)
        assert 400 <= got.status_code < 500
        assert got.headers["content-type"] == JSON
        assert list(got.json()) == ["error"]


@pytest.mark.parametrize(("coding", "status"), [("gzip", 400), ("br", 415), ("identity", 200), ("deflate", 200)])
@pytest.mark.parametrize("path", ["/invocations", "/v2/models/plain/versions/echo/infer"])
def test_compression_that_is_unknown_or_broken_is_refused(
    plain: httpx.Client, path: str, coding: str, status: int
) -> None:
    content = b"[1.0, 2.0]"
    if path.endswith("infer"):
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
        content = json.dumps({"inputs": [tensor]}).encode()
    if coding == "deflate":
        content = zlib.compress(content)
    got = plain.post(path, content=content, headers={"content-encoding": coding, "content-type": JSON})
    assert got.status_code == status
    assert got.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)


@pytest.mark.parametrize("length", ["", "x", "-1", "1.5", "9" * 5000, "\xb2"])
def test_an_invalid_length_of_the_json_part_is_refused(plain: httpx.Client, length: str) -> None:
    headers = {b"inference-header-content-length": length.encode("latin-1")}
    got = plain.post("/v2/models/plain/infer", content=b"{}", headers=headers)
    assert (got.status_code, "not within the body" in got.json()["error"]) == (400, True)


# gRPC alone


def test_async_infer_by_grpc(grpc_client: Client) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    inputs = [grpc_client.input("x", ROWS, "FP32")]
    for n in range(8):
        grpc_client.client.async_infer(
            "plain", inputs, lambda result, error: done.put((result, error)), request_id=str(n)
        )
    answers = [done.get(timeout=60) for _ in range(8)]
    assert all(error is None for _, error in answers)
    assert {result.get_response().id for result, _ in answers} == set("01234567")


def test_the_clients_time_out_by_grpc(grpc_client: Client) -> None:
    inputs = [grpc_client.input("x", np.array([[7.0, 0.0]], np.float32), "FP32")]
    with pytest.raises(InferenceServerException, match=r"Deadline Exceeded|the deadline"):
        grpc_client.infer("plain", inputs, model_version="slow", client_timeout=0.2)


@pytest.mark.parametrize("call", ["get_inference_statistics", "get_log_settings"])
def test_extensions_that_are_not_here_are_unimplemented(grpc_client: Client, call: str) -> None:
    with pytest.raises(InferenceServerException) as error:
        getattr(grpc_client.client, call)()
    assert error.value.status() == "StatusCode.UNIMPLEMENTED"


def test_streaming_is_unimplemented(grpc_client: Client) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    grpc_client.client.start_stream(lambda result, error: done.put((result, error)))
    _, error = done.get(timeout=60)
    grpc_client.client.stop_stream()
    assert error.status() == "StatusCode.UNIMPLEMENTED"


# SageMaker's container contract


def test_ping_is_empty_and_ok(plain: httpx.Client) -> None:
    got = plain.get("/ping")
    assert (got.status_code, got.content) == (200, b"")


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "content", "accept", "answer"),
    [
        (JSON, b"[1, 2]", JSON, b"[2.0,4.0]"),
        (JSON, b'{"instances": [[1, 2], [3, 4]]}', JSON, b'{"predictions":[[2.0,4.0],[6.0,8.0]]}'),
        (JSON, b"[1, 2]", "", b"[2.0,4.0]"),
        ("", b"[1, 2]", JSON, b"[2.0,4.0]"),
        ("text/csv", b"1,2\n3,4\n", "text/csv", b"2.0,4.0\n6.0,8.0\n"),
        ("text/csv; charset=utf-8", b"1,2\r\n", JSON, b"[[2.0,4.0]]"),
        ("application/x-npy", npy(ROWS), "application/x-npy", npy(2 * ROWS)),
        ("application/x-npy", npy(ROWS), "text/csv", b"2.0,-4.0\n1.0,6.0\n"),
    ],
)
def test_invocations_by_content_type_and_accept(
    plain: httpx.Client, kind: str, content: bytes, accept: str, answer: bytes
) -> None:
    headers = ({"content-type": kind} if kind else {}) | {"accept": accept or "*/*"}
    got = plain.post("/invocations", content=content, headers=headers)
    assert (got.status_code, got.content) == (200, answer)
    assert got.headers["content-type"] == (accept or JSON)


def test_an_invocation_that_cannot_be_answered_as_asked_is_406(plain: httpx.Client) -> None:
    got = plain.post("/invocations", content=b"[1, 2]", headers={"content-type": JSON, "accept": "image/png"})
    assert (got.status_code, list(got.json())) == (406, ["error"])


# curl


@pytest.fixture
def curl(addresses: Addresses, tmp_path: Path) -> Callable[..., tuple[int, bytes]]:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("there is no curl")

    def ask(path: str, *options: str) -> tuple[int, bytes]:
        command = [program, "--silent", "--noproxy", "*", "--max-time", "20", "-w", "\n%{http_code}", *options]
        got = subprocess.run(
            [*command, f"http://{addresses.http}{path}"], capture_output=True, check=True, cwd=tmp_path
        )
        body, _, status = got.stdout.rpartition(b"\n")
        return int(status), body

    return ask


def test_curl_as_people_type_it(curl: Callable[..., tuple[int, bytes]]) -> None:
    request = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]})
    status, body = curl("/v2/models/plain/infer", "-d", request)
    assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [2.0, 4.0])
    assert curl("/invocations", "-d", "[1, 2]") == (200, b"[2.0,4.0]")
    assert curl("/v2/health/ready") == (200, b'{"ready": true}')
    assert curl("/v2/health/ready", "--head")[0] == 200
    assert curl("/nowhere")[0] == 404


def test_curl_with_a_large_body_waits_for_its_invitation(
    curl: Callable[..., tuple[int, bytes]], tmp_path: Path
) -> None:
    """`Expect: 100-continue`, which curl sends by itself above a size; and chunks, from a pipe."""
    file = tmp_path / "rows.csv"
    file.write_text("1,2\n" * 8 + " " * 1_500_000)
    kind = ("-H", "content-type: text/csv", "-H", "accept: text/csv")
    assert curl("/invocations", *kind, "--data-binary", "@rows.csv") == (200, b"2.0,4.0\n" * 8)
    chunked = ("-H", "transfer-encoding: chunked", "-H", "expect: 100-continue")
    assert curl("/invocations", *kind, *chunked, "--data-binary", "@rows.csv") == (200, b"2.0,4.0\n" * 8)


def test_curl_over_the_limit_of_bodies_gets_its_answer(curl: Callable[..., tuple[int, bytes]], tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    assert curl("/invocations", "--data-binary", "@large")[0] == 413
