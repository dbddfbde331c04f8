"""The addresses of all processes that serve a model, as the controller tells them when it reads metrics.

    mark-peers: http://10.0.0.5:8080 http://10.0.0.6:8080

A header replaces the addresses of the one before. Unlike prices, addresses stay known when the controller is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HEADER = "mark-peers"
MOST = 64  # facts still reach processes beyond them, by way of these


def headers_of(urls: Sequence[str]) -> dict[str, str]:
    """The header that tells a process of all, itself included; none where no process is known."""
    return {HEADER: " ".join(sorted(urls)[:MOST])} if urls else {}


def peers_in(headers: Mapping[bytes, bytes]) -> tuple[str, ...] | None:
    """The addresses in the headers of a request, with lower-case names; None: there is no such header."""
    said = headers.get(HEADER.encode())
    return None if said is None else tuple(said.decode("latin-1").split()[:MOST])
