"""Models as slow as a profile: a plain replay, and a real model held back."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.models.loading import load
from mark.profiling.played_faults import FaultStream, faults_text
from mark.profiling.replay import SPEED_FILE, Paced, Replay, begin_s

REFERENCE = "mark.profiling.replay:Replay"


@pytest.fixture
def profile(tmp_path: Path) -> str:
    file = tmp_path / "own.csv"
    file.write_text("model,instance,batch,latency_ms,p99_ms\nm,x,1,2,\nm,x,4,5,\nn,x,1,2,4\n")
    return str(file)


@pytest.mark.parametrize(("items", "seconds"), [(1, 0.002), (2, 0.003), (4, 0.005), (9, 0.012), (0, 0.0)])
def test_it_takes_the_time_of_the_profile(profile: str, items: int, seconds: float) -> None:
    assert Replay("m", "x", profile).service_s(items) == pytest.approx(seconds)


def test_times_with_a_p99_are_lognormal(profile: str) -> None:
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
    """Its options are the constructor's keywords; the error of a wrong one names it."""
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


MODEL = """
import time
import mark

class Half(mark.Model):
    platform = "halves"
    inputs = [mark.TensorSpec("x", "FP64")]
    begun = False

    def __init__(self, sleep_s="0"):
        self.sleep_s = float(sleep_s)

    def load(self):
        self.loaded = True

    def predict(self, batch):
        assert self.loaded
        if not self.begun:
            time.sleep(0.05)  # a lazy beginning
            self.begun = True
        time.sleep(self.sleep_s)
        return [x / 2.0 for x in batch]
"""


@pytest.fixture
def paced(tmp_path: Path, profile: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Paced]:
    """Return a maker of models whose profile has 2 ms for one item and 5 ms for four."""
    (tmp_path / "half_for_pace.py").write_text(MODEL)
    monkeypatch.setattr("sys.path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "half_for_pace", raising=False)

    def make(model: str = "half_for_pace:Half", **options: str) -> Paced:
        query = {"model": model, "profiled": "m", "instance": "x", "profile": profile, "search": str(tmp_path)}
        made = load(f"mark.profiling.replay:Paced?{urlencode(query | options)}", Path("."))
        assert isinstance(made, Paced)
        return made

    return make


def test_a_real_model_answers_no_earlier_than_its_profile_says(paced: Callable[..., Paced]) -> None:
    model = paced()
    assert (model.platform, [spec.name for spec in model.inputs]) == ("halves", ["x"])
    began_s = time.perf_counter()
    for batch, least_s in (([3.0], 0.002), ([1.0, 2.0, 3.0, 4.0], 0.007)):
        assert model.predict(batch) == [x / 2.0 for x in batch]
        assert time.perf_counter() - began_s >= least_s


def test_lateness_between_batches_that_wait_does_not_add_up() -> None:
    """Up to 2.5 % of a batch's time may lie between two batches; after an idle time the clock starts again."""
    due = begin_s(10.0, 0.2, -math.inf) + 0.2
    for late_s in (0.001, 0.004, 0.0049) * 100:
        due = begin_s(due + late_s, 0.2, due) + 0.2
    assert due == pytest.approx(10.0 + 301 * 0.2)
    assert begin_s(due + 0.0051, 0.2, due) == pytest.approx(due + 0.0051)
    assert begin_s(due - 0.001, 0.2, due) == pytest.approx(due - 0.001)  # the clock of a batch begins with it


def test_a_slower_machine_takes_longer_from_the_next_batch_on(
    paced: Callable[..., Paced], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "speed"
    file.write_text("0.1")
    monkeypatch.setenv(SPEED_FILE, str(file))
    model = paced()
    began_s = time.perf_counter()
    model.predict([1.0])
    assert time.perf_counter() - began_s >= 0.02
    file.write_text("fast")
    with pytest.raises(BadInput, match=f"{SPEED_FILE}: holds no speed"):
        model.predict([1.0])


@pytest.mark.parametrize("kind", ["Paced", "Replay"])
def test_in_a_slow_period_answers_come_later(paced: Callable[..., Paced], profile: str, kind: str) -> None:
    """Nearly all of the time is slow here: a batch of 2 ms takes ten times as long, and 30 ms more."""
    said = faults_text(Faults(slow_share=1.0 - 1e-9, slow_s=1e9, slow_factor=10.0, slow_add_s=0.03), FaultStream(0.0))
    model = paced(faults=said) if kind == "Paced" else Replay("m", "x", profile, faults=said)
    began_s = time.perf_counter()
    model.predict([1.0])
    assert time.perf_counter() - began_s >= 0.05
    with pytest.raises(BadInput, match="faults: says no faults: nonsense"):
        Replay("m", "x", profile, faults="nonsense")


def test_a_model_slower_than_its_profile_is_logged_once(
    paced: Callable[..., Paced], caplog: pytest.LogCaptureFixture
) -> None:
    """Its lazy start does not count. Without `profiled` the profile must have the model's reference."""
    assert paced().overruns == 0
    slow = paced("half_for_pace:Half?sleep_s=0.01")
    for _ in range(3):
        slow.predict([1.0])
    assert slow.overruns == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert "slower here than its profile: a batch of 1 took" in said
    with pytest.raises(BadInput, match="half_for_pace:Half on x"):
        paced(profiled="half_for_pace:Half")
