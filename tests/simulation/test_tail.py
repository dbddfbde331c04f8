"""A tail that a service states for profile rows without a p99: read, planned with, and named in the notes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.cli.main import main
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.profiling.version_profiles import service_profiles
from mark.simulation.inputs import open_inputs, open_service
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate_inputs

pytestmark = pytest.mark.usefixtures("coarse_late_shares")

REQUEST = RunRequest(
    trace="synthetic:poisson?rate=30",
    service="inception-v3",
    start_s=7200.0,
    duration_s=600.0,
    predictor="seasonal-naive",
    with_bound=False,
)


def test_shipped_types_have_no_tail_by_default() -> None:
    resolved = open_service(REQUEST)
    assert {found.sigma for found in resolved.candidates} == {0.0}
    assert all(found.late_shares is None for found in resolved.candidates)
    assert resolved.tail_note == ""


@pytest.mark.parametrize("tail", [1.0, 0.5, 14.97])
def test_impossible_tails_are_refused(tail: float) -> None:
    with pytest.raises(BadInput, match=f"tail: p99 over mean must be above 1 and at most 14.96: {tail:g}"):
        open_service(replace(REQUEST, tail=tail))


def test_an_impossible_option_is_refused_by_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "synthetic:poisson?rate=3", "--service", "inception-v3", "--tail", "15"]) == 2
    said = capsys.readouterr().err
    assert said == "mark: error: --tail: p99 over mean must be above 1 and at most 14.96: 15.0\n"


def test_the_option_takes_the_place_of_the_setting() -> None:
    service = replace(load_service("inception-v3"), tail=3.0)
    assert service_profiles(service)[service.model]["c5.large"].rows[0].p99_ms == pytest.approx(3.0 * 211.2676)
    stated = open_service(replace(REQUEST, tail=1.5)).profiles["c5.large"].rows[0]
    assert stated.p99_ms == pytest.approx(1.5 * stated.latency_ms)


@pytest.mark.parametrize("policy", ["mark", "best-fixed"])
def test_fleets_planned_with_a_stated_tail_keep_the_promise(policy: str) -> None:
    inputs = open_inputs(replace(REQUEST, tail=1.5))
    types = len({found.profile.instance for found in inputs.resolved.candidates})
    assert inputs.resolved.tail_note == f"tails of {types} types are derived: p99 = 1.5 x mean"
    result = simulate_inputs(inputs, policy)
    assert result.slo.attainment is not None
    assert result.slo.attainment >= inputs.service.slo.attainment
    assert any("derived: p99 = 1.5 x mean" in note for note in result.notes)
