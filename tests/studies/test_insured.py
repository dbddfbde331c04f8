"""The calls of queries of a service with parity models, and the limits of its simulation and planning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.simulation.request import RunRequest
from mark.studies.insured import insured_visits
from mark.studies.pipeline_run import simulate_pipeline, usual_policies

HEAD = '[service]\nname = "s"\n{model}slo_ms = 200\nslo_attainment = 0.99\n'


def written(folder: Path, text: str, model: str = 'model = "inception-v3"\n') -> str:
    (folder / "s.toml").write_text(HEAD.format(model=model) + text)
    return str(folder / "s.toml")


def config(folder: Path, more: str = "", r: int = 1) -> PipelineConfig:
    return load_pipeline(written(folder, f'[insurance]\nparity = {{ code = "sum", k = 4, r = {r} }}\n{more}'))


@pytest.mark.parametrize(
    ("more", "r", "per_query"),
    [("", 1, [1.0, 0.25]), ("", 2, [1.0, 0.25, 0.25]), ("fill_ms = 0\n", 1, [1.0, 1.0])],
)
def test_one_query_of_a_group_calls_parity_models(tmp_path: Path, more: str, r: int, per_query: list[float]) -> None:
    pipeline, law, notes = insured_visits(config(tmp_path, more, r), 50.0, None, None, None)
    assert pipeline.names == law.stages
    assert law.calls_per_query == pytest.approx(per_query)
    assert law.by_all[0]
    assert np.all(law.calls[:, 0] == 1)
    assert notes == ['no query accepts a reconstruction: [insurance] accept is "exact"']


def test_a_fill_makes_groups_smaller_at_a_low_rate(tmp_path: Path) -> None:
    few, many = (
        insured_visits(config(tmp_path, 'accept = "degraded"\nfill_ms = 20\n'), rps, None, None, None)[1]
        for rps in (5.0, 500.0)
    )
    assert few.calls_per_query[1] > 0.9
    assert many.calls_per_query[1] == pytest.approx(0.25, abs=0.01)


def test_files_of_other_pipelines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="lineage: is for stages that some queries call, and parity models are none"):
        insured_visits(config(tmp_path), 50.0, "l.csv", None, None)


def test_policies_that_plan_graphs_refuse_parity_models(tmp_path: Path) -> None:
    file = written(tmp_path, '[insurance]\nparity = { code = "sum", k = 2 }\n')
    request = RunRequest("synthetic:poisson?rate=5", file, duration_s=60.0)
    with pytest.raises(BadInput, match=r"\[insurance\] parity: policy tuned plans no service with parity models"):
        simulate_pipeline(request, ("mark", "tuned"))
    assert usual_policies(request) == ("mark",)
