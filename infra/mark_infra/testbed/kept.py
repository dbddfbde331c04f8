"""A `mark` process of the testbed that is restarted whenever it ends, like by a service manager."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mark_infra.testbed.launch import command

RESTART_S = 1.0
_STOP_S = 60.0

log = logging.getLogger("mark.testbed")


class KeptProcess:
    """A `mark COMMAND` that is restarted on the same port. A context.

    All runs write to the file `output`; `arguments` follow the command's name.
    """

    def __init__(
        self, name: str, output: Path, arguments: Sequence[str], port: int, variables: Mapping[str, str]
    ) -> None:
        self._name, self._output, self._variables = name, output, variables
        self._ready = output.with_suffix(".ready")
        self._arguments, self._port = [name, *arguments], port
        self._ends = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    def __enter__(self) -> KeptProcess:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
        self._thread.join(_STOP_S)

    def status(self) -> dict[str, Any]:
        """Return the process id (None if it does not run), the URL, and the number of starts."""
        process = self._process
        alive = process is not None and process.poll() is None
        return {"pid": process.pid if alive and process else None, "url": self.url(), "starts": self._starts}

    def url(self) -> str | None:
        """Return its URL, or None while it is not ready."""
        try:
            url: str = json.loads(self._ready.read_text())["url"]
        except OSError:
            return None
        return url

    def _keep(self) -> None:
        # This thread must stay, because the process dies with the thread that started it.
        while not self._ends.is_set():
            if self._starts and not self._port and (url := self.url()) is not None:
                self._port = int(url.rpartition(":")[2])
            self._ready.unlink(missing_ok=True)
            place = ["--port", str(self._port), "--ready-file", str(self._ready)]
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    command(sys.executable, "-m", "mark.cli.main", *self._arguments, *place),
                    env={**self._variables},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            self._starts += 1
            if self._ends.is_set():
                self._process.terminate()
            code = self._process.wait()
            if not self._ends.is_set():
                log.warning("mark %s ended with %d and is started again", self._name, code)
                self._ends.wait(RESTART_S)
