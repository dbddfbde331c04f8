"""Structured logs: one line of JSON per record, on standard error.

A thread writes them, so that serving does not wait for the reader of standard error: a pipe can be full of a model's
output, or because its reader has gone. Lines that do not fit into the thread's queue are lost, and counted.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from mark.models.answer import Answer
from mark.serving.observe.observed import ObservedRequest

_REQUESTS = logging.getLogger("mark.requests")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """Writes the time (UTC), level, logger, message, and the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Aside(logging.Handler):
    """Writes to a stream in another thread. `flush` waits for it, a second at most."""

    FLUSH_S = 1.0

    def __init__(self, stream: TextIO, most_lines: int = 10_000) -> None:
        super().__init__()
        self.lost = 0  # lines since the start
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(most_lines)
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self.lost += 1
        except Exception:  # as in every handler: logging must not fail the code that logs
            self.handleError(record)

    def flush(self) -> None:
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, self.FLUSH_S)

    def _write(self) -> None:
        reported = 0
        while True:
            line = self._lines.get()
            if lost := self.lost - reported:
                reported += lost
                line += f'\n{{"level": "warning", "logger": "{__name__}", "message": "{lost} lines were lost"}}'
            with suppress(OSError, ValueError):  # the reader has gone
                self._stream.write(line + "\n")
                self._stream.flush()
            self._lines.task_done()


def to_stderr() -> None:
    """Send the records of all loggers of this process to standard error."""
    handler = Aside(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("httpx", "httpcore", "botocore", "aiobotocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def say(line: str) -> None:
    """Print a line for people, after all earlier log lines. A line that cannot be written is lost, like log lines."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    with suppress(OSError, ValueError):
        print(f"mark: {line}", file=sys.stderr, flush=True)


def answered(now: Callable[[], float]) -> Callable[[ObservedRequest, Answer], None]:
    """Return a function that logs each answer: request, maker, latency. Bodies and headers are not logged."""

    def log(request: ObservedRequest, answer: Answer) -> None:
        _REQUESTS.info(
            "answered",
            extra={
                "request_id": request.id,
                "status": answer.reply.status,
                "answered_by": answer.made_by,
                "items": request.items,
                "latency_ms": round((now() - request.arrived_s) * 1e3, 3),
            },
        )

    return log
