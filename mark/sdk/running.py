"""A service that is served by a process of its own, for as long as a `with` lasts: for notebooks and tests."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Self

from mark.domain.errors import MarkError

_READY = " is ready on "


class ServeProcess:
    """`mark serve` with these arguments. Entering waits until it is ready, leaving drains it.

    What the process says goes to standard error. `url` is its address; MarkError where it does not become ready, with
    its last line.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # -P: a mark.py where the user stands must not hide ours.
        self._command = [sys.executable, "-P", "-m", "mark.cli.main", "serve", *arguments]
        self._environment = dict(environment)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self._end = weakref.finalize(self, self._process.terminate)  # a notebook that is closed leaves nobody behind
        self._url: Future[str] = Future()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = self._url.result()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.wait()

    def wait(self) -> int:
        """Until the process has ended by itself; its exit code."""
        code = self._process.wait()
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self._process.stderr is not None
        last = ""
        with self._process.stderr as said:
            for line in said:
                last = line.strip() or last
                if not self._url.done() and line.startswith("mark: ") and _READY in line:
                    self._url.set_result(line.split()[-1])
                else:
                    sys.stderr.write(line)
        if not self._url.done():
            self._url.set_exception(MarkError(last.removeprefix("mark: error: ") or "the server ended without a word"))
