"""Terminal tables: complete, plain in a pipe, never wider than 80 columns."""

from io import StringIO

import pytest
from rich.console import Console

from mark.domain.bill import Bill
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.simulation.result import Latency, Requests, SloResult
from mark.studies.report.catalog_report import catalog_report, trace_report
from mark.studies.report.compare_report import compare_report, sensitivity_table
from mark.studies.report.report import DataTable, Report
from mark.studies.report.sensitivity import variation
from mark.studies.report.simulate_report import simulate_report
from mark.studies.report.terminal import on_terminal
from tests.studies.report.results import result


def plain(page: Report, width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(on_terminal(page))
    return out.getvalue()


def test_compare_shows_every_figure_of_every_policy() -> None:
    results = {
        "mark": result(usd=9.5),
        "static-peak": result("static-peak", usd=39.5),
        "target-tracking": result("target-tracking", 39.5, 0.93, regret=None, regret_reason="the SLO was missed"),
    }
    lines = plain(compare_report(results)).splitlines()
    row = next(line.split() for line in lines if line.startswith("mark "))
    assert row == ["mark", "$10.00", "75", "%", "99.00", "ok", "190", "480", "530", "2.0", "%", "1.25"]
    other = next(line for line in lines if line.startswith("target-tracking "))
    assert "93.00 MISSED" in other
    assert "ref." in next(line for line in lines if line.startswith("static-peak "))
    # The reason for a missing regret stands beneath its table.
    assert lines.index("note: no regret for target-tracking: the SLO was missed") < lines.index(
        "The bill by market ($)"
    )


def test_the_bill_by_market_leaves_out_unused_markets() -> None:
    text = plain(compare_report({"a": result("a"), "b": result("b", bill=Bill(spot=3.0))}))
    assert "spot" in text
    assert "SageMaker" not in text


@pytest.mark.parametrize("usd", [0.004, 10.0, 123_456.78])
def test_tables_fit_80_columns_without_cut_figures(usd: float) -> None:
    names = ("mark", "target-tracking-best", "fixed:c5.xlarge=10,p2.xlarge=2", "mark-paper:mark-paper:artefact")
    slow = Latency(1e5, 1e5, 1e5, 123_456.0, 234_567.0, 1e6, 1e6)
    results = {name: result(name, usd * (i + 1), latency_ms=slow) for i, name in enumerate(names)}
    text = plain(compare_report(results))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert all(shown in text for shown in ("1.67 min", "2.06 min", "3.91 min", *(name[:12] for name in names)))
    assert "…" not in text


def test_simulate_shows_monthly_cost_and_share_by_answerer() -> None:
    text = plain(simulate_report(result(usd=9.5, requests=Requests(900, 99, 1))))
    assert "$304 a month" in text
    assert "instances 90.0 %, functions 9.9 %" in text
    assert "regret 1.25 x the bound" in text
    assert "0.20 % of them with a cold start; 30 pings, 0 throttled, 22,500 GB-s" in " ".join(text.split())


def test_a_run_without_requests_still_prints() -> None:
    empty = result(attainment=None, requests=Requests(0, 0, 0), bill=Bill(), latency_ms=Latency(), bound_usd=None)
    assert "No requests arrived" in plain(simulate_report(empty))
    assert "No requests arrived" in plain(compare_report({"mark": empty}))


def test_markup_in_names_is_shown_not_obeyed() -> None:
    text = plain(compare_report({"[red]x[/red]": result("[red]x[/red]", notes=("[bold]gap",))}))
    assert "[red]x[/red]" in text
    assert "[bold]gap" in text


def test_sensitivity_tells_when_the_order_changes() -> None:
    base = {"a": result("a", 10.0), "b": result("b", 11.0)}
    rows = [variation("capacity -15 %", base, {"a": result("a", 14.0), "b": result("b", 12.0)})]
    line = next(
        line for line in plain(Report({}, parts=[sensitivity_table(rows)])).splitlines() if line.startswith("capacity")
    )
    assert line.rstrip().endswith("b now ahead of a")
    assert "+38.1 %" in line


def test_a_run_under_a_variation_has_the_same_verdict_as_alone() -> None:
    dips = {"a": result("a", 10.0, slo_result=SloResult(0.99, 0.0, 16))}
    rows = [variation("capacity -15 %", dips, dips)]
    text = plain(Report({}, parts=[sensitivity_table(rows)]))
    assert "99.00 dips" in plain(compare_report(dips))
    assert "99.00 dips" in text
    assert "+0.0 %" in text


def test_a_long_name_is_broken_only_after_a_hyphen() -> None:
    rows = [("target-tracking-best", "$12,345.60"), ("mark", "$1.00")]
    narrow = plain(Report({}, parts=[DataTable(("policy", ("bill", str)), rows)]), width=25).split()
    assert narrow == ["policy", "bill", "target-", "$12,345.60", "tracking-best", "mark", "$1.00"]
    wide = plain(Report({}, parts=[DataTable(("policy", ("bill", str)), rows)]), width=31).split()
    assert "target-tracking-best" in wide


def test_trace_facts_are_one_a_line() -> None:
    lines = plain(trace_report({"read": "", "requests": 1_234_567, "cv": None, "notes": []})).split("\n")
    assert [line.split() for line in lines if line.strip()] == [
        ["requests", "1,234,567"],
        ["cv", "-"],
        ["notes", "none"],
    ]


def test_the_catalogue_shows_price_boot_and_function() -> None:
    text = plain(catalog_report(load_catalog("aws-2019")))
    assert "c5.large/on-demand" in text
    assert "180/300" in text
    assert "lambda" in text


def test_an_unknown_catalogue_is_bad_input() -> None:
    with pytest.raises(BadInput):
        load_catalog("aws-1999")
