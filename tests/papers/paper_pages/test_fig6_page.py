"""Fig. 6 as table, JSON and page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mark_papers.paper.fig6 import Fig6
from mark_papers.paper_pages.fig6_page import fans_figure, fig6_report, takeaways

from mark.studies.report.figure_style import COLOURS, ON_DARK
from mark.studies.report.htmlpage import html_of
from tests.api.browser import CHROMIUM, Browser
from tests.studies.report import test_forecast
from tests.studies.report.test_compare_report import EVIL, parsed
from tests.studies.report.test_forecast import printed, score

LEFT_OUT = "left out: predictor lstm: needs torch"


def found(trace: str = "day.csv.gz", notes: tuple[str, ...] = ()) -> Fig6:
    """Return a figure of rates of 120 to 239 with a mean of 179.5.

    Every fan rises evenly from 1 to 19, an hour apart.
    """
    stream = test_forecast.found(lstm=score(17.95), auto=score(3.59), last_value=score(35.9))
    mmpp = test_forecast.found(lstm=score(71.8), auto=score(53.85), last_value=score(89.75))
    return Fig6(trace, stream, mmpp, notes)


def test_fans_follow_each_other_over_what_came() -> None:
    """Each predictor has a row, each kind of traffic a column: two fans of three lines each, and the truth.

    The last value is not drawn.
    """
    lines = list(fans_figure(found()).data)
    assert [line.name for line in lines] == [*["90 %", "50 %", "median"] * 2, "truth"] * 4
    outer, _, median, _, _, following, truth = lines[:7]
    assert (median.x[0] * 60.0, median.x[-1] * 60.0) == pytest.approx((0.5, 59.5))
    assert (following.x[0] * 60.0, following.x[-1] * 60.0) == pytest.approx((60.5, 119.5))
    assert (truth.x[0] * 60.0, truth.x[-1] * 60.0) == pytest.approx((0.5, 119.5))
    assert (truth.y[0], truth.y[-1]) == (120.0, 239.0)
    assert (min(outer.y), max(outer.y), median.y[0]) == (1.0, 19.0, 10.0)
    assert [line.line.color for line in lines[2::7]] == [COLOURS[0], COLOURS[0], COLOURS[1], COLOURS[1]]
    assert sum(bool(line.showlegend) for line in lines) == 4
    assert [(line.xaxis, line.yaxis) for line in lines[::7]] == [("x", "y"), ("x2", "y2"), ("x3", "y3"), ("x4", "y4")]


def test_the_takeaway_compares_predictors_on_both() -> None:
    assert takeaways(found()) == [
        "1 h ahead the median is off by, of the mean rate: 3.3 % (lstm), 3.3 % (auto) and 3.3 % (last-value) on the "
        "stream; 3.3 % (lstm), 3.3 % (auto) and 3.3 % (last-value) on MMPP.",
        "All quantiles, by CRPS: 10.0 % (lstm), 2.0 % (auto) and 20.0 % (last-value) on the stream; 40.0 % (lstm), "
        "30.0 % (auto) and 50.0 % (last-value) on MMPP.",
    ]


def test_errors_stand_under_their_horizon() -> None:
    """The error h minutes after the first is h / 10 of 179.5 requests/s."""
    shown = printed(fig6_report(found()))
    rows = [line.split() for line in shown.splitlines() if line.startswith("auto ")]
    assert [row[1::2] for row in rows] == [
        ["0.0", "0.2", "0.8", "1.6", "3.3", "2.0", "49.0", "91.0"],
        ["0.0", "0.2", "0.8", "1.6", "3.3", "30.0", "49.0", "91.0"],
    ]
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_json_holds_scores_and_snapshots() -> None:
    data = json.loads(json.dumps(fig6_report(found()).data))
    assert (data["schema"], data["figure"], data["mmpp"]["mean_rps"]) == (1, "fig6", 179.5)
    scores = data["mmpp"]["predictors"]["last-value"]
    assert (scores["crps"], scores["by_horizon"][10]["median_error"]) == (89.75, 1.0)
    snapshots = data["stream"]["snapshots"]
    assert list(snapshots) == ["lstm", "auto"]
    first, second = snapshots["auto"]
    assert (first["origin_s"], second["origin_s"]) == (7200.0, 10800.0)
    assert {level: rates[0] for level, rates in first["rate_rps"].items()} == {
        "0.05": 1.0,
        "0.25": 5.0,
        "0.5": 10.0,
        "0.75": 15.0,
        "0.95": 19.0,
    }
    assert data["stream"]["came_rps"][:2] == [120.0, 121.0]


def test_what_is_left_out_is_said_everywhere() -> None:
    made = found(notes=(LEFT_OUT,))
    assert LEFT_OUT in fig6_report(made).data["notes"]
    for shown in (html_of(fig6_report(made)), " ".join(printed(fig6_report(made)).split())):
        assert LEFT_OUT in shown
    assert "left out" not in html_of(fig6_report(found()))


def test_no_text_from_outside_becomes_markup() -> None:
    tags, usual = (parsed(html_of(fig6_report(made))).tags for made in (found(EVIL, (EVIL,)), found("a", ("b",))))
    assert [tag for tag, _ in tags] == [tag for tag, _ in usual]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_bands_have_the_colours_that_are_preferred(dark: bool, tmp_path: Path) -> None:
    """They are half as dense as the line's."""
    page = tmp_path / "fig6.html"
    page.write_text(html_of(fig6_report(found())))
    browser = Browser(tmp_path / "browser")
    try:
        browser.open(page.as_uri(), dark=dark)
        browser.until("document.documentElement.dataset.drawn")
        assert browser.complaints == []
        filled = browser.value("getComputedStyle(document.querySelector('.scatterlayer .js-fill')).fill")
        density = browser.value("getComputedStyle(document.querySelector('.scatterlayer .js-fill')).fillOpacity")
    finally:
        browser.close()
    colour = ON_DARK[COLOURS[0]] if dark else COLOURS[0]
    assert filled == f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"
    assert float(density) == 0.5
