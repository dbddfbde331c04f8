"""The report of the savings that a commitment would have made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.time import DAY_S
from mark.planning.market.commitment import Advice
from mark.simulation.result import TraceInfo
from mark.studies.report.commitment_report import commitment_report
from tests.studies.report.results import result
from tests.studies.report.test_forecast import printed

# Two always run and one half the time: at 1 $/h two are worth 0.6 $/h each, and save 0.8 $/h.
ADVICE = Advice("c5.large/on-demand", "1-year", 1.0, 0.6, (1.0, 1.0, 0.5), 2)


def words(days: float = 1.0, advice: tuple[Advice, ...] = (ADVICE,), committed: dict[str, int] | None = None) -> str:
    """Return a bill of 2 $/h."""
    run = result(usd=48.0 * days - 0.5, trace=TraceInfo("day.csv.gz", 1_000_000, days * DAY_S))
    return " ".join(printed(commitment_report(run, advice, committed or {}, "a price list")).split())


def test_a_commitment_shows_what_it_saves_and_costs() -> None:
    text = words()
    assert "c5.large/on-demand 1-year 1.0000 0.6000 60 % 2 $584" in text
    assert "1-year: $584 a month less than $1,460 on demand (40.0 %), for $1.20/h promised." in text
    assert "discounts: a price list" in text


@pytest.mark.parametrize(("days", "short"), [(1.0, True), (6.9, True), (7.0, False)])
def test_less_than_a_week_is_a_short_look(days: float, short: bool) -> None:
    assert ("is a short look at a year" in words(days)) == short


def test_where_nothing_is_used_for_long_enough_that_is_said() -> None:
    text = words(advice=(replace(ADVICE, used=(0.3,), count=0),))
    assert "No instance is used for long enough to be worth a commitment." in text
    assert "No instance" in words(advice=())


def test_present_commitments_are_part_of_the_counts() -> None:
    assert "counts include today's commitments: 3 c5.large/on-demand" in words(committed={"c5.large/on-demand": 3})
    assert "today" not in words()


def test_the_json_has_it_all() -> None:
    data = commitment_report(result(), [ADVICE], {"c5.large/on-demand": 3}, "a price list").data
    assert (data["schema"], data["discounts_from"], data["committed"]) == (1, "a price list", {"c5.large/on-demand": 3})
    (one,) = data["advice"]
    assert (one["count"], one["pays_above"], one["used"]) == (2, pytest.approx(0.6), [1.0, 1.0, 0.5])
    assert one["saved_usd_per_hour"] == pytest.approx(0.8)
