"""The cost of a load by RT_max: against a full search of types and functions for each RT_max."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.offer import Market
from mark.domain.price_list import SLO_SHIFT, PromiseEstimate, SloPrice, promise_estimate
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.promise_cost import PromiseCost
from mark.planning.resolve import choose_function
from mark.profiling.policy import candidate
from tests.planning.build import LAMBDA, resolved, sold

LATENCIES_MS = {"quick": 40.0, "slow": 150.0, "burst": 100.0}
BATCHES = {"quick": (8, 180.0), "slow": (4, 300.0)}


def service(function_ms: float | None = 380.0) -> ResolvedService:
    offers = (
        sold("quick", 0.9),
        sold("quick", 0.5, Market.SPOT, "a"),
        sold("slow", 0.2),
        sold("burst", 0.01, Market.BURSTABLE),
    )
    found = resolved(*offers, latencies_ms=LATENCIES_MS, batch=BATCHES, function_ms=function_ms)
    if function_ms is None:
        return found
    return replace(
        found, profiles={**found.profiles, LAMBDA.name: Profile("m", LAMBDA.name, (ProfileRow(1, function_ms),))}
    )


def looked_up(of: ResolvedService, rt_max_s: float, rps: float) -> float:
    slo, usd = Slo(rt_max_s, of.slo.attainment), math.inf
    for instance, price in (("quick", 0.5), ("slow", 0.2)):
        found = candidate(of.profiles[instance], slo, of.service.batching)
        if isinstance(found, Candidate):
            usd = min(usd, max(1, math.ceil(rps / found.capacity_rps)) * price)
    function, _ = choose_function(replace(of.service, slo=slo), of.catalog, of.profiles)
    if function is not None and function.warm_s <= rt_max_s:
        usd = min(usd, 3600.0 * rps * function.usd_per_request)
    return usd


@settings(max_examples=20)
@given(st.floats(0.0, 500.0), st.sampled_from([380.0, None]))
def test_the_cost_is_the_least_of_any_shorter_time(rps: float, function_ms: float | None) -> None:
    of = service(function_ms)
    steps, least = PromiseCost(of).steps(rps), math.inf
    for ms in range(5, 800, 15):
        least = min(least, looked_up(of, ms / 1e3, rps))
        assert steps.usd_within(ms / 1e3) == pytest.approx(least)
    if function_ms is not None:
        assert PromiseCost(of).steps(1e-4).usd_within(0.4) < 0.1 < PromiseCost(of).steps(1e-4).usd_within(0.37)
    assert list(steps.seconds) == sorted(set(steps.seconds))
    assert list(steps.usd_per_hour) == sorted(set(steps.usd_per_hour), reverse=True)


def test_burstables_carry_no_load_where_there_are_others() -> None:
    assert PromiseCost(service()).steps(1.0).usd_within(0.12) == 0.5
    alone = resolved(sold("burst", 0.01, Market.BURSTABLE), latencies_ms=LATENCIES_MS, function_ms=None)
    assert PromiseCost(alone).steps(1.0).usd_within(0.12) == 0.01


def test_without_any_offer_nothing_is_in_time() -> None:
    steps = PromiseCost(replace(service(None), profiles={})).steps(10.0)
    assert steps.usd_within(100.0) == math.inf


def test_an_estimate_tells_what_five_percent_of_the_time_cost() -> None:
    found = PromiseCost(service(None)).estimate(0.15, 3.0)
    assert SLO_SHIFT == 0.05
    assert (found.rps, found.usd_per_hour) == (3.0, 0.2)
    assert [(one.rt_max_s, one.usd_per_hour) for one in found.other_slos] == [
        (pytest.approx(0.1425), 0.5), (pytest.approx(0.1575), 0.2),
    ]  # fmt: skip


def test_a_looser_promise_costs_no_more_in_an_estimate() -> None:
    """The search behind the estimate proves nothing, so it may find a dearer fleet for a looser promise."""
    usd = {0.29: 5.0, 0.3: 4.0, 0.31: 4.5}
    found = promise_estimate(7.0, 0.3, 0.01, lambda within_s: usd[round(within_s, 3)])
    assert [found.usd_per_hour, *(one.usd_per_hour for one in found.other_slos)] == [4.0, 5.0, 4.0]
    nothing = promise_estimate(7.0, 0.01, 0.01, lambda within_s: math.inf)
    assert nothing == PromiseEstimate(7.0, None, (SloPrice(0.02, None),))
