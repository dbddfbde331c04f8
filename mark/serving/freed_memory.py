"""Freed memory: kept for the next bodies while they come, and given back to the system when they do not.

Bodies of 100 kB would fault their pages in again each time, so malloc is told to keep what is freed. It would keep it
for ever, as one small object that lives on top of a crowd's bodies holds all below it. So the process looks at what it
holds every few seconds, and has malloc give back what is free where that stays far above what it needed at rest.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path

LOOK_S = 5.0
SLACK_BYTES = 16 << 20  # so much above the lowest that was ever held is not worth giving back
LEAST_LOOKS, MOST_LOOKS = 2, 6  # in a row that find more, before it is given back
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
STATM = Path("/proc/self/statm")


class FreedMemory:
    """Pure: what the process holds in, whether to give back what is free out.

    To give back 100 MiB takes 5 ms, in which nothing else is done; where nothing is free, 0.3 ms. What is left may be
    in use, now or from now on: nothing tells the two apart. So it is tried again, at most every `MOST_LOOKS`.
    """

    def __init__(self, held_bytes: int) -> None:
        self._lowest_bytes = held_bytes
        self._looks, self._patience = 0, LEAST_LOOKS

    def is_due(self, held_bytes: int) -> bool:
        """At each look, with what is held then."""
        self._lowest_bytes = min(self._lowest_bytes, held_bytes)
        if held_bytes <= self._lowest_bytes + SLACK_BYTES:
            self._looks, self._patience = 0, LEAST_LOOKS
            return False
        self._looks += 1
        if self._looks < self._patience:
            return False
        self._looks, self._patience = 0, min(MOST_LOOKS, 2 * self._patience)
        return True


def keep() -> None:
    """Tell glibc not to give freed memory back at once."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        libc.mallopt(_M_MMAP_THRESHOLD, 16 << 20)


def _trim() -> Callable[[], object] | None:
    """What gives back all that is free; None: this C library has no such thing."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim") or not STATM.exists():
        return None
    return lambda: libc.malloc_trim(0)


async def give_back(look_s: float = LOOK_S) -> None:
    """Go on looking, until cancelled."""
    trim = _trim()
    if trim is None:
        return
    page_bytes = resource.getpagesize()
    with STATM.open("rb", buffering=0) as statm:  # kept open: where no descriptors are left there is much to give back

        def held_bytes() -> int:
            statm.seek(0)
            return int(statm.read().split()[1]) * page_bytes

        freed = FreedMemory(held_bytes())
        while True:
            await asyncio.sleep(look_s)
            if freed.is_due(held_bytes()):
                trim()
