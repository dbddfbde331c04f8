"""Ask a running server about its selection: `GET /v2/models/M/selection`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from mark.domain.errors import BadInput
from mark.launch.running_server import of_running_model
from mark.serving.frontend.auth import INFER


def running_selection(
    address: str, key_file: Path | None = None, *, transport: httpx.BaseTransport | None = None
) -> dict[str, Any]:
    """Return the JSON object of the server at `address`, which need not name the model of a server with one model.

    Raises BadInput if the server cannot be asked or lacks a selection.
    """
    said = of_running_model(address, "/selection", INFER, key_file, missing="no [selection]", transport=transport)
    if said is None or not isinstance(said.get("candidates"), dict):
        raise BadInput("answered JSON that describes no selection", address)
    return said
