"""The HTML report: whole, self-contained, and safe with any text."""

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from mark.domain.bill import Bill
from mark.domain.promise_help import HelpKind, PromiseHelp
from mark.domain.promise_outlook import PromiseOutlook
from mark.domain.slo import Slo
from mark.planning.policies.alternatives import KEPT, Alternative, LoadBelief, Weighed
from mark.simulation.result import Decision, TraceInfo
from mark.studies.promise_outlook import RunOutlook
from mark.studies.report.compare_report import MOST_CHOICES, MOST_DECISIONS, compare_report, render_report
from mark.studies.report.sensitivity import variation
from tests.studies.report.results import result
from tests.studies.report.test_simulate_report import plain

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Tags(HTMLParser):
    """Counts tags and collects the text of each element with an id."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_data = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data
            self._in_data = False


@pytest.fixture(scope="module")
def evil_page() -> str:
    """Return a result in which every text that can come from outside is hostile."""
    decision = Decision(1.0, "launch", EVIL, EVIL, 1.0)
    changes: dict[str, Any] = {
        "trace": TraceInfo(EVIL, 10, 60.0),
        "decisions": (decision,),
        "notes": (EVIL,),
        "service": EVIL,
    }
    results = {EVIL: result(EVIL, **changes), "b": result("b", attainment=0.5, regret=None, regret_reason=EVIL)}
    return render_report(results, [variation(EVIL, results, results)])


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def data_of(page: str) -> Any:
    """Return the page's data as its script unpacks it."""
    return unpacked(parsed(page).data)


def unpacked(data: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(data)))


def test_no_text_from_outside_becomes_markup(evil_page: str) -> None:
    tags = parsed(evil_page)
    assert [tag for tag, _ in tags.tags].count("script") == 5  # plotly, two figures, the data, ours
    assert not any(tag == "img" or "onerror" in attrs for tag, attrs in tags.tags)


def test_hostile_texts_arrive_unchanged_in_the_data(evil_page: str) -> None:
    data = data_of(evil_page)
    assert data["policies"][0]["decisions"] == [[1.0, EVIL, EVIL, None]]


def test_trace_names_that_plotly_would_read_as_html_are_defused(evil_page: str) -> None:
    figures = re.findall(r'<script type="application/json">(.*?)</script>', evil_page)
    assert all("<" not in trace["name"] for figure in figures for trace in json.loads(figure)["data"])


def test_the_page_loads_nothing(evil_page: str) -> None:
    for tag, attrs in parsed(evil_page).tags:
        assert tag not in ("link", "iframe", "img")
        assert "src" not in attrs, tag
        assert "href" not in attrs, tag
    assert "@import" not in re.sub(r"<script>.*?</script>", "", evil_page, flags=re.S)


def test_everything_asked_for_is_on_the_page() -> None:
    results = {"mark": result(), "static-peak": result("static-peak", 40.0)}
    page = render_report(results, [variation("boot +60 s", results, results)])
    for heading in ("Policies side by side", "Bill over time", "Latency", "Load against capacity", "Fleet by offer"):
        assert heading in page
    assert "Decisions and why" in page
    assert "If these assumptions are wrong" in page
    assert "boot +60 s" in page
    assert "as before" in page
    assert '<span title="30 pings, 0 throttled, 22,500 GB-s billed">0.20 %</span>' in page


def test_one_policy_alone_makes_the_same_page_without_comparisons() -> None:
    page = render_report({"mark": result()})
    assert "Load against capacity" in page
    assert "Bill over time" not in page
    assert "If these assumptions are wrong" not in page
    assert "How likely is the promise?" not in page


def test_the_promise_and_the_changes_that_help_are_on_the_page() -> None:
    longer = PromiseHelp(HelpKind.RT_MAX, 0.96, 0.36, rt_max_s=0.082, longer_s=0.002)
    found = PromiseOutlook(Slo(0.08, 0.9925), 0.81, 0.52, 86_400.0, (longer,))
    page = render_report({"mark": result()}, outlook=RunOutlook("mark", 0.0, found))
    assert "It can be kept with a probability of at most 81 %, for about $0.52/h" in page
    assert "; slo_confidence asks for 95 %." in page
    assert "<th scope=row>slo_ms = 82 (RT_max + 2 ms)</th><td>96 %</td><td>$0.36</td>" in page


def test_a_decision_shows_beliefs_and_alternatives() -> None:
    """Hostile names in it do no harm, because they travel as data."""
    belief = LoadBelief(EVIL, 240.0, (80.0, 90.0, 100.0, 110.0, 120.0), (90.0, 100.0, 110.0, 120.0, 130.0))
    chosen = Alternative("chosen", {EVIL: 2}, 111.0, 1.8, 0.1, 0.5, 0.1)
    kept = replace(chosen, label=KEPT, counts={EVIL: 1}, overflow_usd_per_hour=3.0)
    weighed = Weighed(belief, 1200.0, "function calls", chosen, (kept,))
    decision = Decision(1.0, "launch", "launch 1 x", "done", 0.1, 0)
    page = render_report({"mark": result(decisions=(decision,), weighed=(weighed,))})
    tags = parsed(page)
    assert [tag for tag, _ in tags.tags].count("script") == 4  # plotly, a figure, the data, ours
    policy = unpacked(tags.data)["policies"][0]
    assert policy["decisions"] == [[1.0, "launch 1 x", "done", 0]]
    words, saving, heads, rows = policy["weighed"][0]
    assert f"({EVIL}): 100 requests/s" in words
    assert saving == "$2.90/h"
    assert heads[-1] == "against chosen"
    assert [row[0] for row in rows] == [f"chosen: 2 {EVIL}", KEPT]
    assert rows[1][-1] == "+2.90"


def test_the_cheapest_alternatives_and_the_present_fleet_are_shown() -> None:
    belief = LoadBelief("auto", 60.0, (1.0,) * 5, (1.0,) * 5)
    one = Alternative("chosen", {"x": 2}, 111.0, 1.8, 0.1, 0.5, 0.1)
    others = [replace(one, label=f"{n} x", overflow_usd_per_hour=float(n)) for n in range(MOST_CHOICES + 2)]
    weighed = Weighed(belief, 1200.0, "function calls", one, (*others, replace(one, label=KEPT, overflow_rps=9.0)))
    data = data_of(render_report({"mark": result(weighed=(weighed,))}))
    *_, rows = data["policies"][0]["weighed"][0]
    cheaper = "0 x (lower: see above)"
    assert [row[0] for row in rows] == ["chosen: 2 x", cheaper, *(f"{n} x" for n in range(1, MOST_CHOICES)), KEPT]


def test_controller_has_a_part_of_the_bill_of_its_own() -> None:
    managed = result("mark", bill=Bill(on_demand=10.0, other=4.9), controller_usd=2.9)
    fixed = result("best-fixed", bill=Bill(on_demand=20.0, other=2.0))
    text = plain(compare_report({"mark": managed, "best-fixed": fixed}))
    table = text[text.index("The bill by market") :].splitlines()[:7]
    assert "controller" in " ".join(table)
    rows = {line.split()[0]: line.split()[1:5] for line in table if line.startswith(("mark ", "best-fixed "))}
    assert rows == {"mark": ["10.00", "2.00", "2.90", "14.90"], "best-fixed": ["20.00", "2.00", "0.00", "22.00"]}


def test_many_decisions_are_capped_and_their_number_is_told() -> None:
    decision = Decision(1.0, "launch", "launch 1 x", "done", 0.1)
    data = data_of(render_report({"mark": result(decisions=(decision,) * (MOST_DECISIONS + 5))}))
    assert len(data["policies"][0]["decisions"]) == MOST_DECISIONS
    assert data["policies"][0]["decided"] == MOST_DECISIONS + 5


def test_every_card_names_its_predictors() -> None:
    """Plans of a stand-in are seen without reading the notes."""
    page = render_report(
        {"mark": result(predictors={"auto": 1430, "last-value": 10}), "reactive": result(predictor="")}
    )
    assert page.count("forecasts by") == 1
    assert "forecasts by auto (1,430 plans), last-value (10 plans)" in page
