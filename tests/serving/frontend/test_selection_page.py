"""The page of a selection: every candidate with its numbers, unknown ones said, names escaped."""

from typing import Any

from mark.serving.frontend.selection_page import selection_page


def _said(**of_candidate: Any) -> dict[str, Any]:
    candidate = {
        "weight": 0.75, "share": 0.5, "error": 0.021, "feedback": 1200.0, "asked": 5000, "missed": 3,
        "usd_per_call": 1.5e-6, "off": False,
    }  # fmt: skip
    return {
        "policy": "exp4", "candidates": {"small<b>": candidate, "large": candidate | of_candidate}, "answers": 10_000,
        "by_default": 7, "averaged": 0, "error": None, "usd_per_million_answers": 2.5, "usd_per_million_correct": None,
        "feedback": 2400, "contexts": 0, "champion": "large",
    }  # fmt: skip


def test_page_shows_each_candidate_with_its_numbers() -> None:
    page = selection_page("digits", _said())

    assert "small&lt;b&gt;" in page
    assert "small<b>" not in page
    for text in ("75.0 %", "2.10 %", "50.00 %", "5,000", "1.5e-06", "1,200", "10,000, 7 of them the default"):
        assert text in page
    assert "large (champion)" in page
    assert page.count("unknown") == 2, "the error of all answers, and what a correct one costs"


def test_page_says_who_was_switched_off_and_who_has_no_weight() -> None:
    page = selection_page("digits", _said(off=True, weight=None))

    assert "switched off by the guard" in page
    assert "by worth" in page
