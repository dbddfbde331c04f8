"""Read a page from an instance, with limits, because an attacker may have taken the instance over.

The controller's threads wait for these pages and its memory holds them. So a page is read uncompressed, up to a maximum
size, and only from the requested address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

MOST_BYTES = 2 * 1024 * 1024  # a bouncer's metrics have tens of kB
_PLAIN = frozenset(("", "identity"))


def instance_session(**options: Any) -> aiohttp.ClientSession:
    """Return a session for requests to instances that decompresses nothing and keeps no cookies.

    `options` are aiohttp's.
    """
    return aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), **options)


async def read_page(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, **options: Any
) -> tuple[int, bytes]:
    """Return (status, body) of a page. `options` go to aiohttp's `get`.

    Raises ValueError if the page is too large, compressed, or a redirect, and aiohttp.ClientError, TimeoutError or
    OSError if no answer arrives.
    """
    asked = {**(headers or {}), "accept-encoding": "identity"}
    async with session.get(url, headers=asked, allow_redirects=False, **options) as answer:
        if answer.headers.get("content-encoding", "").lower() not in _PLAIN:
            raise ValueError("the answer is compressed")
        if 300 <= answer.status < 400:
            raise ValueError("the answer is a redirect")
        page = bytearray()
        async for piece in answer.content.iter_any():
            page += piece
            if len(page) > MOST_BYTES:
                answer.close()  # do not read the rest
                raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
        return answer.status, bytes(page)
