from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.extras import missing
from mark.domain.fleet import Fleet
from mark.domain.offer import Market
from mark.domain.service import AsIsPolicy, ResolvedService
from mark.planning.planner import PlanningContext
from mark.planning.policies import policy_registry
from mark.planning.policies.policy_registry import (
    make_policy,
    policy_entry,
    policy_names,
    predictor_of,
    wants_perfect_forecast,
)
from tests.planning.build import fleet, forecast, load, resolved, sold

NAMES = [name.replace("INSTANCE=COUNT", "small=2") for name in policy_names()]


def everything() -> ResolvedService:
    return resolved(
        sold("large", 1.5),
        sold("small", 0.2),
        sold("ml.small", 0.3, Market.SAGEMAKER),
        latencies_ms={"large": 10.0, "small": 100.0},
        as_is=AsIsPolicy("hpa", "small"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_name_makes_a_policy_that_plans_its_own_offers(name: str) -> None:
    """Plans only name offers of the policy's resolved service, at any time, and the same arguments repeat them."""
    policy = make_policy(name, everything(), load(30.0, 50.0))
    assert policy.planner.name == name
    assert policy.planner.needs_forecast == policy_entry(name).forecasts
    known = {offer.name for offer in policy.resolved.offers}
    context = PlanningContext(0.0, policy.resolved, Fleet(()), forecast(30.0, 0.3), last_minute_rps=30.0, first=True)
    plan, memory = policy.planner.plan(context, policy.planner.begin())
    later = replace(context, now_s=60.0, first=False, fleet=fleet(plan.counts))
    following, _ = policy.planner.plan(later, memory)
    assert {*plan.counts, *following.counts} <= known
    assert plan.counts
    assert all(target.reason for target in (*plan.targets, *following.targets))
    assert policy.planner.plan(later, memory)[0] == following


@pytest.mark.parametrize(
    ("name", "bouncers"),
    [
        ("mark", True),
        ("mark-paper", True),
        ("mark-optimal", True),
        ("oracle", True),
        ("reactive", True),
        ("static-peak", True),
        ("static-mean", True),
        ("target-tracking", False),
        ("target-tracking-best", False),
        ("as-is", False),
        ("fixed:small=2", False),
        ("best-fixed", False),
    ],
)
def test_only_mark_and_plain_policies_have_bouncers_and_functions(name: str, bouncers: bool) -> None:
    """Our policies and the plain ones have them; other users' current scalers have none."""
    policy = make_policy(name, everything(), load(30.0))
    assert policy.bouncers is bouncers
    assert (policy.resolved.function is not None) is bouncers


def test_only_the_oracle_is_told_the_truth() -> None:
    """No other policy may see the future."""
    assert [name for name in policy_names() if wants_perfect_forecast(name)] == ["oracle"]


@pytest.mark.untraced
def test_a_policy_brings_its_predictor() -> None:
    assert predictor_of("mark") == ("auto", "")
    assert predictor_of("mark", "mstl") == ("mstl", "")
    assert predictor_of("mark-paper", "mstl") == ("mstl", "")
    pytest.importorskip("torch")
    assert predictor_of("mark-paper") == ("lstm", "")


def test_without_the_packages_of_its_predictor_the_next_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(policy_entry("mark-paper"), predictors=("needs-what-is-not-here", "auto"))
    monkeypatch.setattr(policy_registry, "policy_entry", lambda _: entry)
    name, note = predictor_of("mark-paper")
    assert name == "auto"
    assert note.startswith("auto forecasts in place of needs-what-is-not-here, which ")


def test_a_missing_package_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, seed: int) -> None:
        raise missing(ModuleNotFoundError("no torch", name="torch"), f"predictor {name}") or AssertionError

    monkeypatch.setattr(policy_registry, "make_predictor", absent)
    note = "auto forecasts in place of lstm, which needs torch (pip install 'mark-serving[torch]')"
    assert predictor_of("mark-paper") == ("auto", note)


def test_an_unknown_policy_names_the_known_ones() -> None:
    """The error is one line."""
    with pytest.raises(BadInput, match=r"mark-paper, mark-optimal, target-tracking.*magic"):
        make_policy("magic", everything(), load(30.0))


def test_policies_are_listed_in_the_order_of_their_places() -> None:
    assert policy_names()[:5] == policy_names(live=True) == ("mark", "greedy", "ilp", "mark-paper", "mark-optimal")
    assert policy_names()[-2:] == ("fixed:INSTANCE=COUNT", "as-is")


@pytest.mark.parametrize("name", ["fixed", "fixed-", "MARK", ""])
def test_what_only_looks_like_a_policy_is_unknown(name: str) -> None:
    with pytest.raises(BadInput, match="unknown"):
        policy_entry(name)


@pytest.mark.untraced
@pytest.mark.parametrize("name", ["mark", "mark-paper"])
def test_a_plan_is_quick_for_large_fleets(name: str) -> None:
    """A simulated day is 1,440 plans: a dozen offers and 500 instances must not take long.

    The limit is the time of a million additions in Python, measured in the same test: far above a plan's time on any
    machine.
    """
    offers = [sold(f"type{i}", 0.1 * (i + 1) * (1.0 + 0.02 * i)) for i in range(12)]
    of = resolved(*offers, latencies_ms={f"type{i}": 100.0 / (i + 1) for i in range(12)})
    policy = make_policy(name, of, load(30.0))
    demand = forecast(4000.0 + 1500.0 * np.sin(np.arange(60) / 9.0), 0.3, peak=1.2)
    context = PlanningContext(0.0, of, fleet({"type0/on-demand": 200, "type3/on-demand": 80}), demand)
    spent, additions = [], []
    for _ in range(5):
        began = perf_counter()
        policy.planner.plan(context, policy.planner.begin())
        planned = perf_counter()
        total = 0
        for number in range(1_000_000):
            total += number
        spent.append(planned - began)
        additions.append(perf_counter() - planned)
    assert min(spent) < min(additions)
