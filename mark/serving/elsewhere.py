"""Another server of the same model behind the port `Functions`: whatever speaks one of the two protocols.

For a place without Lambda: a big machine in the basement, a neighbour's gateway, or a test.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        try:
            # What the environment says of proxies and passwords is for the internet. Time is limited by the call.
            self._client = httpx.AsyncClient(limits=limits, trust_env=False, transport=transport, timeout=None)
            httpx.URL(self._url)
        except httpx.InvalidURL as error:
            raise BadInput(str(error), "--function", url) from None

    async def open(self) -> None:
        """Nothing to do."""

    async def call(self, calls: Sequence[Call], timeout_s: float) -> list[Reply]:
        # httpx has a limit for each step of an exchange, and none for the whole.
        async with self._under_way.within(timeout_s):
            return [await self._post(call) for call in calls]

    async def close(self) -> None:
        self._under_way.close()
        await self._client.aclose()

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
            answer = await self._client.post(self._url, content=bytes(call.body), headers=headers)
        except httpx.HTTPError as error:
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


_: type[Functions] = HttpFunctions
