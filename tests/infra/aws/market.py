"""What moto's CreateFleet lacks: a token's launch happens once, and offers run out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from io import BytesIO
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlencode

_TYPE = re.compile(r"(LaunchTemplateConfigs\.(\d+))\.Overrides\.(\d+)\.InstanceType")
_SHORT = """<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>0</requestId>
<fleetId>fleet-0</fleetId><fleetInstanceSet/><errorSet>{errors}</errorSet></CreateFleetResponse>"""
_ERROR = """<item><launchTemplateAndOverrides><overrides><instanceType>{kind}</instanceType></overrides>
</launchTemplateAndOverrides><errorCode>{code}</errorCode><errorMessage>none left</errorMessage></item>"""


class Market:
    """A WSGI app around moto's."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = Lock()
        self._answers: dict[str, tuple[str, list[Any], bytes]] = {}  # by token
        self.left: dict[tuple[str, str], int] = {}  # (type, on-demand or spot): how many can still be had
        self.code = "InsufficientInstanceCapacity"  # by which it says that there are none
        self.codes: dict[str, str] = {}  # of types for which it says something else
        self.fleets: list[dict[str, str]] = []  # CreateFleet as it was asked for, without repetitions

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
        if asked.get("Action") != "CreateFleet":
            return self._ask(environ, body, start_response)
        with self._lock:
            token = asked["ClientToken"]
            if token not in self._answers:
                self.fleets.append(asked)
                said: list[Any] = []
                pages = self._launch(environ, asked, lambda *what: said.extend(what))
                self._answers[token] = (said[0], said[1], b"".join(pages))
            status, headers, page = self._answers[token]
        start_response(status, headers)
        return [page]

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
            page = _SHORT.format(errors="".join(errors)).encode()
            start("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(page)))])
            return [page]
        wanted = asked["TargetCapacitySpecification.TotalTargetCapacity"]
        asked = {**asked, "TargetCapacitySpecification.TotalTargetCapacity": str(count)}
        config, number = (f"LaunchTemplateConfigs.{first[0]}.", f"Overrides.{first[1]}.")
        taken = {key.removeprefix(config): value for key, value in asked.items() if key.startswith(config)}
        for key, value in taken.items():  # moto takes the first of the first
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
