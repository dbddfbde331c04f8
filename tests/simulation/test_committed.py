"""Committed instances in whole runs: always paid, and without further cost for the instances that they cover."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mark.config.new_service import new_service
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate
from tests.samples import first
from tests.simulation.laws import check_laws

HOUR = 3600.0
BASE = RunRequest(
    trace="synthetic:mmpp?rates=20,80&dwell_s=300",
    service="inception-v3",
    start_s=HOUR,
    duration_s=HOUR,
    predictor="seasonal-naive",
)


def committing(folder: Path, lines: str, **changes: Any) -> SimulationResult:
    path = folder / "s.toml"
    path.write_text(new_service("inception-v3").replace("[overflow]", f"[fleet.committed]\n{lines}\n[overflow]"))
    result = simulate(replace(BASE, service=str(path), **changes))
    check_laws(result)
    return result


@pytest.mark.parametrize("policy", first(2, ["fixed:c5.large=12", "reactive", "static-peak"], slow=0))
def test_commitments_change_the_bill_but_not_a_fixed_fleet(tmp_path: Path, policy: str) -> None:
    """Policies that look at no price run the same fleet; the bill and its bound know the commitment."""
    plain = simulate(replace(BASE, policy=policy, with_bound=False))
    result = committing(tmp_path, '"c5.large" = { count = 4, usd_per_hour = 0.05 }', policy=policy)
    hours = result.fleet.instance_hours.get("c5.large/on-demand", 0.0)
    assert result.fleet.instance_hours == plain.fleet.instance_hours
    saved = plain.bill.total - (result.bill.total - 4 * 0.05)
    assert 0.0 <= saved <= 0.085 * min(hours, 4.0) + 1e-9
    if policy.startswith("fixed"):
        assert saved == pytest.approx(4 * 0.085)
    assert result.bound_usd is not None
    assert 4 * 0.05 <= result.bound_usd <= result.bill.total


def test_an_unused_commitment_is_paid_and_named(tmp_path: Path) -> None:
    plain = simulate(replace(BASE, policy="fixed:c5.large=12", with_bound=False))
    unused = '"c5.9xlarge" = { count = 1, usd_per_hour = 1.0 }'
    result = committing(tmp_path, unused, policy="fixed:c5.large=12", with_bound=False)
    assert result.bill.on_demand == pytest.approx(plain.bill.on_demand + 1.0)
    assert result.timeline.spent_usd["on_demand"][-1] == pytest.approx(result.bill.on_demand)
    ours = committing(tmp_path, unused, policy="static-mean", with_bound=False)
    assert any("1 committed, paid for nothing" in note for note in ours.notes)


def test_enough_committed_capacity_makes_the_bound_what_is_promised(tmp_path: Path) -> None:
    result = committing(tmp_path, '"p2.xlarge" = { count = 9, usd_per_hour = 0.6 }', policy="static-peak")
    assert result.bound_usd == pytest.approx(9 * 0.6)
