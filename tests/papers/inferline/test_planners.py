"""Planners beside each other: one case of Fig. 5."""

from __future__ import annotations

import math

from mark_papers.inferline.planners import run_inferline_fig5, run_inferline_fig9


def test_every_planner_has_its_price_and_what_it_misses() -> None:
    told: list[float] = []
    found = run_inferline_fig5(pipelines=("image",), rates=(50.0,), progress=told.append)
    assert told == [0.5, 1.0]
    assert [(row.pipeline, row.rate, row.slo_ms, row.cv) for row in found.rows] == [
        ("image", 50.0, 150.0, 1.0),
        ("image", 50.0, 150.0, 4.0),
    ]
    for row in found.rows:
        assert set(row.usd_per_hour) == set(row.miss_share) == {"coarse-peak", "coarse-mean", "inferline", "mark"}
        assert all(usd > 0.0 and math.isfinite(usd) for usd in row.usd_per_hour.values())
        assert all(0.0 <= share <= 1.0 for share in row.miss_share.values())
        assert row.miss_share["mark"] <= 0.01
        assert row.usd_per_hour["coarse-mean"] <= row.usd_per_hour["coarse-peak"]
    calm, bursty = found.rows
    assert bursty.usd_per_hour["inferline"] > calm.usd_per_hour["inferline"]


def test_fig_9_asks_for_several_promises() -> None:
    found = run_inferline_fig9(rates=(50.0,), slos_ms=(500.0,))
    assert {(row.pipeline, row.slo_ms) for row in found.rows} == {("social", 500.0)}
    assert found.figure == "inferline-fig9"
