"""The page of personal heads: every number with its name, unknown ones said, names escaped."""

from __future__ import annotations

from mark.serving.personal.notes import Scored
from mark.serving.personal.page import personal_page
from tests.serving.personal.made import heads, observation


def test_page_shows_errors_memory_and_reach() -> None:
    found = heads(table=True)
    for number in range(30):
        fact = found.fact(observation({"reward": float(number % 5)}, scored=Scored(f"s{number}"), at_s=float(number)))
        assert fact is not None
        found.apply(fact)
    found.top("", 10, None)
    page = personal_page("songs<b>", found.said() | {"lag_facts": 3})
    assert "songs&lt;b&gt;" in page
    assert "songs<b>" not in page
    assert "<td>20.0 %" in page, "10 of 50 items were shown"
    assert "5 to 19" in page
    assert "squared error" in page


def test_page_of_heads_that_know_nothing_says_so() -> None:
    page = personal_page("songs", heads(loss="logistic").said() | {"lag_facts": 0})
    assert "log loss" in page
    assert "unknown" in page, "the reach without a table"
