"""The HTTP API of Prometheus: instant and range queries. Read only, and with the standard library alone.

The adapter of `mark.traffic.prometheus.workload.TimedReader`. A range query of more points than a server gives at
once is asked page by page. No answer may be larger than `answer_bytes`, and no redirection may lead to another host,
because it would carry the credentials there.
"""

from __future__ import annotations

import base64
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import IO, TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from mark.domain.errors import BadInput
from mark.traffic.prometheus.answers import Pages, PromAnswer, Unanswered, json_of, parse_answer, reason_of, shown
from mark.traffic.prometheus.workload import TimedReader

if TYPE_CHECKING:
    from http.client import HTTPMessage

PAGE_POINTS = 10_000  # of a series; Prometheus refuses more than 11,000
ANSWER_BYTES = 64 << 20
_REASON_BYTES = 64 << 10
_LATER = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """Where a Prometheus is and who asks. `url` may have a path, as behind a proxy or of a tenant.

    A token goes into `Authorization: Bearer`, a user and a password into basic authentication. `ca_file` holds the
    authorities of its certificate; None means the system's. Raises BadInput.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = 60.0
    answer_bytes: int = ANSWER_BYTES

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or parts.query or parts.fragment or not self.url.isprintable() or " " in self.url:
            raise BadInput("must be http://host:port or https://host:port, with a path or without", _WHERE, self.url)
        if "@" in parts.netloc:  # the value is not shown, because it holds a password
            raise BadInput("must not hold a password: use --prometheus-user and PROMETHEUS_PASSWORD", _WHERE)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token):
            raise BadInput("the token must be one line of printable characters", _WHERE)


_WHERE = "--prometheus"


class Prometheus:
    """The port TimedReader over HTTP. Raises Unanswered where asking again may help, else BadInput."""

    def __init__(self, access: PrometheusAccess) -> None:
        self._access = access
        self._base = access.url.rstrip("/") + "/api/v1/"
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=_tls(access.ca_file)), _SameHost(urlsplit(access.url).netloc)
        )

    def query(self, promql: str, at_s: float) -> PromAnswer:
        return self._ask("query", query=promql, time=f"{at_s:.3f}")

    def now_s(self) -> float:
        """The server's Unix time."""
        answer = self._ask("query", query="time()")
        if not answer.series:
            raise Unanswered("does not tell its time", self._access.url)
        return float(answer.series[0].values[-1])

    def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> PromAnswer:
        pages, last = Pages(), int((end_s - start_s) / step_s + 1e-9)
        for first in range(0, last + 1, PAGE_POINTS):
            begin_s = start_s + first * step_s
            until_s = start_s + min(last, first + PAGE_POINTS - 1) * step_s
            times = {"start": f"{begin_s:.3f}", "end": f"{until_s:.3f}", "step": f"{step_s:.3f}"}
            pages.add(self._ask("query_range", query=promql, **times))
        return pages.joined()

    def _ask(self, path: str, **parameters: str) -> PromAnswer:
        request = urllib.request.Request(f"{self._base}{path}?{urlencode(parameters)}", headers=self._headers())
        where, limit = self._access.url, self._access.answer_bytes
        try:
            with self._opener.open(request, timeout=self._access.timeout_s) as answer:
                body = _read(answer, limit + 1, time.monotonic() + self._access.timeout_s)
                length = answer.headers.get("content-length")
        except urllib.error.HTTPError as error:
            raise _refusal(error, where) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unanswered(
                f"does not answer ({shown(str(reason).encode()) or type(error).__name__})", where
            ) from None
        if len(body) > limit:
            raise BadInput(f"answers more than {limit >> 20} MiB: ask for fewer days, or sum in the query", where)
        if length is not None and len(body) < int(length):
            raise Unanswered("the answer was cut", where, f"{len(body):,} of {int(length):,} bytes")
        return parse_answer(body, where)

    def _headers(self) -> dict[str, str]:
        access = self._access
        said = {"accept": "application/json", "user-agent": "mark"}
        if access.token is not None:
            said["authorization"] = f"Bearer {access.token}"
        elif access.user is not None:
            pair = f"{access.user}:{access.password or ''}".encode()
            said["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return said


def _read(answer: HTTPResponse, most: int, until_s: float) -> bytes:
    """At most so many bytes. Raises TimeoutError at `until_s`, also where the server sends a byte now and then."""
    parts, size = [], 0
    while size < most and (part := answer.read1(min(most - size, 1 << 20))):
        parts.append(part)
        size += len(part)
        if time.monotonic() > until_s:
            raise TimeoutError("timed out")
    return b"".join(parts)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follow a redirection only on the host that was named, and never from https to http."""

    def __init__(self, netloc: str) -> None:
        self._netloc = netloc

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        to = urlsplit(newurl)
        if to.netloc != self._netloc or to.scheme != req.type:
            raise BadInput("redirects to another address: name that one", _WHERE, f"{to.scheme}://{to.netloc}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _tls(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"cannot be read as certificates ({error})", "--prometheus-ca", ca_file) from None


def _refusal(error: urllib.error.HTTPError, where: str) -> BadInput:
    """The reason that the body of a refusal gives, or its text."""
    with error:
        try:
            body = error.read(_REASON_BYTES)
        except (OSError, HTTPException):
            body = b""
    said = reason_of(json_of(body)) or shown(body) or error.reason
    if error.code in (401, 403):
        what = "refuses the credentials: set PROMETHEUS_TOKEN or --prometheus-token-file"
        return BadInput(what, where, f"{error.code} {said}")
    if error.code in _LATER or error.code >= 500:
        return Unanswered("does not answer now", where, f"{error.code} {said}")
    if error.code == 404:
        return BadInput("has no HTTP API of Prometheus here: is the path right?", where, f"404 {said}")
    what = "refuses the query"
    if "too many samples" in said:
        what += ", which is too large for it: ask for fewer days or select fewer series"
    return BadInput(what, where, f"{error.code} {said}")


_: type[TimedReader] = Prometheus
