"""Keep freed memory for the next bodies while they arrive, and return it to the system afterwards.

Bodies of 100 kB would fault their pages in again each time, so malloc is told to keep freed memory. It would never
return the memory of a burst of bodies, because one small object on top of the heap holds everything below. So the
process reads its resident memory every few seconds, and has malloc return free memory if it stays far above the lowest
value.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path

LOOK_S = 5.0
SLACK_BYTES = 16 << 20  # this much above the lowest value is not worth returning
LEAST_LOOKS, MOST_LOOKS = 2, 6  # successive readings above it before memory is returned
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
STATM = Path("/proc/self/statm")


class FreedMemory:
    """The decision when to return free memory, from readings of the resident memory. It does no I/O.

    Returning 100 MiB blocks the process for 5 ms, a call without free memory for 0.3 ms. Memory that remains afterwards
    may be in use, temporarily or for good, and readings cannot tell the two apart. So the next attempts become rarer,
    down to one every `MOST_LOOKS` readings.
    """

    def __init__(self, held_bytes: int) -> None:
        self._lowest_bytes = held_bytes
        self._looks, self._patience = 0, LEAST_LOOKS

    def is_due(self, held_bytes: int) -> bool:
        """Return whether to return free memory now; call it with each reading."""
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
    """Tell glibc to keep freed memory."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        libc.mallopt(_M_MMAP_THRESHOLD, 16 << 20)


def _trim() -> Callable[[], object] | None:
    """Return the C library's function that returns all free memory; None if it lacks one."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim") or not STATM.exists():
        return None
    return lambda: libc.malloc_trim(0)


async def give_back(look_s: float = LOOK_S) -> None:
    """Return free memory when it is due, until cancelled."""
    trim = _trim()
    if trim is None:
        return
    page_bytes = resource.getpagesize()
    with STATM.open("rb", buffering=0) as statm:  # kept open: it is most needed when no file descriptors are left

        def held_bytes() -> int:
            statm.seek(0)
            return int(statm.read().split()[1]) * page_bytes

        freed = FreedMemory(held_bytes())
        while True:
            await asyncio.sleep(look_s)
            if freed.is_due(held_bytes()):
                trim()
