"""`mark simulate`, `compare`, `plan` and `bound` of a file with [selection]: figures and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main
from tests.cli.two_stages import FILE, Captured, planned, refused

CANDIDATES = FILE.replace('after = ["first"]\nshare = 0.5\n', "usd_per_call = 1e-6\n")
THRESHOLD = '[selection]\npolicy = "cascade"\nscore = "sure"\nthreshold = 0.5\nexplore = 0.0\n'
PRICED = '[feedback]\nlog = "f"\n[selection]\npolicy = "cascade"\nscore = "sure"\ncorrect_usd = 1e-4\n'
# The first model is wrong if it is unsure, in a quarter of the queries; the second one is always right.
ANSWERS = "first.correct,first.score,second.correct\n0,0.1,1\n1,0.9,1\n1,0.9,1\n1,0.9,1\n"
SIMULATE = ["simulate", "t.csv", "--service", "two.toml", "--predictor", "seasonal-naive"]


@pytest.fixture
def chosen(place: Path) -> Path:
    (place / "two.toml").write_text(CANDIDATES + THRESHOLD)
    (place / "a.csv").write_text(ANSWERS)
    return place


@pytest.mark.parametrize("policy", ["mark", "fixed"])
def test_a_cascade_asks_where_the_first_model_is_unsure(chosen: Path, capsys: Captured, policy: str) -> None:
    found = planned([*SIMULATE, "--answers", "a.csv", "--policy", policy], capsys)
    selection, second = found["selection"], found["stages"][1]
    assert selection["error"] == 0.0
    assert selection["asks_per_query"] == pytest.approx(1.25, abs=0.05)
    assert second["calls"] == pytest.approx(1200 * (selection["asks_per_query"] - 1.0))
    assert second["call_usd"] == pytest.approx(1e-6 * second["calls"]) == selection["call_usd"]
    assert found["usd"] == pytest.approx(sum(stage["usd"] for stage in found["stages"]))
    assert selection["usd_per_million"] == pytest.approx(found["usd_per_million"])
    assert selection["usd_per_million_correct"] == pytest.approx(found["usd_per_million"])
    assert selection["candidates"]["second"]["answered"] == pytest.approx(second["calls"] / 1200)
    assert (found["bound_usd"], found["attainment"]) == (None, 1.0)
    assert not any("settled" in note for note in found["notes"]), "a fixed threshold learns nothing"


def test_policies_stand_side_by_side_with_their_error(chosen: Path, capsys: Captured) -> None:
    (chosen / "two.toml").write_text(CANDIDATES + PRICED)
    argv = ["compare", *SIMULATE[1:], "--answers", "a.csv", "--jobs", "1", "--policies", "mark,fixed"]
    assert main([*argv, "--json", "found.json"]) == 0
    runs = json.loads((chosen / "found.json").read_text())["policies"]
    assert [one["selection"]["error"] for one in runs.values()] == [0.0, 0.0]
    out = " ".join(capsys.readouterr().out.split())
    assert "policy error a query queries correct mark 0.00 % 1.2" in out
    assert "note: 4 answers are few to tell an error by" in out
    assert "its tables of scores are fitted to the answers file" in out


def test_a_plan_shows_its_selection(chosen: Path, capsys: Captured) -> None:
    plan = ["plan", "t.csv", "--service", "two.toml", "--answers", "a.csv"]
    found = planned(plan, capsys)
    assert found["selection"]["asks_per_query"] == pytest.approx(1.25, abs=0.05)
    usd = found["usd_per_million_queries"] + 0.25
    assert found["selection"]["usd_per_million"] == pytest.approx(usd, abs=0.05)
    assert main([*plan, "--report", "page.html"]) == 0
    assert "The selection" in (chosen / "page.html").read_text()
    assert "0.00 % are wrong. A million correct answers cost $" in " ".join(capsys.readouterr().out.split())


def test_without_answers_a_split_is_its_weights_and_nothing_is_known_of_errors(chosen: Path, capsys: Captured) -> None:
    split = '[selection]\npolicy = "split"\nweights = { first = 0.75, second = 0.25 }\n'
    (chosen / "two.toml").write_text(CANDIDATES + split)
    found = planned([*SIMULATE], capsys)["selection"]
    assert found["candidates"]["first"] == {"asked": pytest.approx(0.75, abs=0.05), "answered": None}
    assert (found["error"], found["usd_per_million_correct"]) == (None, None)
    assert main(SIMULATE) == 0
    assert "of them." in capsys.readouterr().out


def test_a_lineage_says_what_is_asked_in_place_of_answers(chosen: Path, capsys: Captured) -> None:
    found = planned([*SIMULATE, "--lineage", "lineage.csv"], capsys)["selection"]
    assert found["candidates"]["second"] == {"asked": pytest.approx(0.25, abs=0.05), "answered": None}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (SIMULATE, "two.toml [selection] policy: asks by what candidates answer: give --answers FILE, or --lineage"),
        ([*SIMULATE, "--answers", "none.csv"], "none.csv: cannot be read (no such file or directory)"),
        ([*SIMULATE, "--answers", "a.csv", "--lineage", "lineage.csv"], "lineage: says which candidates are asked"),
        ([*SIMULATE, "--answers", "bad.csv"], "bad.csv:2 first.correct: must be between 0 and 1: 7"),
        (["bound", "t.csv", "--service", "two.toml"], "two.toml [selection]: is not bounded: it can answer a query"),
        (["simulate", "t.csv", "--service", "traced.toml", "--answers", "a.csv"], "answers: are of a selection's cand"),
        (["simulate", "t.csv", "--service", "inception-v3", "--answers", "a.csv"], "--answers: inception-v3 is no pip"),
        (["frontier", "t.csv", "--service", "two.toml"], "two.toml"),
    ],
)
def test_what_cannot_be_used_is_one_line(chosen: Path, capsys: Captured, argv: list[str], said: str) -> None:
    (chosen / "bad.csv").write_text(ANSWERS.replace("0,0.1", "7,0.1"))
    refused(argv, said, capsys)


def test_a_policy_of_ones_own_needs_a_lineage(chosen: Path, capsys: Captured) -> None:
    (chosen / "two.toml").write_text(CANDIDATES + '[selection]\npolicy = "own:Policy"\n')
    said = "two.toml [selection] policy: is simulated with a lineage (`mark selection replay --out` writes one), not"
    refused([*SIMULATE, "--answers", "a.csv"], said, capsys)
