"""`mark simulate` and `mark compare` of a pipeline end to end: their output, their JSON, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mark.cli.main import main
from tests.cli.two_stages import FILE, PROFILE, Captured, planned, refused

SIMULATE = ["simulate", "t.csv", "--service", "two.toml"]
COMPARE = ["compare", "t.csv", "--service", "two.toml", "--jobs", "1"]
ONE_STAGE = FILE[: FILE.index("[stage.second]")]


def run(argv: list[str], capsys: Captured) -> dict[str, Any]:
    return planned(argv, capsys)


def test_all_policies_stand_side_by_side_on_the_same_queries(place: Path, capsys: Captured) -> None:
    """Each answers all queries, its bill is the sum of its stages, and no policy that keeps the promise beats the
    bound."""
    assert main([*COMPARE, "--json", "found.json"]) == 0
    found = json.loads((place / "found.json").read_text())
    assert list(found["policies"]) == ["mark", "tuned", "inferline", "coarse-mean", "coarse-peak", "fixed"]
    for name, one in found["policies"].items():
        assert (one["policy"], one["queries"], one["seed"]) == (name, 1200, 0)
        assert one["misses"] == round((1.0 - one["attainment"]) * 1200) == 0
        assert one["usd"] == pytest.approx(sum(stage["usd"] for stage in one["stages"]))
        assert [stage["calls"] for stage in one["stages"]] == [1200, pytest.approx(600, abs=60)]
        assert 0.0 < one["bound_usd"] <= one["usd"] == pytest.approx(one["regret"] * one["bound_usd"])
    # Fixed: one c7i.large for each stage, as `mark plan` says. As one black box the second stage runs on its fastest
    # type, a c7i.xlarge.
    assert found["policies"]["fixed"]["usd"] == pytest.approx(2 * 0.08925 * 120.0 / 3600.0)
    assert found["policies"]["coarse-peak"]["usd"] == pytest.approx(3 * 0.08925 * 120.0 / 3600.0)
    assert found["cheapest"] == "mark"
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "two on t.csv: 1,200 queries in 2 min, 10 a second; prices of aws-2026",
        "coarse-peak $0.0089 -50 % 100.00 ok 20 30 30 2.0 2",
        "fixed $0.0059 ref. 100.00 ok 20 60 60 2.0 2",
        "mark is the cheapest that keeps the promise: 100.00 % of the queries within 100 ms (95 % asked) for $0.0059",
        "note: planned on 2 min from 0 s on",
        "note: visits are taken as independent of each other: the file says shares only",
    ):
        assert said in out


def test_one_policy_is_printed_with_its_stages(place: Path, capsys: Captured) -> None:
    assert main([*SIMULATE, "--policy", "inferline"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "policy inferline, planned on 2 min from 0 s on",
        "Bill $0.0059 $4.96 per million queries; $130 a month at this pace",
        "SLO ok 100.00 % within 100 ms (95.0 % asked), 0 late; worst minute 100.0 %, 0 min below",
        "Latency 20 ms median; p95 60, p99 60, p99.9 60, slowest 60 ms",
        "Instances 2.0 in the mean, 2 at most",
        "first c7i.large 1 1.0 1 10 % 0.0 $0.0030 50 %",
        "inferline keeps the promise: 100.00 %",
    ):
        assert said in out


def test_one_stage_and_one_query_are_enough(place: Path, capsys: Captured) -> None:
    (place / "two.toml").write_text(ONE_STAGE)
    (place / "t.csv").write_text("t_seconds\n0.0\n")
    policies = run(COMPARE, capsys)["policies"]
    for one in policies.values():
        assert (one["queries"], one["misses"], one["attainment"]) == (1, 0, 1.0)
        assert one["latency_ms"]["p50"] == one["latency_ms"]["max"] == pytest.approx(20.0)
        assert one["stages"][0]["calls"] == 1
        assert one["bound_usd"] <= one["usd"]


def test_the_fleet_follows_what_came_before_the_part(place: Path, capsys: Captured) -> None:
    """The load grows tenfold at 300 s. The plan follows the load before that, and the fleet grows only afterwards.

    Both runs draw the same because their seed is the same; late are queries that came before the new instances had
    booted.
    """
    times = [n / 10 for n in range(3000)] + [300.0 + n / 100 for n in range(18_000)]
    (place / "t.csv").write_text("t_seconds\n" + "".join(f"{time:.2f}\n" for time in times))
    (place / "two.toml").write_text(ONE_STAGE)
    part = ["--start", "280", "--policy", "coarse-mean", "--no-bound"]
    found = run([*SIMULATE, *part], capsys)
    assert found["planned_on"] == {"start_s": 0.0, "duration_s": 120.0}
    assert (found["start_s"], found["duration_s"], found["queries"]) == (280.0, pytest.approx(200.0), 18_200)
    assert (found["bound_usd"], found["regret"]) == (None, None)
    (first,) = found["stages"]
    assert first["instances"]["max"] == 1  # two workers of 20 ms each do 100 queries a second
    assert run([*SIMULATE, *part], capsys) == found
    busier = run([*SIMULATE, *part, "--scale", "2.8"], capsys)
    assert busier["stages"][0]["instances"]["max"] == 3
    assert 1.0 < busier["stages"][0]["instances"]["mean"] < 3.0
    assert 0 < busier["misses"] < busier["queries"]
    assert busier["worst_minute_attainment"] < 0.95
    assert busier["attainment"] == pytest.approx(1.0 - busier["misses"] / busier["queries"])
    assert busier["usd"] == pytest.approx(first["usd"] * busier["stages"][0]["instances"]["mean"])
    assert main([*SIMULATE, *part, "--scale", "2.8", "--fail-below-slo"]) == 4
    capsys.readouterr()


def test_a_fixed_fleet_shares_instances_where_the_file_allows_it(place: Path, capsys: Captured) -> None:
    """`mark plan` shares them for the same part, too."""
    (place / "two.toml").write_text(FILE.replace('allow = "separate"', 'allow = "auto"'))
    plan = planned(["plan", "--service", "two.toml", "--trace", "t.csv"], capsys)
    found = run([*SIMULATE, "--policy", "fixed"], capsys)
    assert found["usd"] == pytest.approx(plan["usd_per_hour"] * found["duration_s"] / 3600.0)
    assert found["latency_ms"]["p99"] == pytest.approx(plan["latency_ms"]["p99"])
    assert found["instances"] == {"mean": 1.0, "max": 1}
    assert [stage["busy"] for stage in found["stages"]] == pytest.approx(
        [stage["utilisation"] for stage in plan["stages"]], abs=0.01
    )


def test_functions_have_their_own_dollars_and_absent_ones_a_reason(place: Path, capsys: Captured) -> None:
    """The function of `other` is too slow: it takes 95 ms, and the first stage leaves 80."""
    rows = [f"{row}," for row in PROFILE.splitlines()[1:]]
    rows += ["one,lambda:1769,1,20,1,400", "other,lambda:1769,1,95,1,400"]
    (place / "two.csv").write_text("\n".join(["model,instance,batch,latency_ms,workers,cold_ms", *rows, ""]))
    (place / "two.toml").write_text(FILE + '[overflow]\nfunction = "lambda:*"\n')
    burst = "t_seconds\n" + "".join(f"{n / 10:.1f}\n" * (40 if n % 600 == 599 else 1) for n in range(1800))
    (place / "t.csv").write_text(burst)
    part = ["--start", "120", "--jobs", "1", "--policies", "tuned,fixed"]
    assert main([*COMPARE, *part, "--json", "found.json"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "policy bill funct. saves SLO %",
        "note: tuned: no function for second: lambda:1769 takes 95 ms of 80 that others leave",
        "note: fixed: functions are left out: only mark and tuned use them",
    ):
        assert said in out
    ours, theirs = json.loads((place / "found.json").read_text())["policies"].values()
    first, second = ours["stages"]
    assert (first["function"], second["function"]) == ("lambda:1769", None)
    assert ours["functions"] == first["functions"]
    assert first["functions"]["calls"] == pytest.approx(first["function_share"] * first["calls"])
    assert second["functions"] == theirs["functions"] == {
        "calls": 0, "cold": 0, "pings": 0, "throttled": 0, "billed_gb_s": 0.0, "cold_share": None
    }  # fmt: skip
    for one in (ours, *ours["stages"], theirs, *theirs["stages"]):
        assert one["usd"] == pytest.approx(one["instance_usd"] + one["function_usd"])
    assert main([*SIMULATE, "--start", "120"]) == 0
    assert "Functions $" in " ".join(capsys.readouterr().out.split())


def test_without_functions_in_the_file_nothing_speaks_of_them(place: Path, capsys: Captured) -> None:
    assert main([*COMPARE, "--json", "found.json", "--policies", "mark,fixed"]) == 0
    assert "function" not in (place / "found.json").read_text() + capsys.readouterr().out


def test_a_driver_is_traced_once_for_all(place: Path, capsys: Captured) -> None:
    traced = ["compare", "t.csv", "--service", "traced.toml", "--policies", "inferline,coarse-mean", "--jobs", "1"]
    refused(traced, "traced.toml [service] pipeline: the driver two_of_test:respond is traced for this", capsys)
    found = run([*traced, "--queries", "q.jsonl"], capsys)
    for one in found["policies"].values():
        assert [stage["stage"] for stage in one["stages"]] == ["twice", "half"]
        assert one["stages"][1]["calls"] == pytest.approx(900, abs=60)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            [*SIMULATE, "--policy", "reactive"],
            "policy: unknown of a pipeline (known: mark, tuned, inferline, coarse-me",
        ),
        ([*COMPARE, "--policies", "mark,inferlin"], "did you mean inferline?: inferlin"),
        ([*COMPARE, "--attribute", "mark"], "--attribute: a pipeline is simulated without this option"),
        ([*COMPARE, "--report", "r.html"], "--report: a pipeline is simulated without this option"),
        ([*SIMULATE, "--predictor", "autos"], "predictor: unknown (known: arima, artefact, auto"),
        (
            [*SIMULATE, "--policy", "tuned", "--spot-trace", "s.csv"],
            "--spot-trace: policy tuned of a pipeline is simulated without",
        ),
        (
            [*SIMULATE, "--policy", "tuned", "--spot-first-hour-free"],
            "--spot-first-hour-free: policy tuned of a pipeline is simulated without",
        ),
        (
            [*SIMULATE, "--policy", "tuned", "--cold-start"],
            "--cold-start: policy tuned of a pipeline is simulated without",
        ),
        (
            [*COMPARE, "--policies", "mark,tuned", "--faults", "hangs.toml"],
            "--faults: policy tuned of a pipeline is simulated without faults: mark is simulated with them: hangs.toml",
        ),
        ([*COMPARE, "--markets", "spot"], "--markets: of a pipeline only instances on demand are planned so far"),
        ([*SIMULATE, "--hedge-after-ms", "50"], "--hedge-after-ms: a pipeline is simulated without this option"),
        ([*SIMULATE, "--tail", "1.5"], "--tail: a pipeline is simulated without this option"),
        ([*SIMULATE, "--queries", "q.jsonl"], "--queries: there is no driver to run on queries"),
        ([*SIMULATE, "--start", "1h"], "--start: beyond the end of t.csv"),
        ([*SIMULATE, "--scale", "1e5"], "t.csv: at most 10,000,000 queries of a pipeline are simulated at a time"),
        (["simulate", "t.csv", "--service", "inception-v3", "--lineage", "l.csv"], "--lineage: inception-v3 is no"),
        (["compare", "t.csv", "--service", "inception-v3", "--queries", "q"], "--queries: inception-v3 is no pipeline"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(place: Path, capsys: Captured, argv: list[str], said: str) -> None:
    (place / "hangs.toml").write_text("[faults]\nhangs_per_hour = 1\n")
    refused(argv, said, capsys)


def test_second_calls_of_stages_are_not_simulated(place: Path, capsys: Captured) -> None:
    (place / "two.toml").write_text(FILE + "[insurance]\nhedge_after_ms = 50\n")
    said = "two.toml [insurance] hedge_after_ms: second calls of a pipeline's stages are not simulated"
    refused(SIMULATE, said, capsys)


def test_controllers_meet_a_market_without_spot_instances(place: Path, capsys: Captured) -> None:
    """Running instances end two minutes after the notice, and after a cold start the first queries meet no instance."""
    (place / "gone.csv").write_text("t_seconds,nodes\n0,1\n60,0\n86400,0\n")
    (place / "t.csv").write_text("t_seconds,count\n" + "".join(f"{60 * minute},600\n" for minute in range(6)))
    on_spot = [*SIMULATE, "--markets", "spot", "--no-bound"]
    free, taken, cold = (
        run([*on_spot, *more], capsys) for more in ([], ["--spot-trace", "gone.csv"], ["--cold-start"])
    )
    assert free["misses"] < 60
    assert taken["misses"] == pytest.approx(1800, abs=200)
    assert 60 < cold["misses"] < 1800


def test_a_promise_that_no_plan_keeps_ends_with_3(place: Path, capsys: Captured) -> None:
    (place / "two.toml").write_text(FILE.replace("slo_ms = 100", "slo_ms = 25"))
    refused([*SIMULATE, "--policy", "coarse-mean"], "no plan of coarse-mean keeps the promise of two", capsys, code=3)
