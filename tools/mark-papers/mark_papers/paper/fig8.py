"""Reproduce Fig. 8 of the MArk paper: the policies that keep the promise on predictable and unpredictable traffic.

The first is Table 5's, minutes capped (see `replay`). The second is a Markov-modulated Poisson process of two rates, 1
to 4, which change at random every 300 s on average: 24 hours to learn from, then 4 hours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate_inputs
from mark_papers.paper.replay import DURATION_S, MEAN_RPS, MODELS, PaperTraffic, open_replay, replay_inputs

POLICIES = {"mark": "mark", "mark-paper": "mark-paper", "sagemaker": "target-tracking"}
MMPP_HISTORY_S = 24 * 3600.0
MMPP_DURATION_S = 4 * 3600.0
MMPP_DWELL_S = 300.0


@dataclass(frozen=True, slots=True)
class Fig8Row:
    """One model on both kinds of traffic; runs by name."""

    model: str
    stream: dict[str, SimulationResult]
    mmpp: dict[str, SimulationResult]


@dataclass(frozen=True, slots=True)
class Fig8:
    trace: str
    start_s: float
    rows: tuple[Fig8Row, ...]


def mmpp_spec(model: str) -> str:
    """Return the generator of the model's traffic.

    Both states have equal mean lengths, so that the mean rate is right.
    """
    low_rps = 0.4 * MEAN_RPS[model]
    return f"synthetic:mmpp?rates={low_rps:g},{4.0 * low_rps:g}&dwell_s={MMPP_DWELL_S:g}"


def run_fig8(
    trace: str | None = None,
    *,
    start_s: float | None = None,
    duration_s: float = DURATION_S,
    mmpp_duration_s: float = MMPP_DURATION_S,
    seed: int = 0,
    models: tuple[str, ...] = MODELS,
    progress: Callable[[float], None] | None = None,
) -> Fig8:
    """Run every model with every policy on both; `trace` as in `open_replay`."""
    replay = open_replay(trace, start_s=start_s, seed=seed)
    rows = []
    for model in models:
        rows.append(_row(model, replay, duration_s, mmpp_duration_s, seed))
        if progress is not None:
            progress(len(rows) / len(models))
    return Fig8(replay.name, replay.start_s, tuple(rows))


def _row(model: str, replay: PaperTraffic, duration_s: float, mmpp_duration_s: float, seed: int) -> Fig8Row:
    stream = replay_inputs(model, replay.calm, replay.start_s, seed=seed, duration_s=duration_s, with_bound=False)
    request = RunRequest(
        trace=mmpp_spec(model),
        service=model,
        start_s=MMPP_HISTORY_S,
        duration_s=mmpp_duration_s,
        seed=seed,
        with_bound=False,
    )
    return Fig8Row(model, _runs(stream), _runs(open_inputs(request)))


def _runs(inputs: Inputs) -> dict[str, SimulationResult]:
    return {name: simulate_inputs(inputs, policy) for name, policy in POLICIES.items()}
