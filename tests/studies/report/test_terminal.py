"""A report on the terminal: the order of its parts, their spacing, and the columns that fit."""

from __future__ import annotations

import pytest

from mark.studies.report.report import DataTable, Marked, Markup, Part, Plot, Prose, Report, formatted
from mark.studies.report.words import usd
from tests.studies.report.test_simulate_report import plain

TABLE = DataTable(
    ("policy", ("bill", usd), *formatted("why")), [("mark", 2.0, "cheap")], "On a page", notes=["mark wins"]
)


def lines(report: Report) -> list[str]:
    return [line.rstrip() for line in plain(report).splitlines()]


def test_parts_stand_in_their_order_with_an_empty_line_around_tables() -> None:
    parts: list[Part] = [Marked("before"), TABLE, Prose(["after"])]
    report = Report({}, "headline", parts, ["told"], ["a note"], ["a warning"], read="read 3 rows")
    table = ["", "policy  bill   why", "mark   $2.00 cheap", "", "note: mark wins"]
    ends = ["told", "", "warning: a warning", "", "note: a note"]
    assert lines(report) == ["read 3 rows", "headline", "before", *table, "after", *ends]


def test_sentences_may_come_first() -> None:
    assert lines(Report({}, parts=[Marked("part")], sentences=["told"], is_told_first=True)) == ["told", "part"]


def test_notes_below_a_table_are_one_empty_line_apart() -> None:
    bare = DataTable(("policy",), [("mark",)])
    assert lines(Report({}, parts=[bare], notes=["a note"])) == ["", "policy", "mark", "", "note: a note"]


def test_terminal_leaves_out_parts_of_pages_alone_and_columns_that_do_not_fit() -> None:
    narrow = DataTable(TABLE.heads, TABLE.rows, printed=2)
    parts: list[Part] = [Plot("figure", lambda: pytest.fail("drawn")), Markup("<p>page</p>"), narrow]
    assert lines(Report({}, parts=parts)) == ["", "policy  bill", "mark   $2.00", ""]


def test_row_that_does_not_fit_its_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        DataTable(("a", "b"), [("x",)]).cells()


def test_names_stay_in_one_line_beside_sentences() -> None:
    figures = [(f"figure {i}", str) for i in range(3)]
    row = ("function latency x 1.5", "target-tracking-best", *("$20,000.48",) * 3, "best-fixed is now ahead of it")
    table = DataTable(("scenario", "policy", *figures, "order"), [row])
    assert any("target-tracking-best " in line for line in lines(Report({}, parts=[table])))
