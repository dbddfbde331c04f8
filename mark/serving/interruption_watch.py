"""The instance's own notice of its interruption, read from EC2's metadata service every few seconds.

The controller learns of interruptions from the cloud; this second source helps if the first is late or gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import HTTPException

from mark.domain.errors import BadInput

_TOKEN_TTL_S = 21_600
_TIMEOUT_S = 1.0
POLL_S = 5.0  # the interval that AWS recommends
_POLL = "MARK_NOTICE_POLL_S"

log = logging.getLogger("mark.serving")


class MetadataService:
    """A client of IMDSv2 at `base_url`, to be asked every `poll_s`. Its calls block."""

    def __init__(self, base_url: str = "http://169.254.169.254", poll_s: float = POLL_S) -> None:
        self.poll_s = poll_s
        self._base_url = base_url.rstrip("/")
        self._token = ""
        # The proxies of the environment must neither see nor answer requests to the machine itself.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> MetadataService | None:
        """Return the service that the SDK's variables name, with our variable for `poll_s`; None if they turn it off.

        Raises BadInput for an address or an interval that cannot be used.
        """
        if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return None
        url = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
        if not url.startswith(("http://", "https://")):
            raise BadInput("must be an http address", "AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        asked = environment.get(_POLL, str(POLL_S))
        try:
            poll_s = float(asked)
        except ValueError:
            poll_s = 0.0
        if not 0.0 < poll_s <= 60.0:
            raise BadInput("must be above 0 and at most 60 seconds", _POLL, asked)
        return cls(url, poll_s)

    def gone_at_unix_s(self) -> float | None:
        """Return when this instance ends, from the pending interruption; None without one.

        Raises OSError if the metadata service does not exist, does not answer, or gives an answer of another form.
        """
        try:
            found = self._get("/latest/meta-data/spot/instance-action")
        except (HTTPException, ValueError) as error:
            raise OSError(f"no metadata service answers so: {type(error).__name__}") from None
        if found is None:
            return None
        try:
            at = datetime.strptime(json.loads(found)["time"], "%Y-%m-%dT%H:%M:%SZ")
        except (ValueError, KeyError, TypeError):
            raise OSError(f"the metadata service announces something unknown: {found[:100]!r}") from None
        return at.replace(tzinfo=UTC).timestamp()

    def _get(self, path: str) -> bytes | None:
        for renewed in (False, True):
            if not self._token or renewed:
                self._token = self._put_token()
            request = urllib.request.Request(self._base_url + path, headers={"X-aws-ec2-metadata-token": self._token})
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                    body: bytes = answer.read(65_536)
                    return body
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    return None
                if error.code != 401 or renewed:
                    raise
        return None

    def _put_token(self) -> str:
        request = urllib.request.Request(
            self._base_url + "/latest/api/token",
            method="PUT",
            headers={"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)},
        )
        with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
            token: bytes = answer.read(4096)
            return token.decode("ascii")


async def watch(service: MetadataService, announced: Callable[[float], None]) -> None:
    """Call `announced` with the end in Unix seconds once an interruption is announced, then return.

    If the service does not answer, polling goes on, because the service may come back and polling costs nothing. Each
    new error is logged once.
    """
    said = ""
    while True:
        try:
            at_unix_s = await asyncio.to_thread(service.gone_at_unix_s)
        except OSError as error:
            at_unix_s = None
            if str(error) != said:
                said = str(error)
                log.warning("notices of interruption cannot be read: %s", said)
        if at_unix_s is not None:
            announced(at_unix_s)
            return
        await asyncio.sleep(service.poll_s)


def here() -> MetadataService | None:
    """Return the metadata service of this machine."""
    return MetadataService.of(os.environ)
