"""The effect of options."""

import argparse

import pytest

from mark.cli.main import parser
from mark.cli.options import policy_list, request_from
from mark.simulation.request import RunRequest


def test_without_options_the_request_is_the_default_one() -> None:
    args = parser("simulate").parse_args(["simulate", "t.csv", "--service", "nasnet"])
    assert request_from(args) == RunRequest(trace="t.csv", service="nasnet")


def test_every_option_reaches_the_request() -> None:
    line = (
        "simulate t.log --service s.toml --policy reactive --predictor arima --catalog c.csv --profile p.csv "
        "--markets spot,on-demand --scale 2.5 --start 60 --duration 600 --train 3600 --gaps zero --seed 7 "
        "--spot-trace a.csv --spot-trace b.csv --cold-start --log-filter target_group=a=b --spot-first-hour-free "
        "--faults f.toml --hedge-after-ms 250 --tail 1.5"
    )
    assert request_from(parser("simulate").parse_args(line.split())) == RunRequest(
        trace="t.log",
        service="s.toml",
        policy="reactive",
        predictor="arima",
        catalog="c.csv",
        profile="p.csv",
        markets=("spot", "on-demand"),
        scale=2.5,
        start_s=60.0,
        duration_s=600.0,
        train_s=3600.0,
        gaps="zero",
        seed=7,
        spot_traces=("a.csv", "b.csv"),
        cold_start=True,
        log_filter=("target_group", "a=b"),
        spot_first_hour_free=True,
        faults="f.toml",
        hedge_after_ms=250.0,
        tail=1.5,
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mark", ("mark",)),
        ("mark, oracle,mark:arima", ("mark", "oracle", "mark:arima")),
        ("mark,fixed:c5.large=2,p2.xlarge=1,oracle", ("mark", "fixed:c5.large=2,p2.xlarge=1", "oracle")),
        ("fixed:c5.large=2,fixed:c5.large=3", ("fixed:c5.large=2", "fixed:c5.large=3")),
    ],
)
def test_policies_split_at_commas_except_within_a_fixed_fleet(text: str, names: tuple[str, ...]) -> None:
    assert policy_list(text) == names


def test_a_policy_named_twice_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        policy_list("mark,oracle,mark")
