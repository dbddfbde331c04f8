"""Fig. 6 of the paper: every predictor forecasts the traffic that Fig. 8 serves."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from mark_papers.paper.fig6 import MODEL, Fig6, run_fig6
from mark_papers.paper.fig8 import MMPP_HISTORY_S, mmpp_spec
from mark_papers.paper.replay import MEAN_RPS

from mark.domain.errors import BadInput
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest

NAIVE = "seasonal-naive"


def found(*predictors: str, told: list[float] | None = None) -> Fig6:
    return run_fig6(
        start_s=7200.0,
        duration_s=7200.0,
        mmpp_duration_s=3600.0,
        predictors=predictors,
        progress=None if told is None else told.append,
    )


def test_every_predictor_forecasts_both_kinds() -> None:
    """A forecast every 5 minutes is scored, and the last value beside it; the drawn forecasts are consecutive."""
    told: list[float] = []
    made = found(NAIVE, told=told)
    assert (told[-1], sorted(told)) == (1.0, told)
    for of_kind, train_s, origins in ((made.stream, 7200.0, 24), (made.mmpp, MMPP_HISTORY_S, 12)):
        assert list(of_kind.scores) == [NAIVE, "last-value"]
        assert (of_kind.split.train_s, len(of_kind.split.origins), of_kind.split.steps) == (train_s, origins, 60)
        for name in of_kind.scores:
            starts_s = [forecast.origin_s - train_s for forecast in of_kind.fans[name]]
            assert starts_s == [0.0, 3600.0][: len(starts_s)]
    judged = made.stream.split.load.mean_rps[120:240]
    assert judged.mean() == pytest.approx(MEAN_RPS[MODEL])


def test_bursts_are_the_requests_that_are_served() -> None:
    request = RunRequest(trace=mmpp_spec(MODEL), service=MODEL, start_s=MMPP_HISTORY_S, duration_s=3600.0)
    served = open_inputs(request).drawn().mean_rps
    split = found(NAIVE).mmpp.split
    assert split.load.mean_rps[split.train : split.train + 60] == pytest.approx(served)
    assert len(np.unique(served.round(2))) > 30  # drawn, not two rates


def test_without_torch_a_note_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("mark_predictors.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    made = found("lstm", NAIVE)
    assert list(made.mmpp.scores) == [NAIVE, "last-value"]
    assert made.notes == ("left out: predictor lstm: needs torch (pip install 'mark-serving[torch]')",)


def test_an_unknown_predictor_is_not_left_out() -> None:
    with pytest.raises(BadInput, match="absent"):
        found("absent")
