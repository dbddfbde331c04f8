"""`mark plan` of a pipeline end to end: its output, its JSON, and its errors in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mark.cli.main import main
from tests.cli.two_stages import FILE, PROFILE, Captured, planned, refused

PLAN = ["plan", "--service", "two.toml", "--trace", "t.csv"]
TRACED = ["plan", "--service", "traced.toml", "--trace", "t.csv"]


def test_the_bill_the_time_and_the_bottleneck_are_printed(place: Path, capsys: Captured) -> None:
    assert main([*PLAN, "--report", "page.html", "--json", "plan.json"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    page = (place / "page.html").read_text()
    heads = re.findall("<h2>(.*?)</h2>", page)
    assert heads[:3] == ["The graph", "Where the milliseconds and the dollars go", "Stage by stage"]
    for on_page in ("2 workers on c7i.large", "$0.089/h, 50 % of the bill", "10 % busy", "20 ms, slowest 20 ms"):
        assert f">{on_page}</text>" in page
    marked = re.findall(r'class="box marked"><title>(\w+)', page)
    assert marked == [json.loads((place / "plan.json").read_text())["bottleneck"]]
    for said in (
        "two: $0.18/h keeps 95 % of the queries within 100 ms",
        "Planned for 2 min from 0 s on (t.csv): 1,200 queries from 0 s, 10 a second.",
        "first c7i.large 1 1 1.0 10 % $0.089 50 %",
        "second c7i.large 1 1 1.0",
        "From query to answer: p50 20, p95 60, p99 60 ms. 0.00 % of these queries are late",
        "10 ms more: within 110 ms $0.18 same",
        "InferLine's planner: single moves, one sample $0.18 same",
        "note: visits are taken as independent of each other: the file says shares only",
    ):
        assert said in out
    assert "not planned for pipelines yet" not in out


def test_json_says_what_to_buy_and_why(place: Path, capsys: Captured) -> None:
    found = planned(PLAN, capsys)
    first, second = found["stages"]
    assert (first["stage"], first["hardware"], first["replicas"], first["workers"]) == ("first", "c7i.large", 1, 2)
    assert (second["share"], second["after"], second["basis"]) == (0.5, ["first"], "measured")
    assert first["path_ms"] + second["path_ms"] == pytest.approx(found["latency_ms"]["mean"])
    assert first["utilisation"] == pytest.approx(0.1, rel=0.01)
    assert found["usd_per_hour"] == pytest.approx(2 * 0.08925)
    assert found["usd_per_million_queries"] == pytest.approx(2 * 0.08925 / 36_000 * 1e6, rel=0.01)
    assert found["skipped"] == [{"stage": "first", "instance": "c7i.xlarge", "reason": "no profile of one"}]
    assert found["search"]["complete"]
    assert planned(PLAN, capsys) == found


WHOLE = "takes all 2 vCPUs of c7i.large, because its profile has no vcpus and memory_mb: `mark profile` measures them"


@pytest.mark.parametrize(
    ("columns", "usd_per_hour", "whole"),
    [
        ("workers\n", 0.1785, ["a worker of first " + WHOLE, "a worker of second " + WHOLE]),
        ("workers,vcpus\n", 0.08925, []),
    ],
)
def test_stages_share_a_machine_by_what_was_measured(
    place: Path, capsys: Captured, columns: str, usd_per_hour: float, whole: list[str]
) -> None:
    """Two stages have a thread each: profiles with one worker buy two instances, profiles of `mark profile` one."""
    more = "1" if whole else "2,0.9"
    (place / "two.csv").write_text(
        f"model,instance,batch,latency_ms,{columns}one,c7i.large,1,0.4,{more}\nother,c7i.large,1,30,{more}\n"
    )
    (place / "two.toml").write_text(FILE.replace('allow = "separate"', 'allow = "auto"'))
    found = planned(PLAN, capsys)
    assert found["usd_per_hour"] == pytest.approx(usd_per_hour)
    assert [note for note in found["notes"] if "vCPUs" in note] == whole
    assert main(PLAN) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "No fixed fleet whose workers have the same share keeps the promise on these queries for less" in out


def test_a_lineage_takes_the_place_of_shares(place: Path, capsys: Captured) -> None:
    """Its columns may stand in any order, and no note assumes independence."""
    found = planned([*PLAN, "--lineage", "lineage.csv"], capsys)
    assert [stage["share"] for stage in found["stages"]] == [1.0, 0.25]
    assert not any("independent" in note for note in found["notes"])


def test_a_driver_is_traced_for_its_plan(place: Path, capsys: Captured) -> None:
    found = planned([*TRACED, "--queries", "q.jsonl"], capsys)
    assert [(stage["stage"], stage["after"], stage["share"]) for stage in found["stages"]] == [
        ("twice", [], 1.0),
        ("half", ["twice"], 0.75),
    ]
    assert found["notes"][-1:] == ["the bill leaves out balancer, disks, public addresses and data moved"]


def test_stages_share_an_instance_unless_the_file_says_otherwise(place: Path, capsys: Captured) -> None:
    found = planned(PLAN, capsys)
    alone = [(pack["count"], pack["on_each"]) for pack in found["packs"]]
    assert alone == [(1, [{"stage": "first", "workers": 2}]), (1, [{"stage": "second", "workers": 2}])]
    assert found["separate_usd_per_hour"] is None
    (place / "two.toml").write_text(FILE.replace('allow = "separate"', 'allow = "auto"'))
    found = planned(PLAN, capsys)
    assert found["packs"] == [
        {
            "instance": "c7i.large",
            "count": 1,
            "on_each": [{"stage": "first", "workers": 1}, {"stage": "second", "workers": 1}],
            "usd_per_hour": 0.08925,
        }
    ]
    assert [(one["replicas"], one["workers"], one["usd_per_hour"]) for one in found["stages"]] == [(1, 1, 0.044625)] * 2
    assert (found["usd_per_hour"], found["separate_usd_per_hour"]) == (0.08925, pytest.approx(2 * 0.08925))
    assert main(PLAN) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "buy instances $/h c7i.large 1 $0.089 each: first 1, second 1",
        "each stage on instances of its own $0.18 +0.09",
        "one worker less",
    ):
        assert said in out


def test_the_share_of_dollars_resting_on_assumed_rows_is_named(place: Path, capsys: Captured) -> None:
    head, *rows = PROFILE.splitlines()
    rows = [f"{row},{'assumed' if row.startswith('other') else 'measured'}" for row in rows]
    (place / "two.csv").write_text("\n".join([f"{head},basis", *rows, ""]))
    found = planned(PLAN, capsys)
    assert "50 % of the dollars rest on assumed rows of profiles" in found["notes"]
    assert [stage["basis"] for stage in found["stages"]] == ["measured", "assumed"]


def test_what_is_not_planned_is_named(place: Path, capsys: Captured) -> None:
    text = FILE.replace(
        "[fleet]", '[fleet]\nmarkets = ["on-demand", "spot"]\nmax_instances = 1\nmax_usd_per_hour = 0.1'
    )
    (place / "two.toml").write_text(text.replace('"one"', '"one"\nfunction = "lambda:*"'))
    notes = planned(PLAN, capsys)["notes"]
    assert "not planned for pipelines yet: spot, functions" in notes
    assert "dearer than [fleet] max_usd_per_hour = 0.1 allows" in notes
    assert "2 instances are more than [fleet] max_instances = 1 allows" in notes


def test_the_window_is_the_busiest_within_an_hour(
    place: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window with too many queries ends earlier: here with a tenth of the usual limit."""
    monkeypatch.setattr("mark.studies.pipeline_plan.MOST_QUERIES", 2_000.0)
    counts = [600.0 if 90 <= minute < 92 or minute == 10 else 60.0 for minute in range(180)]
    rows = "".join(f"{60 * minute},{count}\n" for minute, count in enumerate(counts))
    (place / "t.csv").write_text("t_seconds,count\n" + rows)
    for argv, searched, window in (
        (PLAN, [0.0, 10_800.0], [5400.0, 120.0]),
        ([*PLAN, "--at", "300"], [300.0, 3900.0], [300.0, 480.0]),  # doubled, because it has fewer than 1,000 queries
        ([*PLAN, "--at", "2h"], [7200.0, 10_800.0], [7200.0, 1920.0]),
        ([*PLAN, "--at", "1h", "--scale", "3"], [3600.0, 7200.0], None),
    ):
        found = planned(argv, capsys)["window"]
        assert [found["searched_from_s"], found["searched_until_s"]] == searched
        if window is not None:
            assert [found["start_s"], found["duration_s"]] == window
        else:
            assert found["start_s"] == 5400.0
            assert found["duration_s"] == pytest.approx(2_000 / 30.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slo_ms = 100", "slo_ms = 15", "two.toml [stage.first]: no offer meets the SLO of two-first (RT_max 15 ms)"),
        (
            "slo_ms = 100",
            "slo_ms = 25",
            "second has 5 of 25 ms, the others at their fastest, and takes 10 ms on c7i.xlarge",
        ),
    ],
)
def test_an_impossible_promise_says_what_came_closest(
    place: Path, capsys: Captured, old: str, new: str, said: str
) -> None:
    (place / "two.toml").write_text(FILE.replace(old, new))
    refused(PLAN, said, capsys, code=3)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (TRACED, "traced.toml [service] pipeline: the driver two_of_test:respond is traced for this: give --q"),
        ([*TRACED, "--lineage", "lineage.csv"], "(a lineage does not say which stages wait for which)"),
        ([*TRACED, "--queries", "q.jsonl", "--lineage", "lineage.csv"], "--lineage: repeats the driver's --queries"),
        ([*PLAN, "--queries", "q.jsonl"], "--queries: there is no driver to run on queries"),
        ([*PLAN, "--lineage", "two.csv"], "two.csv:1: missing column: queries"),
        ([*PLAN, "--markets", "spot"], "--markets: of a pipeline only instances on demand are planned so far: spot"),
        ([*PLAN, "--policy", "reactive"], "--policy: a pipeline is planned for a fixed load, without this option"),
        ([*PLAN, "--tail", "1.5"], "--tail: a pipeline is planned for a fixed load"),
        ([*PLAN, "--running", "c7i.large=1"], "--running: a pipeline is planned for a fixed load"),
        ([*PLAN, "--advise-commitment"], "--advise-commitment: a pipeline is planned for a fixed load"),
        ([*PLAN, "--at", "1h"], "--at: beyond the end of t.csv at"),
        ([*PLAN, "--catalog", "aws-2019"], "[stage.first]: no offer meets"),
        ([*PLAN, "--service", "inception-v3", "--queries", "q.jsonl"], "--queries: inception-v3 is no pipeline"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_line(place: Path, capsys: Captured, argv: list[str], said: str) -> None:
    refused(argv, said, capsys, code=3 if "aws-2019" in argv else 2)


def test_a_model_without_a_profile_names_its_stage(place: Path, capsys: Captured) -> None:
    (place / "two.toml").write_text(FILE.replace('"other"', '"others"'))
    refused(PLAN, "two.toml [stage.second] model: no profile of this model (known: one, other,", capsys)


def test_a_lineage_of_other_stages_is_refused(place: Path, capsys: Captured) -> None:
    (place / "lineage.csv").write_text("queries,first\n3,1\n")
    refused([*PLAN, "--lineage", "lineage.csv"], "lineage.csv: must have a column for each of first, second", capsys)


def test_a_stage_that_no_query_visits_is_noted(place: Path, capsys: Captured) -> None:
    (place / "lineage.csv").write_text("queries,first,second\n3,1,0\n")
    found = planned([*PLAN, "--lineage", "lineage.csv"], capsys)
    assert "no query visits second: one replica of the cheapest" in found["notes"]
    assert found["stages"][1]["wait_ms"] is None
    assert main([*PLAN, "--lineage", "lineage.csv"]) == 0


def test_what_can_bear_much_more_has_no_bottleneck(place: Path, capsys: Captured) -> None:
    """A note says that the part has few queries."""
    (place / "t.csv").write_text("t_seconds\n" + "".join(f"{n}\n" for n in range(120)))
    assert main(PLAN) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "This fleet keeps the promise on more than 4 times this traffic (the same arrivals, closer together)." in out
    assert "note: 120 queries are few to tell how late the latest are" in out


def test_a_huge_fan_out_shortens_the_window(place: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test allows a hundredth of the usual number of simulated calls, so that it does not take a minute."""
    monkeypatch.setattr("mark.studies.pipeline_plan.MOST_STAGE_CALLS", 4_000.0)
    (place / "lineage.csv").write_text("queries,first,second\n1,1,80\n")
    argv = [*PLAN, "--lineage", "lineage.csv"]
    found = planned(argv, capsys)
    assert found["window"]["queries"] * 80 < 1.5 * 4_000
    assert any("of this traffic are simulated" in note for note in found["notes"])


def test_only_the_plan_of_a_pipeline_has_a_page(capsys: Captured) -> None:
    refused(
        ["plan", "synthetic:diurnal", "--service", "inception-v3", "--report", "page.html"],
        "--report: only the plan of a pipeline is shown as a page",
        capsys,
    )
