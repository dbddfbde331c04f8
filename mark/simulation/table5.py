"""Table 5 of the MArk paper again: what SageMaker's target tracking costs against us, for the paper's four models.

490 minutes at the paper's mean rates, on a trace whose minutes are capped at 1.15 x their 61-minute running median
(MArk replayed posts; the public stream also holds bulk deletions). The uncapped trace is shown without targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.planning.target_tracking import sagemaker_policy
from mark.simulation.inputs import Inputs, history_of, open_deployment
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation, simulate_inputs
from mark.simulation.spot import load_spot_series
from mark.workload.counts import trace_of_bins
from mark.workload.reader import open_trace
from mark.workload.trace import Trace

MODELS = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
MEAN_RPS = {"inception-v3": 90.0, "nasnet": 25.0, "lstm-ptb": 150.0, "opennmt-ende": 25.0}
# MArk paper, section 5.2: SageMaker / MArk-ondemand and SageMaker / MArk-spot.
PAPER_ON_DEMAND = {"inception-v3": 3.63, "nasnet": 2.79, "lstm-ptb": 2.41, "opennmt-ende": 3.15}
PAPER_SPOT = {"inception-v3": 6.21, "nasnet": 5.91, "lstm-ptb": 6.64, "opennmt-ende": 7.83}
DURATION_S = 490 * 60.0
CAP = 1.15
CAP_MINUTES = 61
GENERATED = "synthetic:diurnal"
GENERATED_S = 8 * 86400.0
SPOT_MARKETS = (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE)


@dataclass(frozen=True, slots=True)
class Column:
    """One way of running the same requests."""

    title: str
    result: SimulationResult


@dataclass(frozen=True, slots=True)
class Decomposition:
    """SageMaker's bill, from the clairvoyant bound upwards, in dollars; the parts add up to the bill."""

    bound_usd: float
    instance_type_usd: float  # its type, unbatched and just enough of it at EC2's price, instead of the bound
    price_factor_usd: float  # SageMaker's price over EC2's
    over_provision_usd: float  # twice as much as needed
    lag_usd: float  # what tracking holds beside that: late reactions, whole instances
    total_usd: float
    our_regret_usd: float  # our bill above the bound


@dataclass(frozen=True, slots=True)
class Row:
    """One model on one trace."""

    model: str
    trace: str
    capped: bool
    sagemaker: SimulationResult
    ours: SimulationResult  # `mark`, on-demand and functions
    paper_policy: SimulationResult  # `mark-paper`, the same
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
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def capped(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each minute capped at 1.15 x its 61-minute running median (shorter at the ends)."""
    half = CAP_MINUTES // 2
    padded = np.pad(counts, half, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, CAP_MINUTES)
    return np.asarray(np.minimum(counts, CAP * np.nanmedian(windows, axis=1)))


def run_table5(
    trace: str | None = None,
    *,
    spot_trace: str | None = None,
    start_s: float | None = None,
    seed: int = 0,
    models: tuple[str, ...] = MODELS,
    progress: Callable[[float], None] | None = None,
) -> Table5:
    """Run all four models; `trace` is a file of counts, or None for a generated stand-in."""
    spec = GENERATED if trace is None else trace
    source = open_trace(spec, duration_s=GENERATED_S if spec.startswith("synthetic:") else None, seed=seed)
    load = source.load(0.0, source.duration_s)
    if load.step_s != 60.0:
        raise BadInput("Table 5 needs bins of a minute or less", spec, f"{load.step_s:g} s")
    if source.duration_s < DURATION_S + 86400.0:
        raise BadInput("Table 5 needs a day of history and 490 minutes", spec, f"{source.duration_s:g} s")
    start = min(7 * 86400.0, source.duration_s - DURATION_S) if start_s is None else start_s
    minutes = np.flatnonzero(np.isfinite(load.mean_rps))
    starts_s = np.asarray(minutes * 60.0, dtype=np.float64)
    counts = load.mean_rps[minutes] * 60.0
    calm = trace_of_bins(f"{source.name}, capped", starts_s, capped(counts), 60.0)
    raw = trace_of_bins(f"{source.name}, as it is", starts_s, counts, 60.0)
    rows: list[Row] = []
    jobs = [(model, calm, True) for model in models] + [(model, raw, False) for model in models]
    for i, (model, part, is_capped) in enumerate(jobs):
        rows.append(_row(model, part, is_capped, start, seed, spot_trace))
        if progress is not None:
            progress((i + 1) / len(jobs))
    notes = (
        "SageMaker's types are inferred from the paper's bills: ml.p2.xlarge unbatched for Inception-v3, ml.c5.xlarge "
        "for the others (INTERFACES, semantics 14)",
        "functions of NASNet and LSTM-ptb, cold starts beside Inception-v3's, and OpenNMT's unbatched latency on "
        "c5.xlarge (894 ms, fitted) are assumed",
    )
    return Table5(source.name, start, tuple(rows), notes)


def _row(model: str, trace: Trace, is_capped: bool, start_s: float, seed: int, spot_trace: str | None) -> Row:
    expected = trace.total_counts(start_s, start_s + DURATION_S)
    scale = MEAN_RPS[model] * DURATION_S / expected
    request = RunRequest(
        trace=trace.name, service=model, scale=scale, start_s=start_s, duration_s=DURATION_S, seed=seed
    )
    inputs = _inputs(request, trace)
    spot_inputs = _inputs(replace(request, markets=SPOT_MARKETS), trace)
    ours = simulate_inputs(inputs, "mark", "auto")
    sagemaker = simulate_inputs(inputs, "target-tracking", "auto")
    series = None
    if spot_trace is not None:
        with_series = replace(spot_inputs, spot=(load_spot_series(spot_trace),))
        series = simulate_inputs(with_series, "mark", "auto")
    return Row(
        model=model,
        trace=trace.name,
        capped=is_capped,
        sagemaker=sagemaker,
        ours=ours,
        paper_policy=simulate_inputs(inputs, "mark-paper", "auto"),
        spot=simulate_inputs(spot_inputs, "mark", "auto"),
        spot_series=series,
        types=_every_type(inputs) if is_capped else (),
        parts=_decomposition(inputs, sagemaker, ours),
    )


def _inputs(request: RunRequest, trace: Trace) -> Inputs:
    deployment = open_deployment(request)
    end_s = request.start_s + DURATION_S
    return Inputs(
        request=request,
        service=deployment.service,
        deployment=deployment,
        trace=trace,
        start_s=request.start_s,
        end_s=end_s,
        history=history_of(trace, 0.0, request.start_s, request.scale),
        evaluated=replace(trace.load(request.start_s, end_s, request.scale), start_s=0.0),
        spot=(),
    )


def _every_type(inputs: Inputs) -> tuple[tuple[str, float, float | None], ...]:
    """What target tracking costs on every SageMaker type that the model has a profile for."""
    rows = []
    for offer in inputs.deployment.catalog.offers:
        plain = offer.instance.removeprefix("ml.")
        if offer.market is not Market.SAGEMAKER or plain not in inputs.deployment.profiles:
            continue
        policy = sagemaker_policy(inputs.deployment, offer.instance, batched=False, evaluated=inputs.evaluated)
        result = Simulation(replace(inputs, request=replace(inputs.request, with_bound=False)), policy, "auto").run()
        rows.append((offer.instance, result.bill.total, result.slo_result.attainment))
    return tuple(sorted(rows, key=lambda row: (row[1], row[0])))


def _decomposition(inputs: Inputs, sagemaker: SimulationResult, ours: SimulationResult) -> Decomposition | None:
    if ours.bound_usd is None or not sagemaker.fleet.instance_hours:
        return None
    (name,) = sagemaker.fleet.instance_hours
    instance = name.split("/")[0]
    prices = {(o.instance, o.market): o.usd_per_hour for o in inputs.deployment.catalog.offers}
    plain = instance.removeprefix("ml.")
    ec2, listed = prices[plain, Market.ON_DEMAND], prices[instance, Market.SAGEMAKER]
    hours = sagemaker.requests.total * inputs.deployment.profiles[plain].latency_s(1) / 3600.0
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
