"""The next day in words: dollars, probability, and their basis."""

from __future__ import annotations

from dataclasses import replace

from mark.planning.next_day import BillInterval, KeptProbability, NextDay
from mark.simulation.result import PromiseRun
from mark.studies.report.compare_report import render_report
from mark.studies.report.next_day_report import next_day_row, next_day_words, promise_sentences, with_next_day
from tests.studies.report.results import result

KNOWN = NextDay(BillInterval(8.0, 15.0, 11.0, True, 20), KeptProbability(0.93, True))


def test_words_say_dollars_probability_and_the_days_behind_them() -> None:
    assert next_day_words(KNOWN) == (
        "The next day: $11.00, nine times out of ten between $8.00 and $15.00 (calibrated on 20 past windows of 24 h); "
        "the promise is kept with a probability of 93 %."
    )


def test_what_is_not_calibrated_says_so_once() -> None:
    foreign = NextDay(replace(KNOWN.usd, calibrated=False), KeptProbability(0.93, False))
    assert next_day_words(foreign).count("not calibrated on your traffic") == 1
    assert next_day_words(replace(KNOWN, promise=KeptProbability(0.93, False))).endswith(
        "93 % (not calibrated on your traffic)."
    )


def test_near_certainty_is_not_rounded_to_all() -> None:
    assert "more than 99 %" in next_day_words(replace(KNOWN, promise=KeptProbability(0.9999, True)))
    assert "less than 1 %" in next_day_words(replace(KNOWN, promise=KeptProbability(1e-9, True)))


def test_saving_range_is_told_from_the_interval_where_both_are_shown() -> None:
    results = {"mark": result(), "best-fixed": result("best-fixed", 20.0)}
    (said,) = promise_sentences(results, {"mark": KNOWN, "best-fixed": None})
    assert said.startswith("The next day with mark: $11.00")
    assert said.endswith("the interval is for a day nobody has seen.")
    assert "saving" not in promise_sentences({"mark": result()}, {"mark": KNOWN})[0]
    assert promise_sentences(results, {"mark": None}) == []


def test_page_shows_the_next_day_of_the_advised_policy() -> None:
    results = {"mark": result()}
    assert next_day_row(results, {"mark": KNOWN})[0][0] == "Next day"
    assert "nine times out of ten between $8.00 and $15.00" in render_report(results, next_days={"mark": KNOWN})
    assert "nine times out of ten" not in render_report(results)


def test_json_is_null_where_no_day_is_known() -> None:
    assert with_next_day({"a": 1}, None) == {"a": 1, "next_day": None}
    assert with_next_day({}, KNOWN)["next_day"] == {
        "usd": {"interval_90": [8.0, 15.0], "expected": 11.0, "calibrated": True, "past_windows": 20},
        "promise_kept": {"probability": 0.93, "calibrated": True},
    }


def test_page_states_one_probability_of_the_promise() -> None:
    stated = result(promise=PromiseRun((0.99,), 0.97, 0.91, 60.0))
    alone = promise_sentences({"mark": stated}, {})
    assert alone == [
        "mark planned with a probability of at least 91 % that a day keeps the promise (slo_confidence asks for 95 %); "
        "this run of 24 h kept it."
    ]
    (known,) = promise_sentences({"mark": stated}, {"mark": KNOWN})
    assert known.endswith("with a probability of 93 %.")
    (judged,) = promise_sentences({"mark": stated}, {"mark": KNOWN}, outlook=True)
    assert "probability" not in judged
