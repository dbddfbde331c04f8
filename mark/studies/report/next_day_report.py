"""The next day's bill and promise, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mark.planning.next_day import BillInterval, NextDay
from mark.simulation.result import SimulationResult
from mark.studies.report.promise_help_report import stated_words
from mark.studies.report.takeaway import best, reference
from mark.studies.report.words import percent, usd
from mark.studies.saving_range import saving_range

_UNKNOWN = "not calibrated on your traffic"
_DIFFERS = "The range of the saving draws the known hours and days anew; the interval is for a day nobody has seen."


def with_next_day(shown: dict[str, Any], found: NextDay | None) -> dict[str, Any]:
    """Return the JSON of a run or plan with its next day; null if less than a day of traffic is known."""
    return {**shown, "next_day": None if found is None else found.as_json()}


def promise_sentences(
    results: Mapping[str, SimulationResult], next_days: Mapping[str, NextDay | None], *, outlook: bool = False
) -> list[str]:
    """Return sentences on the advised policy, otherwise the first: its next day, and how likely the promise is.

    One probability is enough: none if an `outlook` states one, else the next day's, else the one that plans stated.
    """
    name = best(results) or next(iter(results))
    found = next_days.get(name)
    stated = [] if outlook or (found and found.promise) else stated_words(results)
    if found is None:
        return stated
    against = reference(results)
    result = results[name]
    ranged = against is not None and against != name and saving_range(result, results[against]) is not None
    words = next_day_words(found, f"with {name}", promise=not outlook)
    return [*stated, f"{words}{f' {_DIFFERS}' if ranged and result.kept else ''}"]


def next_day_row(
    results: Mapping[str, SimulationResult], next_days: Mapping[str, NextDay | None]
) -> list[tuple[str, str]]:
    """Return a row on the advised policy for a page's overview."""
    found = next_days.get(best(results) or "")
    return [] if found is None else [("Next day", interval_words(found.usd))]


def next_day_words(found: NextDay, how: str = "", *, promise: bool = True) -> str:
    """Return dollars and, with `promise`, the probability; `how` names the policy or plan that they hold for."""
    likely = ""
    if promise and found.promise is not None:
        chance = _chance(found.promise.probability)
        known = "" if found.promise.calibrated or not found.usd.calibrated else f" ({_UNKNOWN})"
        likely = f"; the promise is kept with a probability of {chance}{known}"
    return f"The next day{f' {how}' if how else ''}: {interval_words(found.usd)}{likely}."


def interval_words(found: BillInterval) -> str:
    """Return the bill, its interval, and the calibration of the interval."""
    known = f"calibrated on {found.past_windows} past windows of 24 h" if found.calibrated else _UNKNOWN
    return f"{usd(found.expected)}, nine times out of ten between {usd(found.low)} and {usd(found.high)} ({known})"


def _chance(probability: float) -> str:
    if probability < 0.01:
        return "less than 1 %"
    return "more than 99 %" if probability > 0.99 else percent(probability, 0)
