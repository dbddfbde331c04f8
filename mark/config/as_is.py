"""`[policy]` of a service file: the autoscaler that the user runs today."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mark.config.section import Section
from mark.domain.cron import CronSchedule, cron_schedule
from mark.domain.errors import BadInput
from mark.domain.scaler import SETTINGS, TO_ZERO, CronWindow, ScalerSettings
from mark.domain.service import AsIsPolicy

KINDS = ("asg", *SETTINGS, "sagemaker", "fixed")
_WITH_CRON = ("keda", "cron")
_OF_KIND = {kind: {one.name for one in fields(settings)} for kind, settings in SETTINGS.items()}
_OWN_KEYS = {key for names in _OF_KIND.values() for key in names}
_COOLDOWNS = {"scale_out_cooldown_s", "scale_in_cooldown_s"}
POLICY_KEYS = {"kind", "instance", "target", "min", "max", "cron", "begins", *_COOLDOWNS, *_OWN_KEYS}


def as_is_of(policy: Section) -> AsIsPolicy:
    """Read the section. Raises BadInput."""
    kind = policy.one_of("kind", KINDS, required=True)
    _refuse_foreign(policy, kind)
    target = None
    if kind in ("fixed", "cron"):
        if "target" in policy.table:
            what = "a fixed fleet has no target" if kind == "fixed" else "a schedule has no target"
            raise BadInput(what, policy.where("target"), policy.table["target"])
    elif "target" in policy.table:
        target = policy.number("target", above_zero=True)
        if kind in ("asg", "hpa") and target > 1.0:
            hint = f", as {target / 100.0:g} for {target:g} %" if target <= 100.0 else ""
            raise BadInput(f"a utilisation must lie between 0 and 1{hint}", policy.where("target"), target)
    least = policy.whole("min", 1, least=0 if kind in TO_ZERO else 1)
    # `min` alone describes a fixed fleet.
    most = policy.whole("max", least if kind == "fixed" else max(100, least))
    if most < least or (kind == "fixed" and most != least):
        what = "must equal min in a fixed fleet" if kind == "fixed" else "must not be below min"
        raise BadInput(what, policy.where("max"), f"{most} (min {least})")
    windows = _windows(policy)
    if kind == "cron" and not windows:
        raise BadInput("missing: kind cron needs at least one [[policy.cron]]", policy.where("cron"))
    return AsIsPolicy(
        kind=kind,
        instance=policy.text("instance"),
        target=target,
        min_instances=least,
        max_instances=most,
        scale_out_cooldown_s=policy.number("scale_out_cooldown_s", 300.0),
        scale_in_cooldown_s=policy.number("scale_in_cooldown_s", 300.0),
        settings=_settings(policy, SETTINGS[kind]) if kind in SETTINGS else None,
        windows=windows,
        begins=_begins(policy) if windows else None,
    )


def keys_of(kind: str) -> tuple[str, ...]:
    """Return the keys of a kind that are numbers or words, the common ones first."""
    if kind == "fixed":
        return ("min",)
    more = _COOLDOWNS if kind in ("asg", "sagemaker") else _OF_KIND[kind]
    return (*(() if kind == "cron" else ("target",)), "min", "max", *sorted(more))


def _refuse_foreign(policy: Section, kind: str) -> None:
    """Raise BadInput for a setting of another kind, because it would be ignored and its author would not notice."""
    own = _OF_KIND.get(kind, set())
    foreign = _OWN_KEYS - own
    if kind in SETTINGS and kind != "hpa":
        foreign |= _COOLDOWNS
    if kind not in _WITH_CRON:
        foreign |= {"cron", "begins"}
    for key in policy.table:
        if key in foreign:
            kinds = [k for k in KINDS if key in _OF_KIND.get(k, ())]
            kinds = list(_WITH_CRON) if key in ("cron", "begins") else kinds or ["asg", "sagemaker"]
            what = f"kind {kind} has no such setting (it belongs to {', '.join(kinds)})"
            raise BadInput(what, policy.where(key), policy.table[key])


def _settings(policy: Section, of: type[ScalerSettings]) -> ScalerSettings:
    found: dict[str, Any] = {}
    for one in fields(of):
        if one.name == "metric":
            found["metric"] = policy.one_of("metric", ("concurrency", "rps"))
            continue
        least, most, above = (one.metadata[key] for key in ("least", "most", "above"))
        value = policy.number(one.name, float(getattr(of(), one.name)))
        if not least <= value <= most or (above and value == least):
            limit = f"above {least:g}" if above else f"{least:g} or more"
            what = f"must be {limit}" + (f" and at most {most:g}" if most < math.inf else "")
            raise BadInput(what, policy.where(one.name), value)
        found[one.name] = value
    return of(**found)


def _windows(policy: Section) -> tuple[CronWindow, ...]:
    tables = policy.table.get("cron", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput("write one [[policy.cron]] for each schedule", policy.where("cron"), tables)
    found = []
    for number, table in enumerate(tables, 1):
        window = Section(policy.path, f"policy.cron {number}", table)
        window.only({"start", "end", "replicas", "timezone"})
        zone = window.text("timezone", "UTC")
        try:
            timezone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            what = "no such time zone; write one of the IANA database, such as Europe/Berlin"
            raise BadInput(what, window.where("timezone"), zone) from error
        start, end = _schedule(window, "start"), _schedule(window, "end")
        if start.text.split() == end.text.split():
            raise BadInput("start and end must differ", window.where("end"), end.text)
        found.append(CronWindow(start, end, window.whole("replicas"), timezone))
    return tuple(found)


def _schedule(window: Section, key: str) -> CronSchedule:
    text = window.text(key)
    try:
        return cron_schedule(text)
    except ValueError as error:
        raise BadInput(str(error), window.where(key), text) from error


def _begins(policy: Section) -> datetime | None:
    begins = policy.table.get("begins")
    if begins is not None and not (isinstance(begins, datetime) and begins.tzinfo is not None):
        what = "must be a time with its zone, such as 2026-01-05T00:00:00Z"
        raise BadInput(what, policy.where("begins"), str(begins))
    return begins
