"""The addresses of all processes that serve a model, which the controller sends when it reads metrics.

    mark-peers: http://10.0.0.5:8080 http://10.0.0.6:8080

A header replaces the previous addresses. Unlike prices, addresses stay known when the controller is gone. Peers get
facts and the inner key, so only addresses of a private network or of this machine are accepted.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

HEADER = "mark-peers"
MOST = 64  # facts still reach further processes through these


def headers_of(urls: Sequence[str]) -> dict[str, str]:
    """Return the header with all processes, its receiver included; empty if no process is known."""
    return {HEADER: " ".join(sorted(urls)[:MOST])} if urls else {}


def peers_in(headers: Mapping[bytes, bytes]) -> tuple[str, ...] | None:
    """Return the addresses in a request's headers, which have lower-case names; None without the header."""
    said = headers.get(HEADER.encode())
    return None if said is None else tuple(filter(_is_inside, said.decode("latin-1").split()[:MOST]))


def _is_inside(url: str) -> bool:
    """Return whether the host is an address of a private network.

    Link-local addresses are excluded, because EC2's metadata service has one.
    """
    try:
        host = ipaddress.ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return False
    host = getattr(host, "ipv4_mapped", None) or host  # ::ffff:169.254.169.254 is the metadata service too
    elsewhere = host.is_global or host.is_link_local or host.is_unspecified or host.is_multicast or host.is_reserved
    return not elsewhere
