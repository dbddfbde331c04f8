"""`mark init` writes a file that `mark check` passes, and prints the next command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from mark.cli.main import main

Captured = pytest.CaptureFixture[str]
PROFILE = "model,instance,batch,latency_ms\ncredit:Credit,c7i.large,1,6\ncredit:Credit,c7i.large,16,35\n"
TRACE = str(Path(__file__).parents[2] / "traces" / "alb_sample.log.gz")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("credit.csv").write_text(PROFILE)
    return tmp_path


def test_the_command_that_it_names_runs(folder: Path, capsys: Captured) -> None:
    given = ["init", "credit", TRACE, "--profile", "credit.csv", "--slo-ms", "100", "--log-filter", "target=*"]
    assert main(given[:-2]) == 0
    said = capsys.readouterr().out
    assert "credit.toml: ok, a service that can buy c7i.large (5 offers by market and zone) and no function" in said
    assert "500 requests in 4.22 min" in said
    read, *rest = said.splitlines()
    assert read.rpartition("; ")[2] not in map(str.strip, rest)
    following = shlex.split(said.split("then: ", 1)[1])
    assert following[:2] == ["mark", "compare"]
    assert main(following[1:]) == 0
    compared = capsys.readouterr()
    assert "aws-2026, us-east-1, 2026-07-20" in " ".join(compared.out.split())
    assert "target-tracking is left out: no SageMaker type" in compared.err
    assert Path("report.html").stat().st_size > 0


def test_a_profile_elsewhere_is_found_from_the_file(folder: Path, capsys: Captured) -> None:
    Path("services").mkdir()
    assert main(["init", "credit", "--profile", "credit.csv", "--slo-ms", "100", "--out", "services/c.toml"]) == 0
    assert 'profile = "../credit.csv"' in Path("services/c.toml").read_text()
    assert main(["check", "services/c.toml"]) == 0


def test_a_registered_model_brings_its_profile(folder: Path, capsys: Captured) -> None:
    Path("credit.py").write_text("import mark\nclass Credit(mark.Model): ...\n")
    kept = ["--files", "credit.py", "--no-load", "--alias", "production"]
    given = ["--model", "registry:credit@production", "--slo-ms", "100"]
    assert main(["models", "register", "credit:Credit", "--name", "credit", *kept]) == 0
    assert main(["init", "credit", *given]) == 2
    assert "registered without a profile: `mark models register` keeps one" in capsys.readouterr().err
    assert main(["models", "register", "credit:Credit", "--name", "credit", "--profile", "credit.csv", *kept]) == 0
    assert main(["init", "credit", *given]) == 0
    assert 'model = "registry:credit@production"' in Path("credit.toml").read_text()
    assert "can buy c7i.large" in capsys.readouterr().out


def test_how_the_traffic_was_read_is_in_the_next_command(folder: Path, capsys: Captured) -> None:
    Path("my log.csv").write_text("when,hits,errors\n0,60,1\n60,120,2\n120,90,1\n")
    columns = ["--time-column", "when", "--count-column", "hits"]
    assert main(["init", "credit", "--trace", "my log.csv", *columns]) == 0
    said = capsys.readouterr().out
    assert "mark compare 'my log.csv' --time-column when --count-column hits --service credit.toml" in said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--model", "credit:Credit"], "mark profile credit:Credit --instance TYPE --out profile.csv"),
        (["--profile", "credit.csv"], "--slo-ms: is needed for a model of your own"),
        (["--profile", "nowhere.csv"], "nowhere.csv"),
        (["--trace", "nowhere.log"], "nowhere.log"),
        (["--model", "credit@production"], "--model registry:credit@production"),
        (["--model", "registry:credit@production"], "no such model: credit"),
        (["--model", "registry:credit@production", "--profile", "credit.csv"], "has its own profile"),
        (["--slo-ms", "0"], "above zero"),
    ],
)
def test_what_is_missing_is_said_and_nothing_written(
    folder: Path, given: list[str], message: str, capsys: Captured
) -> None:
    assert main(["init", "credit", *given]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not Path("credit.toml").exists()


def test_a_file_that_exists_is_left_alone(folder: Path, capsys: Captured) -> None:
    Path("credit.toml").write_text("mine")
    assert main(["init", "credit"]) == 2
    assert Path("credit.toml").read_text() == "mine"


def test_a_refused_promise_leaves_no_file(folder: Path, capsys: Captured) -> None:
    command = ["init", "credit", "--profile", "credit.csv", "--slo-ms"]
    assert main([*command, "1e9"]) == 2
    assert main([*command, "100"]) == 0
