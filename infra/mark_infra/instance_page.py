"""Reading a page from an instance, which may be taken over: never more than it may have.

The controller's threads wait for these answers, and its memory holds them. So an answer is taken as it is sent, up to a
size, from the address that was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp

MOST_BYTES = 2 * 1024 * 1024  # a bouncer's metrics have tens of kB
_PLAIN = frozenset(("", "identity"))


def instance_session(**options: Any) -> aiohttp.ClientSession:
    """A session to ask instances by: `options` are aiohttp's. It inflates nothing and keeps no cookies."""
    return aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), **options)


async def read_page(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, **options: Any
) -> tuple[int, bytes]:
    """(status, body) of a page. `options` go to aiohttp's `get`.

    Raises ValueError for an answer that is too large, compressed, or a redirect; aiohttp.ClientError, TimeoutError or
    OSError where none comes.
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
                answer.close()  # what is still coming is not read
                raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
        return answer.status, bytes(page)
