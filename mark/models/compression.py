"""Inflate compressed request bodies (`content-encoding: gzip` or `deflate`) within bounds.

A server inflates on its event loop, where every request waits for it, and a few bytes can expand to many. So a body may
grow 32-fold, or to 1 MiB if that is more, and never beyond the limit of bodies.
"""

from __future__ import annotations

import zlib

CODINGS = b"gzip, deflate"
_GROWTH = 32
_ALWAYS_BYTES = 1024 * 1024
_EITHER_HEADER = zlib.MAX_WBITS + 32  # accept gzip's or zlib's header


class Refused(Exception):
    """The body is refused; `status` and `headers` are for the reply."""

    def __init__(self, status: int, text: str, headers: bytes = b"") -> None:
        super().__init__(text)
        self.status, self.headers = status, headers


def inflated(body: bytes, coding: bytes, most_bytes: int) -> bytes:
    """Return the uncompressed body. Raises Refused: 415, 413 or 400."""
    coding = coding.strip().lower()
    if coding in (b"", b"identity"):
        return body
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        more = b"accept-encoding: %b\r\n" % CODINGS
        raise Refused(415, f"content-encoding must be one of {CODINGS.decode()}", more)
    limit = min(most_bytes, max(_ALWAYS_BYTES, _GROWTH * len(body)))
    stream = zlib.decompressobj(_EITHER_HEADER)
    try:
        found = stream.decompress(body, limit + 1)
    except zlib.error:
        raise Refused(400, f"the body is not {coding.decode()}") from None
    if len(found) > limit:
        raise Refused(413, f"the body inflates to more than {limit} bytes")
    if not stream.eof or stream.unused_data:
        raise Refused(400, f"the body is not one whole {coding.decode()}")
    return found
