"""The prices of greed and of averages on a generated trace, and the page that shows them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mark_papers.paper.optimal import Optimal, paper_program, rolled, run_optimal
from mark_papers.paper.replay import MEAN_RPS, open_replay, replay_inputs
from mark_papers.paper_pages.optimal_page import optimal_report
from mark_papers.paper_program import paper_cost_usd

from mark.planning.policies.paper_system import paper_admission
from tests.studies.report.test_simulate_report import plain


@pytest.fixture(scope="module")
def found() -> Optimal:
    return run_optimal(models=("inception-v3", "lstm-ptb"), start_s=86400.0, duration_s=3600.0)


def test_every_price_is_at_least_one(found: Optimal) -> None:
    """Both models have rows, raw first; the cool-down costs, and so does a promise to all but a few."""
    assert [(row.model, row.capped) for row in found.rows] == [
        ("inception-v3", False), ("lstm-ptb", False), ("inception-v3", True), ("lstm-ptb", True)
    ]  # fmt: skip
    for row in found.rows:
        assert row.optimum.usd <= row.prompt_usd <= row.greedy_usd
        assert row.price_of_greed >= 1.0
        assert row.price_of_averages > 1.0
        assert row.optimum.gap < 1e-6
        assert row.printed_usd < row.greedy_usd  # more throughput than any wait allows


def test_loads_are_the_highest_five_seconds_that_came() -> None:
    replay = open_replay(start_s=86400.0)
    inputs = replay_inputs("lstm-ptb", replay.raw, replay.start_s, duration_s=600.0, with_bound=False)
    program = paper_program(paper_admission(inputs.resolved), inputs.drawn().peak_rps)
    assert len(program.demand_rps) == 10
    assert program.demand_rps.mean() > 1.02 * MEAN_RPS["lstm-ptb"]
    assert program.first
    service = inputs.resolved.service
    greedy = rolled(program, service.control)
    assert (program.capacity_rps @ greedy >= program.demand_rps - 1e-9).all()
    # The first fleet is free; later launches of Algorithm 1 are not.
    launched = np.maximum(np.diff(greedy, axis=1), 0).sum(axis=1)
    expected = program.usd_per_step @ greedy.sum(axis=1) + program.launch_usd @ launched
    assert paper_cost_usd(program, greedy) == pytest.approx(float(expected))


def test_the_page_shows_both_prices(found: Optimal) -> None:
    page = plain(optimal_report(found))
    assert page.index("the raw stream") < page.index("minutes capped")
    assert "The price of greed, greedy / optimum, is" in page
    assert f"{found.rows[0].price_of_greed:.3f}" in page
    shown = json.loads(json.dumps(optimal_report(found).data))
    assert (shown["table"], shown["minutes"]) == ("optimal", 60)
    assert shown["rows"][0]["price_of_averages"] == found.rows[0].price_of_averages
    assert shown["rows"][0]["optimum"]["solver"] == "dp"
