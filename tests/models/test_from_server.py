"""Servers that already run, as models: real sockets, a server of the standard library, our own codec behind it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.answering import answer, warm_up
from mark.models.call import Call
from mark.models.from_server import ServerFailed, ServerModel
from mark.models.loading import find, load
from mark.models.metadata import metadata
from tests.certificates import of_its_own
from tests.models.calls import oip, one, outputs, sagemaker, tensor

# method, path, headers, body -> status, headers, body
Route = Callable[[str, str, Any, bytes], tuple[int, dict[str, str], bytes]]


class Upstream:
    """The server behind: `route` may be changed, `seen` are the requests, `connections` their sockets."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.seen: list[tuple[str, str, bytes]] = []
        self.connections: set[Any] = set()
        self.hang_ups = 0  # connections to be closed without an answer
        self.url = ""


@contextmanager
def running(route: Route, tls: ssl.SSLContext | None = None) -> Iterator[Upstream]:
    """Yield a server on a free port."""
    upstream = Upstream(route)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            upstream.seen.append((self.command, self.path, body))
            upstream.connections.add(self.client_address)
            if upstream.hang_ups:
                upstream.hang_ups -= 1
                self.close_connection = True
                return
            status, headers, answered = upstream.route(self.command, self.path, self.headers, body)
            self.send_response(status)
            for name, value in (headers | {"content-length": str(len(answered))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answered)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Log nothing: the tests say enough."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    upstream.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    try:
        yield upstream
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@mark.model(
    name="adder",
    inputs=[mark.TensorSpec("x", "FP32", (2,)), mark.TensorSpec("t", "BYTES")],
    outputs=[mark.TensorSpec("sum", "FP32"), mark.TensorSpec("t", "BYTES")],
)
def adder(batch: list[Any]) -> list[Any]:
    """The model of the upstream."""
    return [{"sum": item["x"].sum(), "t": item["t"]} for item in batch]


def oip_route(model: mark.Model, extensions: list[str], described: bool = True) -> Route:
    """Return an Open Inference server."""

    def route(method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/v2":
            return 200, {}, orjson.dumps({"name": "u", "version": "1", "extensions": extensions})
        if method == "GET":
            return 200, {}, orjson.dumps(metadata(model) if described else {"name": "u"})
        length = headers.get("inference-header-content-length")
        assert (length is not None) == bool(extensions)
        (reply,) = answer(model, [Call("oip", "", body, None if length is None else int(length))])
        more = {} if reply.json_bytes is None else {"inference-header-content-length": str(reply.json_bytes)}
        return reply.status, {"content-type": reply.content_type} | more, bytes(reply.body)

    return route


@pytest.mark.parametrize("extensions", [["binary_tensor_data"], []], ids=["binary", "json"])
def test_an_open_inference_server(tmp_path: Path, extensions: list[str]) -> None:
    """It tells its tensors itself; a batch of several requests is one request to it, on one kept connection."""
    with running(oip_route(adder, extensions)) as upstream:
        model = load(f"{upstream.url}/v2/models/adder", tmp_path)
        warm_up(model)
        assert (list(model.inputs), list(model.outputs)) == (adder.inputs, adder.outputs)
        calls = [oip(tensor("x", data=[i, 1]), tensor("t", [1], "BYTES", data=[f"é{i}"])) for i in range(3)]
        replies = answer(model, calls)
        for i, reply in enumerate(replies):
            assert {each["name"]: each["data"] for each in outputs(reply)} == {"sum": [i + 1], "t": [f"é{i}"]}
        assert [path for _, path, _ in upstream.seen[2:]] == ["/v2/models/adder/infer"] * 2
        assert len(upstream.connections) == 1


def test_any_certificate_will_do_where_that_is_said(tmp_path: Path) -> None:
    with running(oip_route(adder, []), of_its_own()) as upstream:
        reference = f"{upstream.url}/v2/models/adder"
        with pytest.raises(BadInput, match="certificate verify failed"):
            load(reference, tmp_path)
        model = find(reference, tmp_path)
        assert isinstance(model, ServerModel)
        model.trust_any_certificate()
        model.load()
        assert outputs(one(model, oip(tensor("x", data=[1, 1]), tensor("t", [1], "BYTES", data=["a"]))))[0]["data"] == [
            2
        ]


def test_a_server_that_does_not_describe_itself(tmp_path: Path) -> None:
    """Its only input and output are used unchanged."""
    with running(oip_route(mark.model(lambda batch: [2 * item for item in batch]), [], described=False)) as upstream:
        model = load(f"{upstream.url}/v2/models/m/versions/3", tmp_path)
        assert model.inputs == []
        assert outputs(one(model, oip(tensor(data=[1, 2]))))[0]["data"] == [2, 4]


def test_a_kept_connection_that_was_closed_is_opened_again(tmp_path: Path) -> None:
    """Servers close idle ones without a word, and clients need not notice; twice in a row is a failure."""
    with running(oip_route(adder, [])) as upstream:
        model = load(f"{upstream.url}/v2/models/adder", tmp_path)
        upstream.hang_ups = 1
        warm_up(model)
        assert len(upstream.connections) == 2
        upstream.hang_ups = 2
        with pytest.raises(ServerFailed, match="ProtocolError"):
            warm_up(model)


def _json(value: Any, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, orjson.dumps(value)


def test_tensorflow_serving(tmp_path: Path) -> None:
    """Items are instances, arrays as lists and bytes in base64; predictions are results, of several outputs too."""

    def route(method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if method == "GET":
            return _json({"model_version_status": []})
        assert path == "/v1/models/m:predict"
        instances = orjson.loads(body)["instances"]
        return _json({"predictions": [{"n": [len(each)], "same": each} for each in instances]})

    with running(route) as upstream:
        model = load(f"{upstream.url}/v1/models/m", tmp_path)
        reply = one(model, sagemaker(b'{"instances": [[1, 2], [3, 4]]}'))
        assert reply.body == b'{"predictions":[{"n":[2],"same":[1,2]},{"n":[2],"same":[3,4]}]}'
        found = outputs(one(model, oip(tensor(data=[1, 2]))))
        assert [(each["name"], each["data"]) for each in found] == [("n", [2]), ("same", [1.0, 2.0])]
        assert model.predict([b"\xff", np.float32(1.5)][:1]) == [{"n": [1], "same": {"b64": "/w=="}}]


def test_a_sagemaker_container(tmp_path: Path) -> None:
    """Each item is a request of JSON or bytes, answered unchanged, unless the container takes whole batches."""

    def route(method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/ping":
            return 200, {}, b""
        kind = headers["content-type"]
        if kind == "application/octet-stream":
            return 200, {"content-type": "image/png"}, body[::-1]
        if kind == "text/csv":
            return 200, {"content-type": "text/csv"}, b",".join(line[:1] for line in body.splitlines())
        given = orjson.loads(body)
        if isinstance(given, dict):
            return _json({"predictions": [sum(each) for each in given["instances"]]})
        return _json({"sum": sum(given)})

    with running(route) as upstream:
        model = load(f"{upstream.url}/invocations", tmp_path)
        reply = one(model, sagemaker(b'{"inputs": [[1, 2], [3, 4]]}'))
        assert reply.body == b'[{"sum":3},{"sum":7}]'
        assert one(model, sagemaker(b"ab", "image/png")).body == b"ba"
        assert len(upstream.seen) == 4
        many = load(f"{upstream.url}/invocations?send=instances", tmp_path)
        assert outputs(one(many, oip(tensor(shape=[2, 2], data=[1, 2, 3, 4]))))[0]["data"] == [3.0, 7.0]
        csv = load(f"{upstream.url}/invocations?send=csv", tmp_path)
        assert one(csv, sagemaker(b"1,2\n3,4", "text/csv")).body == b"[1.0,3.0]"
        assert csv.predict([np.array([5, 6])]) == [5.0]


@pytest.mark.parametrize("path", ["/v2/models/m", "/v1/models/m", "/invocations"])
def test_a_missing_or_unready_server_is_bad_input(tmp_path: Path, path: str) -> None:
    """One line that has its address and its own words."""
    with running(lambda *_: _json({"error": "not\nready"}, 503)) as upstream:
        with pytest.raises(BadInput, match=r"answered 503: .*not.*ready") as caught:
            load(upstream.url + path, tmp_path)
        gone = upstream.url
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="refused"):
        load(gone + path, tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"outputs": 7}',
        b'{"outputs": [{}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP31", "shape": [1], "parameters": {"binary_data_size": 1}}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}',
    ],
)
def test_an_unreadable_answer_is_a_server_failure(tmp_path: Path, body: bytes) -> None:
    """It is neither an exception of ours nor the client's fault."""
    with running(oip_route(adder, [], described=False)) as upstream:
        model = load(f"{upstream.url}/v2/models/m", tmp_path)
        upstream.route = lambda *_: (200, {}, body)
        with pytest.raises(ServerFailed, match="cannot be read"):
            model.predict([np.zeros(2)])
        assert one(model, oip(tensor(data=[1, 2]))).status == 500


@pytest.mark.parametrize("kind", ["v1/models/m", "invocations?send=instances", "invocations", "invocations?send=csv"])
def test_other_servers_that_answer_nonsense(tmp_path: Path, kind: str) -> None:
    """The same for the other protocols."""
    with running(lambda *_: _json({})) as upstream:
        model = load(f"{upstream.url}/{kind}", tmp_path)
        upstream.route = lambda *_: (200, {"content-type": "application/json"}, b"{")
        with pytest.raises(ServerFailed):
            model.predict([np.zeros(2)])
        upstream.route = lambda *_: _json({"error": "no"}, 400)
        with pytest.raises(ServerFailed, match="answered 400"):
            model.predict([np.zeros(2)])
