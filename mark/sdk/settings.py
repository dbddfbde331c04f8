"""What a service file says, as keyword arguments, and back into a file: everything else reads files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from mark.catalog.tables import CATALOG_NAMES
from mark.domain.errors import BadInput
from mark.models.model import Model
from mark.sdk.reference import reference_of


class ServiceOptions(TypedDict, total=False):
    """Keys of a service file, whatever section they stand in; `policy` is the section of that name.

    `max_function_usd_per_hour` is `max_usd_per_hour` of [overflow].
    """

    name: str
    model: str | type | Model | Callable[..., Any]
    slo_ms: float
    slo_attainment: float
    batching: str
    routing: str
    request_kb: float
    response_kb: float
    profile: str | Path
    versions: Mapping[str, Mapping[str, Any]]
    catalog: str | Path
    markets: Sequence[str]
    instances: Sequence[str]
    max_instances: int
    max_usd_per_hour: float
    committed: Mapping[str, Any]
    function: str | Sequence[str]
    max_function_usd_per_hour: float
    policy: Mapping[str, Any]


# Where a key of the file stands, and its name there, unless in [service] by its own.
_OVERFLOW = {"function": "function", "max_function_usd_per_hour": "max_usd_per_hour"}
_FLEET = ("catalog", "markets", "instances", "max_instances", "max_usd_per_hour", "committed")


def service_text(settings: Mapping[str, Any]) -> tuple[str, list[Path]]:
    """A service file in TOML, and the folders in which its models' modules are. Paths in it are absolute.

    Raises BadInput for an unknown setting, and what `reference_of` raises; values are checked by what reads the file.
    """
    folders: list[Path] = []

    def referred(model: Any) -> str:
        reference, folder = reference_of(model)
        folders.append(folder)
        return reference

    tables: dict[str, dict[str, Any]] = {"service": {}, "fleet": {}, "overflow": {}}
    for key, value in settings.items():
        if key not in ServiceOptions.__annotations__:
            raise BadInput(
                f"unknown setting, known are {', '.join(ServiceOptions.__annotations__)}", "mark.Service", key
            )
        if key == "model":
            value = referred(value)
        elif key == "versions":
            value = {name: {**one, "model": referred(one.get("model"))} for name, one in value.items()}
        elif key == "profile" or (key == "catalog" and value not in CATALOG_NAMES):
            value = str(Path(value).resolve())
        if key == "policy":
            tables["policy"] = dict(value)
        elif key in _OVERFLOW:
            tables["overflow"][_OVERFLOW[key]] = value
        else:
            tables["fleet" if key in _FLEET else "service"][key] = value
    lines = []
    for section, table in tables.items():
        lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""]
    return "\n".join(lines), folders


def _toml(value: Any) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(str(key))} = {_toml(one)}' for key, one in value.items())} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    raise BadInput("no such thing can be said in a service file", "mark.Service", value)
