"""Keys that change while a program runs: they are read every half minute and on request (SIGHUP).

If they cannot be read, the last keys remain valid.
"""

from __future__ import annotations

import logging
import os
import random
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from mark.domain.errors import MarkError
from mark.serving.frontend.auth import Auth, parse_keys, read_keys

EVERY_S = 30.0
_JITTER = 0.2  # share of the interval, so that pollers that started together do not poll together
_LATE = 10  # failures in a row after which the warning is repeated

# Return the version and text of the key file. Blocks; raises MarkError.
KeySource = Callable[[], tuple[int, str]]

_log = logging.getLogger("mark.serving")


class KeyPoll:
    """Keeps the keys of `auth` equal to those of `source`, and a copy in `file` for the next start.

    Without a source `file` itself is read, and only on request. Call `start`, and `close` at the end; `wake` may be
    called from anywhere, including signal handlers.
    """

    def __init__(
        self, auth: Auth, file: Path, source: KeySource | None = None, draw: Callable[[], float] = random.random
    ) -> None:
        self._auth, self._file, self._source, self._draw = auth, file, source, draw
        self._version: int | None = None
        self._failures, self._said = 0, ""
        self._told, self._ends = SimpleQueue[None](), False

    def start(self) -> None:
        """Read the keys in a thread, now and periodically if there is a source."""
        threading.Thread(target=self._run, name="keys", daemon=True).start()

    def wake(self) -> None:
        """Read the keys now."""
        self._told.put(None)

    def close(self) -> None:
        """Begin no further read."""
        self._ends = True
        self._told.put(None)

    def look(self) -> None:
        """Read the keys and use them."""
        try:
            if self._source is None:
                self._auth.renew(read_keys(self._file))
                _log.info("keys are read anew")
                return
            version, text = self._source()
            if version != self._version:
                self._auth.renew(parse_keys(text, "keys"))
                self._keep(text)
                if self._version is not None:
                    _log.info("keys are those of version %d", version)
                self._version = version
        except MarkError as error:
            self._failures += 1
            if str(error) != self._said or self._failures % _LATE == 0:
                _log.warning("keys stay as they were: %s", error)
            self._said = str(error)
        else:
            self._failures, self._said = 0, ""

    def pause_s(self) -> float | None:
        """Return the seconds until the next read; None: only on request."""
        return None if self._source is None else EVERY_S * (1.0 + _JITTER * (2.0 * self._draw() - 1.0))

    def _run(self) -> None:
        if self._source is None:
            self._wait()
        while not self._ends:
            try:
                self.look()
            except Exception:  # without this thread no key would ever be revoked
                _log.exception("looking for keys failed")
            self._wait()

    def _wait(self) -> None:
        with suppress(Empty):
            self._told.get(timeout=self.pause_s())

    def _keep(self, text: str) -> None:
        """Replace the file, so that its readers see either all of the old or all of the new text."""
        new = None
        try:
            if self._file.read_text("utf-8") == text:
                return
        except (OSError, UnicodeDecodeError):
            pass
        try:
            handle, new = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}-")
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(new, self._file)
        except OSError as error:
            _log.warning("no copy of the keys is kept: %s", error)
            if new is not None:
                with suppress(OSError):
                    os.unlink(new)
