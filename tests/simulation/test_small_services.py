"""Small services, compared with the smallest fixed fleet that keeps their promise: same cost and answers, no churn."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from mark.cloud.billing.extras import site_usd_per_hour
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate
from tests.samples import first
from tests.simulation.laws import check_laws

PROFILE = """model,instance,batch,latency_ms,cold_ms,basis
quick,c7i.large,1,0.6,,assumed
quick,c7i.large,16,3.5,,assumed
quick,c7i.xlarge,1,0.4,,assumed
quick,c7i.xlarge,16,1.8,,assumed
quick,g4dn.xlarge,1,0.5,,assumed
quick,g4dn.xlarge,64,2,,assumed
quick,lambda:1024,1,20,200,assumed
"""
SERVICE = """[service]
name = "small"
model = "quick"
slo_ms = 100
slo_attainment = 0.98
profile = "profile.csv"
[fleet]
catalog = "aws-2026"
instances = [{instances}]
[overflow]
function = "{function}"
"""
DURATION_S = 2400.0


def run(
    folder: Path, trace: str, policy: str, *, instances: str, function: str, cold: bool = False
) -> SimulationResult:
    (folder / "profile.csv").write_text(PROFILE)
    service = folder / "small.toml"
    service.write_text(SERVICE.format(instances=instances, function=function))
    result = simulate(
        RunRequest(
            trace=trace,
            service=str(service),
            duration_s=DURATION_S,
            policy=policy,
            predictor="seasonal-naive",
            cold_start=cold,
            with_bound=False,
        )
    )
    check_laws(result)
    return result


# Each with its overflow.
SOLD = {
    "one": ('"c7i.large"', "none"),
    "two-function": ('"c7i.large", "c7i.xlarge"', "lambda:1024"),
    "gpu": ('"c7i.large", "g4dn.xlarge"', "none"),
}
TRACES = (
    "synthetic:poisson?rate=0.01",
    "synthetic:poisson?rate=1.5",
    "synthetic:poisson?rate=20",
    "synthetic:diurnal?rate=1.5",
    "synthetic:mmpp?rates=0.5,5&dwell_s=300",
)
# Each trace once, and each kind of fleet; then the other pairs.
DIAGONAL = [(trace, list(SOLD)[position % len(SOLD)]) for position, trace in enumerate(TRACES)]
REST = [pair for pair in product(TRACES, SOLD) if pair not in DIAGONAL]


@pytest.mark.parametrize(("trace", "sold"), first(len(DIAGONAL), [*DIAGONAL, *REST], slow=3))
def test_a_small_service_costs_as_the_best_fixed_fleet(tmp_path: Path, trace: str, sold: str) -> None:
    """One c7i.large does it all: at most 2 % dearer, nothing rejected, nothing launched."""
    instances, function = SOLD[sold]
    ours = run(tmp_path, trace, "mark", instances=instances, function=function)
    fixed = run(tmp_path, trace, "fixed:c7i.large=1", instances=instances, function=function)
    assert fixed.slo_result.attainment in (None, 1.0)
    # The controller's site costs 12 $ a week, whatever it decides, so the bills are compared without it.
    hours = ours.trace.duration_s / 3600.0
    assert ours.bill.other - fixed.bill.other == pytest.approx(site_usd_per_hour() * hours)
    assert (ours.controller_usd, fixed.controller_usd) == (pytest.approx(site_usd_per_hour() * hours), 0.0)
    assert ours.bill.total - (ours.bill.other - fixed.bill.other) <= 1.02 * fixed.bill.total
    assert ours.requests.rejected == ours.requests.late == 0
    assert (ours.fleet.launched, ours.fleet.terminated) == (0, 0)


def test_a_start_from_nothing_is_forgiven(tmp_path: Path) -> None:
    """Requests that came while the first instance booted are rejected, and launch nothing for the rest of the day."""
    ours = run(tmp_path, "synthetic:poisson?rate=1.5", "mark", instances='"c7i.large"', function="none", cold=True)
    assert 0 < ours.requests.rejected < 1.5 * 120
    assert ours.fleet.launched <= 2
