"""The effect of spot is a separate run, unless the service buys spot already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mark.domain.catalog
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from mark.studies.spot_request import no_spot_request, spot_request

CATALOG = Path(mark.domain.catalog.__file__).parent / "data" / "aws-2026.csv"
BASE = RunRequest(
    trace="synthetic:poisson?rate=40",
    service="inception-v3-2026",
    duration_s=1800.0,
    predictor="seasonal-naive",
    with_bound=False,
)


def test_spot_is_added_to_the_markets_and_nothing_else_changes() -> None:
    request = spot_request(BASE)
    assert request is not None
    found = simulate(request)
    asked = simulate(replace(BASE, markets=("on-demand", "spot")))
    assert found.bill == asked.bill
    assert found.bill.spot > 0.0
    assert found.requests.total == simulate(BASE).requests.total


def test_spot_is_taken_from_the_markets_and_nothing_else_changes() -> None:
    request = no_spot_request(replace(BASE, markets=("on-demand", "spot")))
    assert request is not None
    found = simulate(request)
    assert found.bill == simulate(BASE).bill
    assert found.bill.spot == 0.0


def test_there_is_no_run_without_spot_where_nothing_else_is_bought() -> None:
    assert no_spot_request(BASE) is None
    assert no_spot_request(replace(BASE, markets=("spot",))) is None


def test_there_is_nothing_to_say_where_spot_adds_nothing(tmp_path: Path) -> None:
    assert spot_request(replace(BASE, markets=("on-demand", "spot"))) is None
    on_demand_only = tmp_path / "catalog.csv"
    rows = CATALOG.read_text().splitlines(keepends=True)
    on_demand_only.write_text("".join(row for row in rows if ",spot," not in row))
    assert spot_request(replace(BASE, catalog=str(on_demand_only))) is None
