"""The kernel's counts of late shares, by the size of a fleet and its load."""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.config.service_file import load_service
from mark.domain.function_offer import FunctionOffer
from mark.domain.late_shares import LateShares
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.rules.admission import late_share, least_probability
from mark.domain.service import FunctionUse, ServiceConfig
from mark.domain.slo import Slo
from mark.kernel.accounting import Accounting
from mark.kernel.stage import Admission, StageSimulation
from mark.planning.demand import late_counting
from mark.planning.demand.counting_watch import counting_watched
from mark.planning.demand.late_counting import TYPICAL, count_late_shares, counted, counted_types
from mark.profiling.policy import candidate, late_alone
from tests.planning.build import resolved, sold

SLO = Slo(0.1, 0.99)


def service(slo: Slo = SLO) -> ServiceConfig:
    return replace(load_service("inception-v3-2026"), slo=slo)


def usual(mean_ms: float = 31.0, p99_ms: float | None = 90.0, slo: Slo = SLO) -> Candidate:
    rows = tuple(ProfileRow(b, mean_ms, p99_ms) for b in (1, 2, 4, 8))
    found = candidate(Profile("m", "c7i.large", rows), slo)
    assert isinstance(found, Candidate)
    return found


@pytest.fixture(scope="module")
def shares() -> LateShares:
    return count_late_shares(usual(), service(), None)


def simulated_late(instances: int, rps: float, seed: int, one: Candidate | None = None, slo: Slo = SLO) -> float:
    arrivals_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rps, 100_000))
    stage = StageSimulation(
        [one or usual()],
        accounts=Accounting(rt_max_s=slo.rt_max_s, end_s=float(arrivals_s[-1]) + 1.0),
        routing="alb",
        seed=seed,
    )
    for number in range(instances):
        stage.add(number, 0, 0.0)
    stage.advance(arrivals_s, 0, np.inf)
    stage.finish()
    return 1.0 - stage.accounts.in_time / len(arrivals_s)


@pytest.mark.untraced
@pytest.mark.parametrize(("instances", "rps"), [(1, 3.0), (3, 40.0), (4, 40.0), (7, 150.0), (12, 90.0)])
def test_shares_agree_with_another_simulation_within_0_3_points(shares: LateShares, instances: int, rps: float) -> None:
    assert float(shares.late_at(rps, instances)) == pytest.approx(simulated_late(instances, rps, 99), abs=0.003)


@pytest.mark.parametrize("instances", [4, 16])
def test_fleet_misses_the_allowed_share_at_the_load_that_it_carries(instances: int) -> None:
    """With 32 columns in the table it missed a quarter of the allowed share, because the load was 9 % too low."""
    slo = Slo(0.3, 0.98)
    rows = tuple(ProfileRow(b, 22.5 + 7.5 * b, 45.0 + 15.0 * b) for b in (1, 2, 4, 8, 16))
    found = candidate(Profile("m", "c7i.large", rows), slo)
    assert isinstance(found, Candidate)
    carried_rps = count_late_shares(found, service(slo), None).carries_rps(instances, 0.02)
    late = np.mean([simulated_late(instances, carried_rps, seed, found, slo) for seed in range(1, 5)])
    assert late == pytest.approx(0.02, abs=0.005)


def test_late_alone_is_the_tail_of_a_lognormal() -> None:
    draws = np.random.default_rng(1).lognormal(-0.5 * usual().sigma ** 2, usual().sigma, 400_000) * 0.031
    assert late_alone(usual(), 0.1) == pytest.approx((draws > 0.1).mean(), abs=4e-4)
    assert late_alone(usual(p99_ms=None), 0.1) == 0.0


def test_a_fleet_carries_more_than_its_instances_alone(shares: LateShares) -> None:
    carried = [shares.carries_rps(n, 0.01) for n in (1, 2, 4, 16)]
    assert carried[0] * 2 < carried[1]
    assert carried[1] * 2 < carried[2]
    assert carried[2] * 4 < carried[3]


@pytest.mark.usefixtures("coarse_late_shares")
def test_large_fleet_of_a_quick_model_carries_no_more_than_its_throughput() -> None:
    """Its counted requests end before an overload fills the queue, which takes a tenth of a second."""
    found = candidate(Profile("m", "c7i.large", (ProfileRow(1, 0.5, 0.8), ProfileRow(8, 0.9, 1.4))), SLO)
    assert isinstance(found, Candidate)
    quick = count_late_shares(found, service(), None)
    most_rps = found.workers * 8 / 0.9e-3
    assert all(quick.carries_rps(n, 0.01) <= 1.02 * n * most_rps for n in (1, 8, 64))
    assert quick.late_at(64 * 1.25 * most_rps, 64) > 0.1


def test_one_instance_less_than_the_least_fleet_misses(shares: LateShares) -> None:
    for rps in (1.0, 10.0, 40.0, 200.0, 3000.0):
        least = shares.least_instances(rps, 0.01)
        assert least is not None
        assert shares.late_at(rps, least) <= 0.01
        assert least == 1 or shares.late_at(rps, least - 1) > 0.01
    assert shares.least_instances(40.0, 0.0001) is None  # 0.6 % are late even alone


def test_without_instances_everything_is_late(shares: LateShares) -> None:
    assert shares.late_at(5.0, 0.0) == 1.0
    assert float(shares.late_at(5.0, 0.5)) == pytest.approx(0.5 + 0.5 * float(shares.late_at(5.0, 1.0)))
    beyond = float(shares.late_at(1e6, 1.0))
    assert 0.99 < beyond <= 1.0


@pytest.mark.usefixtures("coarse_late_shares")
def test_answers_of_a_function_in_time_are_calls() -> None:
    services = service(Slo(0.5, 0.99))
    function = a_function()
    found = count_late_shares(usual(slo=Slo(0.5, 0.99)), services, function)
    assert found.calls_without == 1.0
    assert found.late_without == 0.0
    assert found.late_at(1e5, 1.0) < 0.01 < found.calls_at(1e5, 1.0)


@pytest.mark.usefixtures("coarse_late_shares")
@pytest.mark.parametrize("warm_s", [0.3, 0.75], ids=["in time", "late"])
def test_calls_of_a_loaded_fleet_agree_with_another_simulation(warm_s: float) -> None:
    slo = Slo(0.5, 0.99)
    calm = usual(p99_ms=35.0, slo=slo)  # hardly any request is late, so the calls decide which loads are counted
    shares = count_late_shares(calm, service(slo), replace(a_function(), warm_s=warm_s))
    always_warm = FunctionUse(FunctionOffer(128, 0.0, 0.0, 1.0, 1 << 16, 1e9, math.inf, 1e9), warm_s, 0.0, "derived")
    few = int(np.argmax(shares.calls[3] > 0.004))
    for column in range(few - 3, few + 2):
        rps = 4.0 * float(shares.load_rps[column])
        arrivals_s = np.cumsum(np.random.default_rng(1).exponential(1.0 / rps, 200_000))
        stage = StageSimulation(
            [calm],
            accounts=Accounting(rt_max_s=0.5, end_s=float(arrivals_s[-1]) + 1.0),
            admission=Admission(least_in_time=least_probability(0.99), late_share=late_share(0.99)),
            function=always_warm,
            routing=service(slo).routing,
            seed=1,
            keep=True,
        )
        for number in range(4):
            stage.add(number, 0, 0.0)
        stage.advance(arrivals_s, 0, np.inf)
        stage.finish()
        calls = float((stage.recording().slot < 0).mean())
        assert shares.calls_at(rps, 4.0) == pytest.approx(calls, abs=0.004)


def test_some_requests_queue_late_instead_of_being_called() -> None:
    """Service times scatter so little that without the rule 99 % of the late requests are called."""
    slo = Slo(0.155, 0.98)
    question = late_counting._Question(usual(p99_ms=40.0, slo=slo), service(slo), 0.25)
    counted = late_counting._count(question, 1, 0.92 * 8 / 0.031, 20_000, (0, 0, 0))
    assert 0.001 < counted.calls < 0.5 * counted.late


def a_function() -> FunctionUse:
    function = resolved(sold("small", 0.2), latencies_ms={"small": 100.0}).function
    assert function is not None
    return replace(function, warm_s=0.3)


def test_an_idle_fleet_has_the_tail_of_its_service_time(shares: LateShares) -> None:
    """Counted as it was drawn it would be off by 0.05 points: 20,000 requests of which 0.6 % are late."""
    assert shares.late[-1, :4] == pytest.approx(late_alone(usual(), 0.1), abs=2e-5)


def test_counting_by_expectation_agrees_with_counting_plainly(shares: LateShares) -> None:
    for row in (0, 2, 3):
        near = int(np.argmin(abs(shares.late[row] - 0.012)))
        count = float(shares.instances[row])
        plain = np.mean([simulated_late(int(count), shares.load_rps[near] * count, seed) for seed in (5, 6)])
        assert shares.late[row, near] == pytest.approx(plain, abs=0.0015)


@pytest.mark.usefixtures("coarse_late_shares")
def test_the_first_counting_is_told_and_the_second_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(late_counting, "CACHE_DIR", str(tmp_path))
    slo = Slo(0.0987, 0.99)
    types = {"scatters": usual(slo=slo), "certain": usual(p99_ms=None, slo=slo)}
    token = counting_watched.set(lambda done, types: told.append((done, list(types))))
    try:
        found = counted_types(types, service(slo), None)
        assert told == [(0, ["scatters"]), (1, ["scatters"])]
        assert counted_types(types, service(slo), None)["scatters"].late_shares is found["scatters"].late_shares
        assert len(told) == 2
    finally:
        counting_watched.reset(token)
    assert found["certain"] is types["certain"]


def test_tables_of_an_edited_way_of_counting_are_not_taken(tmp_path: Path) -> None:
    original = Path(late_counting.__file__).read_text()
    edited = original.replace("_SETTLED = 5.0", "_SETTLED = 4.0")
    assert edited != original
    keys = [
        key_of_a_table(tmp_path / name / "late_counting.py", text)
        for name, text in (("same", original), ("edited", edited))
    ]
    assert keys[0] == late_counting._Question(usual(), service(), None).key != keys[1]


def key_of_a_table(path: Path, source: str) -> str:
    path.parent.mkdir()
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"late_counting_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # because its dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return str(module._Question(usual(), service(), None).key)


def test_equal_questions_have_one_answer(shares: LateShares) -> None:
    again = count_late_shares(usual(), service(), None)
    np.testing.assert_array_equal(again.late, shares.late)


def test_capacity_is_what_a_small_fleet_carries(shares: LateShares) -> None:
    found = counted(usual(), service(), None)
    assert found.capacity_rps == pytest.approx(shares.carries_rps(TYPICAL, 0.01) / TYPICAL)
    assert found.capacity_rps < 0.1 * usual().capacity_rps


def test_a_certain_service_time_is_not_counted() -> None:
    certain = usual(p99_ms=None)
    assert counted(certain, service(), None) is certain
