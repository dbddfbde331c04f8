"""Features that moto lacks: idempotent CreateFleet tokens, offers that run out, scheduled events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from io import BytesIO
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlencode

_TYPE = re.compile(r"(LaunchTemplateConfigs\.(\d+))\.Overrides\.(\d+)\.InstanceType")
_SHORT = """<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>0</requestId>
<fleetId>fleet-0</fleetId><fleetInstanceSet/><errorSet>{errors}</errorSet></CreateFleetResponse>"""
_ERROR = """<item><launchTemplateAndOverrides><overrides><instanceType>{kind}</instanceType></overrides>
</launchTemplateAndOverrides><errorCode>{code}</errorCode><errorMessage>none left</errorMessage></item>"""


_STATUSES = """<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>0</requestId>
<instanceStatusSet>{statuses}</instanceStatusSet>{next}</DescribeInstanceStatusResponse>"""
_STATUS = "<item><instanceId>{id}</instanceId><eventsSet>{events}</eventsSet></item>"
_EVENT = "<item><code>{}</code><description>{}</description><notBefore>{}</notBefore></item>"

_DENIED = """<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You may not</Message></Error>
</Errors><RequestID>0</RequestID></Response>"""
_REFUSED = """<Response><Errors><Error><Code>{}</Code><Message>no</Message></Error></Errors>
<RequestID>0</RequestID></Response>"""


class Market:
    """A WSGI app around moto's."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = Lock()
        self._answers: dict[str, tuple[str, list[Any], bytes]] = {}  # answers by token
        self._asked: dict[str, dict[str, str]] = {}  # the request of each token
        self.checks_parameters = False  # refuse a known token with another request
        self.throttles_after: int | None = None  # throttle CreateFleet after this many calls
        self.left: dict[tuple[str, str], int] = {}  # (type, on-demand or spot): instances left
        self.code = "InsufficientInstanceCapacity"  # the error code of a sold-out offer
        self.codes: dict[str, str] = {}  # other codes, by type
        self.fleets: list[dict[str, str]] = []  # CreateFleet requests, without repetitions
        self.events: dict[str, list[tuple[str, str, str]]] = {}  # by instance: code, description, time
        self.status_page = 1000  # statuses in one answer
        self.tells_statuses = True  # else DescribeInstanceStatus is not allowed
        self.statuses: list[dict[str, str]] = []  # DescribeInstanceStatus requests

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
        if asked.get("Action") == "DescribeInstanceStatus":
            self.statuses.append(asked)
            if not self.tells_statuses:
                return _answer(_DENIED, start_response, "403 Forbidden")
            return _answer(self._statuses(asked), start_response)
        if asked.get("Action") != "CreateFleet":
            return self._ask(environ, body, start_response)
        with self._lock:
            token = asked["ClientToken"]
            if self.checks_parameters and asked != self._asked.setdefault(token, asked):
                return _answer(_REFUSED.format("IdempotentParameterMismatch"), start_response, "400 Bad Request")
            if token not in self._answers and self.throttles_after is not None:
                if self.throttles_after == 0:
                    return _answer(_REFUSED.format("RequestLimitExceeded"), start_response, "503 Unavailable")
                self.throttles_after -= 1
            if token not in self._answers:
                self.fleets.append(asked)
                said: list[Any] = []
                pages = self._launch(environ, asked, lambda *what: said.extend(what))
                self._answers[token] = (said[0], said[1], b"".join(pages))
            status, headers, page = self._answers[token]
        start_response(status, headers)
        return [page]

    def schedule(self, instance_id: str, code: str, at_unix_s: float, description: str = "") -> None:
        """Announce an event as EC2 does."""
        at = datetime.fromtimestamp(at_unix_s, UTC).isoformat()
        self.events.setdefault(instance_id, []).append((code, description, at))

    def _statuses(self, asked: dict[str, str]) -> str:
        """Return statuses of instances that have an event of the requested codes, with all their events."""
        codes = {value for key, value in asked.items() if key.startswith("Filter.1.Value.")}
        found = sorted(id for id, events in self.events.items() if codes & {code for code, _, _ in events})
        first = int(asked.get("NextToken", 0))
        page, left = found[first : first + self.status_page], found[first + self.status_page :]
        items = (_STATUS.format(id=id, events="".join(_EVENT.format(*e) for e in self.events[id])) for id in page)
        token = f"<nextToken>{first + self.status_page}</nextToken>" if left else ""
        return _STATUSES.format(statuses="".join(items), next=token)

    def _launch(self, environ: dict[str, Any], asked: dict[str, str], start: Callable[..., Any]) -> Iterable[bytes]:
        count = int(asked["TargetCapacitySpecification.TotalTargetCapacity"])
        market = asked["TargetCapacitySpecification.DefaultTargetCapacityType"]
        kinds = {(int(found[2]), int(found[3])): kind for key, kind in asked.items() if (found := _TYPE.fullmatch(key))}
        first = next((at for at, kind in sorted(kinds.items()) if self.left.get((kind, market), 1) > 0), None)
        pool = (kinds.get(first, "") if first else "", market)
        if pool in self.left:
            count = min(count, self.left[pool])
            self.left[pool] -= count
        if first is None:
            errors = (_ERROR.format(kind=kind, code=self.codes.get(kind, self.code)) for kind in kinds.values())
            return _answer(_SHORT.format(errors="".join(errors)), start)
        wanted = asked["TargetCapacitySpecification.TotalTargetCapacity"]
        asked = {**asked, "TargetCapacitySpecification.TotalTargetCapacity": str(count)}
        config, number = (f"LaunchTemplateConfigs.{first[0]}.", f"Overrides.{first[1]}.")
        taken = {key.removeprefix(config): value for key, value in asked.items() if key.startswith(config)}
        for key, value in taken.items():  # moto takes the first type of the first override
            if not key.startswith("Overrides."):
                asked[f"LaunchTemplateConfigs.1.{key}"] = value
            elif key.startswith(number):
                asked[f"LaunchTemplateConfigs.1.Overrides.1.{key.removeprefix(number)}"] = value
        body = urlencode(asked).encode()
        if count == int(wanted):
            return self._ask(environ, body, start)
        said: list[Any] = []
        page = b"".join(self._ask(environ, body, lambda *what: said.extend(what)))
        said_of = "".join(_ERROR.format(kind=kind, code=self.codes.get(kind, self.code)) for kind in kinds.values())
        page = re.sub(b"<errorSet */>|<errorSet>.*</errorSet>", b"", page, flags=re.DOTALL)
        page = page.replace(b"</CreateFleetResponse>", f"<errorSet>{said_of}</errorSet></CreateFleetResponse>".encode())
        start(
            said[0],
            [*(one for one in said[1] if one[0].lower() != "content-length"), ("Content-Length", str(len(page)))],
        )
        return [page]

    def _ask(self, environ: dict[str, Any], body: bytes, start: Callable[..., Any]) -> Iterable[bytes]:
        found: Iterable[bytes] = self._app(
            {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}, start
        )
        return found


def _answer(text: str, start: Callable[..., Any], status: str = "200 OK") -> Iterable[bytes]:
    page = text.encode()
    start(status, [("Content-Type", "text/xml"), ("Content-Length", str(len(page)))])
    return [page]
