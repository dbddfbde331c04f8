"""The testbed's output: the address of its page, the requests sent and their time, and why a promise was missed."""

from __future__ import annotations

from typing import Any

from mark.studies.report.report import Report
from mark.studies.report.testbed_report import load_report, status_report
from tests.studies.report.test_simulate_report import plain

STATUS: dict[str, Any] = {
    "endpoint": "http://aws", "site": "site.toml", "services": {"words": "http://words"},
    "fleet": [], "problems": [], "time_scale": 10.0,
    "controllers": [{"url": "http://page"}, {"url": None}], "bill_usd": {"total": 0.0},
}  # fmt: skip


def words(report: Report) -> str:
    return " ".join(plain(report).split())


def told(
    attainment: float = 0.9, time_scale: float = 10.0, launched: int = 0, lag_ms: float = 1.0, **more: object
) -> str:
    page = load_report(
        {
            "trace": {"name": "t", "duration_s": 60.0, "time_scale": time_scale, "read": ""},
            "requests": {"total": 240, "instances": 144, "functions": 92, "rejected": 4},
            "slo": {"rt_max_ms": 800.0, "target": 0.98, "attainment": attainment},
            "missed": {"instances": 1, "functions": 19, "rejected": 4},
            "latency_ms": {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0},
            "client_lag_ms": {"p99": lag_ms},
            "bill_usd": {"total": 0.0},
            "fleet": {"launched": launched},
            **more,
        }
    )
    return words(page)


def test_the_status_names_the_live_page_of_each_controller() -> None:
    said = words(status_report(STATUS))
    assert "Live page http://page Live page its controller starts" in said
    assert "Controller's clock 10 times as fast as yours" in said
    pipelines = {"digits": "http://digits", "social": None}
    said = words(status_report(STATUS | {"pipelines": pipelines}))
    assert "digits: send queries to http://digits social: send queries to nothing yet: its stages start" in said
    assert "clock" not in words(status_report(STATUS | {"time_scale": 1.0}))


def test_stages_are_listed_below_their_pipeline() -> None:
    services = {"two-b": "http://b", "words": "http://words", "two-a": "http://a"}
    fleet = [
        {"id": f"i-{n}", "offer": "o", "service": name, "state": "running", "doomed": False, "address": "x"}
        for n, name in enumerate(["two-b", "words", "two-a", "gone"])
    ]
    more = {"services": services, "fleet": fleet, "pipelines": {"two": "http://two"}}
    said = words(status_report(STATUS | more | {"stages": {"two": ["two-a", "two-b"]}}))
    assert "words: send requests to http://words two: send queries to http://two its stage two-a http://a its" in said
    assert "two-a: send requests" not in said
    assert [said.index(f"i-{n}") for n in (1, 2, 0, 3)] == sorted(said.index(f"i-{n}") for n in range(4))


def test_a_compressed_load_says_what_its_seconds_are() -> None:
    assert "Sent 60 s of the trace, in 6 s (--compress 10): one request in 10" in told()
    assert "Sent 60 s of the trace Requests" in told(time_scale=1.0)


def test_a_load_says_first_what_was_read() -> None:
    trace = {"name": "t.csv", "duration_s": 60.0, "time_scale": 1.0, "read": "read 240 requests in 60 s, 4/s"}
    assert told(trace=trace).startswith("read 240 requests in 60 s, 4/s Sent 60 s")


def test_reconstructions_are_shown_among_the_answers_of_instances() -> None:
    said = told(parity={"reconstructed": 12, "degraded_share": 0.05})
    assert "instances 144 (60.0 %) of these reconstructed 12 (5.00 %) functions" in said


def test_a_missed_promise_says_what_missed_it_and_why() -> None:
    said = told(launched=3, lag_ms=50.0)
    assert "1 answered late by instances, 19 late by functions (cold ones take longer), 4 not answered" in said
    assert "3 launched meanwhile" in said
    assert "one request in a hundred was sent 50 ms late or more" in said
    plain = told()
    assert "launched meanwhile" not in plain
    assert "too busy" not in plain


def test_a_pipelines_calls_are_shown_by_stage() -> None:
    small = {"stage": "small", "queries": 240, "instances": 150, "functions": 80, "function_usd": 0.25}
    large = {"stage": "large", "queries": 30, "instances": 30, "functions": 0, "function_usd": 0.0}
    said = told(stages=[small, large])
    assert "stage queries on instances by function $ without answer small 240 150 80 $0.25 10 large 30 30 0" in said
    assert "stage" not in told()


def test_a_kept_promise_needs_no_reasons() -> None:
    said = told(attainment=0.98, launched=3, lag_ms=50.0)
    assert "Missed" not in said
    assert "launched meanwhile" not in said
    assert "The live page counts at gateway and instances" in said
