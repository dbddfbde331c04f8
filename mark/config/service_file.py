"""Service files: read TOML into a `ServiceConfig`; the paper's four services ship with mark, each on
the hardware and at the prices of 2019 and, as NAME-2026, of today.

An unknown key, a wrong type or an impossible value is named by file, section, key and value. Nothing is looked up here:
whether the model, the catalogue or the function exist shows when the service is deployed.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mark.catalog.tables import CATALOG_NAMES
from mark.domain.cells import is_file, read_text
from mark.domain.errors import BadInput, did_you_mean
from mark.domain.function_offer import EVERY_ARM64_FUNCTION, EVERY_FUNCTION, size_and_processor
from mark.domain.offer import Market
from mark.domain.service import (
    AsIsPolicy,
    Commitment,
    ControlSettings,
    RolloutSettings,
    ServiceConfig,
    SloMonitorSettings,
    Version,
)
from mark.domain.slo import Slo

_DATA = Path(__file__).parent / "services"
_PAPER = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
SERVICE_NAMES = (*(f"{name}-2026" for name in _PAPER), *_PAPER)
# Functions are no fleet: they belong to [overflow] and stay whatever markets are chosen. SageMaker types are bought by
# the SageMaker policies, which need no leave; a bouncer of ours cannot run on them.
INSTANCE_MARKETS = (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE)
# Far beyond what one controller is made for (a few thousand); more is a slip of the pen.
_MOST_INSTANCES = 100_000
# What every cloud accepts as a tag, a resource name and a part of a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

_KEYS = {
    "service": {
        "name", "model", "slo_ms", "slo_attainment", "batching", "routing", "request_kb", "response_kb", "profile",
        "versions",
    },
    "fleet": {
        "catalog",
        "markets",
        "instances",
        "min_instances",
        "max_instances",
        "max_usd_per_hour",
        "committed",
        "warm_pool",
    },
    "overflow": {"function", "late", "max_usd_per_hour"},
    "control": {"tau_s", "horizon_steps", "cool_down_s", "launch_overhead_s"},
    "rollout": {"canary_share", "canary_s", "surge_share"},
    "slo_monitor": {"window", "count", "instance", "pause_s"},
    "policy": {"kind", "instance", "target", "min", "max", "scale_out_cooldown_s", "scale_in_cooldown_s"},
}  # fmt: skip


def load_service(name_or_path: str) -> ServiceConfig:
    """The shipped service of that name, or the TOML file at that path.

    Only `name`, `model`, `slo_ms` and `slo_attainment` are required; docs/catalog.md has the defaults of the rest.
    Raises BadInput.
    """
    if name_or_path in SERVICE_NAMES:
        path = _DATA / f"{name_or_path}.toml"
    else:
        path = Path(name_or_path)
        if not is_file(path):
            what = f"no such file, and the shipped services are {', '.join(SERVICE_NAMES)}"
            raise BadInput(what + did_you_mean(name_or_path, SERVICE_NAMES), name_or_path)
    try:
        tables = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, and integers of 5,000 digits
        raise BadInput(f"is no TOML: {error}", str(path)) from None
    for section, table in tables.items():
        if section not in _KEYS:
            raise BadInput("unknown section" + did_you_mean(section, _KEYS), f"{path} [{section}]")
        if not isinstance(table, dict):
            raise BadInput("must be a section", f"{path} {section}", table)
        for key in table:
            if key not in _KEYS[section]:
                raise BadInput(
                    "unknown key" + did_you_mean(key, _KEYS[section]), f"{path} [{section}] {key}", table[key]
                )
    return _service(path, tables)


def shipped_text(name: str) -> str:
    """The text of a shipped service."""
    return read_text(_DATA / f"{name}.toml")


def load_services(names: Sequence[str]) -> list[ServiceConfig]:
    """Service files and shipped services. Raises BadInput for two services of one name."""
    services = [load_service(name) for name in names]
    found = [service.name for service in services]
    if len(set(found)) < len(found):
        raise BadInput("names a service twice", "services", ", ".join(found))
    return services


def markets_of(names: Sequence[str], where: str) -> tuple[Market, ...]:
    """Instance markets by name, in the order given; raises BadInput for none, an unknown one, or one named twice."""
    if not names:
        raise BadInput("names no market", where)
    for name in names:
        if name not in INSTANCE_MARKETS:
            raise BadInput(f"must be one of {', '.join(INSTANCE_MARKETS)}", where, name)
    if len(set(names)) < len(names):
        raise BadInput("names a market twice", where, ", ".join(names))
    return tuple(Market(name) for name in names)


def _service(path: Path, tables: dict[str, dict[str, Any]]) -> ServiceConfig:
    service, fleet, overflow = (_Section(path, name, tables.get(name, {})) for name in ("service", "fleet", "overflow"))
    name = service.text("name")
    check_name(name, service.where("name"))
    slo_ms, attainment = service.number("slo_ms"), service.number("slo_attainment")
    try:
        slo = Slo(slo_ms / 1e3, attainment)
    except BadInput as error:
        raise BadInput(error.what, service.where(error.where), service.table[error.where]) from None
    catalog = fleet.text("catalog", "aws-2026")
    profile = service.text("profile", "")
    functions = _functions(overflow)
    most, least = fleet.whole("max_instances", 500), fleet.whole("min_instances", 1, least=0)
    limits = [(fleet, "max_instances"), (fleet, "max_usd_per_hour")]
    if functions:
        limits.append((overflow, "max_usd_per_hour"))
    if least > most:
        raise BadInput("must not be above max_instances", fleet.where("min_instances"), f"{least} (of {most})")
    return ServiceConfig(
        name=name,
        model=service.text("model"),
        slo=slo,
        # Files are relative to the service file, so that a folder can be moved as a whole.
        catalog=catalog if catalog in CATALOG_NAMES else str(path.parent / catalog),
        markets=markets_of(fleet.texts("markets", [Market.ON_DEMAND]), fleet.where("markets")),
        instances=tuple(fleet.texts("instances", ["*"])),
        min_instances=least,
        max_instances=most,
        max_usd_per_hour=fleet.number("max_usd_per_hour", 1000.0, above_zero=True),
        warm_pool=fleet.whole("warm_pool", 0, least=0),
        functions=functions,
        max_function_usd_per_hour=(
            overflow.number("max_usd_per_hour", above_zero=True) if "max_usd_per_hour" in overflow.table else math.inf
        ),
        late=overflow.one_of("late", ("function", "refuse")),
        batching=service.one_of("batching", ("work-conserving", "paper")),
        routing=service.one_of("routing", ("alb", "least-completion", "power-of-two-choices", "fewest-in-flight")),
        request_kb=service.number("request_kb", 0.0),
        response_kb=service.number("response_kb", 0.0),
        profile_file=str(path.parent / profile) if profile else None,
        as_is=_as_is(_Section(path, "policy", tables["policy"])) if "policy" in tables else None,
        committed=_committed(_Section(path, "fleet.committed", fleet.table.get("committed", {}))),
        control=_control(_Section(path, "control", tables.get("control", {}))),
        rollout=_rollout(_Section(path, "rollout", tables.get("rollout", {}))),
        slo_monitor=_slo_monitor(_Section(path, "slo_monitor", tables.get("slo_monitor", {}))),
        versions=_versions(_Section(path, "service.versions", service.table.get("versions", {}))),
        source=str(path),
        limits_unsaid=tuple(f"[{section.name}] {key}" for section, key in limits if key not in section.table),
    )


def _functions(overflow: _Section) -> tuple[str, ...]:
    """`"lambda:3008"`, `"lambda-arm64:3008"`, a list of such sizes, `"lambda:*"` or `"none"`."""
    listed = isinstance(overflow.table.get("function"), list)
    names = overflow.texts("function", []) if listed else [overflow.text("function", "none")]
    if names == ["none"]:
        return ()
    for name in names:
        if name not in (EVERY_FUNCTION, EVERY_ARM64_FUNCTION) and size_and_processor(name) is None:
            what = 'must be lambda:MEMORY_MB, lambda-arm64:MEMORY_MB, a list of such, "lambda:*" or "none"'
            raise BadInput(what, overflow.where("function"), name)
    return tuple(dict.fromkeys(names))


def _committed(committed: _Section) -> tuple[Commitment, ...]:
    """`"c5.xlarge" = 4`, or with its price `"c5.xlarge" = { count = 4, usd_per_hour = 0.107 }`; in order of names."""
    if not isinstance(committed.table, dict):
        raise BadInput("must be a section", f"{committed.path} [{committed.name}]", committed.table)
    found = []
    for instance, value in sorted(committed.table.items()):
        if not isinstance(value, dict):
            found.append(Commitment(instance, committed.whole(instance)))
            continue
        one = _Section(committed.path, f"{committed.name}.{instance}", value)
        for key in value:
            if key not in ("count", "usd_per_hour"):
                raise BadInput("unknown key", one.where(key), value[key])
        price = one.number("usd_per_hour") if "usd_per_hour" in value else None
        found.append(Commitment(instance, one.whole("count"), price))
    return tuple(found)


def _versions(versions: _Section) -> tuple[Version, ...]:
    """`"2" = { model = "module:Class", weight = 0.1 }`; in the file's order."""
    if not isinstance(versions.table, dict):
        raise BadInput("must be a section", f"{versions.path} [{versions.name}]", versions.table)
    found = []
    for name, value in versions.table.items():
        check_name(name, versions.where(name))
        if not isinstance(value, dict):
            raise BadInput("must be { model = ..., weight = ... }", versions.where(name), value)
        one = _Section(versions.path, f"{versions.name}.{name}", value)
        for key in value:
            if key not in ("model", "weight"):
                raise BadInput("unknown key", one.where(key), value[key])
        weight = one.number("weight")
        if weight > 1.0:
            raise BadInput("a weight is a share of the requests, 0 to 1", one.where("weight"), weight)
        found.append(Version(name, one.text("model"), weight))
    if found and abs(sum(version.weight for version in found) - 1.0) > 1e-6:
        raise BadInput("weights must add up to 1", f"{versions.path} [{versions.name}]", sum(v.weight for v in found))
    return tuple(found)


def _control(control: _Section) -> ControlSettings:
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


def _rollout(rollout: _Section) -> RolloutSettings:
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


def _slo_monitor(monitor: _Section) -> SloMonitorSettings:
    own = SloMonitorSettings()
    return SloMonitorSettings(
        window=monitor.whole("window", own.window),
        count=monitor.whole("count", own.count),
        instance=monitor.text("instance") if "instance" in monitor.table else None,
        pause_s=monitor.number("pause_s", own.pause_s),
    )


def _as_is(policy: _Section) -> AsIsPolicy:
    kind = policy.one_of("kind", ("asg", "hpa", "sagemaker", "fixed"), required=True)
    target = None
    if kind == "fixed":
        if "target" in policy.table:
            raise BadInput("a fixed fleet has no target", policy.where("target"), policy.table["target"])
    elif "target" in policy.table:
        target = policy.number("target", above_zero=True)
        if kind != "sagemaker" and target > 1.0:
            raise BadInput("a utilisation must lie between 0 and 1", policy.where("target"), target)
    least = policy.whole("min", 1)
    # A fixed fleet is said by `min` alone.
    most = policy.whole("max", least if kind == "fixed" else max(100, least))
    if most < least or (kind == "fixed" and most != least):
        what = "must equal min in a fixed fleet" if kind == "fixed" else "must not be below min"
        raise BadInput(what, policy.where("max"), f"{most} (min {least})")
    return AsIsPolicy(
        kind=kind,
        instance=policy.text("instance"),
        target=target,
        min_instances=least,
        max_instances=most,
        scale_out_cooldown_s=policy.number("scale_out_cooldown_s", 300.0),
        scale_in_cooldown_s=policy.number("scale_in_cooldown_s", 300.0),
    )


def check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadInput("must be 1 to 63 letters, digits, dots, dashes or underscores", where, name)


class _Section:
    """One table of the file; every getter raises BadInput with file, section, key and value."""

    def __init__(self, path: Path, name: str, table: dict[str, Any]) -> None:
        self.path, self.name, self.table = path, name, table

    def where(self, key: str) -> str:
        return f"{self.path} [{self.name}] {key}"

    def _value(self, key: str, default: Any) -> Any:
        value = self.table.get(key, default)
        if value is None:
            raise BadInput("missing", self.where(key))
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str) or (key in self.table and not value.strip()):
            raise BadInput("must be a text that is not empty", self.where(key), value)
        return value

    def texts(self, key: str, default: list[str]) -> list[str]:
        value = self._value(key, default)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) and v.strip() for v in value):
            raise BadInput("must be a list of texts that is not empty", self.where(key), value)
        return value

    def one_of(self, key: str, choices: Sequence[str], *, required: bool = False) -> str:
        value = self.text(key, None if required else choices[0])
        if value not in choices:
            raise BadInput(f"must be one of {', '.join(choices)}", self.where(key), value)
        return value

    def number(self, key: str, default: float | None = None, *, above_zero: bool = False) -> float:
        value = self._value(key, default)
        # In Python true is the integer 1, in TOML it is no number.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput("must be a number", self.where(key), value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number < 0.0 or (above_zero and number == 0.0):
            raise BadInput("must be above zero" if above_zero else "must be zero or more", self.where(key), value)
        return number

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput("must be a whole number", self.where(key), value)
        if not least <= value <= _MOST_INSTANCES:
            raise BadInput(f"must lie between {least} and {_MOST_INSTANCES}", self.where(key), value)
        return value
