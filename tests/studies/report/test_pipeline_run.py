"""The report of simulated pipelines: the cheapest policy that keeps the promise, or that none keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mark.domain.function_offer import FunctionCalls
from mark.domain.slo import Slo
from mark.simulation.result import Latency
from mark.studies.pipeline_result import FunctionRun, PipelineRun, StageRun
from mark.studies.report.pipeline_run import (
    cheapest_kept,
    pipeline_compare_report,
    pipeline_run_report,
)
from mark.traffic.traces.trace import Part
from tests.studies.report.test_forecast import printed

STAGE = StageRun("vision", "g6.xlarge", 8, 1000, 2.0, 2.5, 3, 0.5, 0.004)


def run(policy: str, usd: float, misses: int, **changed: Any) -> PipelineRun:
    found = PipelineRun(
        "social", policy, 0, Slo(0.3, 0.99), "aws-2026", "t.csv", 0.0, 3600.0, 1000, misses, 0.9, 2,
        Latency(50.0, 40.0, 80.0, 90.0, 100.0, 200.0, 400.0), usd, 2.5, 3, (replace(STAGE, usd=usd),),
        Part(0.0, 120.0, 40.0), ("a note",), bound_usd=0.5,
    )  # fmt: skip
    return replace(found, **changed)


def told(*runs: PipelineRun) -> str:
    return " ".join(printed(pipeline_compare_report({one.policy: one for one in runs})).split())


def test_the_cheapest_kept_run_is_named_with_its_regret() -> None:
    runs = run("mark", 2.0, 10), run("inferline", 1.0, 11), run("fixed", 3.0, 0)
    assert cheapest_kept({one.policy: one for one in runs}) == "mark"
    out = told(*runs)
    for said in (
        "mark $2.00 33 % 99.00 ok 40 80 100 2.5 3 4.00",
        "inferline $1.00 67 % 98.90 MISSED 40 80 100 2.5 3 -",
        "fixed $3.00 ref. 100.00 ok",
        "mark is the cheapest that keeps the promise: 99.00 % of the queries within 300 ms",
        "that is $1,460 a month; fixed costs $2,190.",
        "Missed the promise: inferline.",
        "No fleet can keep this promise for less than $0.50 (a proven bound): mark is at 4.00 times that.",
    ):
        assert said in out


def test_where_none_keeps_it_the_closest_is_named() -> None:
    out = told(run("mark", 2.0, 20), run("inferline", 9.0, 300))
    assert "No policy here keeps the promise of 99.0 % within 300 ms; closest is mark with 98.00 % for $2.00." in out
    assert "ref." not in out  # a policy that misses the promise is no reference for savings


def test_a_promise_is_told_with_all_its_decimals() -> None:
    slo = Slo(0.3, 0.9995)
    assert "100.00 % of the queries within 300 ms (99.95 % asked)" in told(run("mark", 2.0, 0, slo=slo))
    assert "keeps the promise of 99.95 % within 300 ms" in told(run("mark", 2.0, 1, slo=slo))


def test_what_costs_more_than_twice_the_reference_says_so() -> None:
    assert "mark $9.00 costs 4.5 x" in told(run("mark", 9.0, 0), run("fixed", 2.0, 0))


def test_a_note_of_some_stands_with_their_names() -> None:
    out = told(
        run("mark", 2.0, 0), run("fixed", 3.0, 0, notes=("a note", "another"), planned_on=Part(60.0, 180.0, 9.0))
    )
    for said in ("note: a note", "note: fixed: another", "note: mark: planned on 2 min from 0 s on"):
        assert said in out


def test_missed_runs_have_no_regret_and_uncalled_stages_no_wait() -> None:
    missed = run("mark", 2.0, 500, stages=(replace(STAGE, calls=0, wait_s=float("nan"), busy=0.0),))
    out = " ".join(printed(pipeline_run_report(missed)).split())
    for said in (
        "SLO MISSED 50.00 % within 300 ms (99.0 % asked), 500 late; worst minute 90.0 %, 2 min below",
        "regret none: the promise was missed",
        "vision g6.xlarge 8 2.5 3 0 % - $2.00 100 %",
    ):
        assert said in out
    assert pipeline_run_report(missed).data["regret"] is None
    assert "Bound" not in printed(pipeline_run_report(replace(missed, bound_usd=None)))


def test_functions_stand_beside_instances_where_the_file_names_them() -> None:
    """A tenth of the calls, a quarter of the dollars."""
    asked = FunctionRun("lambda:1769", FunctionCalls(calls=100, cold=5, throttled=2, billed_gb_s=4.0), 0.5)
    stages = replace(STAGE, function=asked), replace(STAGE, stage="topics", usd=0.0, calls=0)
    ours = run("mark", 2.0, 0, stages=stages, names_functions=True)
    out = " ".join(printed(pipeline_run_report(ours)).split())
    for said in (
        "Functions $0.50 of it, for 100 calls, 10.00 % of all",
        "stage function calls calls cold throttled $ vision lambda:1769 100 10.00 % 5.00 % 2 $0.50",
    ):
        assert said in out
    found = pipeline_run_report(ours).data
    assert (found["instance_usd"], found["function_usd"], found["function_share"]) == (1.5, 0.5, 0.1)
    assert (found["functions"]["calls"], found["functions"]["cold_share"]) == (100, 0.05)
    assert [stage["function"] for stage in found["stages"]] == ["lambda:1769", None]
    assert [stage["function_share"] for stage in found["stages"]] == [0.1, None]
    without = run("fixed", 3.0, 0, names_functions=True)
    beside = told(ours, without)
    assert "mark $2.00 $0.50 33 % 100.00 ok" in beside
    assert "fixed $3.00 - ref. 100.00 ok" in beside
    assert "lambda" not in printed(pipeline_run_report(without))
