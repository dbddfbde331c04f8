"""Another server of the same model behind the port `Functions`: whatever speaks one of the two protocols.

For a place without Lambda: a big machine in the basement, a neighbour's gateway, or a test.
"""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
import httpx

from mark.domain.errors import BadInput
from mark.models.call import Call, Reply
from mark.serving.functions import Functions, FunctionsFailed, Throttled, UnderWay, Unsuitable

_LENGTH = "inference-header-content-length"
# What a model says of a call. All other statuses are of the way to it: keys, routes, proxies, a queue that is full.
_OF_THE_MODEL = {200, 400, 415, 422, 500}


class HttpFunctions:
    """Posts a call as it came to `url`: `http://host:port/v2/models/M` (OIP) or `.../invocations` (SageMaker).

    Several calls of one invocation are sent one after the other, over kept connections.
    """

    def __init__(self, url: str, *, connections: int = 1000, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url.rstrip("/")
        self._protocol = "sagemaker" if self._url.endswith("/invocations") else "oip"
        if self._protocol == "oip":
            self._url += "/infer"
        self._under_way = UnderWay(self._url)
        self._transport = transport or _Kept(connections)
        try:
            httpx.URL(self._url)
        except httpx.InvalidURL as error:
            raise BadInput(str(error), "--function", url) from None

    async def open(self) -> None:
        """Nothing to do."""

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        async with self._under_way.within(timeout_s):
            return [await self._post(call) for call in calls]

    async def close(self) -> None:
        self._under_way.close()
        await self._transport.aclose()

    async def _post(self, call: Call) -> Reply:
        if call.protocol != self._protocol:
            raise Unsuitable(f"{self._url} speaks {self._protocol}, not {call.protocol}")
        # As bytes: clients choose them, and httpx fails for texts that are not ASCII.
        headers = {b"content-type": (call.content_type or "application/json").encode("latin-1")}
        if call.accept:
            headers[b"accept"] = call.accept.encode("latin-1")
        if call.json_bytes is not None:
            headers[_LENGTH.encode()] = b"%d" % call.json_bytes
        try:
            request = httpx.Request("POST", self._url, content=bytes(call.body), headers=headers)
            answer = await self._transport.handle_async_request(request)
            await answer.aread()
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            raise FunctionsFailed(f"{self._url}: {type(error).__name__}: {error}") from error
        status = answer.status_code
        if status in (429, 503):
            after = answer.headers.get("retry-after", "")
            raise Throttled(float(after) if after.isdecimal() else 1.0)
        if status == 413:
            raise Unsuitable(f"{self._url}: status {status}")
        if status not in _OF_THE_MODEL:
            raise FunctionsFailed(f"{self._url}: status {status}")
        length = answer.headers.get(_LENGTH, "")
        return Reply(
            status,
            answer.headers.get("content-type", "application/json"),
            answer.content,
            int(length) if length.isdecimal() else None,
        )


class _Kept(httpx.AsyncBaseTransport):
    """aiohttp's connections behind httpx's requests and responses.

    httpx's own pool looks through all its connections for every call: 4 to 14 ms of CPU each with 16 to 256 under way
    (uvloop, 100 bytes), which an overloaded bouncer cannot spare.
    """

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._session is None:
            # What the environment says of proxies and passwords is for the internet. Time is limited by the call.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        async with self._session.post(
            str(request.url), data=request.content, headers=headers, allow_redirects=False
        ) as answer:
            return httpx.Response(answer.status, headers=list(answer.raw_headers), content=await answer.read())

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


_: type[Functions] = HttpFunctions
