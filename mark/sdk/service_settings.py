"""A service file's settings as keyword arguments, and back into a file, because all readers of services read files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from mark.domain.catalog.tables import CATALOG_NAMES
from mark.domain.errors import BadInput
from mark.models.driver import PipelineDriver
from mark.models.model import Model
from mark.sdk.reference import driver_reference, reference_of

_Tables = dict[str, dict[str, Any]]
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key of TOML that needs no quotes

ModelReference: TypeAlias = str | type | Model | Callable[..., Any]


class ServiceOptions(TypedDict, total=False):
    """Keys of a service file, from all sections; `policy` is the section of that name.

    `max_function_usd_per_hour` is `max_usd_per_hour` of [overflow].
    """

    name: str
    model: ModelReference
    slo_ms: float
    slo_attainment: float
    slo_confidence: float
    slo_window: float | str
    batching: str
    routing: str
    hedge_after_ms: float
    request_kb: float
    response_kb: float
    profile: str | Path
    tail: float
    files: Sequence[str]
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


class StageOptions(TypedDict, total=False):
    """Keys of a section [stage.NAME] of a pipeline file; `model` is required."""

    model: ModelReference
    after: Sequence[str]
    join: str | Mapping[str, float]
    share: float
    instances: Sequence[str]
    function: str | Sequence[str]
    gpus: int
    workers: int
    slo_ms: float
    usd_per_call: float


class PipelineOptions(TypedDict, total=False):
    """Keys of a pipeline file beside its stages; `packs` is `allow` of [packs], the others are as in a service file.

    `selection`, `personal` and `feedback` are the sections of those names. `slo_ms` may be left out if the driver
    promises one.
    """

    name: str
    pipeline: str | PipelineDriver
    slo_ms: float
    slo_attainment: float
    slo_confidence: float
    slo_window: float | str
    profile: str | Path
    catalog: str | Path
    markets: Sequence[str]
    instances: Sequence[str]
    min_instances: int
    max_instances: int
    max_usd_per_hour: float
    function: str | Sequence[str]
    max_function_usd_per_hour: float
    packs: str
    selection: Mapping[str, Any]
    personal: Mapping[str, Any]
    feedback: Mapping[str, Any]


# The names in [overflow], and the keys of [fleet]; other keys stand in [service] under their own names.
_OVERFLOW = {"function": "function", "max_function_usd_per_hour": "max_usd_per_hour"}
_FLEET = ("catalog", "markets", "instances", "min_instances", "max_instances", "max_usd_per_hour", "committed")


def service_text(settings: Mapping[str, Any]) -> tuple[str, list[Path]]:
    """Return a service file in TOML, with absolute paths, and the folders of its models' modules.

    Raises BadInput for an unknown setting, and the errors of `reference_of`; the file's reader checks values.
    """
    folders: list[Path] = []

    def referred(model: Any) -> str:
        reference, folder = reference_of(model)
        folders.append(folder)
        return reference

    tables: _Tables = {"service": {}, "fleet": {}, "overflow": {}}
    for key, value in settings.items():
        _check_known(key, ServiceOptions)
        if key == "model":
            value = referred(value)
        elif key == "versions":
            value = {name: {**one, "model": referred(one.get("model"))} for name, one in value.items()}
        if key == "policy":
            tables["policy"] = dict(value)
        else:
            _say(tables, key, value)
    return _text(tables), folders


def pipeline_text(stages: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, dict[str, Path]]:
    """Return a pipeline file in TOML, and by stage the folder of its model's module; "" stands for the driver's.

    `stages` are models, or the keys of their sections, by name. Paths in the file are absolute. Raises the errors of
    `service_text`, and BadInput if driver and `slo_ms` promise different times.
    """
    folders: dict[str, Path] = {}
    tables: _Tables = {"service": {}, "fleet": {}, "overflow": {}, "packs": {}}
    driver = settings.get("pipeline")
    for key, value in _with_promise(driver, settings).items():
        _check_known(key, PipelineOptions)
        if key == "pipeline":
            value, folders[""] = driver_reference(value)
        if key == "packs":
            tables["packs"]["allow"] = value
        elif key in ("selection", "personal", "feedback"):
            tables[key] = _section(key, value)
        else:
            _say(tables, key, value)
    if not isinstance(stages, Mapping):
        raise BadInput("must be a model, or the keys of its section, by the name of each stage", "mark.Service stages")
    for name, said in stages.items():
        keys = dict(said) if isinstance(said, Mapping) else {"model": said}
        if "model" not in keys:
            raise BadInput("missing", f"mark.Service [stage.{name}] model")
        keys["model"], folders[name] = reference_of(keys["model"])
        tables[f"stage.{_key(name)}"] = keys
    return _text(tables), folders


def _check_known(key: str, options: type) -> None:
    if key not in options.__annotations__:
        known = options.__annotations__
        raise BadInput(f"unknown setting, known are {', '.join(known)}", "mark.Service", key, known=known)


def _with_promise(driver: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with the driver's promise, if they lack one."""
    if not isinstance(driver, PipelineDriver) or driver.slo_s is None:
        return settings
    slo_ms = round(driver.slo_s * 1e3, 9)
    said = settings.get("slo_ms", slo_ms)
    if isinstance(said, int | float) and abs(said - slo_ms) > 1e-6:
        what = f"the driver {driver.name} promises {slo_ms:g} ms: say one of them, or the same"
        raise BadInput(what, "mark.Service slo_ms", said)
    return {"slo_ms": slo_ms, **settings}


def _say(tables: _Tables, key: str, value: Any) -> None:
    """Put a setting at its place in the file, with absolute paths."""
    if key == "profile" or (key == "catalog" and value not in CATALOG_NAMES):
        value = str(Path(value).resolve())
    if key in _OVERFLOW:
        tables["overflow"][_OVERFLOW[key]] = value
    elif key == "hedge_after_ms":
        tables["insurance"] = {key: value}
    else:
        tables["fleet" if key in _FLEET else "service"][key] = value


def _section(name: str, value: Any) -> dict[str, Any]:
    """Return a section with absolute paths of the log's folder and the table's file."""
    if not isinstance(value, Mapping):
        raise BadInput("must be the keys of the section, by name", f"mark.Service {name}", value)
    found = dict(value)
    for section, key in (("feedback", "log"), ("personal", "table")):
        if name == section and isinstance(found.get(key), str | Path):
            found[key] = str(Path(found[key]).resolve())
    return found


def _text(tables: _Tables) -> str:
    lines = []
    for section, table in tables.items():
        lines += [f"[{section}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items()), ""]
    return "\n".join(lines)


def _key(key: Any) -> str:
    return str(key) if _BARE.fullmatch(str(key)) else _toml(str(key))


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
