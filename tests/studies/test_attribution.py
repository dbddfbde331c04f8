"""The dollars between bill and bound: runs in better worlds and clairvoyant plans, whose differences add up."""

from __future__ import annotations

import csv
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from mark.cloud.billing.extras import extras_usd
from mark.domain.errors import BadInput
from mark.planning.bounds.cost_gap import cost_gap
from mark.simulation.bounding import drawn_problem
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate
from mark.studies.attribution import PARTS, Attribution, compare_attributed
from mark.studies.compare import compare

BASE = RunRequest(
    trace="synthetic:mmpp?rates=20,80&dwell_s=300",
    service="inception-v3",
    start_s=3600.0,
    duration_s=900.0,
    predictor="seasonal-naive",
)
POLICIES = ("mark", "oracle", "mark-paper", "static-peak")

Compared = tuple[dict[str, SimulationResult], dict[str, Attribution]]


@pytest.fixture(scope="module")
def compared() -> Compared:
    return compare_attributed(BASE, POLICIES, ("mark", "oracle", "mark-paper"))[:2]


def adds_up(one: Attribution) -> None:
    assert tuple(one.parts) == PARTS
    assert sum(one.parts.values()) == pytest.approx(one.bill_usd - one.bound_usd, abs=1e-9)


def test_the_parts_add_up_to_bill_less_bound(compared: Compared) -> None:
    results, found = compared
    assert list(found) == ["mark", "oracle", "mark-paper"]
    for name, one in found.items():
        adds_up(one)
        assert (one.bill_usd, one.bound_usd) == (results[name].bill.total, results[name].bound_usd)
        data = one.as_json()
        assert data["gap_usd"] == pytest.approx(sum(data["parts_usd"].values()))


def test_requests_in_time_beyond_the_promise_are_a_part(compared: Compared) -> None:
    results, found = compared
    for name, one in found.items():
        own, bound = results[name].bound_own_usd, results[name].bound_usd
        assert own is not None
        assert bound is not None
        assert one.parts["beyond_promise"] == own - bound > 0.0


def test_perfect_forecasts_have_no_forecast_error(compared: Compared) -> None:
    results, found = compared
    assert found["oracle"].parts["forecast_error"] == 0.0
    assert found["mark"].perfect_usd == results["oracle"].bill.total
    assert found["mark"].parts["forecast_error"] == pytest.approx(
        results["mark"].bill.total - results["oracle"].bill.total
    )
    # Another planner is measured against itself.
    assert found["mark-paper"].perfect_usd not in (results["oracle"].bill.total, results["mark-paper"].bill.total)


def test_the_cost_gap_of_traffic_is_equal_for_all(compared: Compared) -> None:
    _, found = compared
    for part in ("queueing", "integrality"):
        assert found["mark"].parts[part] == pytest.approx(found["oracle"].parts[part], rel=0.05)
        assert found["mark"].parts[part] > 0.0
    assert found["mark"].parts["extras"] == 0.0


def test_without_oracle_among_the_policies_the_same_is_found(compared: Compared) -> None:
    _, found = compared
    results, alone, _ = compare_attributed(BASE, ("mark", "static-peak"))
    assert list(results) == ["mark", "static-peak"]
    assert alone["mark"].parts == pytest.approx(found["mark"].parts)


def test_the_results_are_those_of_compare(compared: Compared) -> None:
    results, _ = compared
    plain = compare(BASE, ("mark", "static-peak"))
    assert {name: result.bill for name, result in plain.items()} == {name: results[name].bill for name in plain}


def test_where_instances_boot_at_once_boots_cost_nothing(tmp_path: Path) -> None:
    """A catalogue whose boots take no time: no boot delay and no launch overhead."""
    path = tmp_path / "quick.csv"
    with (
        files("mark.domain.catalog").joinpath("data/aws-2019.csv").open(encoding="utf-8") as source,
        path.open("w") as target,
    ):
        reader = csv.DictReader(source)
        writer = csv.DictWriter(target, reader.fieldnames or ())
        writer.writeheader()
        for row in reader:
            writer.writerow({key: "0" if value and key.startswith("boot_") else value for key, value in row.items()})
    request = replace(BASE, catalog=str(path))
    _, attributed, _ = compare_attributed(request, ("mark",))
    found = attributed["mark"]
    adds_up(found)
    assert found.parts["boot_delay"] == 0.0
    assert found.parts["launch_overhead"] == 0.0


def test_what_the_bound_leaves_out_is_told_apart() -> None:
    """aws-2026 bills disks beside the balancer, and the bound includes launches, but no other cost of boots."""
    request = replace(BASE, catalog="aws-2026")
    results, attributed, _ = compare_attributed(request, ("oracle",))
    found = attributed["oracle"]
    adds_up(found)
    certain = simulate(replace(request, foresight=True, with_bound=False, sensitivity=Sensitivity(certain_boots=True)))
    inputs = open_inputs(request)
    in_bound_usd = extras_usd(900.0, certain.requests.total, inputs.service.request_kb, inputs.service.response_kb)
    assert 0.0 < in_bound_usd < certain.bill.other
    disks_usd = results["oracle"].bound_disks_usd  # of the whole instances in the bound
    assert 0.0 < disks_usd < certain.bill.other - in_bound_usd
    assert found.parts["extras"] == pytest.approx(certain.bill.other - in_bound_usd - disks_usd)
    plans = cost_gap(drawn_problem(inputs)[0], float(results["oracle"].requests.late))
    assert plans is not None
    assert plans.launches_usd > 0.0
    assert found.parts["launch_overhead"] == pytest.approx(certain.fleet.boot_usd - plans.launches_usd)


def test_a_run_that_missed_its_slo_is_left_out() -> None:
    """NASNet's functions are too slow and a cold start has nothing else for three minutes."""
    request = replace(BASE, service="nasnet", duration_s=600.0, cold_start=True)
    results, found, _ = compare_attributed(request, ("mark",))
    assert results["mark"].regret is None
    assert found == {}


def test_forecasting_policies_are_split_by_default() -> None:
    short = replace(BASE, duration_s=300.0)
    assert list(compare_attributed(short, POLICIES)[1]) == ["mark", "oracle"]
    assert list(compare_attributed(short, POLICIES, ())[1]) == []
    for wanted, why in (("static-peak", "plans without a forecast"), ("reactive", "is not among the policies")):
        with pytest.raises(BadInput, match=f"attribute: {why}"):
            compare_attributed(short, POLICIES, (wanted,))
