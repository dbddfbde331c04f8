"""The versions of a model behind one backend, which chooses a version for each request that names none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mark.models.versions import Versions
from mark.serving.backend.port import Backend
from mark.serving.backend.request import Request


class Variants:
    """Splits requests among versions by weight. `backends` has each version's backend by its name.

    A request names a version in `Request.version`, and a layer's attempt may name another one than its request.
    """

    def __init__(self, versions: Versions, backends: Mapping[str, Backend]) -> None:
        self._versions, self._backends = versions, dict(backends)

    @property
    def ready(self) -> bool:
        """Return whether every version is ready, because the version of a request is not known beforehand."""
        return all(backend.ready for backend in self._backends.values())

    def offer(self, request: Request) -> None:
        if not request.version:
            request.version = self._versions.choose(request.id)
        self._backends[request.version].offer(request)

    def retry_after_s(self) -> float:
        return min(backend.retry_after_s() for backend in self._backends.values())

    async def drain(self, until_s: float) -> None:
        await asyncio.gather(*(backend.drain(until_s) for backend in self._backends.values()))


_: type[Backend] = Variants
