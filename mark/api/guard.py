"""The checks of every request to the controller: its token, its size, and the rules for browsers.

Every path that is not listed as open needs a token, so a new route is closed until it is opened on purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mark.serving.frontend.auth import ADMIN, METRICS, READ, SCOPES, Auth, Grant, from_elsewhere

_LOG = logging.getLogger("mark.api")

MOST_BODY_BYTES = 16 * 1024

# The page has no inline script, loads nothing from elsewhere, and talks only to this controller.
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_EVERYBODY = Grant("anybody on this machine", SCOPES)


class Guard:
    """The outermost layer. Reading `open_paths` never needs a token; without `auth`, nothing does.

    An API without tokens trusts every client that can reach it, and a foreign web page in a browser on this machine
    can. So it answers only to this machine's own names, and refuses requests that a page of another origin sends.
    """

    def __init__(self, app: ASGIApp, auth: Auth | None, open_paths: Iterable[str]) -> None:
        self._app, self._auth, self._open = app, auth, frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None and scope["method"] not in ("GET", "HEAD"):
            body = await _body(receive)
            if body is None:
                refusal = _error(413, f"a body has {MOST_BODY_BYTES} bytes at most", {"connection": "close"})
            else:
                receive = _again(body, receive)
        try:
            await (refusal or self._app)(scope, receive, guarded)
        except Exception:
            _LOG.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise  # the server closes the connection, so that half an answer does not look complete
            await _error(500, "the controller failed at this; its log says why")(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = headers[name] + b", " + value if name in headers else value
        method, path = scope["method"], scope["path"]
        if self._auth is None:
            _grant(scope, _EVERYBODY)
            return _from_elsewhere(headers)
        if path in self._open and method in ("GET", "HEAD"):
            return None
        needed = METRICS if path == "/metrics" else READ if method in ("GET", "HEAD") else ADMIN
        refused = self._auth.check(needed, headers)
        if refused is None:
            grant = self._auth.grant(headers)
            if grant is None:
                return _error(401, "this token has just ended", {"www-authenticate": "Bearer"})
            _grant(scope, grant)
            return None
        status, body, lines = refused
        answer = Response(body, status, media_type="application/json")
        for line in lines.splitlines():
            name, _, value = line.decode().partition(": ")
            answer.headers[name] = value
        return answer


def _grant(scope: Scope, grant: Grant) -> None:
    scope.setdefault("state", {})["grant"] = grant


def _from_elsewhere(headers: dict[bytes, bytes]) -> Response | None:
    why = from_elsewhere(headers.get(b"host", b""), headers.get(b"origin"))
    return _error(403, why.decode()) if why else None


def _error(status: int, what: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": what}, status, headers)


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body; None if it is too long."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BODY_BYTES:
            return None
        if not message.get("more_body", False):  # also when the client disconnected
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read, and then later messages."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return parts.pop() if parts else await receive()

    return replayed
