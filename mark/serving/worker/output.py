"""What models print, passed on to standard error: all of it, unless it is so much that it would fill a disk.

Workers write to a pipe, and a thread here copies it. Where standard error is not read the thread waits, and with it the
workers that print.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

BYTES_PER_S, BURST_BYTES = 1 << 20, 8 << 20
_READ_BYTES = 65536
_QUIET_S = 1.0  # after that what was left out is told, though nothing more is printed
_LAST_WORDS_S = 1.0


class PrintedOutput:
    """`fd` is for workers to print to; it goes on to the descriptor `to`.

    Beyond `burst_bytes`, and `bytes_per_s` in the long run, what is printed is left out, and a line says how much.
    """

    def __init__(
        self,
        to: int = 2,
        *,
        bytes_per_s: float = BYTES_PER_S,
        burst_bytes: int = BURST_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._to, self._now = to, now
        self._bytes_per_s, self._burst_bytes = bytes_per_s, burst_bytes
        self._read, self.fd = os.pipe()
        self._thread = threading.Thread(target=self._copy, name="printed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """When the workers have ended: their last words are passed on."""
        os.close(self.fd)
        self._thread.join(_LAST_WORDS_S)

    def _copy(self) -> None:
        allowed, at_s, left_out = float(self._burst_bytes), self._now(), 0
        while True:
            if not select.select([self._read], [], [], _QUIET_S if left_out else None)[0]:
                left_out = self._tell(left_out)
                continue
            data = os.read(self._read, _READ_BYTES)
            now_s = self._now()
            allowed = min(self._burst_bytes, allowed + (now_s - at_s) * self._bytes_per_s)
            at_s = now_s
            # Once too much was printed half of the burst must be free, or every other piece would be left out.
            if data and len(data) > allowed - (0.5 * self._burst_bytes if left_out else 0.0):
                left_out += len(data)
                continue
            left_out = self._tell(left_out)
            if not data:
                break
            allowed -= len(data)
            self._write(data)
        os.close(self._read)

    def _tell(self, left_out: int) -> int:
        if left_out:
            self._write(b"\nmark: %d bytes that a model printed were left out: it prints too much\n" % left_out)
        return 0

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # its reader has gone
            while data:
                data = data[os.write(self._to, data) :]
