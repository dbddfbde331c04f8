"""Service files: TOML files read into a `ServiceConfig`. The paper's four services ship with mark.

Each has the hardware and prices of 2019 and, as NAME-2026, of today. Errors for an unknown key, a wrong type or an
impossible value name file, section, key and value. This module looks nothing up: a missing model, catalogue or function
shows when the service is deployed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mark.config.as_is import POLICY_KEYS, as_is_of
from mark.config.cache import CACHE_KEYS, cache_of
from mark.config.faults_section import FAULT_KEYS, faults_of
from mark.config.feedback import FEEDBACK_KEYS, feedback_of
from mark.config.fleet import FLEET_KEYS, check_name, fleet_of, slo_of
from mark.config.insurance import INSURANCE_KEYS, has_parity, insurance_of
from mark.config.layers import layers_of
from mark.config.section import Section, tables_of
from mark.domain.cells import is_file, not_a_file, read_text
from mark.domain.errors import BadInput, did_you_mean
from mark.domain.load_unit import REQUESTS, LoadUnit, checked_unit
from mark.domain.service import (
    ControlSettings,
    RolloutSettings,
    ServiceConfig,
    SloMonitorSettings,
    Version,
    checked_tail,
)

_MOST_KB = 1e7  # of a request: 10 GB
_DATA = Path(__file__).parent / "services"
_PAPER = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
SERVICE_NAMES = (*(f"{name}-2026" for name in _PAPER), *_PAPER)

_KEYS = {
    "service": {
        "name", "model", "slo_ms", "slo_attainment", "slo_confidence", "slo_window", "batching", "routing",
        "request_kb", "response_kb", "profile", "tail", "unit", "unit_size", "versions", "files",
    },
    "fleet": FLEET_KEYS,
    "overflow": {"function", "late", "max_usd_per_hour"},
    "control": {"tau_s", "horizon_steps", "cool_down_s", "launch_overhead_s"},
    "rollout": {"canary_share", "canary_s", "surge_share"},
    "feedback": FEEDBACK_KEYS,
    "cache": CACHE_KEYS,
    "faults": FAULT_KEYS,
    "insurance": INSURANCE_KEYS,
    "slo_monitor": {"window", "count", "instance", "pause_s"},
    "policy": POLICY_KEYS,
}  # fmt: skip


def load_service(name_or_path: str, *, any_unit: bool = False) -> ServiceConfig:
    """Return the shipped service of that name, or the service in the TOML file at that path.

    Only `name`, `model`, `slo_ms` and `slo_attainment` are required; docs/settings.md has the defaults of the other
    keys. Without `any_unit` a load in another unit than requests is refused, because only planning and simulation know
    one. Raises BadInput.
    """
    if name_or_path in SERVICE_NAMES:
        path = _DATA / f"{name_or_path}.toml"
    else:
        path = Path(name_or_path)
        if not is_file(path):
            what = f"{not_a_file(path)}, and the shipped services are {', '.join(SERVICE_NAMES)}"
            raise BadInput(what + did_you_mean(name_or_path, SERVICE_NAMES), name_or_path)
    tables = tables_of(path)
    if is_pipeline(tables):
        takers = "`mark check`, `pipeline trace`, `profile`, `plan`, `bound`, `simulate`, `compare`, `serve`, `testbed`"
        takers += ", `controller` and `deploy` do"
        raise BadInput(f"is a pipeline, which this command does not take yet: {takers}", str(path))
    service = service_of(path, tables)
    if not (any_unit or service.unit.is_requests):
        what = "this command counts, serves or measures requests; plan, simulate, compare, bound and advise take units"
        raise BadInput(what, f"{path} [service] unit", service.unit.name)
    return service


def service_of(
    path: Path, tables: dict[str, dict[str, Any]], more: Mapping[str, Collection[str]] | None = None
) -> ServiceConfig:
    """Return the service in a parsed file. `more` are sections and keys that the caller reads. Raises BadInput."""
    said = tables.get("service")
    if isinstance(said, dict) and "hedge_after_ms" in said:
        what = "has moved: write [insurance] hedge_after_ms"
        raise BadInput(what, f"{path} [service] hedge_after_ms", said["hedge_after_ms"])
    layers = layers_of(path, tables, {**_KEYS, **(more or {})})
    return replace(_service(path, tables), layers=layers) if layers else _service(path, tables)


def is_pipeline(tables: Mapping[str, Any]) -> bool:
    """Return whether this parsed file is a pipeline, which `mark.config.pipeline_file` reads.

    A service with parity models is one: its model and its parity models have their own fleets.
    """
    service = tables.get("service")
    if isinstance(service, dict) and "pipeline" in service:
        return True
    return bool({"stage", "personal"} & set(tables)) or has_parity(tables)


def shipped_text(name: str) -> str:
    """Return the text of a shipped service."""
    return read_text(_DATA / f"{name}.toml")


def _service(path: Path, tables: dict[str, dict[str, Any]]) -> ServiceConfig:
    service, overflow = (Section(path, name, tables.get(name, {})) for name in ("service", "overflow"))
    name = service.text("name")
    check_name(name, service.where("name"))
    fleet = fleet_of(Section(path, "fleet", tables.get("fleet", {})), overflow)
    profile = service.text("profile", "")
    routing = service.one_of("routing", ("alb", "least-completion", "power-of-two-choices", "fewest-in-flight"))
    slo = slo_of(service)
    insurance = insurance_of(path, tables, slo, routing)
    return ServiceConfig(
        name=name,
        model=service.text("model"),
        slo=slo,
        **fleet.settings(),
        late=overflow.one_of("late", ("function", "refuse")),
        batching=service.one_of("batching", ("work-conserving", "paper")),
        routing=routing,
        hedge_after_s=math.inf if insurance is None else insurance.hedge_after_s,
        request_kb=service.number("request_kb", 0.0, most=_MOST_KB),
        response_kb=service.number("response_kb", 0.0, most=_MOST_KB),
        profile_file=str(path.parent / profile) if profile else None,
        tail=checked_tail(service.number("tail"), service.where("tail")) if "tail" in service.table else None,
        unit=_unit(service),
        as_is=as_is_of(Section(path, "policy", tables["policy"])) if "policy" in tables else None,
        control=_control(Section(path, "control", tables.get("control", {}))),
        rollout=_rollout(Section(path, "rollout", tables.get("rollout", {}))),
        faults=faults_of(Section(path, "faults", tables.get("faults", {}))),
        feedback=feedback_of(path, tables),
        cache=cache_of(path, tables),
        slo_monitor=_slo_monitor(Section(path, "slo_monitor", tables.get("slo_monitor", {}))),
        versions=_versions(service.below("versions")),
        files=tuple(service.texts("files", [])) if "files" in service.table else (),
        source=str(path),
    )


def _unit(service: Section) -> LoadUnit:
    """Read `unit = "tokens"` and `unit_size = 480`, which belong together."""
    name = service.text("unit", REQUESTS.name)
    if name == REQUESTS.name:
        if "unit_size" in service.table:
            what = "needs a `unit` other than requests"
            raise BadInput(what, service.where("unit_size"), service.table["unit_size"])
        return REQUESTS
    if "unit_size" not in service.table:
        what = f"is needed beside unit = {name!r}: the mean {name} of a request"
        raise BadInput(f"{what} (`mark trace info TRACE --size-column NAME` counts it)", service.where("unit_size"))
    return checked_unit(name, service.number("unit_size"), service.where(""))


def _versions(versions: Section) -> tuple[Version, ...]:
    """Read `"2" = { model = "module:Class", weight = 0.1 }`; in the file's order."""
    found = []
    for name, value in versions.table.items():
        check_name(name, versions.where(name))
        if not isinstance(value, dict):
            raise BadInput("must be { model = ..., weight = ... }", versions.where(name), value)
        one = Section(versions.path, f"{versions.name}.{name}", value)
        one.only(("model", "weight"))
        weight = one.number("weight")
        if weight > 1.0:
            raise BadInput("a weight is a share of the requests, 0 to 1", one.where("weight"), weight)
        found.append(Version(name, one.text("model"), weight))
    if found and abs(sum(version.weight for version in found) - 1.0) > 1e-6:
        raise BadInput("weights must add up to 1", f"{versions.path} [{versions.name}]", sum(v.weight for v in found))
    return tuple(found)


def _control(control: Section) -> ControlSettings:
    own = ControlSettings()
    steps = control.whole("horizon_steps", own.horizon_steps)
    if steps > own.horizon_steps:
        raise BadInput(f"forecasts reach {own.horizon_steps} steps", control.where("horizon_steps"), steps)
    return ControlSettings(
        tau_s=control.number("tau_s", own.tau_s),
        horizon_steps=steps,
        cool_down_s=control.number("cool_down_s", own.cool_down_s),
        launch_overhead_s=control.number("launch_overhead_s", own.launch_overhead_s),
    )


def _rollout(rollout: Section) -> RolloutSettings:
    own = RolloutSettings()
    found = RolloutSettings(
        canary_share=rollout.number("canary_share", own.canary_share),
        canary_s=rollout.number("canary_s", own.canary_s),
        surge_share=rollout.number("surge_share", own.surge_share, above_zero=True),
    )
    for key, share in (("canary_share", found.canary_share), ("surge_share", found.surge_share)):
        if share > 1.0:
            raise BadInput("a share is 0 to 1", rollout.where(key), share)
    return found


def _slo_monitor(monitor: Section) -> SloMonitorSettings:
    own = SloMonitorSettings()
    return SloMonitorSettings(
        window=monitor.whole("window", own.window),
        count=monitor.whole("count", own.count),
        instance=monitor.text("instance") if "instance" in monitor.table else None,
        pause_s=monitor.number("pause_s", own.pause_s),
    )
