"""What tests of real processes share: waiting for conditions, free ports, who is left."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import psutil

PATIENCE_S = 30.0


def wait_for(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of the condition; fails where it has none in time."""
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:g} s in vain: {what}")


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])


def get(url: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of an answer; (0, None) where nobody listens."""
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


def processes_with(*words: str, child_of: int | None = None) -> list[psutil.Process]:
    """Processes whose command has all these words, among the descendants of this process or the given one."""
    found = []
    for process in psutil.Process(child_of).children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if all(any(word in part for part in command) for word in words):
            found.append(process)
    return found
