"""The addresses of all processes that serve a model, as the controller tells them when it reads metrics.

    mark-peers: http://10.0.0.5:8080 http://10.0.0.6:8080

A header replaces the addresses of the one before. Unlike prices, addresses stay known when the controller is gone.
Peers get facts and the inner key, so only addresses of a private network or of this machine count.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

HEADER = "mark-peers"
MOST = 64  # facts still reach processes beyond them, by way of these


def headers_of(urls: Sequence[str]) -> dict[str, str]:
    """The header that tells a process of all, itself included; none where no process is known."""
    return {HEADER: " ".join(sorted(urls)[:MOST])} if urls else {}


def peers_in(headers: Mapping[bytes, bytes]) -> tuple[str, ...] | None:
    """The addresses in the headers of a request, with lower-case names; None: there is no such header."""
    said = headers.get(HEADER.encode())
    return None if said is None else tuple(filter(_is_inside, said.decode("latin-1").split()[:MOST]))


def _is_inside(url: str) -> bool:
    """Is the host an address of a private network? Link-local addresses are not: EC2's metadata service has one."""
    try:
        host = ipaddress.ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return False
    host = getattr(host, "ipv4_mapped", None) or host  # ::ffff:169.254.169.254 is the metadata service, too
    elsewhere = host.is_global or host.is_link_local or host.is_unspecified or host.is_multicast or host.is_reserved
    return not elsewhere
