"""Forecasts scored in dollars: the bills of the same policy with different predictors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mark.domain.errors import BadInput
from mark.planning.policies.policy_registry import policy_entry
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import run_all
from mark.studies.executor import HERE, StudyExecutor

ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class Dollars:
    """The simulated part: one result for each predictor, and the result of policy `oracle`, which knows the future."""

    results: dict[str, SimulationResult]
    oracle: SimulationResult

    def as_json(self, predictor: str) -> dict[str, Any]:
        """Return the entries for a predictor in the backtest's JSON, beside its scores."""
        result = self.results[predictor]
        return {
            **_outcome(result),
            "above_oracle_usd": result.bill.total - self.oracle.bill.total,
        }

    def oracle_json(self) -> dict[str, Any]:
        return _outcome(self.oracle)


def forecast_dollars(request: RunRequest, predictors: Sequence[str], *, executor: StudyExecutor = HERE) -> Dollars:
    """Simulate the request's policy with each of `predictors`, and `oracle`, on the same arrivals.

    `oracle` is `mark` with perfect forecasts, also for another policy. Raises the errors of a run.
    """
    requests = [replace(request, predictor=name) for name in predictors]
    requests.append(replace(request, policy=ORACLE))
    *results, oracle = run_all(requests, executor=executor, progress=request.progress)
    return Dollars(dict(zip(predictors, results, strict=True)), oracle)


def check_request(request: RunRequest) -> None:
    """Check a request before any long work begins.

    Raises the errors of opening its inputs, and BadInput for a policy that plans without a forecast.
    """
    unit = open_inputs(request).service.unit
    if not unit.is_requests:
        raise BadInput(
            "forecasts of requests are scored: leave the service out, whose load is in", "service", unit.name
        )
    if not policy_entry(request.policy).forecasts:
        raise BadInput("plans without a forecast", "policy", request.policy)


def _outcome(result: SimulationResult) -> dict[str, Any]:
    return {"usd": result.bill.total, "attainment": result.slo_result.attainment, "regret": result.regret}
