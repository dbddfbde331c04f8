"""One decision in dollars."""

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.load import Forecast
from mark.domain.plan import Plan, Target
from mark.domain.service import Deployment
from mark.reporting.explain import explain, plan_table
from mark.simulation.inputs import open_deployment
from mark.simulation.request import RunRequest
from tests.reporting.test_table import plain

LEVELS = np.array([0.1, 0.5, 0.9])


@pytest.fixture
def deployment() -> Deployment:
    return open_deployment(RunRequest(trace="", service="inception-v3"))


def forecast(rps: float = 100.0, spread: float = 10.0) -> Forecast:
    """Constant quantiles, except that step 3 (+180 s) is twice as busy."""
    mean = np.repeat(np.array([[rps - spread], [rps], [rps + spread]]), 60, axis=1)
    mean[:, 3] *= 2.0
    return Forecast(0.0, 60.0, LEVELS, mean, mean * 1.1, "made-up")


def test_the_plan_is_priced_with_its_expected_overflow(deployment: Deployment) -> None:
    plan = Plan(0.0, (Target("p2.xlarge/on-demand", 1, "because"),))
    chosen = explain(plan, forecast(100.0, 0.0), deployment, {}, 0.0).chosen
    assert chosen is not None
    assert deployment.function is not None
    capacity_rps = deployment.candidates[deployment.index("p2.xlarge/on-demand")].capacity_rps
    assert chosen.overflow_rps == pytest.approx(100.0 - capacity_rps)
    assert chosen.overflow_usd_per_hour == pytest.approx(
        (100.0 - capacity_rps) * 3600.0 * deployment.function.usd_per_request
    )
    assert chosen.usd_per_hour == pytest.approx(0.9 + (chosen.overflow_usd_per_hour or 0.0))


def test_the_best_single_kinds_and_functions_alone_stand_beside_it_cheapest_first(deployment: Deployment) -> None:
    explained = explain(Plan(0.0, ()), forecast(), deployment, {}, 0.0)
    prices = [choice.usd_per_hour for choice in explained.alternatives]
    assert prices == sorted(prices)
    assert len(prices) == len(deployment.offers) + 1
    assert "functions alone" in {choice.fleet for choice in explained.alternatives}


def test_the_window_stands_beside_the_one_of_the_paper(deployment: Deployment) -> None:
    """Batches of 8 on p2.xlarge: the paper waits 200 ms for Inception-v3, we do not wait."""
    plan = Plan(0.0, (Target("p2.xlarge/on-demand", 1, ""), Target("c5.large/on-demand", 1, "")))
    explained = explain(plan, forecast(), deployment, {}, 0.0)
    assert set(explained.batches) == {"p2.xlarge/on-demand"}
    batches = explained.batches["p2.xlarge/on-demand"]
    assert (batches.n_batch, batches.w_batch_ms, round(batches.paper_w_batch_ms)) == (8, 0.0, 200)
    assert "the paper's window: 200 ms" in " ".join(plain(plan_table(explained)).split())
    assert explained.as_json()["batches"]["p2.xlarge/on-demand"]["n_batch"] == 8


def test_with_a_running_fleet_the_forecast_is_read_when_a_launch_can_serve(deployment: Deployment) -> None:
    plan = Plan(0.0, (Target("p2.xlarge/on-demand", 2, ""),))
    first = explain(plan, forecast(), deployment, {}, 0.0)
    later = explain(plan, forecast(), deployment, {"p2.xlarge/on-demand": 2}, 0.0)
    assert (first.step, later.step) == (0, 3)


def test_without_functions_overflow_has_no_price_and_fleets_cover_the_peak(deployment: Deployment) -> None:
    bare = replace(deployment, function=None)
    explained = explain(Plan(0.0, ()), forecast(), bare, {}, 0.0)
    assert all(choice.overflow_usd_per_hour is None for choice in explained.alternatives)
    assert all(choice.capacity_rps >= 121.0 for choice in explained.alternatives)


def test_a_policy_without_forecast_is_explained_without_one(deployment: Deployment) -> None:
    explained = explain(Plan(0.0, (Target("x/on-demand", 1, "by hand"),)), None, deployment, {"y": 2}, 60.0)
    text = plain(plan_table(explained))
    assert "makes no forecast" in text
    assert "by hand" in text
    assert explained.as_json()["forecast"] is None


def test_the_table_says_what_is_believed_and_what_it_costs(deployment: Deployment) -> None:
    plan = Plan(0.0, (Target("p2.xlarge/on-demand", 2, "forecast p90 110"),), notes=("a [note]",))
    text = plain(plan_table(explain(plan, forecast(), deployment, {}, 0.0)))
    assert "100 requests/s" in text
    assert "$1.80" in text
    assert "a [note]" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
