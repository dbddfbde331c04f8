"""The contract of the port Planner."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np

from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.load import LEVELS, Forecast
from mark.domain.plan import Plan
from mark.planning.planner import PlanningContext, Policy

RATE_RPS = 30.0


def flat_forecast(rate_rps: float) -> Forecast:
    """Return an hour at `rate_rps`, from 30 % below at the lowest quantile to 30 % above at the highest."""
    rates = np.tile(rate_rps * (1.0 + 0.3 * (2.0 * LEVELS[:, None] - 1.0)), (1, 60))
    return Forecast(0.0, 60.0, LEVELS, rates, rates.copy(), "flat")


def first_context(policy: Policy, rate_rps: float = RATE_RPS) -> PlanningContext:
    """Return the context of a policy before any instance runs."""
    forecast = flat_forecast(rate_rps)
    return PlanningContext(0.0, policy.resolved, Fleet(()), forecast, last_minute_rps=rate_rps, first=True)


def next_context(context: PlanningContext, plan: Plan) -> PlanningContext:
    """Return the context a minute later, when all planned instances are ready."""
    offers = [offer for offer, count in plan.counts.items() for _ in range(count)]
    ready = (Instance(n, offer, Phase.READY, context.now_s, context.now_s) for n, offer in enumerate(offers, 1))
    assert context.forecast is not None
    now_s = context.now_s + 60.0
    forecast = replace(context.forecast, origin_s=now_s)
    return replace(context, now_s=now_s, fleet=Fleet(tuple(ready)), forecast=forecast, first=False)


class PolicyContract:
    """Derive from this class and define a fixture `policy` that returns a `Policy`.

    The policy must be able to serve its service at 30 requests/s; the first fleet is not empty.
    """

    def test_plans_name_offers_of_the_service_only(self, policy: Policy) -> None:
        """This holds at the start and a minute later, including standbys."""
        known = {offer.name for offer in policy.resolved.offers}
        first, following = _two_plans(policy)
        assert first.counts
        for plan in (first, following):
            assert {target.offer for target in (*plan.targets, *plan.standbys)} <= known

    def test_every_target_is_a_count_with_a_reason(self, policy: Policy) -> None:
        """No offer is named twice, and no count is negative."""
        for plan in _two_plans(policy):
            assert len({target.offer for target in plan.targets}) == len(plan.targets)
            for target in plan.targets:
                assert target.count >= 0
                assert 0 <= target.spare <= target.count
                assert target.reason

    def test_plans_keep_the_limits_of_the_service(self, policy: Policy) -> None:
        """Even at fifty times the load, instances and $/h stay within the service's limits."""
        service = policy.resolved.service
        usd_per_hour = {offer.name: offer.usd_per_hour for offer in policy.resolved.offers}
        plan, _ = policy.planner.plan(first_context(policy, 50.0 * RATE_RPS), policy.planner.begin())
        assert sum(plan.counts.values()) <= service.max_instances
        cost = sum(usd_per_hour[offer] * count for offer, count in plan.counts.items())
        assert cost <= service.max_usd_per_hour * (1.0 + 1e-9)

    def test_equal_arguments_give_equal_plans(self, policy: Policy) -> None:
        """The memory belongs to the caller: it may be used again, and is not changed."""
        context = first_context(policy)
        memory = policy.planner.begin()
        first, after = policy.planner.plan(context, memory)
        assert policy.planner.plan(context, memory)[0] == first
        context = next_context(context, first)
        kept = deepcopy(after)
        following, _ = policy.planner.plan(context, after)
        assert policy.planner.plan(context, kept)[0] == following

    def test_plans_are_stamped_with_their_time(self, policy: Policy) -> None:
        assert [plan.at_s for plan in _two_plans(policy)] == [0.0, 60.0]

    def test_a_minute_without_observation_is_no_error(self, policy: Policy) -> None:
        """Both at the start and in a later gap."""
        context = replace(first_context(policy), last_minute_rps=None)
        plan, memory = policy.planner.plan(context, policy.planner.begin())
        policy.planner.plan(next_context(context, plan), memory)

    def test_no_load_is_no_error(self, policy: Policy) -> None:
        plan, memory = policy.planner.plan(first_context(policy, 0.0), policy.planner.begin())
        assert all(count >= 0 for count in plan.counts.values())
        policy.planner.plan(next_context(first_context(policy, 0.0), plan), memory)


def _two_plans(policy: Policy) -> tuple[Plan, Plan]:
    """Return the plan of the first fleet, and the one a minute later."""
    context = first_context(policy)
    first, memory = policy.planner.plan(context, policy.planner.begin())
    return first, policy.planner.plan(next_context(context, first), memory)[0]
