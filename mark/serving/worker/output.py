"""The models' output, copied to standard error, but limited so that it cannot fill a disk.

Workers write to a pipe, and a thread here copies it. If standard error is not read, the thread waits, and with it the
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
_QUIET_S = 1.0  # without output for this time, omitted output is reported
_LAST_WORDS_S = 1.0


class PrintedOutput:
    """Workers print to `fd`, and the output is copied to the descriptor `to`.

    Output beyond `burst_bytes`, and `bytes_per_s` in the long run, is omitted, and a line reports its size.
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
        """Copy the rest of the output; call it after the workers have ended."""
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
            # After an omission half of the burst must be free, otherwise every other piece would be omitted.
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
        with suppress(OSError):  # the reader has gone
            while data:
                data = data[os.write(self._to, data) :]
