"""The gateway's shell: it passes requests from the HTTP listener to replicas and answers back.

`mark.serving.gateway.gateway` makes the decisions. Bodies are passed on unchanged. A client's key ends here: replicas
get the gateway's own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson

from mark.domain.errors import BadInput
from mark.domain.rules.admission import NEVER_S, in_time
from mark.domain.rules.routing import TICK_S
from mark.models.call import Reply
from mark.models.compression import Refused
from mark.serving.backend.refusals import NOBODY_READY, RETRIED, error_reply, refusal, retry_after
from mark.serving.frontend.auth import INFER, is_loopback, scope_of
from mark.serving.frontend.http import JSON, Exchange
from mark.serving.gateway.gateway import (
    GIVE_UP,
    HOLD,
    PASS_ON,
    WAIT,
    Gateway,
    GatewayPolicy,
    InFlightRequest,
    ReplicaAttempt,
)
from mark.serving.gateway.metrics import GatewayMetrics
from mark.serving.gateway.overflow import ByFunctions, LastResort
from mark.serving.gateway.probing import Probing
from mark.serving.overflow.http_client import (
    HOP_BY_HOP,
    Address,
    Asker,
    CallFailure,
    ClientConnection,
    Gathered,
    HttpAnswer,
    Reach,
    Upstream,
)

log = logging.getLogger("mark.serving")
_REQUESTS = logging.getLogger("mark.requests")

_LONGEST_ID = 128
_ASK_AGAIN_S = 0.01  # at least between decisions whether to send a second copy of a request
_LOOK_S = TICK_S  # between checks for replicas to probe, clients that have gone and requests that hang
_SAID_ANEW = frozenset((b"host", b"expect", b"mark-deadline-ms", b"x-request-id"))
_CREDENTIALS = frozenset((b"authorization", b"x-api-key"))


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The settings of a gateway's forwarding. Times in seconds.

    A replica has `timeout_s` to answer, exact to a quarter of a second, or until a client's earlier deadline. After
    that deadline the replica has `grace_s` more to report by itself that it was late. Without `in_clear`, replicas on
    other machines need https. `keep_credentials` passes the client's key on, for a gateway that requires none. Requests
    that no replica can take go to functions, if there are any.
    """

    policy: GatewayPolicy = field(default_factory=GatewayPolicy)
    reach: Reach = field(default_factory=Reach)
    replica_key: str | None = field(default=None, repr=False)
    in_clear: bool = False
    keep_credentials: bool = False
    timeout_s: float = 30.0
    grace_s: float = 0.1
    probe_timeout_s: float = 1.0
    drain_s: float = 30.0
    linger_s: float = 0.0
    by_functions: ByFunctions | None = None
    log_requests: bool = False


class _Forward(InFlightRequest):
    """A request that is being forwarded."""

    __slots__ = (
        "by_function",
        "client_s",
        "exchange",
        "id",
        "lines",
        "refusal",
        "sent",
        "timer",
        "until_s",
    )

    def __init__(
        self, exchange: Exchange, identity: bytes, client_s: float | None, until_s: float, *, may_wait: bool
    ) -> None:
        deadline_s = until_s if client_s is None else min(until_s, client_s)
        super().__init__(deadline_s, len(exchange.body), may_wait=may_wait)
        self.exchange, self.id = exchange, identity
        self.client_s, self.until_s = client_s, until_s  # when the client and the gateway stop waiting
        self.lines = b""
        self.sent: list[ClientConnection[ReplicaAttempt[_Forward]]] = []  # the connection of each attempt
        self.refusal: HttpAnswer | None = None  # for the client, unless there is a better answer
        self.timer: asyncio.TimerHandle | None = None
        self.by_function = False  # a function answered


class Forwarder:
    """Answers each exchange exactly once, by a replica or by itself. Everything runs on one event loop."""

    def __init__(
        self,
        forwarding: Forwarding,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._loop, self._now = forwarding, loop, now
        self.gateway: Gateway[_Forward] = Gateway(forwarding.policy)
        self.metrics = GatewayMetrics(self.gateway)
        self.draining = False
        self._upstreams: dict[str, Upstream[ReplicaAttempt[_Forward]]] = {}
        self._gathered = Gathered()  # shared by all replicas
        self._under_way: set[_Forward] = set()
        self._settled: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._id_prefix, self._ids = os.urandom(6).hex(), 0
        key = forwarding.replica_key
        self._key = b"authorization: Bearer %b\r\n" % key.encode() if key is not None else b""
        self._dropped = HOP_BY_HOP | _SAID_ANEW
        if key is not None or not forwarding.keep_credentials:
            self._dropped |= _CREDENTIALS
        after_s = forwarding.policy.hedge_after_s
        self._hedge_after_s = after_s if after_s < forwarding.timeout_s else NEVER_S
        by = forwarding.by_functions
        self._last_resort = None if by is None else LastResort(by, loop, now)
        self.metrics.spent = None if by is None else by.functions.spent
        self.probing = Probing(
            self.gateway, forwarding.reach, self._key, forwarding.probe_timeout_s, loop, now, self._resume
        )

    @property
    def ready(self) -> bool:
        """Return whether a request would be answered, by a replica or by a function."""
        return (self.gateway.ready or self._last_resort is not None) and not self.draining

    def put(self, weights: Mapping[str, float], groups: Mapping[str, str] | None = None) -> None:
        """Replace the replicas by these: weight and group by URL, as in `Gateway.put`.

        Raises BadInput, and changes nothing, for a URL that no replica can have.
        """
        addresses = {url: Address.of(url) for url in weights}
        for address in addresses.values():
            if not (address.tls or self._settings.in_clear or is_loopback(address.host)):
                raise BadInput("would be reached in clear: https, or `replicas_in_clear`", "replica", address.url)
        self.gateway.put(weights, self._now(), groups)
        for url, address in addresses.items():
            if url not in self._upstreams:
                self._upstreams[url] = Upstream(
                    address, self, self._settings.reach, self._loop, self._now, self._gathered
                )
        self._look()

    def start(self) -> None:
        """Check replicas and requests periodically."""
        self._timer = self._loop.call_later(min(_LOOK_S, self._settings.policy.probe_s / 2.0), self.start)
        self._look()

    async def drain(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for the answers that are due, and refuse the other requests."""
        until_s = self._now() + timeout_s
        if self._under_way:
            self._settled = self._loop.create_future()
            await asyncio.wait([self._settled], timeout=timeout_s)
        for forward in tuple(self._under_way):
            self.gateway.abandoned(forward)
            self._refuse(forward, "draining")
        if self._last_resort is not None:
            await self._last_resort.drain(max(0.0, until_s - self._now()))

    def close(self) -> None:
        """Close all connections to replicas."""
        if self._timer is not None:
            self._timer.cancel()
        self.probing.close()
        for upstream in self._upstreams.values():
            upstream.close()

    # Requests

    def handle(self, exchange: Exchange) -> None:
        """Answer the exchange, now or later."""
        path, headers = exchange.path, exchange.headers
        # A server that resolves dots would get, with our key, a request that the client may not make.
        if scope_of(path) != INFER or b".." in path or b"%2e" in path.lower():
            say(exchange, 404, f"nothing at {path[:200].decode('latin-1')}")
            return
        if exchange.method not in (b"POST", b"GET", b"HEAD"):
            say(exchange, 405, "only GET and POST here", b"allow: GET, POST\r\n")
            return
        identity = headers.get(b"x-request-id")
        if not identity or len(identity) > _LONGEST_ID:
            self._ids += 1
            identity = f"{self._id_prefix}-{self._ids:x}".encode()
        client_s = None
        left_ms = headers.get(b"mark-deadline-ms")
        if left_ms is not None:
            try:
                left_s = float(left_ms) / 1e3
            except ValueError:
                left_s = -1.0
            if not left_s >= 0.0:
                say(exchange, 400, "mark-deadline-ms must be a number of milliseconds")
                return
            client_s = exchange.arrived_s + left_s
        now_s = self._now()
        until_s = exchange.arrived_s + self._settings.timeout_s
        # A function answers at once, and a conductor's readiness poll has a time limit of its own.
        may_wait = self._last_resort is None and exchange.method == b"POST"
        forward = _Forward(exchange, identity, client_s, until_s, may_wait=may_wait)
        if now_s >= forward.deadline_s:
            self._refuse(forward, "expired")
            return
        attempt = self.gateway.begin(forward, now_s)
        if isinstance(attempt, str) and attempt is not HOLD:
            if attempt is not NOBODY_READY or not self._by_function(forward, attempt):
                self._refuse(forward, attempt)
            return
        self._under_way.add(forward)
        if client_s is not None or self._hedge_after_s < NEVER_S:
            self._wake(forward, now_s, hedge_s=forward.exchange.arrived_s + self._hedge_after_s)
        if isinstance(attempt, str):
            self.probing.look(now_s)
        else:
            self._send(forward, attempt, now_s)

    def _send(self, forward: _Forward, attempt: ReplicaAttempt[_Forward], now_s: float) -> None:
        exchange = forward.exchange
        lines = forward.lines
        if not lines:
            headers, dropped = exchange.headers, self._dropped
            named = headers.get(b"connection")
            if named is not None:
                dropped = dropped.union(name.strip() for name in named.lower().split(b","))
            kept = [b"%b: %b\r\n" % line for line in headers.items() if line[0] not in dropped]
            kept.append(b"%bx-request-id: %b\r\n" % (self._key, forward.id))
            forward.lines = lines = b"".join(kept)
        if exchange.body or exchange.method == b"POST":
            lines = b"%bcontent-length: %d\r\n" % (lines, len(exchange.body))
        if forward.client_s is not None:
            lines += b"mark-deadline-ms: %.3f\r\n" % ((forward.deadline_s - now_s) * 1e3)
        target = exchange.path if not exchange.query else exchange.path + b"?" + exchange.query
        upstream = self._upstreams[attempt.replica.url]
        # A replica would send HEAD's answer with a body, which the listener drops.
        method = b"GET" if exchange.method == b"HEAD" else exchange.method
        head = b"%b %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (method, target, upstream.authority, lines)
        forward.sent.append(upstream.ask(attempt, head + exchange.body, forward.id))

    def answered(self, tag: ReplicaAttempt[_Forward], answer: HttpAnswer) -> None:
        """Take a replica's answer."""
        forward = tag.request
        now_s = self._now()
        what = self.gateway.answered(tag, answer.status, now_s)
        if what is PASS_ON:
            self._pass_on(forward, answer)
            return
        forward.refusal = answer
        if what is not WAIT:
            self._again(forward, what, now_s)

    def failed(self, tag: ReplicaAttempt[_Forward], began: bool, why: CallFailure) -> None:
        """Take a replica's failure."""
        forward = tag.request
        now_s = self._now()
        log.debug("request %s: %s %s", forward.id.decode("latin-1"), tag.replica.url, why)
        what = self.gateway.failed(tag, now_s, began=began)
        if isinstance(what, ReplicaAttempt):
            self._again(forward, what, now_s)
        elif what is HOLD:
            self.probing.look(now_s)
        elif what is not WAIT:
            if forward.refusal is not None:
                self._pass_on(forward, forward.refusal)
            elif began:
                self._refuse(forward, "broken_off")
            else:
                self._leave(forward)
                if not self._by_function(forward, "lost"):
                    self._refuse(forward, "lost")

    def _again(self, forward: _Forward, attempt: ReplicaAttempt[_Forward] | str, now_s: float) -> None:
        assert isinstance(attempt, ReplicaAttempt), (
            "a request that is neither passed on nor waited for is another attempt"
        )
        if forward.exchange.gone:
            self.gateway.abandoned(forward)
            self._refuse(forward, "gone")
        else:
            self._send(forward, attempt, now_s)

    def _resume(self) -> None:
        """Send held requests to a replica that has just become ready, or refuse them."""
        now_s = self._now()
        for forward, attempt in self.gateway.resumed(now_s):
            if isinstance(attempt, str):
                self._refuse(forward, "lost" if attempt is GIVE_UP else attempt)
            else:
                self._again(forward, attempt, now_s)

    def _wake(self, forward: _Forward, now_s: float, *, hedge_s: float) -> None:
        """Set a timer for the next event: the time to hedge, or the client's deadline. Most requests need none."""
        settings = self._settings
        due_s = NEVER_S if forward.client_s is None else forward.client_s + settings.grace_s
        due_s = min(due_s, max(now_s, hedge_s))  # immediately if that time has passed on the way here
        if due_s < forward.until_s:
            # Loops count in milliseconds, and may be early by one.
            forward.timer = self._loop.call_later(due_s - now_s + 1e-3, self._due, forward)

    def _due(self, forward: _Forward) -> None:
        now_s = self._now()
        if forward.client_s is not None and now_s >= forward.client_s + self._settings.grace_s:
            self.gateway.expired(forward, now_s, hung=False)
            self._refuse(forward, "expired")
            return
        hedge_s = NEVER_S
        if self._hedge_after_s < NEVER_S:
            attempt = self.gateway.hedge(forward, now_s)
            if attempt is not None:
                self._send(forward, attempt, now_s)
            elif len(forward.attempts) < 2:  # the longer the first attempt takes, the more likely the second is faster
                hedge_s = now_s + max(self._hedge_after_s, _ASK_AGAIN_S)
        self._wake(forward, now_s, hedge_s=hedge_s)

    def _by_function(self, forward: _Forward, reason: str) -> bool:
        """Let a function answer, or refuse for this reason; return False if no function can be asked."""
        resort = self._last_resort
        if resort is None:
            return False
        if resort.by.asks_ready(forward.exchange):
            self._settle(forward, 200, "")
            forward.exchange.answer(200, orjson.dumps({"name": resort.by.model, "ready": True}), JSON)
            return True

        def done(reply: Reply | None) -> None:
            if reply is None:
                expired = forward.client_s is not None and self._now() >= forward.client_s
                self._refuse(forward, "expired" if expired else reason)
                return
            headers = b"mark-answered-by: function\r\nx-request-id: %b\r\n" % forward.id
            if reply.json_bytes is not None:
                headers += b"inference-header-content-length: %d\r\n" % reply.json_bytes
            forward.by_function = True
            self.metrics.by_functions += 1
            self.metrics.late += not in_time(self._now() - forward.exchange.arrived_s, resort.by.rt_max_s)
            self._settle(forward, reply.status, "")
            kind = reply.content_type.encode("latin-1", "replace")  # from a function's JSON, so it may hold any text
            forward.exchange.answer(reply.status, reply.body, kind, headers)

        hurried = forward.client_s is not None and forward.client_s < forward.until_s
        try:
            return resort.begin(forward.exchange, forward.deadline_s, done, hurried=hurried)
        except Refused as error:  # any replica would refuse it as well
            self._settle(forward, error.status, "")
            say(forward.exchange, error.status, str(error), error.headers)
            return True

    # Answers

    def _pass_on(self, forward: _Forward, answer: HttpAnswer) -> None:
        headers = answer.headers + b"x-request-id: %b\r\n" % forward.id
        if answer.status in RETRIED and b"retry-after: " not in headers:
            headers += retry_after(1.0)
        self._settle(forward, answer.status, "")
        forward.exchange.answer(answer.status, answer.body, answer.content_type, headers)

    def _refuse(self, forward: _Forward, reason: str) -> None:
        reply = refusal(reason)
        headers = b"x-request-id: %b\r\n" % forward.id
        if reply.status in RETRIED:
            headers += retry_after(1.0)
        self._settle(forward, reply.status, reason)
        forward.exchange.answer(reply.status, reply.body, JSON, headers)

    def _leave(self, forward: _Forward) -> None:
        """End all replicas' work on the request."""
        if forward.timer is not None:
            forward.timer.cancel()
            forward.timer = None  # it refers to the request, and cycles wait for the garbage collector
        for line in forward.sent:
            if line.tag is not None and line.tag.request is forward:
                line.upstream.cancel(line, line.tag)
        self._under_way.discard(forward)
        if self._settled is not None and not self._under_way and not self._settled.done():
            self._settled.set_result(None)

    def _settle(self, forward: _Forward, status: int, reason: str) -> None:
        """Count and log the end of a request, and release its resources."""
        self._leave(forward)
        exchange = forward.exchange
        if exchange.method != b"POST" and exchange.path.endswith(b"/ready"):
            return  # a conductor's readiness poll every second: no request, and no miss without a replica
        latency_s = self._now() - exchange.arrived_s
        metrics = self.metrics
        metrics.requests[status] += 1
        metrics.latency_s.observe(latency_s)
        if reason:
            metrics.refused[reason] += 1
        if exchange.gone:
            metrics.clients_gone += 1
        if self._settings.log_requests:
            _REQUESTS.info(
                "answered",
                extra={
                    "request_id": forward.id.decode("latin-1"),
                    "status": status,
                    "latency_ms": round(latency_s * 1e3, 3),
                    "answered_by": "nobody" if reason else "function" if forward.by_function else "replica",
                    "sent_to": [line.upstream.address.url for line in forward.sent],
                },
            )

    def _look(self) -> None:
        """Probe the replicas that are due, and end unneeded requests and connections."""
        gateway = self.gateway
        now_s = self._now()
        for forward in [one for one in self._under_way if one.until_s <= now_s or one.exchange.gone]:
            if forward.exchange.gone:
                gateway.abandoned(forward)
                self._refuse(forward, "gone")
            else:
                gateway.expired(forward, now_s, hung=True)
                self._refuse(forward, "hung")
        self.probing.look(now_s)
        self._resume()  # the list of replicas may have changed
        for url in [url for url in self._upstreams if url not in gateway.replicas and url not in gateway.leaving]:
            self._upstreams.pop(url).close()
        for upstream in self._upstreams.values():
            upstream.sweep()


_: type[Asker[ReplicaAttempt[_Forward]]] = Forwarder


def say(exchange: Exchange, status: int, what: str, headers: bytes = b"") -> None:
    """Answer with an error of the gateway itself."""
    exchange.answer(status, error_reply(status, what).body, JSON, headers)
