"""`mark personal replay`: its table, the JSON of the interface, and one line for each impossible option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main
from tests.personal.logs import write_ratings

Captured = pytest.CaptureFixture[str]


def test_replay_prints_errors_and_policies(tmp_path: Path, capsys: Captured) -> None:
    assert main(["personal", "replay", write_ratings(tmp_path), "--policy", "greedy,thompson", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first = [line.split()[0] for line in out.splitlines() if line]
    for word in ("static:", "online:", "retrained:", "greedy", "thompson"):
        assert word in first
    assert "Learning online lowers the error by" in out
    assert "1,600 rewards of 40 keys for 60 items" in " ".join(out.split())  # the folder's name may break the line
    table = [line for line in out.splitlines() if not line.startswith(str(tmp_path))]
    assert max(map(len, table)) <= 80


def test_replay_writes_the_json_of_the_interface_and_repeats_itself(tmp_path: Path, capsys: Captured) -> None:
    ratings = write_ratings(tmp_path, "who,what,stars")
    command = ["personal", "replay", ratings, "--key", "who", "--item", "what", "--reward", "stars"]
    command += ["--policy", "item", "--json", "-"]
    assert main(command) == 0
    out, _ = capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out == out
    data = json.loads(out)
    assert (data["schema"], data["observations"], data["keys"]) == (1, 1600, 40)
    assert data["online_rmse"] < data["static_rmse"]
    assert data["retrained_rmse"] > 0.0
    assert set(data["policies"]) == {"item"}
    assert {"reward", "reach"} <= set(data["policies"]["item"])


def test_other_seeds_and_splits_give_other_parts(tmp_path: Path, capsys: Captured) -> None:
    found = []
    for options in (["--seed", "2"], ["--seed", "3"], ["--seed", "2", "--split", "0.4,0.4,0.2"]):
        assert main(["personal", "replay", write_ratings(tmp_path), "--policy", "greedy", "--json", "-", *options]) == 0
        found.append(json.loads(capsys.readouterr().out)["held_out"])

    assert found[2] > 1.2 * found[0]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "gredy"], "--policy: must be one of greedy, item, linucb, thompson, did you mean greedy?: gredy"),
        (["--policy", "item,item"], "--policy: names a policy twice: item,item"),
        (["--split", "0.5,0.5"], "--split: must be three shares above 0 that add up to 1"),
        (["--split", "0.5,0.5,0.5"], "that add up to 1: for item vectors, for learning, and held out: 0.5,0.5,0.5"),
        (["--split", "1,0,0"], "three shares above 0"),
        (["--split", "0.5,half,0.1"], "must be a number"),
        (["--split", "0.4998,0.5,0.0002"], "leaves the third part without a row of 1,600"),
        (["--key", "who"], "has no column 'who': name the one it has by --key: user,item,rating"),
        (["--key", "item"], "--key: names a column that another option names, too: item"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    tmp_path: Path, capsys: Captured, options: list[str], message: str
) -> None:
    assert main(["personal", "replay", write_ratings(tmp_path), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,rating\n" + "u,i,1\n" * 99, "has 99 rewards: a replay needs 100 at least"),
        ("user,item,rating\n", "has 0 rewards"),
        ("user,item,rating\n" + "u,i,1\nu,j,2\n" * 99, "user: must have two different values at least: u"),
        ("user,item,rating\n" + "u,i,1\nv,j,1\n" * 99, "rating: is the same in all rows, so that there is nothing"),
        ("user,item,rating\n" + f"{'u' * 257},i,1\nv,j,2\n" * 99, "user: must have 256 characters at most"),
    ],
)
def test_log_that_says_too_little_is_one_line(tmp_path: Path, capsys: Captured, text: str, message: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    assert main(["personal", "replay", str(tmp_path / "r.csv")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_missing_file_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    assert main(["personal", "replay", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
