"""The commands end to end, on a few minutes of generated traffic."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mark.cli.main import main
from mark.config.new_service import new_service
from mark.studies.report.words import usd

TRACE = "synthetic:poisson?rate=20"
RUN = ("--service", "inception-v3", "--duration", "600")

KEYS = {
    "schema": None,
    "service": None,
    "policy": None,
    "predictor": None,
    "seed": None,
    "trace": {"name", "requests", "duration_s"},
    "requests": {"total", "instances", "functions", "rejected"},
    "slo": {"rt_max_ms", "target", "attainment", "worst_minute_attainment", "minutes_below_target"},
    "latency_ms": {"mean", "p50", "p95", "p98", "p99", "p999", "max"},
    "bill_usd": {"on_demand", "spot", "burstable", "functions", "sagemaker", "other", "total"},
    "bound_usd": None,
    "bound_own_usd": None,
    "regret": None,
    "fleet": {"launched", "terminated", "interrupted", "peak_instances", "instance_hours"},
    "speed": {"wall_s", "kernel_s", "planner_s", "predictor_s", "requests_per_wall_s", "peak_rss_mb"},
}


def schema_holds(data: dict[str, Any]) -> None:
    assert data["schema"] == 1
    for key, inner in KEYS.items():
        assert key in data
        if inner is not None:
            assert inner <= set(data[key])
    parts = data["requests"]
    assert parts["total"] == parts["instances"] + parts["functions"] + parts["rejected"]
    bill = data["bill_usd"]
    assert bill["total"] == pytest.approx(sum(v for k, v in bill.items() if k != "total"), abs=1e-9)


def test_simulate_prints_only_json_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", TRACE, *RUN, "--json", "-"]) == 0
    captured = capsys.readouterr()
    schema_holds(json.loads(captured.out))
    assert captured.err == ""


@pytest.mark.parametrize("command", [("simulate", TRACE), ("plan", "--trace", TRACE, "--at", "300")])
def test_a_policy_may_bring_its_predictor(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """`mark-paper:artefact` means the same in all options, not in --policies only."""
    assert main([*command, *RUN, "--policy", "mark-paper:artefact", "--json", "-"]) == 0
    out = capsys.readouterr().out
    assert "artefact" in out


def test_simulate_prints_a_table_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", TRACE, *RUN]) == 0
    assert "keeps the promise" in capsys.readouterr().out


def test_compare_includes_own_autoscaler_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in `[policy]` shows that it is simulated."""
    file = tmp_path / "s.toml"
    file.write_text(new_service("mine") + '[policy]\nkind = "fixed"\ninstance = "c9.large"\nmin = 1\nmax = 1\n')
    assert main(["compare", TRACE, "--service", str(file), "--duration", "60"]) == 2
    assert "[policy] instance: aws-2026 has no such instance" in capsys.readouterr().err


def test_compare_keys_its_results_by_the_names_given(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["mark", "mark:seasonal-naive", "fixed:c5.large=8,c5.xlarge=1"]
    assert main(["compare", TRACE, *RUN, "--policies", ",".join(names), "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["policies"]) == names
    for result in data["policies"].values():
        schema_holds(result)
    assert list(data["attribution"]) == names[:2]
    for name, split in data["attribution"].items():
        assert sum(split["parts_usd"].values()) == pytest.approx(
            data["policies"][name]["bill_usd"]["total"] - data["policies"][name]["bound_usd"]
        )


@pytest.mark.parametrize("markets", ["on-demand,spot", "on-demand"])
def test_compare_runs_mark_without_spot_where_it_may_buy_spot(
    markets: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    asked = ["compare", TRACE, *RUN, "--predictor", "seasonal-naive", "--attribute", "none", "--markets", markets]
    assert main([*asked, "--policies", "mark,fixed:c5.xlarge=3", "--json", str(file)]) == 0
    out, data = " ".join(capsys.readouterr().out.split()), json.loads(file.read_text())
    assert data["with_spot"] is None
    if "spot" in markets:
        assert data["policies"]["mark"]["bill_usd"]["spot"] > 0.0 == data["without_spot"]["bill_usd"]["spot"]
        assert "mark buys spot, and fixed:c5.xlarge=3 does not. Without spot mark would cost $" in out
    else:
        assert data["without_spot"] is None
        assert "spot" not in out


def test_compare_attributes_dollars_of_the_requested_policy(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", TRACE, *RUN, "--predictor", "seasonal-naive", "--policies", "mark-paper,static-mean"]
    assert main([*asked, "--attribute", "none", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["attribution"] == {}
    assert main([*asked, "--attribute", "mark-paper"]) == 0
    assert "Where the dollars above the bound go" in capsys.readouterr().out
    assert main([*asked, "--attribute", "mark"]) == 2
    assert "--attribute: is not among the policies compared: mark" in capsys.readouterr().err


def test_the_report_comes_with_its_sensitivity_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "r.html"
    asked = ["compare", TRACE, *RUN, "--predictor", "seasonal-naive", "--policies", "mark,static-peak"]
    assert main([*asked, "--report", str(page)]) == 0
    assert "function latency x 1.5" in capsys.readouterr().out
    assert "function latency x 1.5" in page.read_text()


def test_a_missed_slo_is_exit_4_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [TRACE, *RUN, "--policy", "fixed:c5.large=1"]
    assert main(["simulate", *tiny]) == 0
    assert main(["simulate", *tiny, "--fail-below-slo"]) == 4
    assert "MISSED" in capsys.readouterr().out


def test_an_slo_that_nothing_can_meet_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = tmp_path / "s.toml"
    assert main(["init", "quick", "--out", str(service)]) == 0
    service.write_text(service.read_text().replace("slo_ms = 600", "slo_ms = 1"))
    capsys.readouterr()
    assert main(["simulate", TRACE, "--service", str(service)]) == 3
    assert "closest" in capsys.readouterr().err


def test_bound_prints_both_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", TRACE, *RUN, "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    strict, late = (row["usd"] for row in data["bounds"])
    assert 0.0 < late <= strict == data["bound_usd"]
    for row in data["bounds"]:
        assert row["usd"] == max(row["fluid_usd"], row["whole_usd"]) <= row["feasible_usd"]


def test_bound_writes_a_certificate_with_its_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bound.npz"
    assert main(["bound", TRACE, *RUN, "--certificate", str(file), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["certificate"]
    assert told["file"] == str(file)
    assert told["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert told["usd"] > 0.0
    assert main(["bound", TRACE, *RUN, "--certificate", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "balancer, moved data and commitments come on top" in shown
    assert f"proves {usd(told['usd'])} by blocks" in shown
    assert main(["bound", TRACE, *RUN, "--certificate", str(tmp_path / "no" / "bound.npz")]) == 2
    assert "--certificate: no such folder" in capsys.readouterr().err  # before the bound is searched


def test_plan_explains_one_decision(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--trace", TRACE, *RUN]) == 0
    shown = capsys.readouterr().out
    assert "functions alone" in shown
    assert "the plan at 540 s" in shown  # the last minute
    assert main(["plan", "--trace", TRACE, *RUN, "--at", "300", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["at_s"] == 300.0
    assert main(["plan", "--trace", TRACE, *RUN, "--at", "300", "--running", "c5.large=2"]) == 0
    assert "the fleet as it is" in capsys.readouterr().out


def test_plan_advises_how_much_to_commit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "--trace", TRACE, *RUN, "--policy", "static-peak", "--advise-commitment"]
    assert main(asked) == 0
    assert "m6a in us-east-1" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--commitment-discount", "half=0.5", "--json", "-"]) == 0
    (advice,) = json.loads(capsys.readouterr().out)["advice"]
    assert advice["term"] == "half"
    # A fleet that never changes is always used.
    assert set(advice["used"]) == {1.0}
    assert advice["count"] == len(advice["used"])
    assert advice["saved_usd_per_hour"] == pytest.approx(advice["count"] * advice["usd_per_hour"] / 2.0)


@pytest.mark.parametrize("discount", ["1-year", "1-year=0", "1-year=1", "1-year=1.5", "=0.3", "a=0.3,a=0.4"])
def test_a_discount_that_is_none_is_refused(discount: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--trace", TRACE, *RUN, "--advise-commitment", "--commitment-discount", discount]) == 2
    assert "--commitment-discount" in capsys.readouterr().err


def test_check_says_what_is_committed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    assert main(["init", "mine", "--out", str(path)]) == 0
    line = '"c5.xlarge" = { count = 4, usd_per_hour = 0.107 }'
    path.write_text(path.read_text().replace("# [fleet.committed] ", f"[fleet.committed]\n{line} "))
    capsys.readouterr()
    assert main(["check", str(path)]) == 0
    assert "4 c5.xlarge committed for $0.43/h, run or not" in capsys.readouterr().out


def test_init_never_overwrites_and_its_file_passes_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "mine.toml")
    assert main(["init", "mine", "--out", path]) == 0
    assert main(["check", path]) == 0
    assert main(["init", "mine", "--out", path]) == 2
    assert "left alone" in capsys.readouterr().err


def test_trace_info_says_what_is_in_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("t_seconds,count\n0,60\n60,120\n")
    assert main(["trace", "info", str(tmp_path / "t.csv"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 180


def test_catalog_show_and_table_2_print_and_have_json(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["catalog", "show", "aws-2019"], ["reproduce", "table2"]):
        assert main(argv) == 0
        assert "c5.large" in capsys.readouterr().out
        assert main([*argv, "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out)["schema"] == 1
