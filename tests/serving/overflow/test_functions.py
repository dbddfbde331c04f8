"""The port to functions: one suite over the fake, another server, and AWS Lambda; then adapter-specific tests."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import pytest
from mark_infra.aws.lambda_functions import LambdaFunctions

from mark.domain.errors import BadInput
from mark.models.call import RESULTS, Call, Reply
from mark.models.envelope import calls_from_event, replies_to_result
from mark.models.results import call_with, results_of
from mark.serving.overflow.functions import FunctionClient, FunctionsFailed, Throttled, UnderWay, Unsuitable
from mark.serving.overflow.http_client import Reach
from mark.serving.overflow.http_functions import HttpFunctions
from tests.infra.lambda_endpoint import Failure, endpoint
from tests.serving.fakes import FakeFunctions
from tests.serving.test_server_process import MODEL, address, body, start, write_service


def calls(*bodies: bytes) -> list[Call]:
    return [Call("oip", "application/json", body) for body in bodies]


class World(Protocol):
    """A port, and a backend that answers with the last part of the request, or fails when told to."""

    functions: FunctionClient

    def throttle(self) -> None:
        """Throttle for 3 s, as its answer says."""

    def fail(self) -> None: ...

    def hang(self) -> None: ...

    def recover(self) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self._fake = FakeFunctions()
        self.functions: FunctionClient = self._fake

    def throttle(self) -> None:
        self._fake.error = Throttled(3.0)

    def fail(self) -> None:
        self._fake.error = FunctionsFailed("broken")

    def hang(self) -> None:
        self._fake.held = asyncio.Event()

    def recover(self) -> None:
        self._fake.error = self._fake.held = None


class HttpWorld:
    def __init__(self) -> None:
        self._server = Server()
        self.functions: FunctionClient = HttpFunctions(self._server.url)

    def throttle(self) -> None:
        self._server.answer = lambda _: Said(429, headers={"retry-after": "3"})

    def fail(self) -> None:
        self._server.answer = lambda _: Said(502)

    def hang(self) -> None:
        self._server.answer = None

    def recover(self) -> None:
        self._server.answer = lambda body: Said(200, body)

    def close(self) -> None:
        self._server.close()


@dataclass
class Said:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Server:
    """An HTTP server in a thread that replies with `answer(body)`; if that is None, it hangs until its end."""

    def __init__(self) -> None:
        self.answer: Callable[[bytes], Said | bytes] | None = lambda body: Said(200, body)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        over = self._over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.seen.append((self.path, dict(self.headers.items()), body))
                if server.answer is None:
                    over.wait(30.0)
                    self.close_connection = True
                    return
                said = server.answer(body)
                if isinstance(said, bytes):
                    self.wfile.write(said)
                    self.close_connection = True
                    return
                headers = {"content-type": "application/json", "content-length": str(len(said.body))} | said.headers
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                self.wfile.write(f"HTTP/1.1 {said.status} X\r\n{head}\r\n".encode("latin-1") + said.body)

            def log_message(self, *_: object) -> None: ...

        class Many(ThreadingHTTPServer):
            request_queue_size = 128  # calls come fifty at a time

        self._http = Many(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v2/models/m"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def echo(payload: bytes) -> bytes:
    """Answer an event as a handler that echoes each body."""
    event = json.loads(payload)
    replies = [Reply(200, call.content_type, call.body) for call in calls_from_event(event)]
    return json.dumps({"replies": replies_to_result(replies)}).encode()


class LambdaWorld:
    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (
            ("AWS_ENDPOINT_URL_LAMBDA", url),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "none"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_CONFIG_FILE", "/dev/null"),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
        ):
            monkeypatch.setenv(name, value)
        self.functions: FunctionClient = LambdaFunctions("overflow")


@contextmanager
def lambda_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with endpoint(overflow=echo) as there:

        class Told(LambdaWorld):
            def throttle(self) -> None:
                there.failure = Failure(429, "TooManyRequestsException", headers={"Retry-After": "3"})

            def fail(self) -> None:
                there.failure = Failure()

            def hang(self) -> None:
                there.failure = Failure(how="hang")

            def recover(self) -> None:
                there.failure = None

        yield Told(there.url, monkeypatch)


@pytest.fixture(params=["fake", "http", "lambda"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made: World
    if request.param == "lambda":
        with lambda_world(monkeypatch) as made:
            yield made
    else:
        made = FakeWorld() if request.param == "fake" else HttpWorld()
        yield made
        if isinstance(made, HttpWorld):
            made.close()


def test_replies_come_in_the_order_of_calls(world: World) -> None:
    async def main() -> None:
        await world.functions.open()
        replies = await world.functions.call(calls(b"one", b"two", b"three"), 5.0)
        assert [(reply.status, bytes(reply.body)[-3:]) for reply in replies] == [
            (200, b"one"),
            (200, b"two"),
            (200, b"ree"),
        ]
        assert {reply.content_type for reply in replies} == {"application/json"}
        many = await asyncio.gather(*(world.functions.call(calls(b"%03d" % n), 5.0) for n in range(50)))
        assert [bytes(reply.body)[-3:] for (reply,) in many] == [b"%03d" % n for n in range(50)]
        await world.functions.close()

    asyncio.run(main())


def test_throttling_says_when_to_come_back_and_ends(world: World) -> None:
    async def main() -> None:
        world.throttle()
        with pytest.raises(Throttled) as caught:
            await world.functions.call(calls(b"one"), 5.0)
        assert caught.value.retry_after_s == 3.0
        world.recover()
        (reply,) = await world.functions.call(calls(b"one"), 60.0)
        assert reply.status == 200
        await world.functions.close()

    asyncio.run(main())


def test_a_failure_is_one_and_not_for_ever(world: World) -> None:
    async def main() -> None:
        world.fail()
        with pytest.raises(FunctionsFailed) as caught:
            await world.functions.call(calls(b"one"), 5.0)
        assert not isinstance(caught.value, Throttled | Unsuitable)
        world.recover()
        (reply,) = await world.functions.call(calls(b"one"), 60.0)
        assert reply.status == 200
        await world.functions.close()

    asyncio.run(main())


def test_no_answer_in_time_is_a_failure_in_time(world: World) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await world.functions.open()
        world.hang()
        began_s = loop.time()
        with pytest.raises(FunctionsFailed, match="no answer in"):
            await world.functions.call(calls(b"one", b"two"), 0.05)
        assert 0.04 < loop.time() - began_s < 30.0
        world.recover()
        (reply,) = await world.functions.call(calls(b"one"), 60.0)
        assert reply.status == 200
        await world.functions.close()

    asyncio.run(main())


def test_a_close_waits_until_calls_have_let_go() -> None:
    """An adapter's client is closed next, so calls could not return the resources that they still hold."""

    async def main() -> None:
        under_way, let_go = UnderWay("overflow"), asyncio.Event()

        async def call() -> None:
            async with under_way.within(60.0):
                try:
                    await asyncio.Event().wait()
                finally:
                    for _ in range(5):
                        await asyncio.sleep(0)
                    let_go.set()

        calling = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        await under_way.close()
        assert let_go.is_set()
        with pytest.raises(FunctionsFailed, match="closed"):
            await calling

    asyncio.run(main())


def test_a_close_ends_calls_under_way_and_is_final(world: World) -> None:
    async def main() -> None:
        await world.functions.open()
        await world.functions.open()
        world.hang()
        under_way = asyncio.ensure_future(world.functions.call(calls(b"one"), 20.0))
        await asyncio.sleep(0.05)
        assert not under_way.done()
        await asyncio.wait_for(world.functions.close(), 5.0)
        await asyncio.sleep(0)
        assert under_way.done(), "it has let go of its connection before the client is closed"
        with pytest.raises(FunctionsFailed):
            await under_way
        with pytest.raises(FunctionsFailed):
            await world.functions.call(calls(b"two"), 5.0)

    asyncio.run(main())


# Another server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def answered(server: Server, said: Said | bytes, call: Call | None = None, **options: Any) -> Reply:
    """Return the reply to the call, or to an empty call, when the server says `said`."""
    server.answer = lambda _: said

    async def main() -> Reply:
        functions = HttpFunctions(server.url, **options)
        try:
            (reply,) = await functions.call([call or calls(b"x")[0]], 5.0)
        finally:
            await functions.close()
        return reply

    return asyncio.run(main())


def test_binary_tensors_keep_the_length_of_their_json(server: Server) -> None:
    said = Said(200, b"{}abc", {"inference-header-content-length": "2"})
    assert answered(server, said) == Reply(200, "application/json", b"{}abc", 2)


def test_a_clients_content_headers_are_forwarded_unchanged(server: Server) -> None:
    """A type that is not ASCII is the model's business, and no failure of the function."""
    said = Said(200, b"{}", {"inference-header-content-length": "\xb2"})
    call = Call("oip", "text/é", b"x", 1, "text/ü")
    assert answered(server, said, call) == Reply(200, "application/json", b"{}")
    ((path, headers, _),) = server.seen
    assert path == "/v2/models/m/infer"
    assert (headers["content-type"], headers["accept"]) == ("text/\xe9", "text/\xfc")
    assert headers["inference-header-content-length"] == "1"
    assert "x-api-key" not in headers


def test_a_conductors_call_reaches_a_stage_that_is_served_alone(server: Server) -> None:
    call = call_with({"x": 1})
    said = Said(200, b"[2]", {"inference-header-content-length": "3", "content-type": RESULTS})
    assert results_of(answered(server, said, call)) == [2]
    ((path, headers, body),) = server.seen
    assert (path, headers["content-type"], body) == ("/v2/models/m/infer", RESULTS, call.body)
    assert headers["inference-header-content-length"] == str(call.json_bytes)


def test_a_kept_connection_closed_upon_use_is_retried_once(server: Server) -> None:
    """It is retried once only: a server that always closes has failed."""
    said: list[Said | bytes] = [b"", Said(200, b"{}"), b"", b""]
    server.answer = lambda _: said.pop(0)

    async def main() -> None:
        functions = HttpFunctions(server.url)
        (reply,) = await functions.call(calls(b"one"), 5.0)
        assert reply.status == 200
        with pytest.raises(FunctionsFailed, match="closed the connection"):
            await functions.call(calls(b"two"), 5.0)
        await functions.close()

    asyncio.run(main())
    assert said == []


def test_an_answer_to_another_call_is_a_failure(server: Server) -> None:
    """A server that echoes ids, and answers the first call twice."""
    ids: list[str] = []

    def answer(body: bytes) -> Said:
        ids.append(server.seen[-1][1]["x-request-id"])
        return Said(200, b"{}", {"x-request-id": ids[0]})

    async def main() -> None:
        functions = HttpFunctions(server.url)
        await functions.call(calls(b"one"), 5.0)
        with pytest.raises(FunctionsFailed, match="answered another request"):
            await functions.call(calls(b"two"), 5.0)
        await functions.close()

    server.answer = answer
    asyncio.run(main())
    assert len(set(ids)) == 2


def test_a_server_behind_a_door_gets_its_key(server: Server) -> None:
    answered(server, Said(200, b"{}"), key="k3y")
    ((_, headers, _),) = server.seen
    assert headers["x-api-key"] == "k3y"


def test_an_answer_larger_than_allowed_is_none(server: Server) -> None:
    reach = Reach(answer_bytes=1000)
    assert answered(server, Said(200, bytes(1000)), reach=reach).status == 200
    with pytest.raises(Unsuitable, match="more than 1000 bytes"):  # another call's answer may be smaller
        answered(server, Said(200, bytes(1001)), reach=reach)


@pytest.mark.parametrize("status", [200, 400, 415, 422, 500])
def test_what_the_model_says_is_its_reply(server: Server, status: int) -> None:
    assert answered(server, Said(status, b"{}")).status == status


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (429, {}, Throttled),
        (503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, Throttled),
        *((status, {}, Unsuitable) for status in (406, 411, 413, 414, 417, 431)),
        (302, {"location": "http://elsewhere"}, FunctionsFailed),
        *((status, {}, FunctionsFailed) for status in (204, 401, 403, 404, 405, 502, 504)),
    ],
)
def test_what_stands_in_its_way_is_not(
    server: Server, status: int, headers: dict[str, str], error: type[Exception]
) -> None:
    """A client must not be told that its key is wrong if the key was ours."""
    with pytest.raises(error) as caught:
        answered(server, Said(status, headers=headers))
    assert type(caught.value) is error


def test_a_server_that_speaks_the_other_protocol_is_not_asked() -> None:
    async def main() -> None:
        functions = HttpFunctions("http://127.0.0.1:1/invocations")
        with pytest.raises(Unsuitable, match="speaks sagemaker, not oip"):
            await functions.call(calls(b"x"), 5.0)
        with pytest.raises(FunctionsFailed, match="cannot be reached"):
            await functions.call([Call("sagemaker", "text/csv", b"1", accept="text/csv")], 5.0)
        await functions.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "closed the connection"),
        (b"SMTP ready\r\n\r\n", "not HTTP"),
    ],
)
def test_a_connection_that_breaks_is_a_failure(server: Server, said: bytes, why: str) -> None:
    with pytest.raises(FunctionsFailed, match=why):
        answered(server, said)


@pytest.mark.slow
def test_a_real_server_answers_refuses_and_is_gone(tmp_path: Path) -> None:
    """`mark serve` behind the port answers in order, throttles in overload, and fails after its end."""
    (tmp_path / "model.py").write_text(MODEL)
    write_service(tmp_path, slo_ms=500)
    process = start(tmp_path, "--max-batch", "1", SERVICE_S="0.05")

    async def main(url: str) -> None:
        functions = HttpFunctions(url + "/v2/models/echo")
        replies = await functions.call(calls(*(body(n) for n in range(3))), 5.0)
        assert [json.loads(bytes(reply.body))["id"] for reply in replies] == ["0", "1", "2"]
        (malformed,) = await functions.call(calls(b"{"), 5.0)
        assert malformed.status == 400
        ends = await asyncio.gather(*(functions.call(calls(body(n)), 5.0) for n in range(40)), return_exceptions=True)
        refused = [end for end in ends if isinstance(end, BaseException)]
        assert 0 < len(refused) < 40
        assert {type(error) for error in refused} == {Throttled}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        with pytest.raises(FunctionsFailed):
            await functions.call(calls(body(1)), 5.0)
        await functions.close()

    try:
        asyncio.run(main(address(process)))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("url", ["http://there:port/v2/models/m", "http:///v2", "http://u@there/v2", "http://a/b c"])
def test_an_impossible_address_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="function"):
        HttpFunctions(url)
