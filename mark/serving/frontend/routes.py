"""Routes of a server: each path and method has one handler, registered by the part of the server that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mark.serving.frontend.connection import Exchange

Handler = Callable[[Exchange], None]
_ANY = b"/*"  # at the end of a path: one further part


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """A route of one model. Its `path` follows `/v2/models/NAME` and may end with `/*` for a part that `answer` reads.

    `answer` also gets the version that the path names, or None; only paths of `by_version` routes may name a version.
    `described` returns the operation for `/openapi.json`, whose id ends with the given suffix; it may refer to
    `schemas`.
    """

    method: bytes
    path: bytes
    answer: Callable[[str | None, Exchange], None]
    by_version: bool = False
    described: Callable[[str], dict[str, Any]] | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict)


class Routes:
    """Handlers by path and method. An `exact` path takes precedence over a path that ends with `/*`."""

    def __init__(self) -> None:
        self.exact: dict[bytes, dict[bytes, Handler]] = {}
        self._any: dict[bytes, dict[bytes, Handler]] = {}  # keys are without `/*`

    def add(self, method: bytes, path: bytes, handler: Handler) -> None:
        """Register a handler; a handler of GET also answers HEAD. Raises ValueError for a second one."""
        found = self._any if path.endswith(_ANY) else self.exact
        by_method = found.setdefault(path.removesuffix(_ANY), {})
        if method in by_method:
            raise ValueError(f"{method.decode()} {path.decode()} is registered twice")
        by_method[method] = handler
        if method == b"GET":
            by_method[b"HEAD"] = handler

    def take(self, others: Routes, below: bytes) -> None:
        """Register the handlers of another server whose paths begin with `below`."""
        for mine, theirs in ((self.exact, others.exact), (self._any, others._any)):
            mine.update({path: by_method for path, by_method in theirs.items() if path.startswith(below)})

    def find(self, path: bytes) -> dict[bytes, Handler] | None:
        """Return the handlers by method of this path, or of the path with `/*` that matches it."""
        return self.exact.get(path) or self._any.get(path.rpartition(b"/")[0])
