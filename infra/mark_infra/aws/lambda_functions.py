"""AWS Lambda behind the port `FunctionClient`."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64decode
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from mark.domain.errors import BadInput
from mark.models.call import Call, Reply
from mark.models.envelope import billed_s_from_result, calls_to_event, replies_from_result
from mark.serving.overflow.functions import FunctionClient, FunctionsFailed, Spent, Throttled, UnderWay, Unsuitable

# Codes that mean "no environment now": the account's concurrency, its ramp-up, or the function's own limit.
_THROTTLED = {"TooManyRequestsException", "ThrottlingException", "EC2ThrottledException", "ServiceUnavailableException"}
# Codes of faults in one call.
_UNSUITABLE = {
    *("RequestTooLargeException", "SerializedRequestEntityTooLargeException"),
    *("InvalidRequestContentException", "UnsupportedMediaTypeException"),
}
_UNSUITABLE_STATUS = {413, 414, 431}  # from the proxy in front of the service, which uses no codes
_TOO_LARGE = "Function.ResponseSizeTooLarge"  # the answer to one call, as the runtime names it
# Largest payload of a synchronous invocation, in bytes; AWS refuses a larger one only after it was sent.
MOST_BYTES = 6 * 1024 * 1024
LONGEST_S = 900.0  # the longest that a function may run
_BILLED = re.compile(rb"\tBilled Duration: (\d+) ms\t")


class LambdaFunctions:
    """Invokes one function by name, synchronously, over a pool of `connections`.

    `session` is a boto3 session; it gives the endpoint (`AWS_ENDPOINT_URL_LAMBDA`), credentials and, unless given, the
    region. Without one, they are found as AWS's SDKs find them. Calls are not retried, because only the caller knows
    how much time is left.
    """

    def __init__(self, name: str, *, region: str | None = None, connections: int = 1000, session: Any = None) -> None:
        self._name, self._region, self._connections, self._session = name, region, connections, session
        self._client: Any = None
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._under_way = UnderWay(name)
        self.spent = Spent()

    async def open(self) -> None:
        async with self._opening:
            if self._client is not None:
                return
            # Imported here because a plain installation has no aioboto3, and its import takes 0.8 s.
            from aiobotocore.config import AioConfig
            from botocore.exceptions import NoRegionError, ProfileNotFound  # type: ignore[import-untyped]

            from mark_infra.aws.session import async_session

            config = AioConfig(
                max_pool_connections=self._connections,
                retries={"total_max_attempts": 1},
                connect_timeout=2.0,
                read_timeout=LONGEST_S,  # the call's own limit is shorter
            )
            try:
                session = await async_session(self._session)
                client = session.client("lambda", region_name=self._region, config=config)
                self._client = await self._opened.enter_async_context(client)
            except (NoRegionError, ProfileNotFound, ValueError) as error:
                raise BadInput(f"AWS cannot be asked: {error}", "function", self._name) from error

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        payload = calls_to_event(calls)
        if len(payload) > MOST_BYTES:
            raise Unsuitable(f"{self._name}: {len(payload):,} bytes, a function takes {MOST_BYTES:,}")
        result = await self._invoke(payload, timeout_s)
        try:
            return replies_from_result(result, len(calls))
        except ValueError as error:
            raise FunctionsFailed(f"{self._name}: {error}") from None

    async def warm(self, hold_ms: float, timeout_s: float) -> bool:
        """Start one environment, or keep one alive, and hold it for `hold_ms`; return whether it was started.

        Concurrent calls reach as many environments. Raises the errors of `call`.
        """
        result = await self._invoke(json.dumps({"warm": True, "hold_ms": hold_ms}).encode(), timeout_s)
        return isinstance(result, dict) and result.get("cold") is True

    async def _invoke(self, payload: bytes, timeout_s: float) -> Any:
        async with self._under_way.within(timeout_s):
            await self.open()
            began_s, ran, billed_s = time.monotonic(), True, None
            try:
                try:
                    answer = await self._client.invoke(FunctionName=self._name, Payload=payload, LogType="Tail")
                    body = await answer["Payload"].read()
                    billed_s = billed_s_of_log(answer.get("LogResult"))
                except Exception as error:
                    ran = _may_run(error)
                    raise _translated(self._name, error) from error
                if "FunctionError" in answer:
                    said = body[:300].decode(errors="replace")
                    kind = Unsuitable if error_type(body) == _TOO_LARGE else FunctionsFailed
                    raise kind(f"{self._name}: {answer['FunctionError']}: {said}")
                try:
                    result = json.loads(body)
                    billed_s = billed_s_from_result(result) if billed_s is None else billed_s
                    return result
                except ValueError as error:
                    raise FunctionsFailed(f"{self._name}: {error}") from None
            finally:  # the invocation is billed also if the caller stops waiting
                if ran:
                    self.spent.calls += 1
                    self.spent.billed_s += time.monotonic() - began_s if billed_s is None else billed_s

    async def close(self) -> None:
        await self._under_way.close()  # first, because a connection being opened outlives its client
        await self._opened.aclose()


def billed_s_of_log(tail: str | None) -> float | None:
    """Return the billed seconds from the report at the end of an invocation's log, or None without a report.

    The handler can measure only its own part, about a millisecond less.
    """
    found = _BILLED.findall(b64decode(tail)) if tail else ()
    return int(found[-1]) / 1e3 if found else None


def error_type(body: bytes) -> str:
    """Return the error type that the function's runtime reports, or "" if there is none."""
    try:
        told = json.loads(body)
    except ValueError:
        return ""
    kind = told.get("errorType") if isinstance(told, dict) else None
    return kind if isinstance(kind, str) else ""


def _may_run(error: Exception) -> bool:
    """Return whether the invocation may have begun despite the error; not if the service answered itself."""
    from botocore.exceptions import EndpointConnectionError, NoCredentialsError  # imported late, as in `open`

    return not isinstance(getattr(error, "response", None), dict) and not isinstance(
        error, EndpointConnectionError | NoCredentialsError
    )


def _translated(name: str, error: Exception) -> FunctionsFailed:
    """Return our error for an error of botocore or its HTTP library."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return FunctionsFailed(f"{name}: {type(error).__name__}: {error}")
    code = response.get("Error", {}).get("Code", "")
    if code in _THROTTLED:
        after = str(response.get("retryAfterSeconds", ""))
        return Throttled(float(after)) if after.isdigit() else Throttled()
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    kind = Unsuitable if code in _UNSUITABLE or status in _UNSUITABLE_STATUS else FunctionsFailed
    return kind(f"{name}: {error}")


_: type[FunctionClient] = LambdaFunctions
