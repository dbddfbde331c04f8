"""Reproduce Fig. 7 of the MArk paper: latencies of SageMaker, and of ours on demand and on spot, on the same traffic.

The traffic is Table 5's, minutes capped (see `replay`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mark.cloud.ec2.spot_series import SpotSeries, load_spot_series
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from mark_papers.paper.replay import DURATION_S, MODELS, PaperTraffic, open_replay, replay_inputs


@dataclass(frozen=True, slots=True)
class Fig7Row:
    """One model; `runs` by name, SageMaker last: all serve the same requests."""

    model: str
    runs: dict[str, SimulationResult]


@dataclass(frozen=True, slots=True)
class Fig7:
    trace: str
    start_s: float
    rows: tuple[Fig7Row, ...]


def run_fig7(
    trace: str | None = None,
    *,
    spot_trace: str | None = None,
    start_s: float | None = None,
    duration_s: float = DURATION_S,
    seed: int = 0,
    models: tuple[str, ...] = MODELS,
    progress: Callable[[float], None] | None = None,
) -> Fig7:
    """Run every model; `trace` as in `open_replay`. A preemption series in `spot_trace` adds one run of each."""
    replay = open_replay(trace, start_s=start_s, seed=seed)
    series = None if spot_trace is None else load_spot_series(spot_trace)
    rows = []
    for model in models:
        rows.append(Fig7Row(model, _runs(model, replay, series, duration_s, seed)))
        if progress is not None:
            progress(len(rows) / len(models))
    return Fig7(replay.name, replay.start_s, tuple(rows))


def _runs(
    model: str, replay: PaperTraffic, series: SpotSeries | None, duration_s: float, seed: int
) -> dict[str, SimulationResult]:
    plain, spot = (
        replay_inputs(
            model,
            replay.calm,
            replay.start_s,
            seed=seed,
            duration_s=duration_s,
            with_spot=with_spot,
            with_bound=False,
        )
        for with_spot in (False, True)
    )
    runs = {"mark": simulate_inputs(plain, "mark"), "mark-spot": simulate_inputs(spot, "mark")}
    if series is not None:
        runs["mark-spot-series"] = simulate_inputs(replace(spot, spot=(series,)), "mark")
    runs["mark-paper"] = simulate_inputs(plain, "mark-paper")
    runs["mark-paper:artefact"] = simulate_inputs(plain, "mark-paper", "artefact")
    runs["sagemaker"] = simulate_inputs(plain, "target-tracking")
    return runs
