from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import numpy as np
import pytest

from mark.cli.forecast_fit import add_fit
from mark.cli.main import guarded
from mark.domain.errors import BadInput
from mark.domain.load import Forecast, Load
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.predictor import Epoch, State
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.traffic.forecast.saved import Saved, load, save
from mark.traffic.traces import open_trace

TRACE = "synthetic:diurnal"


class Counting:
    """A `Trainable` fake: five epochs, each of which adds the mean of the history; interrupted after `stop_after`."""

    name = "counting"
    version = 2
    stop_after = 5

    def __init__(self, seed: int = 0) -> None:
        self._last = LastValue(seed)
        self._done, self._sum = 0, 0.0
        self.restored = False

    def fit(self, history: Load) -> None:
        self._last.fit(history)

    def update(self, observed: Load) -> None:
        self._last.update(observed)

    def predict(self, steps: int) -> Forecast:
        return self._last.predict(steps)

    def training(self, history: Load, checkpoint: State | None = None) -> Iterator[Epoch]:
        if checkpoint is not None:
            self._done, self._sum = int(checkpoint["done"]), float(checkpoint["sum"])
        while self._done < 5:
            if self._done == self.stop_after:
                raise KeyboardInterrupt
            self._done += 1
            self._sum += float(np.nanmean(history.mean_rps))
            yield Epoch(self._done, 5, 1.0, 0.125 * self._done)

    def checkpoint(self) -> State:
        return {"done": np.array(self._done), "sum": np.array(self._sum)}

    def state(self) -> State:
        return {"sum": np.array(self._sum)}

    def restore(self, state: State) -> None:
        if "sum" not in state:
            raise ValueError("no sum")
        self._sum, self.restored = float(state["sum"]), True


class OnlySavable(Counting):
    name = "only-savable"
    training = None  # type: ignore[assignment]
    checkpoint = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _registered(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the fakes as a user's package would register them."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / "fakes-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: fakes\nVersion: 1.0\n")
    fakes = "".join(f"{one.name} = {one.__module__}:{one.__name__}\n" for one in (Counting, OnlySavable))
    fakes += "torchless = torchless:X\nhollow = nothing_here:X\n"
    (package / "entry_points.txt").write_text(f"[mark.predictors]\n{fakes}")
    (folder / "torchless.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    monkeypatch.syspath_prepend(str(folder))


def fit(*options: str) -> int:
    """Run `mark forecast fit` on a generated day, as the command line does."""
    parser = argparse.ArgumentParser()
    add_fit(parser.add_subparsers())
    args = parser.parse_args(["fit", TRACE, *options])
    return guarded(lambda: copy_context().run(args.run, args))


def mean_of(start_s: float, end_s: float) -> float:
    return float(np.nanmean(open_trace(TRACE).load(start_s, end_s).mean_rps))


def test_what_was_learned_is_a_predictor_by_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file works as a name, and its predictor keeps its own name."""
    out = tmp_path / "model.npz"
    assert fit("--predictor", "counting", "--out", str(out)) == 0
    said = capsys.readouterr()
    assert said.out == "counting learned from 1440 steps of 60 s: 5 epochs, validation loss 0.625 after the last\n"
    assert said.err == f"out: {out}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]
    predictor = make_predictor(str(out), 9, 60.0)
    assert isinstance(predictor, Counting)
    assert predictor.restored
    assert predictor.name == "counting"
    assert float(predictor.state()["sum"]) == pytest.approx(5.0 * mean_of(0.0, 86400.0))


@pytest.mark.parametrize(
    ("options", "start_s", "end_s"),
    [
        (("--train", "7200"), 0.0, 7200.0),
        (("--start", "43200"), 0.0, 43200.0),
        (("--start", "43200", "--train", "7230"), 36000.0, 43200.0),
        (("--start", "3600", "--train", "7200"), 0.0, 3600.0),
    ],
)
def test_the_history_is_that_of_a_simulation_with_these_options(
    options: tuple[str, ...], start_s: float, end_s: float, tmp_path: Path
) -> None:
    """It covers [start - train, start), in whole steps that end at the start."""
    out = str(tmp_path / "model.npz")
    assert fit("--predictor", "counting", "--out", out, *options) == 0
    expected = open_trace(TRACE, duration_s=end_s).load(start_s, end_s).mean_rps
    assert float(load(out).state["sum"]) == pytest.approx(5.0 * np.nanmean(expected))
    assert load(out).step_s == 60.0


def test_an_interrupted_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C leaves the checkpoint. The same command goes on, ends with the result of one run, and removes it."""
    whole, out = str(tmp_path / "whole.npz"), str(tmp_path / "model.npz")
    assert fit("--predictor", "counting", "--out", whole) == 0
    monkeypatch.setattr(Counting, "stop_after", 2)
    assert fit("--predictor", "counting", "--out", out) == 130
    assert not Path(out).exists()
    assert f"checkpoint: {out}.checkpoint (the same command goes on from it)" in capsys.readouterr().err
    monkeypatch.setattr(Counting, "stop_after", 5)
    assert fit("--predictor", "counting", "--out", out) == 0
    assert f"checkpoint: going on from {out}.checkpoint" in capsys.readouterr().err
    assert load(out).state["sum"] == load(whole).state["sum"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.npz", "whole.npz"]


def test_a_checkpoint_of_another_training_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another seed, another part of the trace, or a damaged file it starts from the beginning, and says so."""
    whole, out = str(tmp_path / "whole.npz"), str(tmp_path / "model.npz")
    assert fit("--predictor", "counting", "--out", whole, "--train", "7200") == 0
    for before in ((), ("--train", "7200", "--seed", "1")):
        monkeypatch.setattr(Counting, "stop_after", 2)
        assert fit("--predictor", "counting", "--out", out, *before) == 130
        monkeypatch.setattr(Counting, "stop_after", 5)
        capsys.readouterr()
        assert fit("--predictor", "counting", "--out", out, "--train", "7200") == 0
        assert "is of another training; starting anew" in capsys.readouterr().err
        assert load(out).state["sum"] == load(whole).state["sum"]
    Path(f"{out}.checkpoint").write_text("half a")
    assert fit("--predictor", "counting", "--out", out, "--train", "7200") == 0
    assert "is damaged" in capsys.readouterr().err
    assert load(out).state["sum"] == load(whole).state["sum"]


def test_a_predictor_without_epochs_is_fitted_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A predictor without epochs only has to be savable."""
    out = str(tmp_path / "model.npz")
    assert fit("--predictor", "only-savable", "--out", out) == 0
    assert capsys.readouterr().out == "only-savable learned from 1440 steps of 60 s\n"
    assert load(out).predictor == "only-savable"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--predictor", "seasonal-naive"), "learns nothing that could be saved: seasonal-naive"),
        (("--predictor", "absent"), r"unknown \(known: .*or a file that `mark forecast fit` wrote\): absent"),
        (("--predictor", "lstm", "--train", "3600"), "learned nothing .*fewer than 600 steps"),
        (("--predictor", "counting", "--train", "30"), "less than one step of 60 s to learn from"),
        (("--predictor", "torchless"), r"needs torch \(pip install 'mark-serving\[torch\]'\)"),
        (("--predictor", "hollow"), "does not load .*nothing_here"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and no file is written."""
    assert fit(*options, "--out", str(tmp_path / "model.npz")) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """The file is missing, or has another version, another step, an invalid state, or an unknown name."""
    path = str(tmp_path / "model.npz")
    for saved, message in [
        (Saved("counting", 1, 60.0, "", state={}), "was saved by version 1 of counting, here is version 2"),
        (Saved("counting", 2, 300.0, "", state={}), "was trained on steps of 300 s, the trace has 60 s"),
        (Saved("counting", 2, 60.0, "", state={}), r"holds no counting \(no sum\)"),
        (Saved("seasonal-naive", 1, 60.0, "", state={}), "here is a version that cannot be saved"),
        (Saved("absent", 1, 60.0, "", state={}), "unknown.*absent"),
        (Saved(path, 1, 60.0, "", state={}), "unknown"),
    ]:
        save(path, saved)
        with pytest.raises(BadInput, match=message):
            make_predictor(path, 0, 60.0)
    with pytest.raises(BadInput, match="cannot be read"):
        make_predictor("no/such/file", 0)


@pytest.mark.slow
def test_a_trained_network_forecasts_alike_from_its_file(tmp_path: Path) -> None:
    """One real training shows that weights, corrections and ranks survive the file."""
    out, history = str(tmp_path / "lstm.npz"), open_trace(TRACE).load(0.0, 43200.0)
    from mark_predictors.lstm import Lstm  # not at the top, because it imports torch

    trained = Lstm(epochs=1)
    trained.fit(history)
    save(out, Saved(trained.name, trained.version, 60.0, "", state=trained.state()))
    again = make_predictor(out, 5, 60.0)
    again.fit(history)
    np.testing.assert_array_equal(again.predict(60).mean_rps, trained.predict(60).mean_rps)
