"""The cost of a stage by its time: against every number of instances, hour by hour, and on loads with known answers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.domain.service import ResolvedService
from mark.planning.demand.served_load import overflow_rps
from mark.planning.graphs.stage_cost import stage_cost
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest

PROFILE = """model,instance,batch,latency_ms,cold_ms
one,c7i.large,1,20,
one,c7i.xlarge,1,10,
one,lambda:1769,1,60,400
"""
FILE = """
[service]
name = "one"
model = "one"
slo_ms = 200
slo_attainment = 0.98
profile = "one.csv"
[fleet]
instances = ["{instances}"]
min_instances = {least}
[overflow]
function = "{function}"
"""
LARGE_USD, CAPACITY_RPS = 0.08925, 50.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage_cost")
    (folder / "one.csv").write_text(PROFILE)
    return folder


def stage(folder: Path, function: str = "none", instances: str = "c7i.large", least: int = 1) -> ResolvedService:
    file = folder / "one.toml"
    file.write_text(FILE.format(function=function, instances=instances, least=least))
    return open_service(RunRequest(trace="", service=str(file)))


def by_brute_force(loads_rps: FloatArray, wait_s: float, call_usd: float) -> float:
    """Return the mean of the hours' cheapest, of 1 to 400 instances of c7i.large."""
    total, count = 0.0, np.arange(1.0, 401.0)
    for hour in loads_rps:
        over = overflow_rps(hour, CAPACITY_RPS * count[:, None], wait_s).mean(axis=1)
        usd = LARGE_USD * count + (3600.0 * call_usd * over if math.isfinite(call_usd) else 0.0)
        total += float(usd[over <= 0.02 * hour.mean()].min() if math.isinf(call_usd) else usd.min())
    return total / len(loads_rps)


rates = st.lists(st.floats(0.0, 2_000.0), min_size=4, max_size=4)


@settings(deadline=None, max_examples=15)
@given(loads=st.lists(rates, min_size=1, max_size=3), seconds=st.floats(0.03, 0.2))
def test_it_is_the_cheapest_of_all_numbers_of_instances(folder: Path, loads: list[list[float]], seconds: float) -> None:
    loads_rps = np.array(loads)
    plain, served = stage(folder), stage(folder, "lambda:1769")
    wait_s = max(seconds - 0.02, 0.01 * seconds)
    assert stage_cost(plain, loads_rps)(seconds) == pytest.approx(by_brute_force(loads_rps, wait_s, math.inf))
    assert served.function is not None
    call_usd = served.function.usd_per_request if seconds >= 0.06 else math.inf
    assert stage_cost(served, loads_rps)(seconds) == pytest.approx(
        by_brute_force(loads_rps, wait_s, call_usd), rel=1e-3
    )


def test_it_is_infinite_below_the_quickest_type(folder: Path) -> None:
    cost = stage_cost(stage(folder, instances="c7i.*"), np.array([[10.0]]))
    assert cost(0.009) == math.inf
    assert math.isfinite(cost(0.011))


def test_time_for_its_function_spares_what_a_surge_needs(folder: Path) -> None:
    """A minute in sixty brings ten times the calls: held all the time without a function in time, called with one."""
    hour = np.full((1, 60), 40.0)
    hour[0, 30] = 400.0
    cost = stage_cost(stage(folder, "lambda:1769"), hour)
    assert cost(0.055) > 5 * LARGE_USD
    assert cost(0.065) < 2 * LARGE_USD


def test_hours_are_paid_each_for_itself(folder: Path) -> None:
    one, other = np.full((1, 60), 20.0), np.full((1, 60), 900.0)
    both = stage_cost(stage(folder), np.concatenate([one, other]))(0.1)
    assert both == pytest.approx((stage_cost(stage(folder), one)(0.1) + stage_cost(stage(folder), other)(0.1)) / 2.0)


@pytest.mark.parametrize(("least", "instances"), [(0, 0), (1, 1), (3, 3)])
def test_few_calls_cost_the_fewest_instances_there_may_be(folder: Path, least: int, instances: int) -> None:
    cost = stage_cost(stage(folder, "lambda:1769", least=least), np.full((1, 60), 0.1))
    assert cost(0.1) == pytest.approx(instances * LARGE_USD, abs=0.01)
