"""Ask a running server about its model, for `mark selection show` and `mark personal`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

from mark.domain.errors import BadInput
from mark.serving.frontend.auth import ADMIN, INFER, key_with, read_keys

_MOST_BYTES = 4 << 20
_TIMEOUT_S = 10.0
_MODELS = "/v2/models/"


def _of_running_model(
    address: str,
    path: str,
    scope: str,
    key_file: Path | None = None,
    *,
    missing: str,
    transport: httpx.BaseTransport | None = None,
) -> dict[str, Any] | None:
    """Return the JSON object that the server at `address` has at a path of its model.

    The address need not name the model of a server with one model. A missing path raises an error in which `missing`
    names the feature that the server lacks; if `missing` is "", the result is None. Raises BadInput if the server
    cannot be asked.
    """
    base, model = _split(address)
    key = None
    if key_file is not None:
        key = key_with(scope, read_keys(key_file), time.time())
        if key is None:
            raise BadInput(f"no key in it has the scope {scope}", str(key_file))
    headers = {"accept": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    with httpx.Client(
        base_url=base, headers=headers, timeout=_TIMEOUT_S, trust_env=False, transport=transport
    ) as client:
        if model is None:
            model = _only_model(client, address)
        said = _asked(client, "GET", f"{_MODELS}{quote(model, safe='')}{path}", address, missing)
    if said is not None and not isinstance(said, dict):
        raise BadInput("answered JSON that is no object", address)
    return said


def running_selection(
    address: str, key_file: Path | None = None, *, transport: httpx.BaseTransport | None = None
) -> dict[str, Any]:
    """Return the selection of the server at `address`. Raises BadInput if it cannot be asked or lacks a selection."""
    said = _of_running_model(address, "/selection", INFER, key_file, missing="no [selection]", transport=transport)
    if said is None or not isinstance(said.get("candidates"), dict):
        raise BadInput("answered JSON that describes no selection", address)
    return said


def running_heads(address: str, key_file: Path | None = None) -> dict[str, Any]:
    """Return the present numbers of the heads. Raises BadInput if the server cannot be asked or lacks heads."""
    said = _of_running_model(address, "/personal", INFER, key_file, missing="no [personal]")
    if said is None or not isinstance(said.get("errors"), list):
        raise BadInput("answered JSON that describes no personal heads", address)
    return said


def running_key(address: str, key: str, key_file: Path | None = None) -> dict[str, Any] | None:
    """Return the server's data about a key; None for an unknown key. Raises BadInput as `running_heads` does."""
    running_heads(address, key_file)
    path = f"/keys/{quote(key, safe='')}"
    said = _of_running_model(address, path, ADMIN, key_file, missing="")
    if said is not None and not isinstance(said.get("observations"), int):
        raise BadInput("answered JSON that describes no key", address)
    return said


def _split(address: str) -> tuple[str, str | None]:
    """Return the server's address, and the model that the URL names."""
    try:
        url = urlsplit(address if "//" in address else f"http://{address}")
        port = url.port
    except ValueError as error:
        raise BadInput(f"is no address ({error})", "ADDRESS", address) from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadInput("must be http://HOST:PORT, https://HOST or the URL of a model", "ADDRESS", address)
    if url.username is not None:
        raise BadInput("must not hold a password: give --key-file", "ADDRESS")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    base = f"{url.scheme}://{host}" + ("" if port is None else f":{port}")
    before, found, rest = url.path.partition(_MODELS)
    if found:
        return base + before, unquote(rest.split("/")[0]) or None
    return base + url.path.rstrip("/"), None


def _only_model(client: httpx.Client, address: str) -> str:
    listed = _asked(client, "POST", "/v2/repository/index", address)
    names = sorted({str(one["name"]) for one in listed if isinstance(one, dict) and "name" in one})
    if len(names) != 1:
        example = f"{address.rstrip('/')}{_MODELS}{names[0] if names else 'NAME'}"
        raise BadInput(f"serves {', '.join(names) or 'no model'}: name one, as in {example}", address)
    return names[0]


def _asked(client: httpx.Client, method: str, path: str, address: str, missing: str = "no such route") -> Any:
    """Return the JSON of an answer of at most 4 MiB; None for a missing path if `missing` is "".

    Raises BadInput for any other answer.
    """
    try:
        with client.stream(method, path) as answer:
            body = bytearray()
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MOST_BYTES:
                    raise BadInput(f"answered more than {_MOST_BYTES >> 20} MB", address)
    except httpx.HTTPError as error:
        raise BadInput(f"cannot be asked ({type(error).__name__}: {error})", address) from None
    if answer.status_code in (401, 403):
        raise BadInput(f"needs another key (status {answer.status_code}): give --key-file", address)
    if answer.status_code == 404:
        if not missing:
            return None
        raise BadInput(f"has nothing at {path}: its model has {missing}, or another name", address)
    if answer.status_code != 200:
        text = body[:200].decode("utf-8", "replace")
        raise BadInput(f"answered {answer.status_code} at {path}", address, text)
    try:
        return json.loads(body)
    except ValueError:
        raise BadInput(f"answered no JSON at {path}", address) from None
