"""A client that sets a gateway's weights, for the program that decides on the replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from mark.domain.errors import MarkError


class GatewayFailed(MarkError):
    """The gateway answered with an error and is unchanged, or it was unreachable and its state is unknown."""


class GatewayAdmin:
    """A client of `/admin/replicas` at the gateway with this `url`; `key` has the scope admin."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._client = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key is not None else {},
            timeout=5.0,
            trust_env=False,
        )

    def put(self, weights: Mapping[str, float], groups: Mapping[str, str] | None = None) -> None:
        """Replace the replicas by these: weight by `http://host:port`; 0: no new requests are sent there. Repeatable.

        `groups` is for a gateway with the routing `alb`. Raises GatewayFailed.
        """
        named = groups or {}
        self._ask("PUT", {url: [weight, named[url]] if url in named else weight for url, weight in weights.items()})

    def state(self) -> dict[str, Any]:
        """Return the state of the gateway and its replicas. Raises GatewayFailed."""
        said: dict[str, Any] = self._ask("GET")
        return said

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ask(self, method: str, body: object = None) -> Any:
        try:
            answer = self._client.request(method, "/admin/replicas", json=body)
        except httpx.HTTPError as error:
            raise GatewayFailed(f"{self._client.base_url}: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            raise GatewayFailed(f"{self._client.base_url}: status {answer.status_code}: {answer.text[:300]}")
        return answer.json()
