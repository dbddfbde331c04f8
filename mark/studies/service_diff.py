"""The cost of a change of a service: both versions on the same requests, and the settings that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from mark.domain.service import ServiceConfig
from mark.planning.policies.names import split_policy
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import run_all
from mark.studies.executor import HERE, StudyExecutor


@dataclass(frozen=True, slots=True)
class ServiceDiff:
    """Two runs. `changed` has the settings that differ, with their values before and after as in a service file."""

    before: SimulationResult
    after: SimulationResult
    changed: Mapping[str, tuple[object, object]]

    @property
    def usd(self) -> float:
        """The extra dollars of the evaluated part; negative if it costs less."""
        return self.after.bill.total - self.before.bill.total


def service_diff(request: RunRequest, after: str, *, executor: StudyExecutor = HERE) -> ServiceDiff:
    """Run `request` with its own service file and with `after`: two whole runs on the same arrivals.

    Raises BadInput, and Infeasible if no type can keep the SLO of one of them.
    """
    policy, predictor = split_policy(request.policy, request.predictor)
    request = replace(request, policy=policy, predictor=predictor, with_bound=False)
    changed_request = replace(request, service=after, progress=None)
    changed = changed_settings(open_service(request).service, open_service(changed_request).service)
    first, second = run_all([request, changed_request], executor=executor, progress=request.progress)
    return ServiceDiff(first, second, changed)


def changed_settings(before: ServiceConfig, after: ServiceConfig) -> dict[str, tuple[object, object]]:
    """Return the settings that differ, by name; the file and the service's name do not count."""
    old, new = _settings(before), _settings(after)
    return {name: (old.get(name), new.get(name)) for name in old | new if old.get(name) != new.get(name)}


def _settings(service: ServiceConfig) -> dict[str, object]:
    found: dict[str, object] = {"slo_ms": service.slo.rt_max_s * 1e3, "slo_attainment": service.slo.attainment}
    for field in fields(service):
        if field.name not in ("name", "source", "slo"):
            found[field.name] = _plain(getattr(service, field.name))
    return found


def _plain(value: Any) -> object:
    if isinstance(value, tuple):
        return ", ".join(str(_plain(one)) for one in value)
    if is_dataclass(value):
        return ", ".join(f"{field.name} {_plain(getattr(value, field.name))}" for field in fields(value))
    return value
