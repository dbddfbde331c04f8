"""What tests of real processes share: waiting for conditions, asking servers, finding processes."""

from __future__ import annotations

import json
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
    """Processes with all these words among their arguments, of the descendants of this process or the given one.

    The interpreter's own path is no argument: it may contain any word.
    """
    found = []
    for process in psutil.Process(child_of).children(recursive=True):
        try:
            arguments = process.cmdline()[1:]
        except psutil.Error:
            continue
        if all(any(word in part for part in arguments) for word in words):
            found.append(process)
    return found
