"""The fleets of a service with parity models: each stage is planned as a service by its own calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.simulation.request import RunRequest
from mark.studies.insured_plan import plan_insured_once
from mark.studies.pipeline_plan import plan_pipeline_once
from mark.studies.report.explain import insured_plan_report
from tests.studies.test_insured import written

INSURED = '[insurance]\nparity = { code = "sum", k = 2 }\naccept = "degraded"\n[fleet]\ninstances = ["c5.large"]\n'


def request(folder: Path) -> RunRequest:
    file = written(folder, INSURED.replace("200", "1000"))
    (folder / "s.toml").write_text((folder / "s.toml").read_text().replace("slo_ms = 200", "slo_ms = 1000"))
    return RunRequest("synthetic:poisson?rate=30", file, predictor="seasonal-naive")


def test_both_fleets_are_planned_by_their_calls(tmp_path: Path) -> None:
    found = plan_insured_once(request(tmp_path), 3600.0)
    counts = {name: sum(t.count for t in planned.plan.targets) for name, planned in found.stages.items()}
    assert 7 <= counts["model"] <= 14, "30 requests/s of 0.21 s each"
    assert 0.35 <= counts["parity"] / counts["model"] <= 0.7
    price = found.stages["model"].context.resolved.offers[0].usd_per_hour
    assert found.usd_per_hour == pytest.approx(sum(counts.values()) * price)
    said = insured_plan_report(found).data
    assert list(said["stages"]) == ["model", "parity"]
    assert said["stages"]["parity"]["service"] == "s-parity"


def test_a_plan_beyond_the_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at_s: beyond the end of synthetic:poisson"):
        plan_insured_once(request(tmp_path), 1e9)


def test_no_fixed_graph_is_planned_with_parity_models(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a plan of fixed stages is not made of a service with parity models"):
        plan_pipeline_once(request(tmp_path))
