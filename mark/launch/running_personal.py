"""What a running server says of its personal heads, and of one key."""

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
    """The numbers of the moment. Raises BadInput where the server cannot be asked or has no heads."""
    said = of_running_model(address, "/personal", INFER, key_file, missing="no [personal]", transport=transport)
    if said is None or not isinstance(said.get("errors"), list):
        raise BadInput("answered JSON that describes no personal heads", address)
    return said


def running_key(
    address: str, key: str, key_file: Path | None = None, *, transport: httpx.BaseTransport | None = None
) -> dict[str, Any] | None:
    """What is known of a key; None where nothing is. Raises BadInput as `running_heads` does."""
    running_heads(address, key_file, transport=transport)
    path = f"/keys/{quote(key, safe='')}"
    said = of_running_model(address, path, ADMIN, key_file, missing="", transport=transport)
    if said is not None and not isinstance(said.get("observations"), int):
        raise BadInput("answered JSON that describes no key", address)
    return said
