"""What a change of a service costs: the service before and after it on the same requests, and what was changed."""

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
    """`changed` has the settings that differ, with their values before and after, as a service file would say them."""

    before: SimulationResult
    after: SimulationResult
    changed: Mapping[str, tuple[object, object]]

    @property
    def usd(self) -> float:
        """What the evaluated part costs more; negative where it costs less."""
        return self.after.bill.total - self.before.bill.total


def service_diff(request: RunRequest, after: str, *, executor: StudyExecutor = HERE) -> ServiceDiff:
    """`request` as it is, and with the service file `after` instead of its own: two whole runs on the same arrivals.

    Raises BadInput, and Infeasible where no type can keep the SLO of one of them.
    """
    policy, predictor = split_policy(request.policy, request.predictor)
    request = replace(request, policy=policy, predictor=predictor, with_bound=False)
    changed_request = replace(request, service=after, progress=None)
    changed = changed_settings(open_service(request).service, open_service(changed_request).service)
    first, second = run_all([request, changed_request], executor=executor, progress=request.progress)
    return ServiceDiff(first, second, changed)


def changed_settings(before: ServiceConfig, after: ServiceConfig) -> dict[str, tuple[object, object]]:
    """Settings by name where the two differ; not the file, nor the service's own name."""
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
