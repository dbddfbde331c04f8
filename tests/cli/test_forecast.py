"""`mark forecast backtest`, end to end."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from mark.cli.main import main, parser
from mark.domain.load import Load
from mark.traffic.forecast.artefact import Artefact

Captured = pytest.CaptureFixture[str]

TRACE = "synthetic:diurnal?rate=20"
BACKTEST = ("forecast", "backtest")
SHORT = (*BACKTEST, TRACE, "--train", "7200", "--duration", "3600", "--predictor", "artefact,seasonal-naive")


def test_json_to_stdout_is_the_stable_object_and_nothing_else(capsys: Captured) -> None:
    assert main([*SHORT, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    data = json.loads(captured.out)
    assert (data["schema"], data["train_s"], data["start_s"], data["origins"]) == (1, 7200.0, 7200.0, 12)
    assert list(data["predictors"]) == ["artefact", "seasonal-naive"]
    for score in data["predictors"].values():
        assert {"mase", "crps", "coverage", "by_horizon", "fit_s", "update_ms", "predict_ms"} <= set(score)
        assert [row["horizon_s"] for row in score["by_horizon"]] == [60.0 * (h + 1) for h in range(60)]
        assert score["crps"] > 0.0
        assert "usd" not in score


def test_the_table_the_page_and_the_file(tmp_path: Path, capsys: Captured) -> None:
    out, page, data = tmp_path / "f.csv.gz", tmp_path / "r.html", tmp_path / "r.json"
    files = ("--out", str(out), "--report", str(page), "--json", str(data))
    assert main([*SHORT, "--horizon-s", "600", *files]) == 0
    captured = capsys.readouterr()
    assert "has the lowest CRPS" in captured.out
    assert captured.err.splitlines() == [f"out: {out}", f"json: {data}", f"report: {page}"]
    with gzip.open(out, "rt") as lines:
        assert len(lines.readlines()) == 1 + 2 * 12 * 10 * 19
    assert "Fans against the truth" in page.read_text()
    assert json.loads(data.read_text())["steps"] == 10


def test_a_service_adds_dollars(capsys: Captured) -> None:
    """The dollars are those of `mark simulate` from the same start, for every predictor and for perfect forecasts."""
    service = ("--service", "inception-v3", "--duration", "900", "--json", "-")
    assert main([*BACKTEST, TRACE, "--predictor", "artefact,seasonal-naive", *service]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["start_s"] == 900.0  # generated traffic runs so long that the part is its second half
    for score in data["predictors"].values():
        assert score["above_oracle_usd"] == pytest.approx(score["usd"] - data["oracle"]["usd"])
        assert 0.0 <= score["attainment"] <= 1.0
    assert main(["simulate", TRACE, "--predictor", "artefact", "--start", "900", *service]) == 0
    assert json.loads(capsys.readouterr().out)["bill_usd"]["total"] == data["predictors"]["artefact"]["usd"]


def test_without_start_and_train_the_second_half_is_judged(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t_seconds,count\n" + "".join(f"{60 * i},{600 + i % 7}\n" for i in range(101)))
    assert main([*BACKTEST, str(path), "--predictor", "artefact", "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["start_s"], data["train_s"], data["origins"]) == (3000.0, 3000.0, 11)


def test_auto_is_judged_unless_others_are_named() -> None:
    assert parser("forecast").parse_args([*BACKTEST, TRACE]).predictor == "auto"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--predictor", "nope"), "predictor: unknown"),
        (("--predictor", "artefact,"), "--predictor: must name predictors, each once"),
        (("--predictor", "artefact,artefact"), "--predictor: must name predictors, each once"),
        (("--horizon-s", "1e9"), "--horizon-s: more than 10,080 steps"),
        (("--horizon-s", "-1"), "--horizon-s: must be zero or more"),
        (("--out", "no/such/folder/f.csv.gz"), "--out: no such folder"),
        (("--scale", "0"), "--scale: must be above zero"),
        (("--duration", "900", "--service", "nope"), "nope"),
        (("--duration", "900", "--service", "inception-v3", "--policy", "reactive"), "plans without a forecast"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(options: tuple[str, ...], said: str, capsys: Captured) -> None:
    assert main([*SHORT, *options]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_raising_predictor_is_reported_in_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Artefact, observed: Load) -> None:
        raise np.exceptions.AxisError("boom")

    monkeypatch.setattr(Artefact, "update", broken)
    monkeypatch.delenv("MARK_TRACEBACK", raising=False)
    assert main(list(SHORT)) == 2
    assert re.fullmatch(
        r"mark: error: predictor artefact: failed to fit at second 7200: AxisError: boom\n", capsys.readouterr().err
    )
    monkeypatch.setenv("MARK_TRACEBACK", "1")
    with pytest.raises(Exception, match="artefact") as caught:
        main(list(SHORT))
    assert isinstance(caught.value.__cause__, np.exceptions.AxisError)


def test_every_option_of_the_stable_interface_stands_in_the_usage(capsys: Captured) -> None:
    assert main([*BACKTEST, "--help"]) == 0
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", capsys.readouterr().out))
    wanted = "predictor train start duration horizon-s out json report service scale seed policy catalog gaps"
    assert {f"--{option}" for option in wanted.split()} <= shown
    assert "forecast" in parser().format_help()
