"""Helpers for tests of real processes: waiting for conditions, ports, and the processes of a test's folder."""

from __future__ import annotations

import json
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 60.0
# The environment of a controller. It has the sources under test, and their kernel so that it is not compiled again.
BARE = {name: os.environ[name] for name in ("PYTHONPATH", "MARK_CACHE_DIR") if name in os.environ} | {
    "PATH": "/usr/bin"
}


def wait_for(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Return the first true value of the condition; fail if there is none in time.

    What takes longer is asked for less often: a question takes as much of the processor as the server that answers.
    """
    began_s = time.monotonic()
    while (waited_s := time.monotonic() - began_s) < patience_s:
        if value := condition():
            return value
        time.sleep(min(0.02 + waited_s / 20.0, 0.2))
    raise AssertionError(f"waited {patience_s:g} s in vain: {what}")


@contextmanager
def held_port() -> Iterator[int]:
    """Hold a port that is free on all loopback addresses but 127.0.0.1, so that no other process gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def get(url: str, body: Any = None) -> tuple[int, Any]:
    """Return status and JSON of an answer; (0, None) if the connection is refused."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=PATIENCE_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            error.read()
            return error.code, None
    except OSError:
        return 0, None


def processes_of(folder: Path, *words: str) -> list[psutil.Process]:
    """Return other processes, of any parent, whose command or environment names the folder, with these words as
    arguments."""
    names_it = re.compile(re.escape(str(folder)) + r"(?![\w-])")
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            named = any(map(names_it.search, [*command, *process.environ().values()]))
        except psutil.Error:
            continue
        if named and process.pid != os.getpid() and set(words) <= set(command):
            found.append(process)
    return found
