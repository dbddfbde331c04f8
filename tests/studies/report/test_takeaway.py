"""The sentences that people remember must be true."""

from dataclasses import replace

import pytest

from mark.domain.bill import Bill
from mark.domain.function_offer import FunctionCalls
from mark.simulation.result import Requests, SimulationResult, SloResult, TraceInfo
from mark.studies.report.takeaway import (
    at_a_glance,
    best,
    footnotes,
    forecasters,
    listed,
    next_steps,
    notes,
    reference,
    reference_note,
    row_name,
    saves,
    saving,
    takeaway,
    verdict,
)
from tests.studies.report.results import result


def test_the_cheapest_policy_that_missed_the_slo_is_never_recommended() -> None:
    results = {"cheap": result("cheap", usd=1.0, attainment=0.9), "mark": result(usd=10.0)}
    assert best(results) == "mark"
    assert "cheap" in next(line for line in takeaway(results) if line.startswith("Missed"))


def test_a_takeaway_tells_the_promise_with_all_its_decimals() -> None:
    asked = result(attainment=1.0)
    found = replace(asked, slo=replace(asked.slo, attainment=0.999))
    assert any("(99.9 % asked)" in line for line in takeaway({"mark": found, "fixed": replace(found, policy="fixed")}))


def test_no_takeaway_says_to_run_an_oracle() -> None:
    results = {"oracle": result("oracle", usd=5.0), "mark": result(usd=10.0)}
    assert best(results) == "mark"
    assert any("better forecasts are worth at most $5.00" in line for line in takeaway(results))


def test_savings_count_against_what_runs_today_else_against_the_dearest() -> None:
    mark, dear = result(usd=10.0), result("static-peak", usd=40.0)
    assert reference({"mark": mark, "static-peak": dear}) == "static-peak"
    assert reference({"mark": mark, "static-peak": dear, "as-is": result(usd=20.0)}) == "as-is"
    assert reference({"mark": mark, "fixed:c5.large=3": result(usd=20.0), "static-peak": dear}) == "fixed:c5.large=3"
    assert reference({"mark": mark, "best-fixed": result(usd=20.0), "static-peak": dear}) == "best-fixed"
    assert reference({"as-is": dear, "best-fixed": result(usd=20.0)}) == "as-is"
    assert reference({"mark": mark}) is None


@pytest.mark.parametrize("name", ["as-is", "fixed:c5.large=3", "best-fixed"])
def test_a_reference_keeps_the_promise(name: str) -> None:
    """A policy that buys less is cheaper for that reason, so savings are not measured against it."""
    missed = result(name, usd=5.0, attainment=0.9)
    others = {"mark": result(usd=10.0), "static-peak": result("static-peak", usd=40.0)}
    assert reference({name: missed, **others}) == "static-peak"
    assert reference({name: missed, "mark": others["mark"]}) is None


def test_a_tie_to_the_cent_is_a_tie() -> None:
    """The headline names the policy with the fewest moving parts, and the policies of equal cost beside it."""
    results = {name: result(name, usd=10.001) for name in ("mark-paper", "mark", "reactive")}
    assert best(results) == "mark"
    assert takeaway(results)[1] == "mark-paper and reactive cost the same as mark to the cent."
    results["best-fixed"] = result("best-fixed", usd=10.0)
    assert best(results) == "best-fixed"
    assert saves(results["mark"], results["best-fixed"]) == "0 %"
    # Below a cent, the shown digits count.
    short = {name: result(name, bill=Bill(on_demand=usd)) for name, usd in (("mark", 0.0089), ("reactive", 0.0060))}
    assert best(short) == "reactive"
    assert "to the cent" not in " ".join(takeaway(short))


def test_sagemaker_is_compared_at_its_best() -> None:
    results = {
        "mark": result(usd=9.5),
        "best-fixed": result("best-fixed", usd=39.5),
        "target-tracking": result("target-tracking", usd=99.5),
        "target-tracking-best": result("target-tracking-best", usd=49.5, slo_result=SloResult(0.98, 0.0, 9)),
    }
    text = " ".join(takeaway(results))
    assert "with target-tracking-best on SageMaker it would be $1,521, with minutes in which most answers" in text


def test_rows_that_are_not_what_their_name_says_are_marked() -> None:
    paper = result("mark-paper")
    assert row_name("mark-paper", paper) == "mark-paper*"
    assert row_name("mark-paper", replace(paper, predictor="lstm")) == "mark-paper"
    assert row_name("mark-paper:auto", paper) == "mark-paper:auto"  # as asked for
    assert row_name("mark", result()) == "mark"
    dark = result("mark", slo_result=SloResult(0.9973, 0.0, 56))
    assert verdict(dark) == "dips"
    missed = result("b", attainment=0.9, regret=None, regret_reason="the SLO was missed")
    assert footnotes({"mark-paper": paper, "mark": dark, "b": missed, "c": missed}) == [
        "mark-paper*: not the paper's system as printed, since auto forecasts in place of its LSTM",
        "dips: the whole run keeps the promise, but in one minute or more most requests were late: mark (worst minute "
        "0 % in time, 56 min below the promise)",
        "no regret for b and c: the SLO was missed",
    ]


def test_missed_promise_says_how_its_requests_failed() -> None:
    paper = result("mark-paper", attainment=0.0, requests=Requests(0, 0, 100), functions=FunctionCalls(0, 0, 0, 0, 0.0))
    both = result("reactive", attainment=0.9, requests=Requests(960, 0, 40, late=60))
    called = replace(paper, requests=Requests(0, 50, 50))
    late = result("mark-optimal", attainment=0.9, requests=Requests(95, 5, 0, late=10))
    alone = replace(paper, requests=Requests(100, 0, 0, late=30))
    runs = {
        "mark-paper:auto": paper,
        "mark-optimal": alone,
        "reactive": both,
        "mark-paper": called,
        "mark-optimal:lstm": late,
    }
    waits = "; by the paper's rule it may wait for full batches, which leaves slow answers less time"
    assert [line for line in footnotes(runs) if "MISSED" in line] == [
        "mark-paper:auto MISSED: of its requests 100.0 % were rejected; it passes requests that would be late to a "
        "function, and this service has none",
        f"mark-optimal* MISSED: of its requests 30.0 % came late{waits}",
        "reactive MISSED: of its requests 4.0 % were rejected and 6.0 % came late",
        "mark-paper* MISSED: of its requests 50.0 % were rejected",
        f"mark-optimal:lstm MISSED: of its requests 10.0 % came late{waits}",
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["mark", "oracle", "best-fixed"],
            "best-fixed (ref.), the cheapest fixed fleet without functions that keeps the promise; "
            "oracle knows the future and cannot be run",
        ),
        (["mark", "best-fixed", "as-is"], "as-is (ref.), your present policy"),
        (["mark", "fixed:c5.large=4"], "fixed:c5.large=4 (ref.), the fleet that you named"),
        (["mark", "reactive"], "mark (ref.), the dearest policy that keeps the promise"),
        (["mark"], None),
    ],
)
def test_reference_of_the_savings_is_said_once(names: list[str], said: str | None) -> None:
    results = {name: result(name) for name in names}
    assert reference_note(results) == ([] if said is None else [f"saves: the share of the bill of {said}"])


def test_costs_above_twice_the_reference_are_told_in_times() -> None:
    reference = result(usd=9.5)
    assert [saves(result(usd=usd), reference) for usd in (4.5, 14.5, 29.5)] == ["50 %", "-50 %", "costs 3.0 x"]


def test_savings_name_the_best_fixed_fleet_and_sagemaker() -> None:
    results = {
        "mark": result(usd=9.5),
        "best-fixed": result("best-fixed", usd=39.5),
        "target-tracking": result("target-tracking", usd=99.5),
    }
    text = " ".join(takeaway(results))
    assert "instead of $1,217 with best-fixed (4 c5.large all the time): $913 a month less (75 %)" in text
    assert "with target-tracking on SageMaker it would be $3,042" in text
    dark = result("best-fixed", usd=39.5, slo_result=SloResult(0.99, 0.0, 16))
    text = " ".join(takeaway({**results, "best-fixed": dark}))
    assert "all the time), with minutes in which most answers are late: $913 a month less" in text


@pytest.mark.parametrize(
    ("usd", "verdict"), [(9.52, "a fixed fleet does as well, so run that"), (9.5, "run this fixed fleet")]
)
def test_where_a_fixed_fleet_does_as_well_it_is_recommended(usd: float, verdict: str) -> None:
    text = " ".join(takeaway({"mark": result(usd=9.5), "best-fixed": result("best-fixed", usd=usd)}))
    assert verdict in text
    assert "4 c5.large all the time" in text
    assert "less (" not in text


def test_a_fixed_fleet_is_advised_only_against_other_policies_and_spot() -> None:
    fixed, mark = result("best-fixed", usd=9.5), result(usd=19.5)
    alone = " ".join(takeaway({"best-fixed": fixed}))
    assert "that is $304 a month. No policy can keep" in alone
    assert next_steps({"best-fixed": fixed}) == ["Compare it with other policies: `mark compare TRACE --service FILE`."]
    runs = {"mark": mark, "best-fixed": fixed}
    assert "No other policy here keeps the promise for less: run this fixed fleet." in " ".join(takeaway(runs))
    for usd, end in ((4.5, "for less without spot."), (14.5, "for less: run this fixed fleet.")):
        spot = result(bill=Bill(spot=usd))
        assert f"No other policy here keeps the promise {end}" in " ".join(takeaway(runs, spot=spot))
        assert ("whether spot may be bought" in next_steps(runs, spot)[0]) == (usd < 9.5)


def test_saving_that_rests_on_spot_says_so() -> None:
    fixed, without = result("best-fixed", usd=39.5), result(usd=29.5)
    runs = {"mark": result(bill=Bill(spot=10.0)), "best-fixed": fixed}
    assert takeaway(runs, no_spot=without)[2] == (
        "mark buys spot, and best-fixed does not. Without spot mark would cost $30.00, 25 % less than best-fixed, with "
        "99.00 % in time: ok."
    )
    assert ("Saves", "75 %; without spot 25 %") in at_a_glance(runs, without)
    dearer = takeaway(runs, no_spot=result(usd=49.5, attainment=0.9))[2]
    assert dearer.endswith(
        "Without spot mark would cost $50.00, 25 % more than best-fixed, with 90.00 % in time: MISSED."
    )


def test_saving_without_spot_says_nothing_of_spot() -> None:
    without, spot = result(usd=29.5), result(bill=Bill(spot=10.0))
    fixed = result("best-fixed", usd=39.5)
    for runs in (
        {"mark": result(usd=9.5), "best-fixed": fixed},
        {"mark": spot, "best-fixed": result("best-fixed", bill=Bill(spot=40.0))},
        {"mark": spot},
    ):
        assert "spot" not in " ".join(takeaway(runs, no_spot=without))
        assert "spot" not in str(at_a_glance(runs, without))


def test_a_policy_that_costs_more_than_today_says_so() -> None:
    results = {"mark": result(usd=10.0), "as-is": result("as-is", usd=5.0, attainment=0.5)}
    assert saving(results["mark"], results["as-is"]) < 0.0  # type: ignore[operator]
    text = " ".join(takeaway(results))
    assert "as-is costs $167 a month, and misses the promise: nothing is counted as saved against it." in text
    assert "less (" not in text
    assert ("As is, simulated", "$167 a month with as-is, which misses the promise") in at_a_glance(results)


def test_a_month_from_a_short_trace_says_so() -> None:
    day = {"mark": result(usd=9.5), "as-is": result("as-is", usd=39.5)}
    assert "$304 a month instead of $1,217 with as-is: $913 a month less (75 %)" in " ".join(takeaway(day))
    assert "short look" not in " ".join(takeaway(day))
    log = {"mark": result(trace=TraceInfo("x", 10, 86_396.0))}  # of a day: neither request is at midnight
    assert "short look" not in " ".join(takeaway(log))
    hour = {"mark": result(trace=TraceInfo("x", 10, 3600.0))}
    assert "a short look" in " ".join(takeaway(hour))


def test_if_no_policy_keeps_the_slo_the_closest_leads() -> None:
    results = {"a": result("a", attainment=0.9), "b": result("b", attainment=0.95)}
    assert best(results) is None
    assert "closest is b with 95.00 %" in takeaway(results)[0]


def test_no_requests_is_no_verdict() -> None:
    empty = result(attainment=None, requests=Requests(0, 0, 0), bill=Bill())
    assert empty.kept is None
    assert takeaway({"mark": empty}) == ["No requests arrived in this part of the trace."]


def test_notes_come_once_and_name_their_policies_when_they_differ() -> None:
    shared = result(notes=("a gap",), assumed_share=0.25)
    other = result("b", notes=("a gap", "fell back"), regret=None, regret_reason="the SLO was missed")
    assert notes({"a": shared, "b": other}) == [
        "a gap",
        "a: 25.0 % of the bill rests on assumed profile rows",
        "b: fell back",
    ]


def test_fallback_forecasts_are_counted() -> None:
    assert forecasters(result(predictors={"auto": 1440})) == "auto"
    assert (
        forecasters(result(predictors={"auto": 1430, "last-value": 10})) == "auto (1,430 plans), last-value (10 plans)"
    )
    assert forecasters(result(predictors={"last-value": 2})) == "last-value (2 plans)"
    assert forecasters(result(predictor="", predictors={})) == ""


def test_names_are_listed_as_people_do() -> None:
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_a_kept_promise_with_dark_minutes_says_so() -> None:
    dark = result("mark", slo_result=SloResult(0.9973, 0.0, 56))
    text = " ".join(footnotes({"mark": dark, "reactive": result("reactive", usd=20.0)}))
    assert "most requests were late: mark (worst minute 0 % in time, 56 min below the promise)" in text


def test_minutes_that_most_requests_survive_need_no_word() -> None:
    assert not footnotes({"mark": result("mark")})


def test_a_glance_holds_two_bills_a_range_a_date() -> None:
    runs = {"mark": result(usd=9.5, priced="aws-2026, us-east-1, 2026-07-20"), "as-is": result("as-is", usd=39.5)}
    assert at_a_glance(runs) == [
        ("As is, simulated", "$1,217 a month with as-is"),
        ("Best here", "$304 a month with mark"),
        ("Saves", "75 %"),
        ("Prices", "aws-2026, us-east-1, 2026-07-20"),
    ]
    assert at_a_glance({"mark": result(attainment=0.5)}) == []
    kept = at_a_glance({"mark": result(usd=19.5), "as-is": result("as-is", usd=9.5)})
    assert kept == [("As is, and best here", "$304 a month with as-is")]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        pytest.param({"mark": result(attainment=0.5)}, ["keeps the promise"], id="missed"),
        pytest.param({"mark": result(), "as-is": result("as-is", usd=9.0)}, ["Keep your present fleet"], id="as-is"),
        pytest.param({"mark": result()}, ["mark reconcile", "mark deploy FILE --dry-run"], id="kept"),
        pytest.param(
            {"mark": result(derived_share=1.0)}, ["mark profile", "mark reconcile", "mark deploy"], id="derived"
        ),
        pytest.param(
            {"mark": result(trace=TraceInfo("short", 9, 600.0))}, ["week", "mark reconcile", "mark deploy"], id="short"
        ),
        pytest.param(
            {"mark": result(usd=9.5), "best-fixed": result("best-fixed", usd=9.4)}, ["Rent best-fixed"], id="fixed"
        ),
    ],
)
def test_next_steps_follow_from_what_was_found(runs: dict[str, SimulationResult], said: list[str]) -> None:
    steps = next_steps(runs)
    assert len(steps) == len(said)
    assert all(words in step for words, step in zip(said, steps, strict=True))
