"""`best-fixed` against a manual search, one `fixed:` fleet after the other."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from mark.domain.offer import Market
from mark.simulation.best_fixed import best_fixed
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from tests.samples import first
from tests.simulation.laws import check_laws

# A c7i.large has a third of a c7i.xlarge's capacity for half its price; the GPU is for ten times the load.
PROFILE = """model,instance,batch,latency_ms,p99_ms,cold_ms,basis
slow,c7i.large,1,60,,,assumed
slow,c7i.xlarge,1,20,,,assumed
slow,g4dn.xlarge,1,5,,,assumed
slow,t3.large,1,60,,,assumed
slow,lambda:1024,1,20,,200,assumed
"""
SERVICE = """[service]
name = "one"
model = "slow"
slo_ms = 150
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
markets = [{markets}]
instances = [{instances}]
[overflow]
function = "lambda:1024"
"""


def request(
    folder: Path,
    trace: str,
    instances: str = '"c7i.large", "c7i.xlarge", "g4dn.xlarge"',
    markets: str = '"on-demand"',
) -> RunRequest:
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "one.toml").write_text(SERVICE.format(instances=instances, markets=markets))
    return RunRequest(
        trace=trace, service=str(folder / "one.toml"), duration_s=900.0, policy="best-fixed", with_bound=False
    )


def counts(request: RunRequest) -> dict[str, int]:
    result = simulate(request)
    hours = result.trace.duration_s / 3600.0
    return {offer: round(spent / hours) for offer, spent in result.fleet.instance_hours.items()}


@pytest.mark.parametrize(
    "trace",
    first(
        2,
        [
            "synthetic:poisson?rate=12",
            "synthetic:mmpp?rates=5,60&dwell_s=200",
            "synthetic:poisson?rate=0.1",
            "synthetic:poisson?rate=40",
            "synthetic:poisson?rate=90",
        ],
    ),
)
def test_no_fixed_fleet_that_keeps_the_promise_costs_less(tmp_path: Path, trace: str) -> None:
    """Every fleet of up to six c7i.large, three c7i.xlarge and one g4dn.xlarge, as `fixed:` runs it."""
    asked = request(tmp_path, trace)
    best = simulate(asked)
    check_laws(best)
    assert best.kept
    cheapest = min(
        result.bill.total
        for large, xlarge, gpu in product(range(7), range(4), range(2))
        if large + xlarge + gpu > 0
        if large * 0.08925 + xlarge * 0.1785 + gpu * 0.526 < best.bill.total * 4.0 * 1.01
        for result in [simulate(replace(asked, policy=fleet(large, xlarge, gpu)))]
        if result.kept
    )
    assert best.bill.total == pytest.approx(cheapest, rel=1e-9)


def fleet(large: int, xlarge: int, gpu: int) -> str:
    named = {"c7i.large": large, "c7i.xlarge": xlarge, "g4dn.xlarge": gpu}
    return "fixed:" + ",".join(f"{instance}={count}" for instance, count in named.items() if count)


def test_it_is_the_same_run_as_that_fleet_by_name(tmp_path: Path) -> None:
    """`fixed:` with the fleet that was found: the same requests, latencies and dollars."""
    asked = request(tmp_path, "synthetic:poisson?rate=40")
    best = simulate(asked)
    named = ",".join(f"{offer.split('/')[0]}={n}" for offer, n in counts(asked).items())
    same = simulate(replace(asked, policy=f"fixed:{named}"))
    assert (best.requests, best.latency_ms, best.bill) == (same.requests, same.latency_ms, same.bill)
    assert best.policy == "best-fixed"
    assert "fixed fleets that were simulated" in best.decisions[0].text


def test_functions_and_spot_are_no_fixed_fleet(tmp_path: Path) -> None:
    """A service that may buy on spot alone is compared with the same types on demand, and nothing overflows."""
    asked = request(tmp_path, "synthetic:poisson?rate=40", markets='"spot"')
    policy = best_fixed(open_inputs(asked))
    assert {offer.market for offer in policy.resolved.offers} == {Market.ON_DEMAND}
    assert policy.resolved.function is None
    assert not policy.bouncers


def test_a_promise_no_fixed_fleet_can_keep_is_reported(tmp_path: Path) -> None:
    """Instances are too slow for a fifth of the time: more of them do not help, and the search ends."""
    asked = request(tmp_path, "synthetic:poisson?rate=2", instances='"c7i.large"')
    with (tmp_path / "one.toml").open("a") as service:
        service.write("[faults]\nslow_share = 0.2\nslow_factor = 5\n")
    result = simulate(asked)
    assert not result.kept
    assert any("no fixed fleet keeps the promise" in note for note in result.notes)
