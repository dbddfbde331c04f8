"""The attribution table, for the terminal and the page."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from mark.studies.attribution import PARTS, Attribution
from mark.studies.report.attribution import attribution_parts, attribution_rows
from mark.studies.report.compare_report import compare_report, render_report
from mark.studies.report.report import Report
from tests.studies.report.results import result
from tests.studies.report.test_simulate_report import plain


def split(bill_usd: float = 10.5, **parts: float) -> Attribution:
    """Return an attribution with a bound of 8 $; the difference from the named parts is `other`."""
    told = dict.fromkeys(PARTS, 0.0) | parts
    told["other"] = bill_usd - 8.0 - sum(told.values())
    return Attribution(bill_usd, 9.5, 9.4, 8.0, told)


def test_it_leads_from_the_bound_to_the_bill() -> None:
    rows = attribution_rows({"mark": split(forecast_error=1.0, queueing=0.5), "oracle": split(9.5)})
    assert [row[0] for row in rows] == ["bound", "forecast error", "queueing", "the rest", "bill"]
    assert [row[1] for row in rows] == ["8.00", "1.00", "0.50", "1.00", "10.50"]
    assert [row[2] for row in rows] == ["8.00", "0.00", "0.00", "1.50", "9.50"]
    assert all(row[-1] for row in rows)


def test_part_below_half_a_percent_of_each_bill_is_in_the_rest() -> None:
    near = {"queueing": 0.051, "boot_delay": -0.051, "extras": 0.04}  # 0.5 % are 0.0525 and 0.0475
    rows = {row[0]: row[1:-1] for row in attribution_rows({"mark": split(**near), "oracle": split(9.5, **near)})}
    assert list(rows) == ["bound", "boot delay", "queueing", "the rest", "bill"]
    assert rows["queueing"] == ["0.05", "0.05"]
    assert rows["the rest"] == ["2.50", "1.50"]
    assert "100 %" in plain(Report({}, parts=attribution_parts({"mark": split(**near)})))


@pytest.mark.parametrize("seed", range(20))
def test_printed_parts_add_up_to_the_printed_bill(seed: int) -> None:
    draw = random.Random(seed)
    parts = {part: draw.uniform(-3.0, 3.0) for part in PARTS if part != "other"}
    rows = attribution_rows({"mark": split(draw.uniform(10.0, 2000.0), **parts)})
    amounts = [round(100.0 * float(row[1].replace(",", ""))) for row in rows]
    assert sum(amounts[:-1]) == amounts[-1]


def test_extras_are_shown_only_where_they_are_billed() -> None:
    both = replace(split(extras=0.36), controller_usd=0.29)
    rows = {row[0]: row[1] for row in attribution_rows({"mark": both})}
    assert (rows["controller"], rows["disks"]) == ("0.29", "0.07")
    assert {"controller", "disks"}.isdisjoint(row[0] for row in attribution_rows({"mark": split()}))
    rows = {row[0]: row[1] for row in attribution_rows({"mark": Attribution(0.09, 0.08, 0.08, 0.07, split().parts)})}
    assert rows["bill"] == "0.090"


def test_part_below_zero_is_explained() -> None:
    above, below = (plain(Report({}, parts=attribution_parts({"mark": split(queueing=usd)}))) for usd in (0.5, -0.5))
    assert "A part below zero: the run or plan that knows more is dearer" in " ".join(below.split())
    assert "below zero" not in above


def test_terminal_names_the_page_on_the_parts_in_80_columns() -> None:
    several = {f"mark:some-predictor-{i}": split(forecast_error=1.0) for i in range(3)}
    for found in ({"mark": split(forecast_error=1.25)}, several):
        text = plain(Report({}, parts=attribution_parts(found)))
        assert "forecast error" in text
        assert "docs/attribution.md explains the parts" in text
        assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "50 %" in plain(Report({}, parts=attribution_parts({"mark": split(forecast_error=1.25)})))
    assert attribution_parts({}) == []


def test_compare_and_its_page_carry_it() -> None:
    results = {"<b>mark": result("<b>mark")}
    found = {"<b>mark": split(forecast_error=1.0)}
    assert "Where the dollars above the bound go" in plain(compare_report(results, found))
    assert "Where the dollars above the bound go" not in plain(compare_report(results))
    html = re.sub(r"<script.*?</script>", "", render_report(results, (), found), flags=re.S)
    assert "Where the dollars above the bound go" in html
    assert "&lt;b&gt;mark" in html
    assert "<b>mark" not in html
