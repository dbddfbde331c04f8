"""The own scaler's settings: from the text of `--scaler` into a service file, and the replicas that they ask for."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mark.config.as_is import KINDS, as_is_of, keys_of
from mark.config.section import Section
from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.planning.policies.as_is import steady_count
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.studies.own_scaler.scaler_advice import ScalerSettings
from mark.studies.own_scaler.scaler_record import PricedReplica, replica_steps_rps
from mark.traffic.prometheus.history import WorkloadHistory

_MOST_INSTANCES = 1000
_AMOUNTS = ("keda", "knative", "ray")  # their target is an amount for each replica; for other kinds it is a share


def scaler_settings(
    request: RunRequest, history: WorkloadHistory, replica: PricedReplica, per_replica: float
) -> ScalerSettings | None:
    """Return the settings of the own scaler that the request's service has. Raises BadInput.

    `per_replica` is a replica's rate within the promise, in the workload's unit a second.
    """
    resolved, size = open_service(request), history.workload.unit.size
    own, each = resolved.service.as_is, replica.per_instance
    if own is None:
        return None
    steady, held = steady_count(own, resolved, each * per_replica / size), None
    if steady is not None:
        count, keeps_s = steady
        rps = np.nan_to_num(replica_steps_rps(history) / size)
        wished = np.array([each * count(one) for one in rps.tolist()])
        steps = max(1, math.ceil(keeps_s / history.trace.bin_s))
        held = sliding_window_view(np.pad(wished, (steps - 1, 0), "edge"), steps).max(axis=1)
    return ScalerSettings(each * own.min_instances, each * own.max_instances, each, held)


def service_text(history: WorkloadHistory, slo: Slo, replica: PricedReplica, scaler: str | None) -> str:
    """Return a service file for a workload without one: one type of instance, and no functions."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", history.workload.name).strip("-._")[:63] or "workload"
    unit = history.workload.unit
    counted = "" if unit.is_requests else f"unit = {json.dumps(unit.name)}\nunit_size = {unit.size!r}\n"
    instance = json.dumps(replica.offer.instance)
    return (
        f'[service]\nname = {json.dumps(name)}\nmodel = "workload"\n'
        f"slo_ms = {slo.rt_max_s * 1e3!r}\nslo_attainment = {slo.attainment!r}\n{counted}"
        f'[fleet]\nmarkets = ["on-demand"]\ninstances = [{instance}]\n'
        f'catalog = "aws-2026"\nmax_instances = {_MOST_INSTANCES}\nmax_usd_per_hour = 1e6\n'
        '[overflow]\nfunction = "none"\nlate = "refuse"\n'
        f"{_policy_text(scaler, instance, replica.per_instance, unit.size)}"
    )


def _policy_text(scaler: str | None, instance: str, per_instance: int, size: float = 1.0) -> str:
    """Turn `hpa:target=0.7,min=2,max=50`, which counts replicas, into the section [policy], which counts instances.

    KEDA's target is in the load's unit, and a request has `size` units; the targets of Knative and Ray count requests.
    """
    if scaler is None:
        return ""
    table = scaler_table(scaler)
    for key, value in table.items():
        if key in ("min", "max") and isinstance(value, int):
            table[key] = math.ceil(value / per_instance)
        elif key == "target" and table["kind"] in _AMOUNTS and isinstance(value, int | float):
            table[key] = value * per_instance / (size if table["kind"] == "keda" else 1.0)
    lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in table.items()]
    return f"[policy]\ninstance = {instance}\n{''.join(lines)}"


def scaler_table(scaler: str) -> dict[str, float | str]:
    """Return the kind and the keys of `KIND:key=value,...`, checked. Raises BadInput."""
    kind, colon, rest = scaler.strip().partition(":")
    kind = kind.strip().lower()
    pairs = [[part.strip() for part in one.partition("=")] for one in rest.split(",") if one.strip()]
    if not kind or bool(colon) != bool(pairs) or not all(all(pair) for pair in pairs):
        what = f"must be KIND:key=value,..., as hpa:target=0.7,min=2,max=50; KIND is one of {', '.join(KINDS)}"
        raise BadInput(what, "--scaler", scaler)
    if kind not in KINDS:
        raise BadInput(f"must be one of {', '.join(KINDS)}", "--scaler kind", kind)
    table: dict[str, float | str] = {"kind": kind}
    for key, _, text in pairs:
        if key not in keys_of(kind):
            raise BadInput(f"unknown key; {kind} has {', '.join(keys_of(kind))}", f"--scaler {key}", text)
        if key in table:
            raise BadInput("is given twice", f"--scaler {key}", text)
        table[key] = _scaler_value(key, text)
    try:
        as_is_of(Section(Path("--scaler"), "policy", {"instance": "any", **table}))
    except BadInput as error:
        raise BadInput(error.what, error.where.replace(" [policy]", ""), error.value) from error.__cause__
    return table


def _scaler_value(key: str, text: str) -> float | str:
    """Return a number if the text is one. Raises BadInput."""
    try:
        value = int(text) if re.fullmatch(r"[+-]?\d{1,18}", text) else float(text.removesuffix("%"))
    except ValueError:
        return text
    if not math.isfinite(value):
        raise BadInput("must be a finite number", f"--scaler {key}", text)
    if text.endswith("%"):
        raise BadInput(f"must be a number, as {value / 100.0:g}", f"--scaler {key}", text)
    return value
