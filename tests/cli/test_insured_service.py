"""`mark simulate`, `compare` and `plan` of a service with parity models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main

Captured = pytest.CaptureFixture[str]

SERVICE = """[service]
name = "insured"
model = "net"
slo_ms = 200
slo_attainment = 0.99
profile = "net.csv"
[fleet]
instances = ["c7i.large"]
markets = ["on-demand"]
[insurance]
parity = { code = "sum", k = 2 }
accept = "degraded"
[faults]
slow_share = 0.05
slow_s = 20
slow_factor = 3
"""
PROFILE = "model,instance,batch,latency_ms,basis\nnet,c7i.large,1,100,measured\n"
TRACE = "synthetic:poisson?rate=40"
RUN = (TRACE, "--service", "s.toml", "--start", "3600", "--duration", "300", "--predictor", "seasonal-naive")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SERVICE)
    Path("net.csv").write_text(PROFILE)


def test_a_run_says_how_many_answers_are_degraded_and_saved(capsys: Captured) -> None:
    assert main(["simulate", *RUN, "--json", "run.json"]) == 0
    found = json.loads(Path("run.json").read_text())
    parity = found["parity"]
    assert 0 < parity["saved"] <= parity["reconstructed"]
    assert parity["degraded_share"] == pytest.approx(parity["reconstructed"] / found["queries"])
    assert [stage["stage"] for stage in found["stages"]] == ["model", "parity"]
    assert found["stages"][1]["calls"] == parity["parity_calls"]
    assert found["bound_usd"] is None
    assert main(["simulate", *RUN]) == 0
    said = capsys.readouterr().out
    assert "answered by reconstruction" in said
    assert "bound: none is known of a service with parity models" in said


def test_a_comparison_shows_the_policy_that_simulates_them(capsys: Captured) -> None:
    assert main(["compare", *RUN, "--json", "compared.json"]) == 0
    assert list(json.loads(Path("compared.json").read_text())["policies"]) == ["mark"]
    assert main(["compare", *RUN]) == 0
    assert "saved" in capsys.readouterr().out


def test_a_plan_shows_a_fleet_for_each_stage(capsys: Captured) -> None:
    assert main(["plan", TRACE, "--service", "s.toml", "--at", "3600", "--json", "plan.json"]) == 0
    found = json.loads(Path("plan.json").read_text())
    model, parity = (sum(t["count"] for t in found["stages"][name]["targets"]) for name in ("model", "parity"))
    assert 1 <= parity < model
    assert main(["plan", TRACE, "--service", "s.toml", "--at", "3600"]) == 0
    said = capsys.readouterr().out
    assert "insured-model" in said
    assert "insured-parity" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["compare", *RUN, "--policies", "mark,tuned"], "policy tuned plans no service with parity models"),
        (["simulate", *RUN, "--lineage", "l.csv"], "--lineage: is for stages that some queries call"),
        (["plan", TRACE, "--service", "s.toml", "--running", "c7i.large=1"], "--running: the stages of a service"),
        (["plan", TRACE, "--service", "s.toml", "--at", "1e9"], "--at: beyond the end of"),
    ],
)
def test_what_is_not_made_of_it_is_one_line(capsys: Captured, argv: list[str], said: str) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error
