"""The common parts of the benchmarks of other projects' autoscalers: parts of traces, and runs of a scaler on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from floored import Outage, floored

from mark.domain.profile import Candidate
from mark.domain.service import AsIsPolicy
from mark.planning.planner import Policy
from mark.planning.policies.as_is import as_is
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation

SERVICE = str(Path(__file__).parent / "service.toml")
INSTANCE = "c7i.xlarge"
DAY_S, HOUR_S = 86400.0, 3600.0


@dataclass(frozen=True, slots=True)
class World:
    """A part of a trace at a scale at which some ten replicas serve it."""

    trace: str  # name of a file in the folder of traces, or a synthetic one
    scale: float
    start_day: float

    def inputs(self, folder: Path, hours: float, *, certain_boots: bool = False) -> Inputs:
        named = self.trace if self.trace.startswith("synthetic:") else str(folder / self.trace)
        part = {
            "start_s": self.start_day * DAY_S,
            "duration_s": hours * HOUR_S,
            "train_s": min(3.0, self.start_day) * DAY_S,
        }
        sensitivity = Sensitivity(certain_boots=certain_boots)
        return open_inputs(RunRequest(named, SERVICE, scale=self.scale, sensitivity=sensitivity, **part))

    @property
    def label(self) -> str:
        return f"{self.trace.removesuffix('.csv.gz')} day {self.start_day:g}"


def scaler(inputs: Inputs, kind: str, share: float, least: int = 1) -> Inputs:
    """Return the same part for a user of this scaler, with a target at which a replica has `share` of its capacity."""
    able = able_on(inputs)
    busy_s = float(able.service_s[1]) + able.overhead_s
    target = {
        "hpa": share,
        "asg": share,
        "keda": share * able.capacity_rps,
        "knative": share * able.capacity_rps * busy_s / 0.7,
        "ray": share * able.capacity_rps * busy_s,
        "sagemaker": 60.0 * share * able.capacity_rps,
    }[kind]
    own = AsIsPolicy(kind, INSTANCE, target, least, max(500, least))
    service = replace(inputs.service, as_is=own)
    return replace(inputs, service=service, resolved=replace(inputs.resolved, service=service))


def able_on(inputs: Inputs) -> Candidate:
    """Return the model on the scalers' type."""
    resolved = inputs.resolved
    return next(c for o, c in zip(resolved.offers, resolved.candidates, strict=True) if o.instance == INSTANCE)


def run(inputs: Inputs, *, with_floor: bool = False, outages: tuple[Outage, ...] = ()) -> SimulationResult:
    """Run the user's own scaler, alone or above mark's floor."""
    policy: Policy = as_is(inputs.resolved, inputs.evaluated)
    if with_floor:
        policy = floored(inputs.resolved, inputs.evaluated, outages)
    return Simulation(inputs, policy, "auto" if with_floor else None).run()


def late_share(result: SimulationResult) -> float:
    """Return the share of requests answered late or refused."""
    return 1.0 - (result.slo_result.attainment or 0.0)
