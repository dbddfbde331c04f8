"""The traffic of the MArk paper's section 5.2: 490 minutes at the paper's mean rates, for its four models.

MArk replayed posts; the public stream also holds bulk deletions, so minutes are capped at 1.15 x their 61-minute
running median. The raw stream is kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.time import DAY_S
from mark.simulation.inputs import Inputs, open_inputs
from mark.simulation.request import RunRequest
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.trace import Trace

MODELS = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
MEAN_RPS = {"inception-v3": 90.0, "nasnet": 25.0, "lstm-ptb": 150.0, "opennmt-ende": 25.0}
DURATION_S = 490 * 60.0
CAP = 1.15
CAP_MINUTES = 61
GENERATED = "synthetic:diurnal"
GENERATED_S = 8 * DAY_S
SPOT_MARKETS = (Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE)
ASSUMED = (
    "SageMaker's types are inferred from the paper's bills: ml.p2.xlarge unbatched for Inception-v3, ml.c5.xlarge "
    "for the others (docs/semantics.md, 14)",
    "functions of NASNet and LSTM-ptb, cold starts beside Inception-v3's, and OpenNMT's unbatched latency on "
    "c5.xlarge (894 ms, fitted) are assumed",
)


def capped(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cap each minute at 1.15 x its 61-minute running median (shorter at the ends)."""
    half = CAP_MINUTES // 2
    padded = np.pad(counts, half, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, CAP_MINUTES)
    return np.asarray(np.minimum(counts, CAP * np.nanmedian(windows, axis=1)))


@dataclass(frozen=True, slots=True)
class PaperTraffic:
    """The traffic of the paper's section 5.2, or its substitute: the part starts at `start_s` of both traces."""

    name: str
    start_s: float
    calm: Trace  # minutes capped
    raw: Trace


def open_replay(trace: str | None = None, *, start_s: float | None = None, seed: int = 0) -> PaperTraffic:
    """Open `trace`, a file of counts, or a generated substitute for None.

    It starts on day 7 if the trace is long enough. Raises BadInput for a trace that cannot be read, has bins of more
    than a minute, or is too short.
    """
    spec = GENERATED if trace is None else trace
    source = open_trace(spec, duration_s=GENERATED_S if spec.startswith("synthetic:") else None, seed=seed)
    load = source.load(0.0, source.duration_s)
    if load.step_s != 60.0:
        raise BadInput("the paper's experiments need bins of a minute or less", spec, f"{load.step_s:g} s")
    if source.duration_s < DURATION_S + DAY_S:
        what = "the paper's experiments need a day of history and 490 minutes"
        raise BadInput(what, spec, f"{source.duration_s:g} s")
    minutes = np.flatnonzero(np.isfinite(load.mean_rps))
    starts_s = np.asarray(minutes * 60.0, dtype=np.float64)
    counts = load.mean_rps[minutes] * 60.0
    return PaperTraffic(
        name=source.name,
        start_s=min(7 * DAY_S, source.duration_s - DURATION_S) if start_s is None else start_s,
        calm=trace_of_bins(f"{source.name}, capped", starts_s, capped(counts), 60.0),
        raw=trace_of_bins(f"{source.name}, as it is", starts_s, counts, 60.0),
    )


def replay_inputs(
    model: str,
    trace: Trace,
    start_s: float,
    *,
    seed: int = 0,
    duration_s: float = DURATION_S,
    with_spot: bool = False,
    with_bound: bool = True,
) -> Inputs:
    """Return a part of `trace` at the paper's mean rate of the model, with the complete earlier trace as history."""
    end_s = start_s + duration_s
    scale = MEAN_RPS[model] * duration_s / trace.total_counts(start_s, end_s)
    request = RunRequest(
        trace=trace.name,
        service=model,
        scale=scale,
        start_s=start_s,
        duration_s=duration_s,
        seed=seed,
        markets=SPOT_MARKETS if with_spot else None,
        with_bound=with_bound,
    )
    return open_inputs(request, trace)
