"""The search for the smallest fleet of each protection, on minutes of generated traffic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.domain.errors import BadInput, Infeasible
from mark.domain.slo import Slo
from mark.simulation.request import RunRequest
from mark.studies.executor import HereExecutor
from mark.studies.insure import HEDGE, INSTANCES, NONE, PARITY, REPLICATE, InsuredFleets, _opened, insure, sample_of

pytestmark = pytest.mark.usefixtures("coarse_late_shares")

ROOT = Path(__file__).parents[2]
NOISY = ROOT / "examples" / "insurance" / "noisy.toml"
OFFER = "c7i.large/on-demand"
HERE = HereExecutor()


def request(folder: Path, *, rate: float = 100.0, minutes: float = 10.0, **changed: str) -> RunRequest:
    """Return the example's service, with other values of its keys."""
    text = NOISY.read_text()
    for key, value in changed.items():
        lines = [f"{key} = {value}" if line.split(" = ")[0] == key else line for line in text.splitlines()]
        text = "\n".join(lines)
    (folder / "noisy.csv").write_text((NOISY.parent / "noisy.csv").read_text())
    (folder / "noisy.toml").write_text(text)
    return RunRequest(
        f"synthetic:poisson?rate={rate:g}", str(folder / "noisy.toml"), duration_s=60.0 * minutes, with_bound=False
    )


ALB = '"alb"'


def fleets(request: RunRequest, calm: int = 12) -> InsuredFleets:
    return InsuredFleets(_opened(request, 1.0), OFFER, calm)


def test_parity_is_advised_behind_an_alb_for_a_promise_of_two_service_times(tmp_path: Path) -> None:
    found = insure(request(tmp_path, routing=ALB), executor=HERE)
    assert found.offer == OFFER
    able = {one.option: one.able for one in found.options}
    assert able == {NONE: False, INSTANCES: False, PARITY: True, REPLICATE: True}
    advised = found.advised
    assert advised is not None
    assert advised.option == PARITY
    assert 16 <= advised.deployed <= 19
    assert [other.slow_share for other in found.others] == [0.025, 0.1]
    assert all({one.option for one in other.options} == {PARITY, REPLICATE} for other in found.others)


def test_gateway_that_avoids_slow_instances_keeps_that_promise_with_a_few_more(tmp_path: Path) -> None:
    """An ALB keeps it with no number of instances."""
    few, none = (fleets(request(tmp_path, routing=routing)) for routing in ('"least-completion"', ALB))
    assert few.unprotected(18).able
    assert not none.unprotected(56).able


def test_calm_fleet_needs_no_protection_and_degrades_almost_nothing(tmp_path: Path) -> None:
    found = insure(request(tmp_path, slow_share="0.0"), executor=HERE)
    assert not found.faults.any
    assert found.others == ()
    advised = found.advised
    assert advised is not None
    assert advised.option == NONE
    parity = found.of(PARITY)
    assert parity is not None
    assert parity.degraded <= 0.005


def test_parity_holds_at_low_load_without_drowning_its_instance(tmp_path: Path) -> None:
    slow = fleets(request(tmp_path, rate=5.0, minutes=666.0, slow_factor="5.0", routing=ALB), 2)
    protected, bare = slow.protected(2, 4), slow.unprotected(2)
    assert protected.parity_instances == 1
    assert 1.0 - protected.attainment <= 0.012 < 0.03 <= 1.0 - bare.attainment
    assert protected.parity_busy is not None
    assert protected.parity_busy < 0.75


def test_hedging_that_makes_more_requests_late_is_never_advised(tmp_path: Path) -> None:
    """Second copies after 1.5 service times are too much load for 14 instances."""
    found = fleets(request(tmp_path, minutes=60.0))
    hedged, bare = found.hedged(14, 0.15), found.unprotected(14)
    assert hedged.attainment < bare.attainment
    assert hedged.worse
    assert not replace(hedged, keeps=True).able


def test_hedging_makes_fewer_requests_late_where_instances_are_free(tmp_path: Path) -> None:
    """The gateway knows that an instance goes on with a cancelled copy. Otherwise it takes slow instances for fast."""
    found = fleets(request(tmp_path, minutes=60.0))
    hedged, bare = found.hedged(18, 0.15), found.unprotected(18)
    assert hedged.attainment > bare.attainment
    assert hedged.p999_s < bare.p999_s
    assert not hedged.worse


def test_smallest_fleet_is_able_and_one_instance_less_is_not(tmp_path: Path) -> None:
    of_parity = fleets(request(tmp_path))
    smallest = of_parity.smallest(PARITY)
    assert smallest is not None
    assert smallest.able
    assert not of_parity.protected(smallest.instances - 1, smallest.settings["k"]).able


def test_option_that_never_keeps_the_promise_shows_its_best_fleet(tmp_path: Path) -> None:
    found = fleets(request(tmp_path, minutes=5.0, routing=ALB)).smallest(INSTANCES)
    assert found is not None
    assert not found.keeps
    assert found.instances == 4 * 12 + 8


def test_sample_has_blocks_of_the_whole_part() -> None:
    arrivals_s = np.arange(0.5, 100.0)
    times_s, end_s = sample_of(arrivals_s, 100.0, 10.0, 3)
    assert end_s == 30.0, "three whole cycles of three blocks"
    assert times_s.tolist() == np.arange(0.5, 30.0).tolist()
    rising_s = np.sqrt(np.arange(0.0, 9000.0))  # ever more requests a second, until 94.9 s
    times_s, _ = sample_of(rising_s, 95.0, 1.0, 5)
    assert np.all(np.diff(times_s) >= 0.0)
    # A second of the sample stands for five, whose mean load is that of their middle.
    assert np.histogram(times_s, np.arange(0.0, 19.5))[0] == pytest.approx(2.0 * np.arange(2.5, 95.0, 5.0), abs=2.0)


@pytest.mark.parametrize("option", [INSTANCES, PARITY, REPLICATE])
def test_sample_leads_to_the_fleet_of_the_whole_part(tmp_path: Path, option: str) -> None:
    inputs = _opened(request(tmp_path), 1.0)
    whole, guided = (InsuredFleets(inputs, OFFER, 12, sample=sample) for sample in (10**9, 10_000))
    assert guided.smallest(option) == whole.smallest(option)


def test_burst_that_the_sample_misses_is_provided_for(tmp_path: Path) -> None:
    """The sample has the second of each three blocks of 10 s; the burst is in a first block."""
    inputs = _opened(request(tmp_path, slow_share="0.0"), 1.0)
    calm_s, burst_s = np.arange(0.0, 600.0, 0.02), np.arange(302.0, 306.0, 0.008)
    arrivals_s = np.sort(np.concatenate([calm_s, burst_s]))
    found = InsuredFleets(inputs, OFFER, 6, arrivals_s=arrivals_s, sample=10_000).smallest(INSTANCES)
    without = InsuredFleets(inputs, OFFER, 6, arrivals_s=calm_s, sample=10_000).smallest(INSTANCES)
    assert found is not None
    assert without is not None
    assert found.able
    assert found.instances > without.instances


def test_balancer_of_aws_offers_no_hedging(tmp_path: Path) -> None:
    inputs = _opened(request(tmp_path, minutes=2.0), 1.0)
    behind_alb = replace(inputs, service=replace(inputs.service, routing="alb"))
    assert InsuredFleets(behind_alb, OFFER, 12).smallest(HEDGE) is None


def test_second_fleet_pays_for_conductors_and_their_balancer(tmp_path: Path) -> None:
    found = fleets(request(tmp_path, minutes=2.0))
    bare, copied = found.unprotected(12), found.replicated(12)
    hours = 2.0 / 60.0
    # 12 instances more with disks of 8 GiB, 2 t4g.small with theirs, and a balancer without public addresses.
    disk = 8.0 * 0.08 / 730.0
    premium = 2 * (0.0168 + disk) + 0.0225
    assert copied.usd - bare.usd == pytest.approx((12 * (0.08925 + disk) + premium) * hours, rel=1e-6)


def test_degraded_share_sets_the_expected_accuracy(tmp_path: Path) -> None:
    made = request(tmp_path, minutes=5.0)
    (tmp_path / "parity").mkdir()
    (tmp_path / "parity" / "parity-1.pt2").write_bytes(b"")
    (tmp_path / "parity" / "parity.json").write_text(
        '{"schema": 1, "code": "sum", "k": 4, "models": ["parity-1.pt2"], "input": {"shape": [4]}, '
        '"output": {"shape": [3]}, "available_accuracy": 0.9, "degraded_accuracy": 0.7}'
    )
    with (tmp_path / "noisy.toml").open("a") as file:
        file.write('\n[insurance]\nparity = "parity/"\n')
    parity = next(one for one in insure(made, executor=HERE).options if one.option == PARITY)
    assert parity.settings["k"] == 4
    assert parity.accuracy == pytest.approx(0.9 - 0.2 * parity.degraded)


def test_instance_type_that_is_named_is_used(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such instance"):
        insure(request(tmp_path, minutes=1.0), "c9.huge", executor=HERE)
    with pytest.raises(BadInput, match="--instance: noisy has no profile on it"):
        insure(request(tmp_path, minutes=1.0), "c7i.xlarge", executor=HERE)


def test_promise_that_calm_instances_miss_is_infeasible(tmp_path: Path) -> None:
    """Half of the requests take longer than the mean, so no request may wait."""
    with pytest.raises(Infeasible):
        insure(request(tmp_path, slo_ms="101", slo_attainment="0.99", minutes=1.0), executor=HERE)


def test_part_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no request in this part"):
        insure(request(tmp_path, rate=0.001, minutes=1.0), executor=HERE)


def test_few_requests_in_time_leave_the_promise_in_doubt(tmp_path: Path) -> None:
    """Of 20 requests none is late, and yet 15 % may be."""
    found = fleets(request(tmp_path, rate=0.4, minutes=1.0, slow_share="0.0"), 2)
    fleet = found.unprotected(2)
    assert fleet.attainment == 1.0
    assert fleet.half_interval == pytest.approx(3.0 / 20)
    assert fleet.in_doubt(Slo(0.2, 0.99))


def test_part_with_too_many_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--duration"):
        insure(request(tmp_path, rate=2000.0, minutes=120.0), executor=HERE)


def test_pipeline_is_refused(tmp_path: Path) -> None:
    social = ROOT / "examples" / "pipeline" / "social.toml"
    with pytest.raises(BadInput, match="one model"):
        insure(RunRequest("synthetic:poisson?rate=1", str(social), duration_s=60.0), executor=HERE)


def test_configured_crashes_are_left_out_and_told(tmp_path: Path) -> None:
    asked = request(tmp_path, minutes=2.0)
    file = tmp_path / "noisy.toml"
    file.write_text(file.read_text().replace("[faults]", "[faults]\ncrashes_per_hour = 0.1"))
    found = insure(asked, executor=HERE)
    assert found.leaves_out_crashes
    assert not found.faults.crashes
