"""The examples are used as a reader would use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_predictor_of_ones_own_is_installed_found_and_used(tmp_path: Path) -> None:
    """As the README of the example says, into a folder of its own and without a network; its own test passes too."""
    pytest.importorskip("hatchling", reason="needed to build the example: install mark with [dev]")
    package = EXAMPLES / "own-predictor"
    build = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", *build, "--target", str(tmp_path), str(package)], check=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = ["simulate", "synthetic:poisson?rate=20", "--service", "inception-v3", "--start", "3600"]
    simulated = subprocess.run(
        [sys.executable, "-m", "mark.cli.main", *command, "--duration", "600", "--predictor", "ewma", "--json", "-"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(simulated.stdout)
    assert result["predictor"] == "ewma"
    assert result["predictors"] == {"ewma": 11}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package)], env=environment, check=True
    )
