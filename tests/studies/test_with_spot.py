"""The effect of spot is a separate run, unless the service buys spot already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mark.domain.catalog
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from mark.studies.with_spot import with_spot

CATALOG = Path(mark.domain.catalog.__file__).parent / "data" / "aws-2026.csv"
BASE = RunRequest(
    trace="synthetic:poisson?rate=40",
    service="inception-v3-2026",
    duration_s=1800.0,
    predictor="seasonal-naive",
    with_bound=False,
)


def test_spot_is_added_to_the_markets_and_nothing_else_changes() -> None:
    found = with_spot(BASE)
    assert found is not None
    asked = simulate(replace(BASE, markets=("on-demand", "spot")))
    assert found.bill == asked.bill
    assert found.bill.spot > 0.0
    assert found.requests.total == simulate(BASE).requests.total


def test_there_is_nothing_to_say_where_spot_adds_nothing(tmp_path: Path) -> None:
    assert with_spot(replace(BASE, markets=("on-demand", "spot"))) is None
    on_demand_only = tmp_path / "catalog.csv"
    rows = CATALOG.read_text().splitlines(keepends=True)
    on_demand_only.write_text("".join(row for row in rows if ",spot," not in row))
    assert with_spot(replace(BASE, catalog=str(on_demand_only))) is None
