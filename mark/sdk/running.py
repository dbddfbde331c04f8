"""A service that a separate process serves during a `with` block, for notebooks and tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Self

from mark.domain.errors import MarkError


class ServeProcess:
    """`mark serve` with these arguments. Entering waits until it is ready, leaving drains it.

    The process's output goes to standard error. `url` is its address. Raises MarkError with the last line of the output
    if it does not become ready. `owner` is kept alive with this object, because its end would delete the served files.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], owner: object = None) -> None:
        # -P: a mark.py in the current folder must not hide ours.
        self._command = [sys.executable, "-P", "-m", "mark.cli.main", "serve", *arguments]
        self._environment = dict(environment)
        self._owner = owner

    def __enter__(self) -> Self:
        ready, announced = os.pipe()
        with open(ready) as from_server:
            try:
                self._process = subprocess.Popen(
                    [*self._command, "--ready-fd", str(announced)],
                    env=self._environment,
                    stderr=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    pass_fds=(announced,),
                )
            finally:
                os.close(announced)
            self._end = weakref.finalize(self, self._process.terminate)  # a closed notebook leaves no process behind
            self._last_line = ""
            self._reader = threading.Thread(target=self._relay, daemon=True)
            self._reader.start()
            try:
                line = from_server.readline()  # an empty line means that the process has ended
            except BaseException:
                self.__exit__()
                raise
        if not line:
            self.__exit__()
            raise MarkError(self._last_line.removeprefix("mark: error: ") or "the server ended without a message")
        self.url: str = json.loads(line)["url"]
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.wait()

    def wait(self) -> int:
        """Wait until the process has ended by itself, and return its exit code."""
        code = self._process.wait()
        self._reader.join()
        return code

    def _relay(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._last_line = line.strip() or self._last_line
                sys.stderr.write(line)
