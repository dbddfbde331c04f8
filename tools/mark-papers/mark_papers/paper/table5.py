"""Reproduce Table 5 of the MArk paper: SageMaker's target tracking against ours, for the paper's four models.

It compares bills over 490 minutes at the paper's mean rates: the raw stream first, then with its minutes capped (see
`replay`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mark.cloud.ec2.spot_series import load_spot_series
from mark.domain.offer import Market, instance_of
from mark.planning.policies.target_tracking import sagemaker_policy
from mark.simulation.inputs import Inputs
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation, simulate_inputs
from mark.traffic.traces.trace import Trace
from mark_papers.paper.replay import ASSUMED, DURATION_S, MODELS, open_replay, replay_inputs

# MArk paper, section 5.2: SageMaker / MArk-ondemand and SageMaker / MArk-spot.
PAPER_ON_DEMAND = {"inception-v3": 3.63, "nasnet": 2.79, "lstm-ptb": 2.41, "opennmt-ende": 3.15}
PAPER_SPOT = {"inception-v3": 6.21, "nasnet": 5.91, "lstm-ptb": 6.64, "opennmt-ende": 7.83}


@dataclass(frozen=True, slots=True)
class Decomposition:
    """SageMaker's bill, from the clairvoyant bound upwards, in dollars; the parts add up to the bill."""

    bound_usd: float
    instance_type_usd: float  # its type instead of the bound: unbatched and just enough of it at EC2's price
    price_factor_usd: float  # SageMaker's price over EC2's
    over_provision_usd: float  # twice as much as needed
    lag_usd: float  # the remaining capacity of tracking: late reactions, whole instances
    total_usd: float
    our_regret_usd: float  # our bill above the bound


@dataclass(frozen=True, slots=True)
class Table5Row:
    """One model on one trace."""

    model: str
    trace: str
    capped: bool
    sagemaker: SimulationResult
    ours: SimulationResult  # `mark`, on-demand and functions
    paper: SimulationResult  # `mark-paper`, the same
    artefact: SimulationResult  # `mark-paper:artefact`, as the authors ran it
    spot: SimulationResult  # `mark`, with spot by hazard rates and burstable standbys
    spot_series: SimulationResult | None  # the same with a preemption series
    types: tuple[tuple[str, float, float | None], ...]  # every SageMaker type: name, bill, attainment
    parts: Decomposition | None

    @property
    def ratio(self) -> float:
        return self.sagemaker.bill.total / self.ours.bill.total

    @property
    def spot_ratio(self) -> float:
        return self.sagemaker.bill.total / self.spot.bill.total


@dataclass(frozen=True, slots=True)
class Table5:
    trace: str
    start_s: float
    rows: tuple[Table5Row, ...]
    notes: tuple[str, ...]


def run_table5(
    trace: str | None = None,
    *,
    spot_trace: str | None = None,
    start_s: float | None = None,
    duration_s: float = DURATION_S,
    seed: int = 0,
    models: tuple[str, ...] = MODELS,
    progress: Callable[[float], None] | None = None,
) -> Table5:
    """Run all four models; `trace` is a file of counts, or None for a generated substitute."""
    replay = open_replay(trace, start_s=start_s, seed=seed)
    rows: list[Table5Row] = []
    jobs = [(model, replay.raw, False) for model in models] + [(model, replay.calm, True) for model in models]
    for i, (model, part, is_capped) in enumerate(jobs):
        rows.append(_row(model, part, is_capped, replay.start_s, duration_s, seed, spot_trace))
        if progress is not None:
            progress((i + 1) / len(jobs))
    return Table5(replay.name, replay.start_s, tuple(rows), ASSUMED)


def _row(
    model: str,
    trace: Trace,
    is_capped: bool,
    start_s: float,
    duration_s: float,
    seed: int,
    spot_trace: str | None,
) -> Table5Row:
    inputs = replay_inputs(model, trace, start_s, seed=seed, duration_s=duration_s)
    spot_inputs = replay_inputs(model, trace, start_s, seed=seed, duration_s=duration_s, with_spot=True)
    ours = simulate_inputs(inputs, "mark")
    sagemaker = simulate_inputs(inputs, "target-tracking")
    series = None
    if spot_trace is not None:
        with_series = replace(spot_inputs, spot=(load_spot_series(spot_trace),))
        series = simulate_inputs(with_series, "mark")
    return Table5Row(
        model=model,
        trace=trace.name,
        capped=is_capped,
        sagemaker=sagemaker,
        ours=ours,
        paper=simulate_inputs(inputs, "mark-paper"),
        artefact=simulate_inputs(inputs, "mark-paper", "artefact"),
        spot=simulate_inputs(spot_inputs, "mark"),
        spot_series=series,
        types=_every_type(inputs) if is_capped else (),
        parts=_decomposition(inputs, sagemaker, ours),
    )


def _every_type(inputs: Inputs) -> tuple[tuple[str, float, float | None], ...]:
    """Return the bill of target tracking on every SageMaker type that the model has a profile for."""
    rows = []
    for offer in inputs.resolved.catalog.offers:
        plain = offer.instance.removeprefix("ml.")
        if offer.market is not Market.SAGEMAKER or plain not in inputs.resolved.profiles:
            continue
        policy = sagemaker_policy(inputs.resolved, offer.instance, batched=False, evaluated=inputs.evaluated)
        result = Simulation(replace(inputs, request=replace(inputs.request, with_bound=False)), policy).run()
        rows.append((offer.instance, result.bill.total, result.slo_result.attainment))
    return tuple(sorted(rows, key=lambda row: (row[1], row[0])))


def _decomposition(inputs: Inputs, sagemaker: SimulationResult, ours: SimulationResult) -> Decomposition | None:
    if ours.bound_usd is None or not sagemaker.fleet.instance_hours:
        return None
    (name,) = sagemaker.fleet.instance_hours
    instance = instance_of(name)
    prices = {(o.instance, o.market): o.usd_per_hour for o in inputs.resolved.catalog.offers}
    plain = instance.removeprefix("ml.")
    ec2, listed = prices[plain, Market.ON_DEMAND], prices[instance, Market.SAGEMAKER]
    hours = sagemaker.requests.total * inputs.resolved.profiles[plain].latency_s(1) / 3600.0
    just_enough = hours * ec2
    factor = hours * (listed - ec2)
    total = sagemaker.bill.total
    return Decomposition(
        bound_usd=ours.bound_usd,
        instance_type_usd=just_enough - ours.bound_usd,
        price_factor_usd=factor,
        over_provision_usd=hours * listed,
        lag_usd=total - 2.0 * hours * listed,
        total_usd=total,
        our_regret_usd=ours.bill.total - ours.bound_usd,
    )
