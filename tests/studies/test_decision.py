"""One decision without a run, and the alternatives of the decisions in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.domain.price_list import SLO_SHIFT
from mark.domain.slo import Slo
from mark.planning.policies.alternatives import weigh
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from mark.studies.decision import plan_service_once, slo_prices

BASE = RunRequest(
    trace="synthetic:mmpp?rates=20,80&dwell_s=300",
    service="inception-v3",
    start_s=3600.0,
    duration_s=1800.0,
    predictor="seasonal-naive",
    with_bound=False,
)


def test_a_fleet_that_runs_is_planned_on_from() -> None:
    planned = plan_service_once(BASE, 3600.0, "c5.large=3, p2.xlarge=1")
    assert not planned.context.first
    assert planned.context.fleet.live() == {"c5.large/on-demand": 3, "p2.xlarge/on-demand": 1}
    assert planned.context.last_minute_rps is not None
    assert planned.plan.targets


@pytest.mark.parametrize(
    ("running", "words"),
    [
        ("c5.large", "write INSTANCE=COUNT"),
        ("c5.large=x", "a whole number"),
        ("m5.huge=1", "not among the offers that may be"),
        ("c5.large=1,c5.large=2", "twice"),
    ],
)
def test_a_fleet_that_cannot_be_read_is_named(running: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan_service_once(BASE, 3600.0, running)


def test_a_time_beyond_the_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t_seconds,count\n0,600\n60,600\n")
    with pytest.raises(BadInput, match=r"at_s: beyond the end of t\.csv at 120 s: 999"):
        plan_service_once(replace(BASE, trace=str(path), duration_s=None), 999.0)
    with pytest.raises(BadInput, match="scale"):
        plan_service_once(replace(BASE, trace=str(path), duration_s=None, scale=-1.0), 0.0)


@pytest.mark.parametrize("service", ["inception-v3", "nasnet", "lstm-ptb", "opennmt-ende"])
@pytest.mark.parametrize("running", [None, "c5.xlarge=20"])
def test_a_looser_promise_never_costs_more(service: str, running: str | None) -> None:
    """RT_max is 5 % shorter or longer, with functions and without, for a first fleet and for a running one."""
    planned = plan_service_once(replace(BASE, service=service), 3600.0, running)
    weighed, rt_max_s = weigh(planned.plan, planned.context), planned.context.resolved.slo.rt_max_s
    assert weighed is not None
    short, long = slo_prices(planned)
    assert (short.rt_max_s, long.rt_max_s) == (
        pytest.approx((1.0 - SLO_SHIFT) * rt_max_s), pytest.approx((1.0 + SLO_SHIFT) * rt_max_s),
    )  # fmt: skip
    assert long.usd_per_hour is not None
    assert long.usd_per_hour <= weighed.chosen.usd_per_hour
    assert short.usd_per_hour is None or short.usd_per_hour >= weighed.chosen.usd_per_hour


def test_a_promise_that_no_offer_keeps_has_no_price() -> None:
    """A single request takes 43.1 ms on the fastest type: 45 ms can be kept, 42.75 cannot."""
    tight = replace(BASE, service="inception-v3", slo=Slo(0.045, 0.98), markets=("on-demand",))
    short, long = slo_prices(plan_service_once(tight, 3600.0))
    assert short.usd_per_hour is None
    assert long.usd_per_hour is not None
    # Of the running types c5.large, at 211 ms, cannot stay.
    tight = replace(BASE, service="inception-v3", slo=Slo(0.215, 0.98), markets=("on-demand",))
    planned = plan_service_once(tight, 3600.0, "c5.large=30")
    short, long = slo_prices(planned)
    assert short.usd_per_hour is not None
    assert long.usd_per_hour is not None
    assert short.usd_per_hour > long.usd_per_hour
    longest = replace(BASE, slo=Slo(3500.0, 0.98))
    assert [one.rt_max_s for one in slo_prices(plan_service_once(longest, 3600.0))] == [pytest.approx(3325.0)]


def test_a_policy_without_a_forecast_prices_no_other_promise() -> None:
    assert slo_prices(plan_service_once(replace(BASE, policy="reactive"), 3600.0)) == ()


def test_decisions_that_changed_the_fleet_have_alternatives() -> None:
    result = simulate(replace(BASE, policy="mark", explain=True))
    explained = [d for d in result.decisions if d.weighed is not None]
    assert {d.verb for d in explained} >= {"begin", "launch", "drain"}
    assert {d.weighed for d in explained} == set(range(len(result.weighed)))
    assert all(d.usd_per_hour != 0.0 for d in explained)
    assert all(weighed.chosen.usd_per_hour > 0.0 for weighed in result.weighed)


def test_weighing_alternatives_changes_no_result() -> None:
    asked, plain = (simulate(replace(BASE, policy="mark-paper", explain=explain)) for explain in (True, False))
    assert plain.weighed == ()
    assert asked.weighed != ()
    assert (asked.bill, asked.latency_ms) == (plain.bill, plain.latency_ms)
