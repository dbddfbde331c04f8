"""The examples are used as a reader would use them."""

from __future__ import annotations

from pathlib import Path

from mark.simulation.many import compare
from mark.simulation.request import RunRequest
from tests.simulation.laws import check_laws

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_service_with_its_own_autoscaler_runs_as_it_is_and_under_mark() -> None:
    """Profile, service and policy of the example hold together; ours is cheaper than the example's autoscaler."""
    results = compare(
        RunRequest(
            trace="synthetic:diurnal?rate=150",
            service=str(EXAMPLES / "own-autoscaler.toml"),
            start_s=8 * 3600.0,
            duration_s=2 * 3600.0,
        ),
        ("as-is", "mark"),
    )
    for result in results.values():
        check_laws(result)
        assert result.bill.other > 0.0  # aws-2026 bills balancer, addresses and data
    ours, theirs = results["mark"], results["as-is"]
    assert ours.slo_result.attainment is not None
    assert ours.slo_result.attainment >= 0.99
    assert ours.bill.total < theirs.bill.total
