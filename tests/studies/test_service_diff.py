"""A change of a service in dollars, beside two whole runs of `simulate`."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mark.cli.main import main
from mark.simulation.request import RunRequest
from mark.simulation.result import TraceInfo
from mark.simulation.run import simulate
from mark.studies.report.service_diff import service_diff_markdown, service_diff_report
from mark.studies.report.words import per_month
from mark.studies.service_diff import ServiceDiff, service_diff
from tests.samples import first
from tests.studies.report.results import result

SERVICE = """[service]
name = "shop"
model = "inception-v3"
slo_ms = 600
slo_attainment = 0.98
[fleet]
catalog = "aws-2019"
instances = ["c5.large", "c5.xlarge"]
[overflow]
function = "lambda:3008"
"""
TRACE = "synthetic:poisson?rate=60"
# The replaced text, its replacement, the settings that then differ, and whether the change saves.
CHANGES = {
    "a looser promise": ("slo_ms = 600", "slo_ms = 900", {"slo_ms"}, True),
    "a GPU": ('"c5.xlarge"', '"c5.xlarge", "p2.xlarge"', {"instances"}, True),
    "spot": ('instances = ["c5', 'markets = ["on-demand", "spot"]\ninstances = ["c5', {"markets"}, True),
    "a tighter promise": ("slo_ms = 600", "slo_ms = 400", {"slo_ms"}, False),
    "large ones only": ('"c5.large", "c5.xlarge"', '"c5.4xlarge"', {"instances"}, False),
}


@pytest.fixture
def shop(tmp_path: Path) -> RunRequest:
    (tmp_path / "old.toml").write_text(SERVICE)
    return RunRequest(
        trace=TRACE,
        service=str(tmp_path / "old.toml"),
        start_s=3600.0,
        duration_s=1800.0,
        predictor="seasonal-naive",
        with_bound=False,
    )


def changed(shop: RunRequest, change: str) -> str:
    old, new, *_ = CHANGES[change]
    path = Path(shop.service).with_name("new.toml")
    assert old in SERVICE
    path.write_text(SERVICE.replace(old, new))
    return str(path)


@pytest.mark.parametrize("change", first(2, CHANGES, slow=1))
def test_a_change_costs_what_two_runs_say(shop: RunRequest, change: str) -> None:
    """Three changes save and two cost, equal to the cent; the result names the settings that differ."""
    after = changed(shop, change)
    found = service_diff(shop, after)
    dollars = [simulate(replace(shop, service=service)).bill.total for service in (shop.service, after)]
    assert (found.before.bill.total, found.after.bill.total) == tuple(dollars)
    assert service_diff_report(found).data["usd_per_month"]["change"] == per_month(dollars[1] - dollars[0], 1800.0)
    assert (found.usd < 0.0) is CHANGES[change][3]
    assert set(found.changed) == CHANGES[change][2]


def test_no_change_costs_nothing(shop: RunRequest) -> None:
    found = service_diff(shop, shop.service)
    assert (found.usd, found.changed) == (0.0, {})
    said = service_diff_markdown(found)
    assert said.startswith("### This change costs nothing and saves nothing\n\n| ")
    assert "- no setting differs" in said


def test_a_change_that_breaks_the_promise_says_so_first() -> None:
    found = ServiceDiff(result(usd=9.5), result(usd=4.5, attainment=0.9), {"slo_ms": (600.0, 300.0)})
    said = service_diff_markdown(found).split("\n")
    assert said[0] == "### This change saves $152 a month (-50 %)"
    assert said[2] == "Before, the service keeps its promise; after, it misses its promise."
    assert "- `slo_ms`: 600 → 300" in said


def test_cents_of_a_short_part_are_dollars_monthly() -> None:
    ten_minutes = TraceInfo("short", 100, 600.0)
    found = ServiceDiff(result(usd=0.0, trace=ten_minutes), result(usd=0.004, trace=ten_minutes), {})
    assert service_diff_markdown(found).startswith("### This change costs $18 a month more")


def test_what_a_file_says_is_no_markdown() -> None:
    found = ServiceDiff(result(usd=9.5), result(usd=9.6), {"instances": ("c5.*", "a|b_<c>")})
    assert r"- `instances`: c5.\* → a\|b\_\<c\>" in service_diff_markdown(found)


def test_the_command_writes_a_table_json_and_markdown(
    shop: RunRequest, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    new = changed(shop, "a looser promise")
    asked = ["diff", shop.service, new, "--trace", TRACE, "--duration", "10m", "--predictor", "seasonal-naive"]
    assert main([*asked, "--json", "-", "--markdown", str(tmp_path / "comment.md")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["changed"] == {"slo_ms": {"before": 600.0, "after": 900.0}}
    assert data["after"]["slo"]["rt_max_ms"] == 900.0
    comment = (tmp_path / "comment.md").read_text()
    assert main([*asked, "--markdown", "-"]) == 0
    assert capsys.readouterr().out == comment
    assert "| $ a month |" in comment
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "slo_ms: 600 → 900" in shown
    assert "aws-2019, us-east-1" in " ".join(shown.split())


def test_the_example_workflow_says_a_command_that_there_is(
    shop: RunRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path(__file__).parents[2] / "examples" / "diff-in-pull-requests.yml"
    steps = yaml.safe_load(example.read_text())["jobs"]["diff"]["steps"]
    (command,) = (step["run"] for step in steps if step.get("run", "").startswith("mark diff "))
    (tmp_path / "before.toml").write_text(SERVICE)
    (tmp_path / "service.toml").write_text(SERVICE.replace("slo_ms = 600", "slo_ms = 900"))
    (tmp_path / "traffic.csv.gz").write_text("t_seconds,count\n0,600\n60,600\n120,600\n")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    assert (tmp_path / "comment.md").read_text().startswith("### This change ")


def test_stdout_is_one_page(shop: RunRequest, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", shop.service, shop.service, "--trace", TRACE, "--json", "-", "--markdown", "-"]) == 2
    assert "stdout is one page" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_line(shop: RunRequest, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", shop.service, "nowhere.toml", "--trace", TRACE]) == 2
    assert "nowhere.toml: no such file" in capsys.readouterr().err
