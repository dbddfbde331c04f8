"""`plan`, `compare` and `check` with promises that cannot be kept at their confidence, and with ones that can."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mark.cli.main import main

TRACE = "synthetic:poisson?rate=20"
pytestmark = pytest.mark.usefixtures("coarse_late_shares")
HELP_KEYS = {
    "kind", "confidence", "usd_per_hour", "difference_usd_per_hour", "instances", "instance", "rt_max_ms",
    "longer_ms", "attainment",
}  # fmt: skip


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """Make the folder of `near.toml`, `well.toml` and `never.toml`, which differ in the tail of one type."""
    (tmp_path / "own.csv").write_text(
        "model,instance,batch,latency_ms,p99_ms\nranker,c7i.large,1,24,75\nranker,c7i.xlarge,1,14,40\n"
    )
    for name, attainment in (("well", 0.99), ("near", 0.9925), ("never", 0.995)):
        (tmp_path / f"{name}.toml").write_text(
            f'[service]\nname = "ranker"\nmodel = "ranker"\nslo_ms = 80\nslo_attainment = {attainment}\n'
            'profile = "own.csv"\n[fleet]\ncatalog = "aws-2026"\nmarkets = ["on-demand"]\n'
            'instances = ["c7i.large"]\n[overflow]\nfunction = "none"\n'
        )
    return tmp_path


def planned(service: Path, name: str, *more: str) -> int:
    return main(["plan", TRACE, "--service", str(service / f"{name}.toml"), "--at", "2h", "--duration", "3h", *more])


def test_plan_says_what_can_be_had_and_what_would_help(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(service, "near") == 0
    out = " ".join(capsys.readouterr().out.split())
    promise = "Promise: 99.25 % of the requests of each day within 80 ms."
    assert f"{promise} If the whole day is like the last 1 h, it can be kept with a probability of at most" in out
    assert "alone; slo_confidence asks for 95 %. A past of at least 2 days would show a whole day." in out
    for change in ("instances = [c7i.xlarge]", "slo_ms = 8", "slo_attainment = 0.99"):
        assert change in out
    assert "this window keeps the promise" not in out  # the plan's own note says the same


def test_plan_says_that_the_promise_can_be_had(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(service, "well") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "like the last 1 h, it can be kept with a probability of 95 %, as slo_confidence asks, for about $" in out
    assert "/h on average with c7i.large/on-demand alone. A past of at least" in out
    assert "would help" not in out
    assert out.count("note: solved by") == 1


def test_plan_has_the_same_as_json(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(service, "near", "--json", "-") == 0
    data = json.loads(capsys.readouterr().out)
    planned_rps = re.search(r"([0-9]+) planned", data["targets"][0]["reason"])
    assert planned_rps is not None
    assert int(planned_rps[1]) == round(data["chosen"]["capacity_rps"])
    promise = data["promise"]
    assert promise["asked_confidence"] == 0.95
    assert promise["can_be_had"] is False
    assert promise["seen_s"] == 3600.0
    assert all(one.keys() == HELP_KEYS for one in promise["helps"])
    kinds = [one["kind"] for one in promise["helps"]]
    assert {"type", "rt-max", "attainment"} <= set(kinds)
    for one in promise["helps"]:
        assert one["difference_usd_per_hour"] == pytest.approx(one["usd_per_hour"] - promise["usd_per_hour"])


def test_a_policy_that_prices_no_miss_says_nothing(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(service, "near", "--policy", "reactive", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["promise"] is None


def test_compare_says_which_confidence_was_stated(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["compare", TRACE, "--start", "1h", "--duration", "30m", "--policies", "mark,reactive", "--no-bound"]
    run += ["--attribute", "none", "--predictor", "seasonal-naive"]
    assert main([*run, "--service", str(service / "near.toml"), "--json", str(service / "r.json")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("probability") == 1
    assert "judged by 30 min from the start on" in out
    data = json.loads((service / "r.json").read_text())
    stated = data["policies"]["mark"]["promise"]
    assert stated["least_confidence"] <= stated["confidence_at_start"] < 0.95
    assert len(stated["windows"]) == 1
    assert stated["windows_kept"] in {0, 1}
    assert data["policies"]["reactive"]["promise"]["least_confidence"] is None
    assert data["promise"]["policy"] == "mark"
    assert data["promise"]["from_s"] == 0.0
    assert {"type", "rt-max"} <= {one["kind"] for one in data["promise"]["helps"]}


def test_compare_says_nothing_where_all_was_well(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["compare", TRACE, "--start", "1h", "--duration", "10m", "--policies", "mark", "--no-bound", "--json", "-"]
    assert main([*run, "--attribute", "none", "--service", "inception-v3", "--predictor", "seasonal-naive"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["promise"] is None
    assert data["policies"]["mark"]["promise"]["windows_kept"] == 1


@pytest.mark.parametrize("command", ["check", "plan", "compare"])
def test_an_impossible_promise_names_what_would_help(
    service: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(service / "never.toml")
    arguments = [file] if command == "check" else [TRACE, "--service", file, "--duration", "10m"]
    assert main([command, *arguments]) == 3
    err = capsys.readouterr().err
    assert "at most 99.27 % take less than RT_max" in err
    assert "these changes would help: slo_ms = 91 (RT_max + 11 ms)" in err
    assert "instances = [c7i.xlarge] at $0.18/h an instance" in err
    assert err.count("\n") == 1


def test_compare_leaves_out_what_needs_instances_where_functions_alone_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fn.toml"
    file.write_text(
        '[service]\nname = "fn"\nmodel = "inception-v3-2026"\nslo_ms = 390\nslo_attainment = 0.98\n[fleet]\n'
        'catalog = "aws-2026"\nmarkets = ["spot"]\ninstances = ["t3.medium"]\nmin_instances = 0\n'
        '[overflow]\nfunction = "lambda:3008"\n'
    )
    run = ["compare", TRACE, "--service", str(file), "--duration", "5m", "--attribute", "none", "--json", "-"]
    assert main([*run, "--policies", "mark,best-fixed,static-peak"]) == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)["policies"]) == ["mark"]
    assert captured.err.splitlines()[0] == (
        "mark: best-fixed and static-peak are left out: there is no instance to buy, functions alone serve"
    )
    assert main([*run, "--policies", "best-fixed"]) == 3


def test_the_forecast_of_an_empty_history_does_not_count(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first minute of a trace is forecast from nothing, so its lateness says nothing of later days."""
    run = ["compare", TRACE, "--duration", "20m", "--policies", "mark", "--no-bound", "--attribute", "none"]
    assert main([*run, "--service", str(service / "well.toml"), "--json", "-"]) == 0
    promise = json.loads(capsys.readouterr().out)["promise"]
    assert promise is None or promise["can_be_had"]
