"""Reproduce Fig. 6 of the MArk paper: forecasts of the stream and of unpredictable traffic, beside the actual load.

The traffic is Inception-v3's of Fig. 8. The paper shows one snapshot of each; here every forecast of the evaluated part
is scored too, and the repeated last value gives the errors a scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mark.domain.errors import BadInput
from mark.traffic.forecast.backtest import Backtest, backtest, split
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.traces.counts import trace_of_bins
from mark.traffic.traces.reader import open_trace
from mark.traffic.traces.trace import Trace, drawn_load
from mark_papers.paper.fig8 import MMPP_DURATION_S, MMPP_HISTORY_S, mmpp_spec
from mark_papers.paper.replay import DURATION_S, MEAN_RPS, open_replay

MODEL = "inception-v3"
PREDICTORS = ("lstm", "auto")
HORIZON_S = 3600.0  # of a forecast, and so the distance between drawn ones


@dataclass(frozen=True, slots=True)
class Fig6:
    """The scores of all forecasts on `stream` and `mmpp`; `fans` are the forecasts at every `HORIZON_S`."""

    trace: str
    stream: Backtest
    mmpp: Backtest
    notes: tuple[str, ...]


def run_fig6(
    trace: str | None = None,
    *,
    start_s: float | None = None,
    duration_s: float = DURATION_S,
    mmpp_duration_s: float = MMPP_DURATION_S,
    seed: int = 0,
    predictors: tuple[str, ...] = PREDICTORS,
    progress: Callable[[float], None] | None = None,
) -> Fig6:
    """Forecast both kinds of traffic; `trace` as in `open_replay`.

    A predictor whose library is not installed, such as `lstm` without torch, is left out with a note.
    """
    replay = open_replay(trace, start_s=start_s, seed=seed)
    names, notes = _available(predictors)
    scale = MEAN_RPS[MODEL] * duration_s / replay.calm.total_counts(replay.start_s, replay.start_s + duration_s)
    cuts = (
        split(replay.calm, start_s=replay.start_s, duration_s=duration_s, horizon_s=HORIZON_S, scale=scale),
        split(_mmpp(mmpp_duration_s, seed), start_s=MMPP_HISTORY_S, horizon_s=HORIZON_S),
    )
    found = []
    for done, cut in enumerate(cuts):
        fresh: dict[str, Predictor] = {name: make_predictor(name, seed) for name in names}
        fresh[LastValue.name] = LastValue()

        def told(share: float, done: int = done) -> None:
            if progress is not None:
                progress((done + share) / len(cuts))

        drawn = range(cut.origins.start, cut.origins.stop, cut.steps)
        found.append(backtest(cut, fresh, fans_at=drawn, progress=told))
    return Fig6(replay.name, found[0], found[1], notes)


def _available(predictors: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the predictors that can be made here, and notes about the others."""
    names, notes = [], []
    for name in predictors:
        try:
            make_predictor(name, 0)
        except BadInput as error:
            if not isinstance(error.__cause__, ModuleNotFoundError):
                raise
            notes.append(f"left out: {error}")
        else:
            names.append(name)
    return tuple(names), tuple(notes)


def _mmpp(duration_s: float, seed: int) -> Trace:
    """Return the requests of Fig. 8, counted by the minute."""
    end_s = MMPP_HISTORY_S + duration_s
    rates = open_trace(mmpp_spec(MODEL), duration_s=end_s, seed=seed)
    drawn = drawn_load(rates, 0.0, end_s, seed=seed)
    starts_s = np.arange(len(drawn), dtype=np.float64) * drawn.step_s
    return trace_of_bins("MMPP", starts_s, drawn.mean_rps * drawn.step_s, drawn.step_s)
