"""Suggestions for misspelled options, choices and names; times as people write them."""

from __future__ import annotations

import pytest

from mark.cli.main import main
from mark.cli.numbers import seconds, span
from mark.domain.errors import BadInput, did_you_mean

SERVE = ("--service", "inception-v3")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("compre",), "did you mean compare? (see mark --help)"),
        (
            ("compare", "t.csv", *SERVE, "--polices=a"),
            "--polices=a, did you mean --policies? (see mark compare --help)",
        ),
        (("trace", "inof"), "did you mean info? (see mark trace --help)"),
        (
            ("trace", "info", "t.csv", "--log-filer", "a=b"),
            "did you mean --log-filter?, a=b (see mark trace info --help)",
        ),
        (("simulate", "t.csv", *SERVE, "--gaps", "bridg"), "did you mean bridge? (see mark simulate --help)"),
        (("simulate", "t.csv", *SERVE, "--quite-another"), "unrecognized arguments: --quite-another (see"),
        (
            ("simulate", "t.csv", *SERVE, "--slo-ms", "100"),
            "; the promise is slo_ms in the service file, and `mark frontier",
        ),
        (("simulate", "t.csv", "--service", "inceptoin-v3"), "did you mean inception-v3?"),
        (("simulate", "synthetic:diurnl", *SERVE), "did you mean diurnal?"),
        (("simulate", "synthetic:poisson?rat=3", *SERVE), "did you mean rate?"),
        (("simulate", "synthetic:poisson", *SERVE, "--policy", "mrak"), "did you mean mark?"),
        (("simulate", "synthetic:poisson", *SERVE, "--predictor", "lstmm"), "did you mean lstm?"),
        (("catalog", "show", "aws-2025"), "did you mean aws-2026?"),
        (("simulate", "t.csv", *SERVE, "--duration", "1x"), "must be seconds, or 30m, 1h30m, 7d, not '1x'"),
    ],
)
def test_one_line_names_what_was_meant(arguments: tuple[str, ...], hint: str, capsys: pytest.CaptureFixture) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert hint in said
    assert said.count("\n") == 1


def test_only_close_names_are_proposed() -> None:
    assert did_you_mean("mrak", ["mark", "mark-paper", "oracle"]) == ", did you mean mark?"
    assert did_you_mean("something", ["mark", "oracle"]) == did_you_mean("x", []) == ""
    assert str(BadInput("unknown", "policy", "mrak", known=["mark"])) == "policy: unknown, did you mean mark?: mrak"


@pytest.mark.parametrize(
    ("text", "value_s"),
    [
        *[("90", 90.0), ("1e3", 1000.0), ("90s", 90.0), ("30m", 1800.0), ("1h", 3600.0), ("1h30m", 5400.0)],
        *[("1.5h", 5400.0), ("7d", 604_800.0), ("2w", 1_209_600.0), ("5min", 300.0)],
    ],
)
def test_times_are_written_as_people_do(text: str, value_s: float) -> None:
    assert seconds(text) == span(text) == value_s


@pytest.mark.parametrize("text", ["1x", "h", "1h30", "1 h", "-1h", "", "1h-2m", "nan", "inf"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"must be|not"):
        seconds(text)


def test_no_time_is_no_duration() -> None:
    assert seconds("0h") == 0.0
    with pytest.raises(Exception, match="above zero"):
        span("0h")


def test_plan_takes_its_trace_where_other_commands_do(capsys: pytest.CaptureFixture) -> None:
    asked = ("synthetic:poisson?rate=5", *SERVE, "--at", "10m", "--predictor", "seasonal-naive", "--json", "-")
    assert main(("plan", *asked)) == 0
    first = capsys.readouterr().out
    assert main(("plan", "--trace", *asked)) == 0
    assert capsys.readouterr().out == first
    assert main(("plan", *SERVE)) == 2


def test_the_shipped_catalogues_are_listed_with_region_and_day(capsys: pytest.CaptureFixture) -> None:
    assert main(("catalog", "list")) == 0
    said = capsys.readouterr().out
    assert "aws-2026" in said
    assert "us-east-1" in said
    assert "2019-12-10" in said
