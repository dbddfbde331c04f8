"""Replays of the paper's traffic: the capped trace, the mean rate, and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mark_papers.paper.replay import CAP, DURATION_S, MEAN_RPS, capped, open_replay, replay_inputs

from mark.domain.errors import BadInput
from mark.domain.offer import Market


def test_minutes_are_capped_at_the_running_median() -> None:
    """The reference is a plain loop: 61 minutes around each, fewer at the ends; calm minutes stay unchanged."""
    counts = np.random.default_rng(3).gamma(2.0, 50.0, 200)
    counts[90:95] *= 20.0
    plain = [
        min(count, CAP * float(np.median(counts[max(0, i - 30) : i + 31]))) for i, count in enumerate(counts.tolist())
    ]
    assert capped(counts).tolist() == pytest.approx(plain)
    assert capped(np.full(100, 7.0)).tolist() == [7.0] * 100


def test_a_part_has_the_mean_rate_of_the_paper() -> None:
    replay = open_replay(start_s=86400.0)
    inputs = replay_inputs("inception-v3", replay.calm, replay.start_s, duration_s=3600.0, with_spot=True)
    assert inputs.evaluated.mean_rps.mean() == pytest.approx(MEAN_RPS["inception-v3"])
    assert (inputs.history.start_s, inputs.duration_s) == (-86400.0, 3600.0)
    assert {offer.market for offer in inputs.resolved.offers} == {Market.ON_DEMAND, Market.SPOT, Market.BURSTABLE}
    plain = replay_inputs("inception-v3", replay.calm, replay.start_s, duration_s=3600.0)
    assert {offer.market for offer in plain.resolved.offers} == {Market.ON_DEMAND}


def test_a_short_trace_is_replayed_from_its_latest_start(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("t_seconds,count\n" + "".join(f"{60 * i},600\n" for i in range(2 * 1440)))
    assert open_replay(str(path)).start_s == 2 * 86400.0 - DURATION_S


def test_a_coarse_or_short_trace_is_bad_input(tmp_path: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text("t_seconds,count\n" + "".join(f"{60 * i},600\n" for i in range(600)))
    with pytest.raises(BadInput, match="minute"):
        open_replay("synthetic:diurnal?bin_s=300")
    with pytest.raises(BadInput, match="490 minutes"):
        open_replay(str(short), start_s=0.0)
