"""Features that moto lacks: tags of an image's snapshots, sold-out types, refreshes of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, urlencode

from moto.backends import get_backend

from tests.infra.conftest import ACCOUNT

_SOLD_OUT = b"""<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code><Message>none left</Message></Error>
</Errors><RequestID>0</RequestID></Response>"""

_REFRESHED = b"""<StartInstanceRefreshResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">
<StartInstanceRefreshResult><InstanceRefreshId>1</InstanceRefreshId></StartInstanceRefreshResult>
</StartInstanceRefreshResponse>"""


class Ec2Gaps:
    """A WSGI app around moto's. RunInstances launches no instances of the types in `sold_out`."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.sold_out: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
        if asked.get("Action") == "RunInstances" and asked["InstanceType"] in self.sold_out:
            return _said("400 Bad Request", _SOLD_OUT, start_response)
        if asked.get("Action") == "StartInstanceRefresh":
            return _said("200 OK", _REFRESHED, start_response)
        if asked.get("Action") != "CreateImage":
            return self._ask(environ, body, start_response)
        assert asked["TagSpecification.2.ResourceType"] == "snapshot"
        known = {key: value for key, value in asked.items() if not key.startswith("TagSpecification.2.")}
        answer = [b"".join(self._ask(environ, urlencode(known).encode(), start_response))]
        for region in get_backend("ec2")[ACCOUNT].values():
            for image in region.amis.values():
                if image.name == asked["Name"]:
                    for tag in image.get_tags():
                        image.ebs_snapshot.add_tag(tag["key"], tag["value"])
        return answer

    def _ask(self, environ: dict[str, Any], body: bytes, start: Callable[..., Any]) -> Iterable[bytes]:
        again = {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        found: Iterable[bytes] = self._app(again, start)
        return found


def _said(status: str, page: bytes, start: Callable[..., Any]) -> list[bytes]:
    start(status, [("Content-Type", "text/xml"), ("Content-Length", str(len(page)))])
    return [page]
