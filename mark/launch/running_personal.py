"""Ask a running server about its personal heads and about one key."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from mark.domain.errors import BadInput
from mark.launch.running_server import of_running_model
from mark.serving.frontend.auth import ADMIN, INFER


def running_heads(
    address: str, key_file: Path | None = None, *, transport: httpx.BaseTransport | None = None
) -> dict[str, Any]:
    """Return the present numbers of the heads. Raises BadInput if the server cannot be asked or lacks heads."""
    said = of_running_model(address, "/personal", INFER, key_file, missing="no [personal]", transport=transport)
    if said is None or not isinstance(said.get("errors"), list):
        raise BadInput("answered JSON that describes no personal heads", address)
    return said


def running_key(
    address: str, key: str, key_file: Path | None = None, *, transport: httpx.BaseTransport | None = None
) -> dict[str, Any] | None:
    """Return the server's data about a key; None for an unknown key. Raises BadInput as `running_heads` does."""
    running_heads(address, key_file, transport=transport)
    path = f"/keys/{quote(key, safe='')}"
    said = of_running_model(address, path, ADMIN, key_file, missing="", transport=transport)
    if said is not None and not isinstance(said.get("observations"), int):
        raise BadInput("answered JSON that describes no key", address)
    return said
