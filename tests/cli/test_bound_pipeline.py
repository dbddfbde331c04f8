"""`mark bound` of a pipeline end to end: its output, its JSON, and its errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.cli.main import main
from tests.cli.two_stages import FILE, PROFILE, Captured, planned, refused

BOUND = ["bound", "t.csv", "--service", "two.toml"]
TRACED = ["bound", "t.csv", "--service", "traced.toml"]


def bounded(argv: list[str], capsys: Captured) -> dict:  # type: ignore[type-arg]
    return planned(argv, capsys)


def test_both_rows_and_the_stages_are_printed(place: Path, capsys: Captured) -> None:
    assert main(BOUND) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "The least possible bill of two for 1,200 queries, with perfect foresight",
        "late queries allowed at least",
        "first 1,200 100 $",  # queries that end there have all of it
        "No fleet of instances that each host one stage costs less",
        "note: visits are taken as independent of each other: the file says shares only",
        "note: the bill leaves out balancer, disks, public addresses and data moved",
    ):
        assert said in out


def test_json_is_that_of_a_service_with_stages(place: Path, capsys: Captured) -> None:
    found = bounded(BOUND, capsys)
    strict, late = found["bounds"]
    assert found["trace"] == {"name": "t.csv", "requests": 1200, "read": "read 1,200 requests in 2 minutes, 10/s"}
    assert 0.0 < late["usd"] < strict["usd"] == found["bound_usd"]
    assert (strict["late_allowed"], late["late_allowed"]) == (0.0, pytest.approx(60.0))
    first, second = strict["stages"]
    assert (first["stage"], first["calls"], second["calls"]) == ("first", 1200, pytest.approx(600, abs=60))
    assert first["usd"] + second["usd"] == pytest.approx(strict["usd"])
    # 10 calls/s on instances of two workers with 20 ms each; and with 40 ms (or 10 ms, at twice the price). The second
    # stage has half as many calls, but its instances stay between two successive calls, because a launch would cost
    # more.
    hours = 0.08925 / 3600.0
    assert first["usd"] == pytest.approx(1200 * 0.010 * hours, rel=0.01)
    assert second["usd"] == pytest.approx(1200 * 0.020 * hours, rel=0.05)
    assert bounded(BOUND, capsys) == found


def test_a_plan_costs_no_less_than_its_bound(place: Path, capsys: Captured) -> None:
    plan = planned(["plan", "--service", "two.toml", "--trace", "t.csv"], capsys)
    assert plan["fixed_fleet_regret"] == pytest.approx(plan["usd_per_hour"] / plan["bound_usd_per_hour"])
    assert plan["fixed_fleet_regret"] == pytest.approx(1.0, abs=1e-5)  # one instance for each stage
    assert sum(stage["bound_usd_per_hour"] for stage in plan["stages"]) == pytest.approx(plan["bound_usd_per_hour"])
    assert bounded(BOUND, capsys)["bounds"][1]["usd"] <= plan["usd_per_hour"] * 120.0 / 3600.0


def test_a_driver_is_traced_and_a_lineage_read(place: Path, capsys: Captured) -> None:
    twice, half = bounded([*TRACED, "--queries", "q.jsonl"], capsys)["bounds"][0]["stages"]
    assert (twice["stage"], half["stage"]) == ("twice", "half")
    assert half["calls"] == pytest.approx(900, abs=60)
    _, second = bounded([*BOUND, "--lineage", "lineage.csv"], capsys)["bounds"][0]["stages"]
    assert second["calls"] == pytest.approx(300, abs=50)


def test_what_else_may_be_bought_counts(place: Path, capsys: Captured) -> None:
    """Spot is cheaper, a cold start dearer; commitments are left out, with a note."""
    plain = bounded(BOUND, capsys)["bound_usd"]
    assert bounded([*BOUND, "--markets", "on-demand,spot"], capsys)["bound_usd"] < 0.8 * plain
    assert bounded([*BOUND, "--cold-start"], capsys)["bound_usd"] > plain
    (place / "two.toml").write_text(FILE.replace("[packs]", '[fleet.committed]\n"c7i.large" = 2\n[packs]'))
    committed = bounded(BOUND, capsys)
    assert committed["bound_usd"] == plain
    assert "commitments are left out: every instance is paid" in committed["notes"]


@pytest.mark.parametrize(("call_ms", "share"), [(5, 1.0), (85, 0.0)])
def test_a_function_serves_where_it_is_cheap_and_in_time(
    place: Path, capsys: Captured, call_ms: int, share: float
) -> None:
    """A call of the first stage takes at least 20 of the 100 ms."""
    (place / "two.toml").write_text(FILE.replace('"other"', '"other"\nfunction = "lambda:1024"'))
    (place / "two.csv").write_text(f"{PROFILE}other,lambda:1024,1,{call_ms},1\n")
    first, second = bounded(BOUND, capsys)["bounds"][0]["stages"]
    assert (first["function_share"], second["function_share"]) == pytest.approx((0.0, share), abs=0.01)


def test_too_little_time_is_said_with_the_number_of_queries(place: Path, capsys: Captured) -> None:
    (place / "two.toml").write_text(FILE.replace("slo_ms = 100", "slo_ms = 25"))
    found = bounded(BOUND, capsys)
    assert found["bound_usd"] is None
    assert "queries take longer than 25 ms even if nothing waits, 0 may be late" in found["bounds"][0]["note"]
    assert main(BOUND) == 0
    assert "There is no way to answer enough of it in time." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (TRACED, "traced.toml [service] pipeline: the driver two_of_test:respond is traced for this: give --q"),
        ([*BOUND, "--queries", "q.jsonl"], "--queries: there is no driver to run on queries"),
        ([*BOUND, "--tail", "1.5"], "--tail: a pipeline is bounded without this option"),
        ([*BOUND, "--lineage", "two.csv"], "two.csv:1: missing column: queries"),
        ([*BOUND, "--scale", "1e6"], "t.csv: at most 20,000,000 queries of a pipeline are bounded at a time"),
        (["bound", "t.csv", "--service", "inception-v3", "--lineage", "lineage.csv"], "--lineage: inception-v3 is no"),
    ],
)
def test_what_cannot_be_bounded_is_one_line(place: Path, capsys: Captured, argv: list[str], said: str) -> None:
    refused(argv, said, capsys)
