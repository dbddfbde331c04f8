"""A backtest as table, JSON and page."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mark.domain.load import LEVELS, Forecast, Load
from mark.studies.forecast_dollars import Dollars
from mark.studies.report.forecast import backtest_report, coverage_figure, crps_figure, fans_figure
from mark.studies.report.htmlpage import html_of
from mark.studies.report.report import Report
from mark.studies.report.terminal import on_terminal
from mark.traffic.forecast.backtest import Backtest, Score, Split
from tests.studies.report.results import result
from tests.studies.report.test_compare_report import EVIL, parsed

ORIGINS = (7200.0, 10_800.0)


def score(crps: float = 10.0, **changes: Any) -> Score:
    rows = (
        {"horizon_s": 60.0 * (h + 1), "crps": crps, "median_error": 0.1 * h, "coverage_50": 0.5, "coverage_90": 0.9}
        for h in range(60)
    )
    built = Score(
        predictor="auto",
        mase=1.1,
        crps=crps,
        peak_crps=math.nan,
        coverage_50=0.49,
        coverage_90=0.91,
        by_horizon=tuple(rows),
        fit_s=0.5,
        update_ms=0.04,
        predict_ms=2.0,
        made_by={"auto": 24},
    )
    return replace(built, **changes)


def found(**scores: Score) -> Backtest:
    """Return two hours of history, two of judgement; every fan rises evenly from 1 to 19."""
    rates = np.append(np.arange(240.0), np.full(55, np.nan))
    split = Split("day.csv.gz", Load(0.0, 60.0, rates, rates, False), 120, range(120, 240, 5), 60, ("1 gap bridged",))
    quantiles = np.arange(1.0, 20.0)[:, None] * np.ones(60)
    fans = [Forecast(origin_s, 60.0, LEVELS, quantiles, quantiles, "x") for origin_s in ORIGINS]
    names = {name.replace("_", "-"): score for name, score in scores.items()}
    return Backtest(split, names, dict.fromkeys(names, fans), "day")


DOLLARS = Dollars(
    {"auto": result(usd=11.0), "seasonal-naive": result(usd=14.0, predictors={"auto": 50, "last-value": 10})},
    result("oracle", usd=9.0),
)


def printed(page: Report) -> str:
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(on_terminal(page))
    return captured.get()


def test_the_table_names_the_best_predictor_within_80_columns() -> None:
    both = found(auto=score(8.0), seasonal_naive=score(10.0, made_by={"auto": 20, "last-value": 4}))
    shown = printed(backtest_report(both, DOLLARS))
    assert "day.csv.gz: 24 forecasts of 1 h ahead, after 2 h of history" in shown
    assert "auto has the lowest CRPS, 20.0 % below seasonal-naive" in " ".join(shown.split())
    assert "15 min" in shown
    assert "mark:seasonal-naive" in shown
    assert "$5.00" in shown  # above oracle
    assert "note: seasonal-naive: 4 forecasts by last-value" in shown
    assert "note: seasonal-naive, in dollars: planned with auto (50 plans), last-value (10" in shown
    assert "note: auto" not in shown
    assert "note: 1 gap bridged" in shown


def test_the_baseline_alone_is_compared_with_nothing() -> None:
    assert "seasonal-naive has the lowest CRPS, 10 requests/s" in printed(
        backtest_report(found(seasonal_naive=score()), None)
    )


def test_a_short_history_is_told_beside_mase() -> None:
    assert "MASE is over the error of the last value" in printed(
        backtest_report(replace(found(auto=score()), mase_lag="step"), None)
    )


def test_without_scores_no_predictor_is_best() -> None:
    nothing = found(auto=score(math.nan, mase=math.nan, coverage_50=math.nan, coverage_90=math.nan))
    shown = printed(backtest_report(nothing, None))
    assert "lowest" not in shown
    assert "<h1>day.csv.gz: 24 forecasts of 1 h ahead, after 2 h of history</h1>" in html_of(
        backtest_report(nothing, None)
    )


def test_dollars_stand_beside_the_scores_in_the_json() -> None:
    data = backtest_report(found(auto=score(), seasonal_naive=score()), DOLLARS).data
    auto = data["predictors"]["auto"]
    assert auto == auto | {"usd": 11.5, "attainment": 0.99, "regret": 1.25, "above_oracle_usd": 2.0}
    assert data["oracle"] == {"usd": 9.5, "attainment": 0.99, "regret": 1.25}
    assert "usd" not in backtest_report(found(auto=score()), None).data["predictors"]["auto"]


def test_a_fan_lies_where_its_forecast_says() -> None:
    """The 90 % band from 1 to 19 over 60 minutes, the truth an hour before and after, in the middle of its steps."""
    bands = list(fans_figure(found(auto=score(), seasonal_naive=score())).data)
    assert len(bands) == 2 * 2 * 4  # predictors, origins, and two bands, the median and the truth
    outer, inner, median, truth = bands[:4]
    assert (outer.name, inner.name, median.name, truth.name) == ("90 %", "50 %", "median", "truth")
    assert (min(outer.y), max(outer.y), min(inner.y), max(inner.y)) == (1.0, 19.0, 5.0, 15.0)
    assert (median.x[0], median.x[-1], median.y[0]) == (0.5, 59.5, 10.0)
    assert (truth.x[0], truth.y[0], truth.x[-1], truth.y[-1]) == (-59.5, 60.0, 59.5, 179.0)
    assert sum(bool(band.showlegend) for band in bands) == 4


def test_a_fan_is_readable_without_colour() -> None:
    """Dashes tell the median from the truth; an area has its line's colour, which the page changes on a dark ground."""
    outer, inner, median, truth = fans_figure(found(auto=score())).data[:4]
    assert (median.line.dash, truth.line.dash) == ("5px,2px", None)
    assert outer.opacity < inner.opacity
    assert (outer.fillcolor, outer.line.color) == (None, median.line.color)


def test_the_lines_by_horizon_are_the_scores() -> None:
    both = found(auto=score(8.0), seasonal_naive=score(10.0))
    assert [(line.name, line.x[0], line.x[-1], line.y[0]) for line in crps_figure(both).data] == [
        ("auto", 1.0, 60.0, 8.0),
        ("seasonal-naive", 1.0, 60.0, 10.0),
    ]
    lines = coverage_figure(both).data
    assert [(line.name, line.y[0], line.showlegend) for line in lines[:2]] == [
        ("auto", 0.9, True),
        ("auto", 0.5, False),
    ]


@pytest.mark.parametrize("dollars", [None, DOLLARS])
def test_the_page_is_whole_and_loads_nothing(dollars: Dollars | None) -> None:
    page = html_of(backtest_report(found(auto=score(8.0), seasonal_naive=score()), dollars))
    for heading in ("Scores", "Fans against the truth", "CRPS by horizon", "Coverage by horizon", "Notes"):
        assert f"<h2>{heading}</h2>" in page
    assert ("<h2>In dollars</h2>" in page) == (dollars is not None)
    for tag, attrs in parsed(page).tags:
        assert tag not in ("link", "iframe", "img")
        assert "src" not in attrs, tag
        assert "href" not in attrs, tag


def test_no_text_from_outside_becomes_markup() -> None:
    harmless = found(auto=score())
    hostile = replace(
        harmless,
        split=replace(harmless.split, trace=EVIL, notes=(EVIL,)),
        scores={EVIL: score(made_by={EVIL + "x": 24})},
        fans={EVIL: harmless.fans["auto"]},
    )
    tags, usual = (parsed(html_of(backtest_report(made, None))).tags for made in (hostile, harmless))
    assert not any(tag == "img" or "onerror" in attrs for tag, attrs in tags)
    assert [tag for tag, _ in tags].count("script") == [tag for tag, _ in usual].count("script")
