"""Figs. 2.3 and 2.4, small: their rows, and that more factors and items take longer."""

from __future__ import annotations

from mark_papers.velox.speed import run_velox_fig2_3, run_velox_fig2_4


def test_update_takes_longer_with_more_factors() -> None:
    told: list[float] = []
    (panel,) = run_velox_fig2_3(factors=(10, 500), updates=200, progress=told.append).panels
    small, large = (float(row["update_us"]) for row in panel.rows)
    assert 0.0 < small < large
    assert all(float(row["95 %_us"]) >= 0.0 for row in panel.rows)
    assert told == [0.5, 1.0]


def test_best_of_more_items_take_longer() -> None:
    (panel,) = run_velox_fig2_4(factors=(50,), sizes=(10, 10_000), asked=20).panels
    small, large = (float(row["50 factors_us"]) for row in panel.rows)
    assert 0.0 < small < large
    assert [row["items"] for row in panel.rows] == ["10", "10,000"]
