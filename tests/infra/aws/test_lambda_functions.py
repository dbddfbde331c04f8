"""AWS Lambda behind the port, against our own small Lambda; `tests/serving/overflow/test_functions.py` has the
contract."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Iterator

import aiohttp
import botocore.exceptions
import botocore.session
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from mark_infra.aws.lambda_functions import MOST_BYTES, LambdaFunctions, _translated, billed_s_of_log, error_type

from mark.domain.errors import BadInput
from mark.serving.overflow.functions import FunctionsFailed, Spent, Throttled, Unsuitable
from tests.infra.lambda_endpoint import Endpoint, Failure, endpoint
from tests.serving.overflow.test_functions import LambdaWorld, calls, echo

INVOKE = botocore.session.Session().get_service_model("lambda").operation_model("Invoke")
THROTTLED = {"TooManyRequestsException", "EC2ThrottledException"}
UNSUITABLE = {
    *("InvalidRequestContentException", "RequestTooLargeException"),
    *("SerializedRequestEntityTooLargeException", "UnsupportedMediaTypeException"),
}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with endpoint(overflow=echo) as made:
        LambdaWorld(made.url, monkeypatch)
        yield made


def failed(
    there: Endpoint, failure: Failure | None, timeout_s: float = 30.0, name: str = "overflow"
) -> FunctionsFailed:
    """Return the error that a call raises."""

    async def main() -> FunctionsFailed:
        there.failure = failure
        functions = LambdaFunctions(name)
        try:
            with pytest.raises(FunctionsFailed) as caught:
                await functions.call(calls(b"one"), timeout_s)
        finally:
            await functions.close()
        return caught.value

    return asyncio.run(main())


def test_every_error_of_the_service_is_translated(there: Endpoint) -> None:
    """The list has all errors that the API knows today."""

    async def main() -> None:
        functions = LambdaFunctions("overflow")
        for number, shape in enumerate(INVOKE.error_shapes, 1):
            there.failure = Failure(shape.metadata["error"]["httpStatusCode"], shape.name)
            with pytest.raises(FunctionsFailed) as caught:
                await functions.call(calls(b"one"), 30.0)
            expected = Throttled if shape.name in THROTTLED else Unsuitable if shape.name in UNSUITABLE else None
            assert type(caught.value) is (expected or FunctionsFailed), shape.name
            assert shape.name in str(caught.value) or expected is Throttled
            assert len(there.payloads) == number, "nothing is tried twice"
        await functions.close()

    asyncio.run(main())


def test_the_codes_above_exist() -> None:
    assert not (THROTTLED | UNSUITABLE) - {shape.name for shape in INVOKE.error_shapes}


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure(how="drop"), "ConnectionClosedError|ServerDisconnected|EndpointConnection"),
        (Failure(how="garbage"), "Expecting value"),
        (Failure(how="other"), "not a result with replies"),
        (Failure(how="handled"), "Unhandled: .*broken"),
        (Failure(500, "Mystery"), "Mystery"),
    ],
    ids=lambda value: value.how or value.code if isinstance(value, Failure) else "",
)
def test_what_else_goes_wrong_is_a_failure_with_its_reason(there: Endpoint, failure: Failure, said: str) -> None:
    error = failed(there, failure)
    assert type(error) is FunctionsFailed
    assert re.search(said, str(error)), str(error)


@pytest.mark.parametrize(
    "failure", [Failure(how="large"), Failure(413, "Mystery"), Failure(431, "Mystery")], ids=["answer", "413", "431"]
)
def test_what_is_of_one_call_says_nothing_of_the_function(there: Endpoint, failure: Failure) -> None:
    assert type(failed(there, failure)) is Unsuitable


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"errorType": null}', b"\xff"])
def test_an_error_without_a_type_has_none(body: bytes) -> None:
    assert error_type(body) == ""


@pytest.mark.parametrize("code", ["ThrottlingException", "ServiceUnavailableException"])
def test_codes_of_the_front_door_throttle_too(there: Endpoint, code: str) -> None:
    assert isinstance(failed(there, Failure(503, code)), Throttled)


def test_throttling_without_a_time_is_guessed(there: Endpoint) -> None:
    error = failed(there, Failure(429, "TooManyRequestsException"))
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 1.0


def test_an_unknown_function_is_named(there: Endpoint) -> None:
    error = failed(there, None, name="absent")
    assert "absent" in str(error)
    assert "ResourceNotFoundException" in str(error)


def test_a_refused_connection_counts_as_failed(there: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1")
    assert "EndpointConnectionError" in str(failed(there, None))


def test_billed_calls_are_counted_and_refused_ones_are_not(there: Endpoint) -> None:
    """Answers state their bill; a hang-up costs its duration, and a refusal by the service nothing."""

    def billed(payload: bytes) -> bytes:
        return json.dumps({**json.loads(echo(payload)), "billed_ms": 250}).encode()

    async def main() -> None:
        functions = LambdaFunctions("overflow")
        there.functions["overflow"] = billed
        for _ in range(3):
            await functions.call(calls(b"one"), 30.0)
        assert functions.spent == Spent(3, 0.75)
        there.failure = Failure(429, "TooManyRequestsException")
        with pytest.raises(Throttled):
            await functions.call(calls(b"one"), 30.0)
        assert functions.spent.calls == 3
        there.failure = Failure(how="hang")
        with pytest.raises(FunctionsFailed, match="no answer in"):
            await functions.call(calls(b"one"), 0.1)
        assert functions.spent.calls == 4
        assert 0.8 < functions.spent.billed_s < 2.0
        await functions.close()
        assert functions.spent.calls == 4

    asyncio.run(main())


@pytest.mark.parametrize(
    ("log", "billed_s"),
    [
        (b"hello\nREPORT RequestId: 1\tDuration: 3.12 ms\tBilled Duration: 4 ms\tMemory Size: 128 MB\t\n", 0.004),
        (b"cut \tBilled Duration: 9 ms\t\nREPORT \tBilled Duration: 1234 ms\tInit Duration: 1.5 ms", 1.234),
        (b"Billed Duration: 9 ms, says the handler", None),
        (None, None),
    ],
)
def test_the_end_of_the_log_says_what_is_billed(log: bytes | None, billed_s: float | None) -> None:
    assert billed_s_of_log(None if log is None else b64encode(log).decode()) == billed_s


def test_what_is_too_large_is_not_sent(there: Endpoint) -> None:
    async def main() -> None:
        functions = LambdaFunctions("overflow")
        with pytest.raises(Unsuitable, match="a function takes 6,291,456"):
            await functions.call(calls(b"x" * MOST_BYTES), 30.0)
        await functions.close()

    asyncio.run(main())
    assert there.payloads == []


def test_without_a_region_it_does_not_start(there: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    async def main() -> None:
        with pytest.raises(BadInput, match="region"):
            await LambdaFunctions("overflow").open()

    asyncio.run(main())


def test_without_credentials_calls_fail(there: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "NoCredentialsError" in str(failed(there, None))


def _made(kind: type[BotoCoreError]) -> BotoCoreError:
    """Make an error with all arguments that its message needs."""

    class Anything(dict[str, str]):
        def __missing__(self, key: str) -> str:
            return key

    error: BotoCoreError = kind.__new__(kind)
    Exception.__init__(error, kind.fmt.format_map(Anything()))
    return error


EXCEPTIONS = sorted(
    {kind for kind in vars(botocore.exceptions).values() if isinstance(kind, type) and issubclass(kind, BotoCoreError)},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_every_exception_of_botocore_becomes_a_failure_that_names_it(kind: type[BotoCoreError]) -> None:
    error = _translated("overflow", _made(kind))
    assert type(error) is FunctionsFailed
    assert kind.__name__ in str(error)


@pytest.mark.parametrize(
    "error",
    [
        ClientError({}, "Invoke"),
        ClientError({"Error": {}}, "Invoke"),
        aiohttp.ClientPayloadError("cut short"),
        OSError("no route"),
    ],
    ids=repr,
)
def test_so_does_what_lies_below(error: Exception) -> None:
    assert type(_translated("overflow", error)) is FunctionsFailed
