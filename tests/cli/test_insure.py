"""`mark insure` and `mark insure train`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mark.cli.main import main

ROOT = Path(__file__).parents[2]
NOISY = ("--service", str(ROOT / "examples" / "insurance" / "noisy.toml"))
TRACE = "synthetic:poisson?rate=100"
SHORT = (*NOISY, "--duration", "120", "--jobs", "1")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one line that refuses a command line."""
    assert main(["insure", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_two_minutes_of_traffic_give_table_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--json", str(tmp_path / "i.json"), "--report", str(tmp_path / "i.html"))
    assert main(["insure", TRACE, *SHORT, *files]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "option settings instances $ a month" in shown
    written = json.loads((tmp_path / "i.json").read_text())
    assert [one["option"] for one in written["options"]] == ["none", "instances", "hedge", "parity", "replicate"]
    assert written["advice"]["option"] == "instances"
    assert "Dollars a month" in (tmp_path / "i.html").read_text()


def test_same_command_writes_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    written = []
    for _ in range(2):
        assert main(["insure", TRACE, *SHORT, "--json", "-"]) == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]


def test_faults_file_replaces_those_of_the_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "calm.toml").write_text("[faults]\n")
    assert main(["insure", TRACE, *SHORT, "--faults", str(tmp_path / "calm.toml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no instance is slow" in shown
    assert "give it with --faults" in shown


def test_command_without_a_service_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--service" in refused(capsys, TRACE)


def test_options_of_training_are_refused_for_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--data" in refused(capsys, TRACE, *NOISY, "--data", "x.npz")
    assert "--epochs: is an option of mark insure train: 5" in refused(capsys, TRACE, *NOISY, "--epochs", "5")
    assert "--k: is an option of mark insure train: 2,3" in refused(capsys, TRACE, *NOISY, "--k", "2,3")
    assert "one word too many" in refused(capsys, TRACE, "model.pt2", *NOISY)


def test_options_of_the_table_are_refused_for_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--service" in refused(capsys, "train", "model.pt2", *NOISY)
    assert "--scale: is no option of mark insure train: 2.0" in refused(capsys, "train", "model.pt2", "--scale", "2")


def test_training_names_the_option_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "DATA" in refused(capsys, "train", "model.pt2")
    assert "no such file" in refused(capsys, "train", "model.pt2", "--data", "x.npz", "--out", "parity")
    assert "from 2 to 8" in refused(capsys, "train", "model.pt2", "--k", "9")


def test_training_writes_a_folder_and_prints_accuracies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 3).eval()
    program = torch.export.export(network, (torch.zeros(2, 4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, str(tmp_path / "model.pt2"))
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(400, 4)))
    files = ("--data", str(tmp_path / "x.npz"), "--out", str(tmp_path / "parity"))
    options = ("--k", "2,3", "--epochs", "12", "--json", "-")
    assert main(["insure", "train", f"torch:{tmp_path / 'model.pt2'}", *files, *options]) == 0
    written = json.loads(capsys.readouterr().out)
    assert [(one["code"], one["k"]) for one in written["codes"]] == [("sum", 2), ("sum", 3)]
    assert written["available_accuracy"] == 1.0
    # For a linear network the sum of inputs gives the sum of outputs, so a parity model can be exact.
    assert written["codes"][0]["degraded_accuracy"] > 0.9
    assert written["chosen"] == json.loads((tmp_path / "parity" / "parity.json").read_text())
