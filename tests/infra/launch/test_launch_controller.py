"""The inputs that a controller starts with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mark_infra.launch.launch_controller import history_from, stage_histories

from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.load import Load

PIPELINE = """
[service]
name = "p"
slo_ms = 100
slo_attainment = 0.99
pipeline = "driver:run"
{lineage}
[stage.detect]
model = "a"
slo_ms = 40
[stage.classify]
model = "b"
slo_ms = 60
"""


def test_the_controller_says_what_it_read_of_its_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.csv"
    file.write_text("t_seconds,count\n0,60\n60,120\n")
    assert history_from(str(file)).mean_rps.tolist() == [1.0, 2.0]
    # A slow machine shows progress first.
    assert capsys.readouterr().err.endswith("mark: history: read 180 requests in 2 minutes, 1.5/s, every 60 s\n")
    assert len(history_from("synthetic:poisson?rate=2")) > 0
    assert capsys.readouterr().err == ""


def test_a_stages_history_is_that_of_its_calls(tmp_path: Path) -> None:
    """The lineage tells; without one a driver's stages cannot be told apart."""
    (tmp_path / "l.csv").write_text("queries,detect,classify\n7,1,0\n3,1,4\n")
    history = Load(-60.0, 60.0, np.array([10.0]), np.array([20.0]))
    found = []
    for lineage in ('lineage = "l.csv"', ""):
        (tmp_path / "p.toml").write_text(PIPELINE.format(lineage=lineage))
        found.append(stage_histories([load_pipeline(str(tmp_path / "p.toml"))], history))
    assert {name: (load.mean_rps[0], load.peak_rps[0]) for name, load in found[0].items()} == {
        "p-detect": (10.0, 20.0),
        "p-classify": (12.0, 24.0),
    }
    assert found[1] == {}


def test_stages_bought_together_have_the_history_of_their_lead(tmp_path: Path) -> None:
    """It is the history of the first stage that all queries call alike; with a driver the lineage tells which."""
    history = Load(-60.0, 60.0, np.array([10.0]), np.array([20.0]))
    (tmp_path / "l.csv").write_text("queries,detect,classify\n7,0,2\n3,4,2\n")
    text = PIPELINE.format(lineage='lineage = "l.csv"') + '[packs]\ntogether = [["detect", "classify"]]\n'
    (tmp_path / "p.toml").write_text(text)
    (found,) = stage_histories([load_pipeline(str(tmp_path / "p.toml"))], history).items()
    assert (found[0], found[1].mean_rps[0], found[1].peak_rps[0]) == ("p-detect-classify", 20.0, 40.0)
    (tmp_path / "p.toml").write_text(text.replace('lineage = "l.csv"', ""))
    with pytest.raises(
        BadInput, match=r"\[packs\] together: takes a file that says how often a query calls each stage"
    ):
        stage_histories([load_pipeline(str(tmp_path / "p.toml"))], history)
