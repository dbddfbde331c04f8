"""Structured logs: a line of JSON each, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

from mark.models.call import Reply
from mark.serving.request import Request

_REQUESTS = logging.getLogger("mark.requests")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """Time (UTC), level, logger, message, and whatever was given as `extra`."""

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


def to_stderr(level: int = logging.INFO) -> None:
    """Send every logger of this process there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("httpx", "httpcore", "botocore", "aiobotocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def answered(now: Callable[[], float]) -> Callable[[Request, Reply, str], None]:
    """Logs each answer: which request, who made it, how long it took. Bodies and headers are nobody's business."""

    def log(request: Request, reply: Reply, who: str) -> None:
        _REQUESTS.info(
            "answered",
            extra={
                "request_id": request.id,
                "status": reply.status,
                "answered_by": who,
                "items": request.items,
                "latency_ms": round((now() - request.arrived_s) * 1e3, 3),
            },
        )

    return log
