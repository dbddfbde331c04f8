"""The port to functions: one suite over the fake, another server, and AWS Lambda; then what only one of them has."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import httpx
import pytest
from mark_infra.aws.functions import LambdaFunctions

from mark.domain.errors import BadInput
from mark.models.call import Call, Reply
from mark.models.envelope import calls_from_event, replies_to_result
from mark.serving.elsewhere import HttpFunctions
from mark.serving.functions import Functions, FunctionsFailed, Throttled, Unsuitable
from tests.infra.lambda_endpoint import Failure, endpoint
from tests.serving.fakes import FakeFunctions
from tests.serving.test_serve import MODEL, address, body, start, write_service


def calls(*bodies: bytes) -> list[Call]:
    return [Call("oip", "application/json", body) for body in bodies]


class World(Protocol):
    """A port, and something behind it that answers with the last part of what it is sent, or fails when told to."""

    functions: Functions

    def throttle(self) -> None:
        """For 3 s, as it says."""

    def fail(self) -> None: ...

    def hang(self) -> None: ...

    def recover(self) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self._fake = FakeFunctions()
        self.functions: Functions = self._fake

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
        self._answer: Callable[[bytes], httpx.Response] | None = self._echo
        self.functions: Functions = HttpFunctions(
            "http://there/v2/models/m", transport=httpx.MockTransport(self._serve)
        )

    async def _serve(self, request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/v2/models/m/infer")
        if self._answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        return self._answer(request.content)

    def _echo(self, content: bytes) -> httpx.Response:
        return httpx.Response(200, content=content, headers={"content-type": "application/json"})

    def throttle(self) -> None:
        self._answer = lambda _: httpx.Response(429, headers={"retry-after": "3"})

    def fail(self) -> None:
        self._answer = lambda _: httpx.Response(502)

    def hang(self) -> None:
        self._answer = None

    def recover(self) -> None:
        self._answer = self._echo


def echo(payload: bytes) -> bytes:
    """What a handler makes of an event: each body, as it came."""
    event = json.loads(payload)
    replies = [Reply(200, call.content_type, call.body) for call in calls_from_event(event)]
    return json.dumps({"replies": replies_to_result(replies)}).encode()


class LambdaWorld:
    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (
            ("AWS_ENDPOINT_URL_LAMBDA", url),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_CONFIG_FILE", "/dev/null"),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
        ):
            monkeypatch.setenv(name, value)
        self.functions: Functions = LambdaFunctions("overflow")


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
    if request.param == "lambda":
        with lambda_world(monkeypatch) as made:
            yield made
    else:
        yield FakeWorld() if request.param == "fake" else HttpWorld()


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
        (reply,) = await world.functions.call(calls(b"one"), 5.0)
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
        (reply,) = await world.functions.call(calls(b"one"), 5.0)
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
        assert 0.04 < loop.time() - began_s < 2.0
        world.recover()
        (reply,) = await world.functions.call(calls(b"one"), 5.0)
        assert reply.status == 200
        await world.functions.close()

    asyncio.run(main())


def test_a_close_ends_what_is_under_way_and_is_for_good(world: World) -> None:
    async def main() -> None:
        await world.functions.open()
        await world.functions.open()
        world.hang()
        under_way = asyncio.ensure_future(world.functions.call(calls(b"one"), 20.0))
        await asyncio.sleep(0.05)
        assert not under_way.done()
        await world.functions.close()
        with pytest.raises(FunctionsFailed):
            await asyncio.wait_for(under_way, 5.0)
        with pytest.raises(FunctionsFailed):
            await world.functions.call(calls(b"two"), 5.0)

    asyncio.run(main())


# Another server


def answered(response: httpx.Response, call: Call | None = None, seen: list[httpx.Request] | None = None) -> Reply:
    """What becomes of a response to the one call, or to an empty one; requests made are added to `seen`."""
    seen = [] if seen is None else seen

    async def main() -> Reply:
        transport = httpx.MockTransport(lambda request: seen.append(request) or response)  # type: ignore[func-returns-value]
        functions = HttpFunctions("http://there/v2/models/m", transport=transport)
        try:
            (reply,) = await functions.call([call or calls(b"x")[0]], 5.0)
        finally:
            await functions.close()
        return reply

    return asyncio.run(main())


def test_binary_tensors_keep_the_length_of_their_json() -> None:
    response = httpx.Response(200, content=b"{}abc", headers={"inference-header-content-length": "2"})
    assert answered(response) == Reply(200, "application/json", b"{}abc", 2)


def test_what_a_client_says_of_its_body_is_passed_on_as_it_is() -> None:
    """Also where it is no ASCII: that is the model's business, and no failure of the function."""
    response = httpx.Response(200, content=b"{}", headers=[(b"inference-header-content-length", b"\xb2")])
    call = Call("oip", "text/é", b"x", 1, "text/ü")
    seen: list[httpx.Request] = []
    assert answered(response, call, seen) == Reply(200, "application/json", b"{}")
    (request,) = seen
    headers = dict(request.headers.raw)
    assert (headers[b"content-type"], headers[b"accept"]) == (b"text/\xe9", b"text/\xfc")
    assert headers[b"inference-header-content-length"] == b"1"


@pytest.mark.parametrize("status", [200, 400, 415, 422, 500])
def test_what_the_model_says_is_its_reply(status: int) -> None:
    assert answered(httpx.Response(status, content=b"{}")).status == status


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (429, {}, Throttled),
        (503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, Throttled),
        (413, {}, Unsuitable),
        (302, {"location": "http://elsewhere"}, FunctionsFailed),
        *((status, {}, FunctionsFailed) for status in (204, 401, 403, 404, 405, 502, 504)),
    ],
)
def test_what_stands_in_its_way_is_not(status: int, headers: dict[str, str], error: type[Exception]) -> None:
    """A client must not be told that its key is wrong when it was ours."""
    with pytest.raises(error) as caught:
        answered(httpx.Response(status, headers=headers))
    assert type(caught.value) is error


def test_a_server_that_speaks_the_other_protocol_is_not_asked() -> None:
    async def main() -> None:
        functions = HttpFunctions("http://127.0.0.1:1/invocations")
        with pytest.raises(Unsuitable, match="speaks sagemaker, not oip"):
            await functions.call(calls(b"x"), 5.0)
        with pytest.raises(FunctionsFailed, match=r"Cannot connect|ClientConnectorError"):
            await functions.call([Call("sagemaker", "text/csv", b"1", accept="text/csv")], 5.0)
        await functions.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "error", [httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.DecodingError]
)
def test_a_connection_that_breaks_is_a_failure(error: type[httpx.RequestError]) -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)

    async def main() -> None:
        functions = HttpFunctions("http://there/v2/models/m", transport=httpx.MockTransport(broken))
        with pytest.raises(FunctionsFailed, match=error.__name__):
            await functions.call(calls(b"x"), 5.0)
        await functions.close()

    asyncio.run(main())


def test_a_real_server_answers_refuses_and_is_gone(tmp_path: Path) -> None:
    """`mark serve` behind the port: in order over one connection; overload is throttling; after its end nothing."""
    (tmp_path / "model.py").write_text(MODEL)
    write_service(tmp_path, slo_ms=500)
    process = start(tmp_path, "--max-batch", "1", SERVICE_S="0.05")

    async def main(url: str) -> None:
        functions = HttpFunctions(url + "/v2/models/echo")
        replies = await functions.call(calls(*(body(n) for n in range(3))), 5.0)
        assert [json.loads(reply.body)["id"] for reply in replies] == ["0", "1", "2"]
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


def test_an_impossible_address_is_refused() -> None:
    with pytest.raises(BadInput, match="--function"):
        HttpFunctions("http://there:port/v2/models/m")
