"""A selection's figures: dollars for each correct answer, and blanks where no answers are known."""

from __future__ import annotations

from mark.simulation.selected_calls import SelectionRun
from mark.studies.report.selection_report import selection_cells, selection_json, selection_sentences

KNOWN = SelectionRun(("small", "large"), (1.0, 0.25), 0.5, (0.75, 0.25), 0.2, 800.0)
UNKNOWN = SelectionRun(("small", "large"), (0.5, 0.5), 0.0)


def test_correct_answers_cost_the_whole_bill() -> None:
    """Two dollars for 1,000 queries, 800 of which have a correct answer."""
    found = selection_json(KNOWN, 2.0, 1000)
    assert (found["usd_per_million"], found["usd_per_million_correct"]) == (2000.0, 2500.0)
    assert (found["error"], found["asks_per_query"], found["call_usd"]) == (0.2, 1.25, 0.5)
    assert found["candidates"]["large"] == {"asked": 0.25, "answered": 0.25}
    assert selection_cells(KNOWN, 2.0, 1000) == ["20.00 %", "1.25", "$2,000.00", "$2,500.00"]
    said = " ".join(selection_sentences(KNOWN, 2.0))
    assert "20.00 % are wrong. A million correct answers cost $2,500.00." in said
    assert "$0.50 of the bill is for calls that are paid by the call" in said


def test_unknown_answers_have_no_error_and_no_price() -> None:
    found = selection_json(UNKNOWN, 2.0, 1000)
    assert (found["error"], found["usd_per_million_correct"], found["candidates"]["small"]["answered"]) == (None,) * 3
    assert len(selection_sentences(UNKNOWN, 2.0)) == 1
