"""EC2's instance metadata service (IMDSv2) of one machine: `Metadata` answers, `serve` listens.

Only requests with a token are answered, and only announced notices are found under `spot/` and `events/`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from secrets import token_urlsafe

from mark.serving.frontend.http import Exchange, HttpServer
from mark_infra.testbed.machines_port import Machine

PORT = 1338
ROLE = "mark-bouncer"
ACCOUNT = "123456789012"
ACTIONS = ("terminate", "stop", "hibernate")
_LONGEST_TTL_S = 21_600
_CREDENTIALS_S = 6 * 3600.0  # lifetime, the same as of AWS's credentials
_TTL_HEADER = b"x-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = b"x-aws-ec2-metadata-token"

Answer = tuple[int, bytes, bytes, bytes]  # status, body, content type, header lines


class Metadata:
    """The metadata of one machine. Times are Unix seconds; `began_s` is the machine's launch."""

    def __init__(
        self,
        machine: Machine,
        region: str,
        began_s: float,
        *,
        new_token: Callable[[], str] = lambda: token_urlsafe(40),
    ) -> None:
        self._machine, self._region, self._began_s = machine, region, began_s
        self._new_token = new_token
        self._token_ends_s: dict[bytes, float] = {}
        self._announced: dict[str, str] = {}

    def announce(self, action: str, at_s: float) -> None:
        """Show an interruption at that time from now on, or a recommendation to leave (`rebalance`), noticed then.

        Raises ValueError for another action.
        """
        at = _iso(at_s)
        if action == "rebalance":
            self._announced["events/recommendations/rebalance"] = json.dumps({"noticeTime": at})
        elif action in ACTIONS:
            self._announced["spot/instance-action"] = json.dumps({"action": action, "time": at})
            if action == "terminate":
                self._announced["spot/termination-time"] = at
        else:
            raise ValueError(f"no notice announces {action}")

    def answer(self, method: bytes, path: str, headers: Mapping[bytes, bytes], now_s: float) -> Answer:
        """Return the answer to a request; header names in lower case."""
        if path == "/latest/api/token":
            return self._token(headers, now_s) if method == b"PUT" else _refused(405)
        if method not in (b"GET", b"HEAD"):
            return _refused(405)
        if not now_s < self._token_ends_s.get(headers.get(_TOKEN_HEADER, b""), now_s):
            return _refused(401)
        found = self._find(path.rstrip("/"), now_s)
        if found is None:
            return _refused(404)
        content_type = b"application/json" if found.startswith("{") else b"text/plain"
        return 200, found.encode(), content_type, b"server: EC2ws\r\n"

    def _token(self, headers: Mapping[bytes, bytes], now_s: float) -> Answer:
        if b"x-forwarded-for" in headers:
            return _refused(403)  # a proxy forwarded the request
        ttl = headers.get(_TTL_HEADER, b"")
        if not ttl.isdigit() or not 1 <= int(ttl) <= _LONGEST_TTL_S:
            return _refused(400)
        token = self._new_token().encode()
        self._token_ends_s = {t: end_s for t, end_s in self._token_ends_s.items() if end_s > now_s}
        self._token_ends_s[token] = now_s + int(ttl)
        return 200, token, b"text/plain", _TTL_HEADER + b": " + ttl + b"\r\n"

    def _find(self, path: str, now_s: float) -> str | None:
        machine = self._machine
        if path == "/latest/dynamic/instance-identity/document":
            return json.dumps(
                {
                    "accountId": ACCOUNT,
                    "architecture": "x86_64",
                    "availabilityZone": machine.zone,
                    "instanceId": machine.instance_id,
                    "instanceType": machine.instance_type,
                    "pendingTime": _iso(self._began_s),
                    "privateIp": machine.address,
                    "region": self._region,
                    "version": "2017-09-30",
                }
            )
        of = path.removeprefix("/latest/meta-data/")
        known = {
            "instance-id": machine.instance_id,
            "instance-type": machine.instance_type,
            "instance-life-cycle": "spot" if machine.spot else "on-demand",
            "local-ipv4": machine.address,
            "placement/availability-zone": machine.zone,
            "placement/region": self._region,
            "iam/security-credentials": ROLE,
            f"iam/security-credentials/{ROLE}": json.dumps(
                {
                    "Code": "Success",
                    "LastUpdated": _iso(now_s),
                    "Type": "AWS-HMAC",
                    "AccessKeyId": "testing",
                    "SecretAccessKey": "testing",
                    "Token": "testing",
                    "Expiration": _iso(now_s + _CREDENTIALS_S),
                }
            ),
            **self._announced,
        }
        return known.get(of) if of != path else None


async def serve(metadata: Metadata, address: str, port: int = PORT) -> HttpServer:
    """Listen on the address; the caller closes the server. Raises BadInput if the address cannot be used."""

    def handle(exchange: Exchange) -> None:
        exchange.answer(*metadata.answer(exchange.method, exchange.path.decode(), exchange.headers, time.time()))

    server = HttpServer(handle)
    await server.start(address, port)
    return server


def _refused(status: int) -> Answer:
    return status, b"", b"text/plain", b""


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
