"""Policies that kept the promise in every case come first."""

from __future__ import annotations

from mark_papers.paper_pages.kept_promises import promises

from tests.studies.report.results import result


def test_policies_that_always_keep_the_slo_come_first() -> None:
    good, bad = result(), result(attainment=0.9)
    runs = {
        "a": {"x": good, "y": good},
        "b": {"x": bad, "y": good},
        "c": {"x": good, "y": result(attainment=None)},  # no request, no promise to miss
        "d": {"x": bad, "y": bad},
    }
    assert promises(runs) == [
        "a and c kept the promise in every case.",
        "b missed the promise for x (90.0 %).",
        "d missed the promise for x (90.0 %) and y (90.0 %).",
    ]
    assert promises({"b": {"x": bad}}) == ["b missed the promise for x (90.0 %)."]
