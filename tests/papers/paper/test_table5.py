"""Table 5 of the paper: the decomposition, and a whole run of the smallest model."""

from __future__ import annotations

import json

import pytest
from mark_papers.paper.replay import MEAN_RPS
from mark_papers.paper.table5 import run_table5
from mark_papers.paper_pages.table5_page import table5_report

from tests.simulation.laws import check_laws
from tests.studies.report.test_simulate_report import plain


@pytest.mark.acceptance
@pytest.mark.usefixtures("brief_training")
def test_one_model_on_a_generated_trace_adds_up() -> None:
    """Same requests for every column, at the paper's mean rate; the parts make SageMaker's bill; ours is cheaper."""
    table = run_table5(models=("lstm-ptb",), start_s=86400.0, duration_s=2700.0)
    raw, calm = table.rows
    assert (calm.capped, raw.capped) == (True, False)
    runs = [calm.sagemaker, calm.ours, calm.paper, calm.artefact, calm.spot]
    assert len({run.requests.total for run in runs}) == 1
    assert runs[0].requests.total / runs[0].trace.duration_s == pytest.approx(MEAN_RPS["lstm-ptb"], rel=0.01)
    for run in runs:
        check_laws(run)
    parts = calm.parts
    assert parts is not None
    made_of = (
        parts.bound_usd,
        parts.instance_type_usd,
        parts.price_factor_usd,
        parts.over_provision_usd,
        parts.lag_usd,
    )
    assert sum(made_of) == pytest.approx(parts.total_usd)
    assert parts.total_usd == calm.sagemaker.bill.total
    assert parts.price_factor_usd == pytest.approx(0.4 * parts.over_provision_usd / 1.4)  # 1.4 x EC2 in 2019
    assert [name for name, _, _ in calm.types] == ["ml.c5.xlarge"]
    assert calm.types[0][1] == pytest.approx(calm.sagemaker.bill.total)
    assert calm.ratio > 2.0
    shown = json.loads(json.dumps(table5_report(table).data))
    assert shown["rows"][0]["paper_ratio"] == 2.41
    page = plain(table5_report(table))
    assert page.index("the raw stream") < page.index("minutes capped")
    assert page.count("mark-paper") == page.count("artefact") == 2
    assert page.count("lstm-ptb  ") >= 5  # no table breaks a name
