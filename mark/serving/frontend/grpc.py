"""The gRPC listener: Open Inference Protocol v2, on the same loop and with the same bouncers as HTTP.

gRPC costs a task for each request, and its C core has its own threads. Use HTTP if microseconds count. This module is
imported only if the listener is configured.

The caller's key is checked before a message is read. The number of slow messages, which take more than a second, is
limited: together they fit into the HTTP listener's limit (`HttpLimits.gathered_bytes`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import orjson
from google.protobuf.message import DecodeError

from mark.domain.errors import BadInput
from mark.models.answer import NOBODY, Answer
from mark.models.call import Reply
from mark.models.metadata import server_metadata
from mark.serving.backend.refusals import RETRIED, retry_after_s
from mark.serving.backend.request import Request
from mark.serving.frontend.auth import INFER, Auth
from mark.serving.frontend.grpc_messages import CLASSES, SERVICE, BadMessage, call_of, metadata_of, response_of
from mark.serving.frontend.limits import HttpLimits
from mark.serving.frontend.server import Server
from mark.serving.frontend.tls import TlsFiles

_LOG = logging.getLogger("mark.serving")

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.RESOURCE_EXHAUSTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

_STREAMS = 256  # calls in progress on one connection; it also bounds calls that are begun and reset repeatedly
_CONNECTIONS = 4  # times those of HTTP: an idle one costs some 10 kB
_SLOW_S = 1.0  # a message that takes longer is slow
_SLOWEST_BYTES_PER_S = 1 << 20  # of the largest message

# Readiness needs no key, as with HTTP.
_OPEN = frozenset(("ServerLive", "ServerReady"))

# A response, or the status and text of an error; and the metadata of either.
Outcome = tuple[Any, tuple[int, str] | None, list[tuple[str, str]]]
# Takes a message, its call's context, and its metadata as headers.
Handler = Callable[[Any, Any, dict[bytes, bytes]], Awaitable[Any]]


class GrpcListener:
    """Listens by gRPC for `server`, with the limits and keys of the HTTP listener."""

    def __init__(self, server: Server, limits: HttpLimits, auth: Auth | None) -> None:
        self._server, self._auth = server, auth
        self._most_slow = max(1, limits.gathered_bytes // limits.body_bytes)
        self._patience_s = limits.body_timeout_s + limits.body_bytes / _SLOWEST_BYTES_PER_S
        self._slow: dict[asyncio.Task[Any], asyncio.TimerHandle] = {}  # tasks that read a slow message
        self._cut_off: set[asyncio.Task[Any]] = set()
        self._listener = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", limits.header_bytes),
                ("grpc.absolute_max_metadata_size", limits.header_bytes),
                ("grpc.max_connection_idle_ms", int(limits.idle_timeout_s * 1e3)),
                ("grpc.server_handshake_timeout_ms", int(limits.header_timeout_s * 1e3)),
                ("grpc.max_allowed_incoming_connections", _CONNECTIONS * limits.connections),
                ("grpc.max_concurrent_streams", _STREAMS),
                # Clients ping every ten seconds so that no balancer drops them; gRPC's default forbids it.
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", int(limits.ping_s * 1e3)),
                ("grpc.so_reuseport", 0),  # a port in use is an error, and is not shared
            ],
            maximum_concurrent_rpcs=limits.connections * limits.pipelined,
        )
        handlers: dict[str, Handler] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ServerMetadata": self._metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
            "RepositoryIndex": self._repository_index,
        }
        methods = {
            # Declared as a stream of messages, so that this module controls the wait for the single one.
            name: grpc.stream_unary_rpc_method_handler(
                self._read(name, handler), None, CLASSES[f"{name}Response"].SerializeToString
            )
            for name, handler in handlers.items()
        }
        self._listener.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))

    async def start(self, host: str, port: int, tls: TlsFiles | None) -> int:
        """Listen and return the bound port; with `port` 0 the system chooses it. Raises BadInput if that fails."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                bound = self._listener.add_insecure_port(address)
            else:
                bound = self._listener.add_secure_port(address, _credentials(tls))
        except RuntimeError:
            raise BadInput("cannot listen", "host and grpc_port", address) from None
        await self._listener.start()
        return int(bound)

    async def close(self, grace_s: float) -> None:
        """Accept no more calls; return when those in progress are answered, or after `grace_s`.

        It comes last: while a server drains its listener stays open and answers UNAVAILABLE. Calls that arrive during
        the closing and were not accepted end as CANCELLED by gRPC's core (https://github.com/grpc/grpc/issues/41785).
        """
        await self._listener.stop(grace_s)

    # Answers

    def _read(self, name: str, handler: Handler) -> Callable[[bytes, Any], Awaitable[Any]]:
        """Return the method that checks the caller, reads the message and calls `handler`."""
        parse = CLASSES[f"{name}Request"].FromString

        async def read(_: Any, context: Any) -> Any:
            headers = {
                key.encode(): value.encode() if isinstance(value, str) else value
                for key, value in context.invocation_metadata() or ()
            }
            if self._auth is not None and name not in _OPEN:
                refusal = self._auth.check(INFER, headers)
                if refusal is not None:
                    await _fail(context, refusal[0], orjson.loads(refusal[1])["error"])
            message = await self._message(context)
            try:
                request = parse(message)
            except DecodeError:
                await _fail(context, 400, f"the message is no {name}Request")
            return await handler(request, context, headers)

        return read

    async def _message(self, context: Any) -> bytes:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "gRPC runs a handler in a task"
        timer = loop.call_later(_SLOW_S, self._is_slow, task)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if task not in self._cut_off:
                raise
            self._cut_off.remove(task)
            task.uncancel()
            await _fail(context, 408, "the message took too long")
        finally:
            timer.cancel()
            if (slow := self._slow.pop(task, None)) is not None:
                slow.cancel()
        return message if message is not grpc.aio.EOF else b""

    def _is_slow(self, task: asyncio.Task[Any]) -> None:
        """Note a slow message, and cut off the slowest if there are too many.

        Otherwise clients that send a few bytes would keep the places from honest uploads.
        """
        if len(self._slow) >= self._most_slow:
            longest = next(iter(self._slow))
            self._slow.pop(longest).cancel()
            self._cut(longest)
        self._slow[task] = asyncio.get_running_loop().call_later(self._patience_s - _SLOW_S, self._cut, task)

    def _cut(self, task: asyncio.Task[Any]) -> None:
        self._cut_off.add(task)
        task.cancel()

    async def _live(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        return CLASSES["ServerLiveResponse"](live=True)

    async def _ready(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        return CLASSES["ServerReadyResponse"](ready=self._server.ready)

    async def _metadata(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        return CLASSES["ServerMetadataResponse"](**server_metadata())

    async def _model_ready(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        version = await self._version(request.name, request.version, context)
        return CLASSES["ModelReadyResponse"](ready=self._server.model_ready(version))

    async def _model_metadata(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        version = await self._version(request.name, request.version, context)
        return metadata_of(self._server.model_metadata(version))

    async def _repository_index(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        models = [CLASSES["ModelIndex"](**each) for each in self._server.repository_index(request.ready)]
        return CLASSES["RepositoryIndexResponse"](models=models)

    async def _infer(self, request: Any, context: Any, headers: dict[bytes, bytes]) -> Any:
        arrived_s = time.monotonic()
        version = await self._version(request.model_name, request.model_version, context)
        try:
            call = call_of(request)
        except BadMessage as error:
            await _fail(context, 400, str(error))
        left_s = context.time_remaining()
        # gRPC's own deadline is often a client's default far beyond RT_max, so it can only shorten another one.
        if left_s is not None and (b"mark-deadline-ms" in headers or left_s < self._server.rt_max_s):
            left_ms = b"%.3f" % (left_s * 1e3)
            headers[b"mark-deadline-ms"] = min(headers.get(b"mark-deadline-ms", left_ms), left_ms, key=_number)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def answered(request: Request, answer: Answer) -> None:
            if not outcome.done():  # otherwise the client has gone
                # Converted now: the reply's body may not outlive this call.
                outcome.set_result(self._outcome(request, answer))
            if self._server.answered is not None:
                self._server.answered(request, answer)

        self._server.infer(call, headers, arrived_s, version, answered, outcome.done)
        response, error_, metadata = await outcome
        context.set_trailing_metadata(metadata)
        if error_ is not None:
            await _fail(context, *error_)
        return response

    def _outcome(self, request: Request, answer: Answer) -> Outcome:
        reply = answer.reply
        metadata = [("x-request-id", request.id)]
        if answer.made_by != NOBODY:
            metadata.append(("mark-answered-by", answer.made_by))
        elif reply.status in RETRIED:
            metadata.append(("retry-after", str(retry_after_s(self._server.retry_after_s()))))
        metadata += answer.said()
        if reply.status != 200:
            return None, (reply.status, _error_in(reply)), metadata
        try:
            return response_of(reply), None, metadata
        except (ValueError, KeyError, TypeError) as error:
            _LOG.error("an answer cannot be said by gRPC: %r", error, extra={"request_id": request.id})
            return None, (500, "the answer cannot be said by gRPC"), metadata

    async def _version(self, name: str, version: str, context: Any) -> str | None:
        server = self._server
        if name != server.name:
            await _fail(context, 404, f"no model '{name[:100]}'; the model here is {server.name}")
        if version and version not in server.versions:
            await _fail(context, 404, f"no version '{version[:100]}' of {name}, but {', '.join(server.versions)}")
        return version or None


async def _fail(context: Any, status: int, what: str) -> None:
    """End the call; this does not return."""
    await context.abort(_CODES.get(status, grpc.StatusCode.INTERNAL), what)


def _error_in(reply: Reply) -> str:
    """Return the error's text; the answer of a function's model may be no JSON."""
    try:
        return str(orjson.loads(reply.body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {reply.status}"


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0  # refused later


def _credentials(tls: TlsFiles) -> Any:
    tls.context()  # reports faults of the files
    return grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.certificate.read_bytes())],
        root_certificates=tls.client_ca.read_bytes() if tls.client_ca is not None else None,
        require_client_auth=tls.client_ca is not None,
    )
