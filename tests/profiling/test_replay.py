"""The model that stands in for one: as slow as its profile, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.models.load import load
from mark.profiling.replay import Replay

REFERENCE = "mark.profiling.replay:Replay"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    file = tmp_path / "own.csv"
    file.write_text("model,instance,batch,latency_ms,p99_ms\nm,x,1,2,\nm,x,4,5,\nn,x,1,2,4\n")
    return str(file)


@pytest.mark.parametrize(("items", "seconds"), [(1, 0.002), (2, 0.003), (4, 0.005), (9, 0.012), (0, 0.0)])
def test_it_takes_the_profile_s_time_and_more_than_a_batch_takes_several(
    profile: str, items: int, seconds: float
) -> None:
    assert Replay("m", "x", profile).service_s(items) == pytest.approx(seconds)


def test_with_a_p99_times_are_lognormal_with_the_profile_s_mean(profile: str) -> None:
    replay = Replay("n", "x", profile)
    drawn = np.array([replay.service_s(1) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(0.002, rel=0.02)
    assert np.quantile(drawn, 0.99) == pytest.approx(0.004, rel=0.05)
    assert drawn[0] != drawn[1]


def test_one_seed_draws_the_same_times(profile: str) -> None:
    first, again, other = (Replay("n", "x", profile, seed) for seed in ("3", "3", "4"))
    assert [first.service_s(1) for _ in range(5)] == [again.service_s(1) for _ in range(5)]
    assert first.service_s(1) != other.service_s(1)


def test_a_batch_is_answered_by_itself_and_never_too_early(profile: str) -> None:
    replay = Replay("m", "x", profile)
    began_s = time.perf_counter()
    assert replay.predict(["a", b"b"]) == ["a", b"b"]
    assert time.perf_counter() - began_s >= 0.003


def test_a_reference_names_it(tmp_path: Path, profile: str) -> None:
    """Its options are the constructor's keywords; a wrong one is a line that says what."""
    named = load(f"{REFERENCE}?model=m&instance=x&profile={profile}", tmp_path)
    assert isinstance(named, Replay)
    assert named.service_s(1) == pytest.approx(0.002)
    shipped = load(f"{REFERENCE}?model=inception-v3&instance=p2.xlarge&seed=7", tmp_path)
    assert isinstance(shipped, Replay)
    assert shipped.service_s(1) == pytest.approx(0.0431)
    for options, said in (
        ("model=m&instance=x", "the shipped table: has no such model and instance: m on x"),
        ("model=inception-v3&instance=abacus", "inception-v3 on abacus"),
        ("model=inception-v3&instance=p2.xlarge&seed=one", "must be a whole number: one"),
        ("model=inception-v3", "TypeError"),
        (f"model=m&instance=x&profile={profile}.gone", "own.csv.gone"),
    ):
        with pytest.raises(BadInput, match=said):
            load(f"{REFERENCE}?{options}", tmp_path)
