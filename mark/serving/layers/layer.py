"""The port `Layer`: a wrapper around the backend of a service, which sees every request before the model does.

    listeners ─► layers, in the service file's order ─► variants ─► one replica or conductor for each version

A layer is a `Backend` with a backend behind it (`mark.serving.backend.port`). An installed package registers it in the
entry point group `mark.layers`, and a section of its name in a service file adds it (`mark.config.layers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mark.serving.backend.port import Backend
from mark.serving.frontend.routes import ModelRoute


@dataclass(frozen=True, slots=True)
class LayerSite:
    """The surroundings of a layer. It may append `routes`, which the server of the model then answers.

    `versions` are the names that an attempt may have as its version.
    """

    service: str
    versions: Sequence[str]
    loop: asyncio.AbstractEventLoop
    routes: list[ModelRoute] = field(default_factory=list)


# Make a layer in front of the given backend.
Layer = Callable[[Backend, LayerSite], Backend]


def layered(backend: Backend, layers: Sequence[Layer], site: LayerSite) -> Backend:
    """Return the backend with these layers before it, the first one outermost."""
    for layer in reversed(layers):
        backend = layer(backend, site)
    return backend
