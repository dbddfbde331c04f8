"""The report in a real browser: light, dark, on a phone, on paper, and to eyes that see fewer colours."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.domain.bill import Bill
from mark.simulation.result import Decision
from mark.studies.report.compare_report import render_report
from mark.studies.report.figure_style import COLOURS, DASHES, ON_DARK
from tests.api.browser import CHROMIUM, Browser
from tests.studies.report.results import result, timeline

DRAWN = "document.documentElement.dataset.drawn"
POLICIES = ("mark", "mark-paper", "reactive", "static-peak", "best-fixed", "target-tracking", "oracle")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

# Machado, Oliveira and Fernandes 2009, table 1, severity 1: maps linear red, green and blue to the perceived ones.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
JUST_NOTICEABLE = 2.3  # CIE76 (Mahy et al. 1994)


def linear(colour: str) -> Any:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255.0
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    scaled = to_xyz @ np.clip(rgb, 0.0, 1.0) / np.array([0.9505, 1.0, 1.089])
    root = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16.0 / 116.0)
    return np.array([116.0 * root[1] - 16.0, 500.0 * (root[0] - root[1]), 200.0 * (root[1] - root[2])])


@pytest.mark.parametrize("colours", [COLOURS, tuple(ON_DARK.values())], ids=["light", "dark"])
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_colours_differ_for_colour_blind_eyes(blindness: str, colours: tuple[str, ...]) -> None:
    """This covers all colours, because areas of the stacked figures have no dashes."""
    seen = [lab(BLINDNESS[blindness] @ linear(colour)) for colour in colours]
    closest = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert closest > 6.0 * JUST_NOTICEABLE


def test_policies_differ_by_dash() -> None:
    assert len(set(DASHES)) == len(POLICIES)


def test_every_line_is_readable_on_white() -> None:
    """WCAG 2.2, 1.4.11: three to one for graphics."""
    for colour in COLOURS:
        assert 1.05 / (float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05) >= 3.0, colour


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return results of seven policies, a day by minutes, 500 decisions each."""
    decisions = tuple(Decision(60.0 * k, "launch", f"launch {k} c5.large", "done", 0.1) for k in range(500))
    runs = {
        name: result(
            name, usd=10.0 + k, timeline=timeline(1440), decisions=decisions, priced="aws-2026, us-east-1, 2026-07-20"
        )
        for k, name in enumerate(POLICIES)
    }
    spent = {name: np.cumsum(np.full(1440, (10.0 + k) / 1440)) for k, name in enumerate(POLICIES)}
    runs = {
        name: replace(
            run,
            bill=Bill(on_demand=10.0 + k),
            timeline=replace(run.timeline, spent_usd={"on_demand": spent[name]}),
        )
        for k, (name, run) in enumerate(runs.items())
    }
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_report(runs))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def shown(browser: Browser, page: str, width: int = 1360, *, dark: bool = False) -> None:
    browser.complaints.clear()
    browser.open(page, width, dark=dark)
    browser.until(DRAWN)
    assert browser.complaints == []


def test_the_page_is_small_enough_to_be_sent(page: str) -> None:
    assert Path(page.removeprefix("file://")).stat().st_size < 2_500_000


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [420, 1000, 1360])
def test_nothing_is_wider_than_the_window(browser: Browser, page: str, width: int) -> None:
    shown(browser, page, width)
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value("document.querySelectorAll('.plot .scatterlayer path.js-line').length") > len(POLICIES)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("width", "rows"), [(1360, [7]), (1000, [4, 3]), (420, [1] * 7)])
def test_cards_stand_in_even_rows(browser: Browser, page: str, width: int, rows: list[int]) -> None:
    shown(browser, page, width)
    tops = browser.value("[...document.querySelectorAll('.card')].map((card) => card.offsetTop)")
    assert [tops.count(top) for top in sorted(set(tops))] == rows


@pytest.mark.slow
@needs_browser
def test_figures_follow_the_colours_that_are_preferred(browser: Browser, page: str) -> None:
    line = "getComputedStyle(document.querySelector('.figure path.js-line')).stroke"
    ground = "getComputedStyle(document.querySelector('section.glance')).backgroundColor"
    shown(browser, page)
    light = browser.value(line), browser.value(ground)
    assert light[1] == "rgb(255, 255, 255)"
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.until(f"{line} !== {light[0]!r}")
    assert rgb(ON_DARK[COLOURS[0]]) == browser.value(line)
    for text in (browser.value(line), "rgb(255, 255, 255)"):
        assert contrast(text, browser.value(ground)) >= 4.4


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def contrast(a: str, b: str) -> float:
    found = []
    for text in (a, b):
        channels = [int(each) for each in re.findall(r"\d+", text)[:3]]
        found.append(float(linear("#" + "".join(f"{each:02x}" for each in channels)) @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(found) / min(found)


@pytest.mark.slow
@needs_browser
def test_lines_end_with_their_names_that_do_not_overlap(browser: Browser, page: str) -> None:
    shown(browser, page)
    boxes = browser.value(
        "[...document.querySelector('.figure').querySelectorAll('.annotation text')]"
        ".map((text) => [text.textContent, text.getBoundingClientRect().top, text.getBoundingClientRect().bottom])"
    )
    assert {name for name, _, _ in boxes} == set(POLICIES)
    ordered = sorted(boxes, key=lambda box: box[1])
    assert all(lower[1] > upper[2] - 2.0 for upper, lower in pairwise(ordered))
    buttons = browser.value("document.querySelector('.figure .modebar-group').getBoundingClientRect().bottom")
    assert ordered[0][1] >= buttons - 2.0


@pytest.mark.slow
@needs_browser
def test_a_narrower_window_names_lines_in_the_legend(browser: Browser, page: str) -> None:
    shown(browser, page)
    browser.send("Emulation.setDeviceMetricsOverride", width=420, height=900, deviceScaleFactor=1, mobile=False)
    browser.until("!document.querySelector('.figure').querySelector('.annotation')")
    assert browser.value("document.querySelector('.figure').querySelectorAll('.legendtext').length") == len(POLICIES)


@pytest.mark.slow
@needs_browser
def test_a_line_leads_from_a_name_to_its_end(browser: Browser, page: str) -> None:
    shown(browser, page)
    assert browser.value(
        "document.querySelector('.figure').querySelectorAll('.annotation-arrow-g path').length"
    ) >= len(POLICIES)


@pytest.mark.slow
@needs_browser
def test_on_paper_it_is_light_and_a_few_pages(browser: Browser, page: str) -> None:
    shown(browser, page, dark=True)
    printed = browser.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
    pages = len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed)))
    assert 1 < pages <= 4
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert browser.value("getComputedStyle(document.querySelector('.glance')).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("document.getElementById('cut').textContent") == "480 more decisions are in the file."


@pytest.mark.slow
@needs_browser
def test_figures_fit_their_places_on_paper_and_again_after(browser: Browser, page: str) -> None:
    """A figure is drawn for paper before the rules for paper count: it cannot ask how high its place will be."""
    drawn = "[...document.querySelectorAll('.plot .main-svg')].map((svg) => svg.getBoundingClientRect()[SIDE])"
    shown(browser, page)
    widths = browser.value(drawn.replace("SIDE", "'width'"))
    browser.value("dispatchEvent(new Event('beforeprint'))")
    heights = browser.value(drawn.replace("SIDE", "'height'"))
    browser.send("Emulation.setEmulatedMedia", media="print")
    place = browser.value("document.querySelector('.plot').getBoundingClientRect().height")
    browser.send("Emulation.setEmulatedMedia", media="")
    assert set(heights) == {place}
    browser.value("dispatchEvent(new Event('afterprint'))")
    browser.until(f"JSON.stringify({drawn.replace('SIDE', repr('width'))}) === JSON.stringify({widths})", within_s=20.0)


@pytest.mark.slow
@needs_browser
def test_a_browser_that_cannot_unpack_says_so(browser: Browser, page: str) -> None:
    gone = browser.send("Page.addScriptToEvaluateOnNewDocument", source="delete self.DecompressionStream")
    try:
        browser.open(page)
        browser.until("document.querySelector('.plot').textContent.includes('cannot unpack')")
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=gone["identifier"])
        browser.complaints.clear()
