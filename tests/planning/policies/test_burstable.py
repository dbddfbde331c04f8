from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.ec2_limits import LAUNCH_CREDIT_STARTS_PER_DAY as STARTS_PER_DAY
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import BurstCredits, Market, Offer
from mark.domain.service import ResolvedService
from mark.domain.time import DAY_S
from mark.planning.market.spot import boot_usd
from mark.planning.planner import PlanningContext
from mark.planning.policies.burstable import (
    RESERVE,
    Burst,
    Lasting,
    Seen,
    carried_rps,
    carrier,
    lasting,
    life_s,
    remember,
    shifted,
    starts_left,
    surplus_usd_per_hour,
    worth_keeping,
)
from mark.planning.policies.expected_cost import ExpectedCostMemory, ExpectedCostPolicy
from mark.planning.resolve import buyable
from mark.planning.solver.program import Program
from tests.planning.build import fleet, forecast, resolved, sold

# 2 vCPUs at full use spend 2 credits a minute and earn 0.4: 60 credits last 37.5 minutes.
T2 = sold("t2", 0.05, Market.BURSTABLE)
LIFE_S = 60.0 * 60.0 / 1.6


def mixed(*more: Offer, **changes: object) -> ResolvedService:
    """Return two offers of 10 requests/s: at 0.05 $/h while credits last, and always at 0.2 $/h."""
    latencies_ms = {"t2": 100.0, "steady": 100.0, **{offer.instance: 100.0 for offer in more}}
    return resolved(T2, sold("steady", 0.2), *more, latencies_ms=latencies_ms, **changes)  # type: ignore[arg-type]


def started(number: int, credits: float | None, *, ready_s: float = 0.0, phase: Phase = Phase.READY) -> Instance:
    return Instance(number, T2.name, phase, min(0.0, ready_s), ready_s, credits=credits)


def test_launch_credits_last_as_long_as_full_use_spends_them() -> None:
    """They last for the credits divided by spending minus earning: 60 / (2 - 24/60) minutes."""
    assert life_s(T2) == pytest.approx(LIFE_S)


@given(
    st.lists(st.tuples(st.floats(0.0, 3600.0), st.integers(0, 20)), max_size=150),
)
def test_no_day_sees_more_starts_than_have_launch_credits(asked: list[tuple[float, int]]) -> None:
    """A policy that keeps to the starts left never exceeds a day's starts within any 24 hours."""
    starts_s: list[float] = []
    now_s = 0.0
    for passed_s, count in asked:
        now_s += passed_s
        starts_s += [now_s] * min(count, starts_left(starts_s, now_s))
    for k, first_s in enumerate(starts_s):
        assert sum(at_s < first_s + DAY_S for at_s in starts_s[k:]) <= STARTS_PER_DAY


def test_starts_are_paced() -> None:
    """The reserve may start immediately, then one each 24 h / (100 - reserve), and the whole reserve after a rest."""
    each_s = DAY_S / (STARTS_PER_DAY - RESERVE)
    assert starts_left([], 0.0) == RESERVE
    spent = [0.0] * RESERVE
    assert starts_left(spent, 0.99 * each_s) == 0
    assert starts_left(spent, each_s) == 1
    assert starts_left(spent, 3.5 * each_s) == 3
    assert starts_left([*spent, each_s], 1.99 * each_s) == 0
    assert starts_left(spent, 2.0 * RESERVE * each_s) == RESERVE


def test_an_old_balance_counts_as_spent_at_full_use() -> None:
    """Credits that came up five minutes ago are fewer by five minutes of full use; a new balance is believed."""
    one = Fleet((started(1, 40.0),))
    memory = remember((), one, T2, 600.0)
    assert memory == (Seen(1, 0.0, 40.0, 600.0),)
    assert remember(memory, one, T2, 900.0) == memory
    (left,) = lasting(memory, one, T2, 900.0)
    assert left.ends_in == pytest.approx((40.0 - 5 * 1.6) / 1.6)
    newer = Fleet((started(1, 36.0),))
    (left,) = lasting(remember(memory, newer, T2, 900.0), newer, T2, 900.0)
    assert left.ends_in == pytest.approx(36.0 / 1.6)


def test_an_unknown_balance_assumes_full_use_since_launch() -> None:
    unknown = Fleet((started(1, None),))
    (left,) = lasting(remember((), unknown, T2, 600.0), unknown, T2, 600.0)
    assert left.ends_in == pytest.approx((LIFE_S - 600.0) / 60.0)


def test_a_booting_instance_keeps_its_credits() -> None:
    """A boot ends in two minutes, the credits 37.5 minutes later. 1.6 credits last a step; fewer count as zero."""
    of = Fleet((started(1, 60.0, ready_s=720.0, phase=Phase.PENDING), started(2, 1.6), started(3, 1.5)))
    found = lasting(remember((), of, T2, 600.0), of, T2, 600.0)
    assert [one.number for one in found] == [1, 2]
    assert [one.serves_in for one in found] == pytest.approx([2.0, 0.0])
    assert [one.ends_in for one in found] == pytest.approx([39.5, 1.0])


def test_a_day_later_a_start_is_forgotten() -> None:
    of = Fleet((started(1, 60.0),))
    memory = remember((), of, T2, 0.0)
    assert len(remember(memory, Fleet(()), T2, DAY_S - 1.0)) == 1
    assert remember(memory, Fleet(()), T2, DAY_S) == ()


def test_capacity_falls_away_with_the_credits() -> None:
    those = (Lasting(1, 0.0, 3.2), Lasting(2, 0.0, 1.0))
    assert carried_rps(those, 5, 10.0).tolist() == [20.0, 10.0, 10.0, 0.0, 0.0]
    assert carried_rps((), 2, 10.0).tolist() == [0.0, 0.0]


def test_overflow_beside_capacity_that_is_there_anyway() -> None:
    """Overflow of capacity x beside y equals that of x + y."""
    overflow_usd = np.array([[4.0, 2.0, 1.0, 0.5], [4.0, 2.0, 1.0, 0.5]])
    assert shifted(overflow_usd, np.array([0.0, 1.5])).tolist() == [[4.0, 2.0, 1.0, 0.5], [1.5, 0.75, 0.5, 0.5]]


def test_a_burstable_stays_while_it_saves_more_than_it_costs() -> None:
    """The load has two levels at 1 $ each: two stay at 0.9 $, the third saves nothing; at 1.1 $ none stays."""
    overflow_usd = np.tile([2.0, 1.0, 0.0, 0.0], (10, 1))
    those = tuple(Lasting(n, 0.0, 20.0 - n) for n in range(3))
    assert worth_keeping(those, overflow_usd, 1.0, 0.9) == those[:2]
    assert worth_keeping(those, overflow_usd, 1.0, 1.1) == ()


def test_load_that_comes_after_the_credits_does_not_keep_it() -> None:
    overflow_usd = np.zeros((10, 3))
    overflow_usd[6:] = [2.0, 0.0, 0.0]
    assert worth_keeping((Lasting(1, 0.0, 5.0),), overflow_usd, 1.0, 0.1) == ()
    assert len(worth_keeping((Lasting(1, 0.0, 10.0),), overflow_usd, 1.0, 0.1)) == 1


def test_the_program_of_new_ones() -> None:
    """New burstables cost their renewal too, are limited by the starts left, and use the others' capacity first."""
    program = Program(
        usd_per_step=np.array([0.2, 0.05]) / 60.0,
        launch_usd=np.array([0.01, 0.002]),
        capacity_rps=np.array([10.0, 10.0]),
        boot_steps=np.array([3, 3]),
        running=np.array([1, 2]),
        most=np.array([500, 500]),
        overflow_usd=np.tile([2.0, 1.0, 0.0, 0.0], (4, 1)),
        spacing_rps=10.0,
        max_instances=12,
        max_usd_per_step=1.0,
    )
    those = (Lasting(1, 0.0, 9.0), Lasting(2, 0.0, 2.0))
    memory = tuple(Seen(n, 0.0, 60.0, 0.0) for n in range(RESERVE - 3))
    new, stay = Burst(T2, 1).revised(program, those, memory, 0.0)
    assert stay == 2
    assert new.usd_per_step[1] == pytest.approx(0.05 / 60.0 + boot_usd(T2) / (LIFE_S / 60.0))
    assert (new.running.tolist(), new.most.tolist(), new.max_instances) == ([1, 0], [500, 3], 10)
    assert new.max_usd_per_step == pytest.approx(1.0 - 2 * 0.05 / 60.0)
    assert new.overflow_usd[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_which_burstable_carries() -> None:
    """A carrier needs on-demand beside it, must have launch credits, and must not be billed for surplus.

    Of several, the largest carries.
    """
    assert carrier(mixed()) == 0
    alone = resolved(T2, latencies_ms={"t2": 100.0})
    assert (carrier(alone), buyable(alone)) == (None, (0,))
    assert carrier(mixed(sold("steady", 0.06, Market.SPOT, "a"))) is None
    for credits in (BurstCredits(0.2, 24.0, 576.0, 0.0), BurstCredits(0.2, 24.0, 576.0, 60.0, 0.05)):
        other = replace(T2, credits=credits)
        of = resolved(other, sold("steady", 0.2), latencies_ms={"t2": 100.0, "steady": 100.0})
        assert carrier(of) is None
    dear = resolved(replace(T2, usd_per_hour=0.3), sold("steady", 0.2), latencies_ms={"t2": 100.0, "steady": 100.0})
    assert carrier(dear) is None
    # Credits for 50 s at a third of the price do not earn a boot of 160 s back.
    short = replace(T2, credits=BurstCredits(0.2, 24.0, 576.0, 50.0 / LIFE_S * 60.0))
    assert carrier(resolved(short, sold("steady", 0.2), latencies_ms={"t2": 100.0, "steady": 100.0})) is None
    double = replace(T2, instance="double", usd_per_hour=0.1)
    both = resolved(T2, double, sold("steady", 0.2), latencies_ms={"t2": 100.0, "double": 50.0, "steady": 100.0})
    assert both.offers[carrier(both) or 0].instance == "double"


def t3(usd_per_hour: float) -> Offer:
    """Return a burstable in unlimited mode: 2 vCPUs, of which 0.4 are earned, and $0.05 for each vCPU-hour beyond."""
    return replace(sold("t3", usd_per_hour, Market.BURSTABLE), credits=BurstCredits(0.2, 24.0, 576.0, 0.0, 0.05))


@pytest.mark.parametrize(
    ("rate_rps", "instances", "usd"), [(1.0, 1, 0.0), (2.0, 1, 0.0), (6.0, 1, 0.04), (20.0, 2, 0.08)]
)
def test_surplus_credits_cost_what_the_load_takes_beyond_the_baseline(
    rate_rps: float, instances: int, usd: float
) -> None:
    """A request takes both vCPUs for 0.1 s: at 6 requests/s they are busy for 0.6 of the time, less the earned 0.2."""
    of = resolved(t3(0.05), latencies_ms={"t3": 100.0})
    found = surplus_usd_per_hour(of.offers, of.candidates, rate_rps, np.array([float(instances)]))
    assert found == pytest.approx([usd])


@pytest.mark.parametrize(("rate_rps", "chosen"), [(0.5, "t3/burstable"), (8.0, "steady/on-demand")])
def test_unlimited_burstables_are_bought_where_surplus_credits_leave_them_cheaper(rate_rps: float, chosen: str) -> None:
    """At 8 requests/s an instance costs 0.05 $/h and 0.06 $/h of credits, the steady one 0.09 $/h."""
    of = resolved(t3(0.05), sold("steady", 0.09), latencies_ms={"t3": 100.0, "steady": 100.0})
    plan, _ = ExpectedCostPolicy("mark", of).plan(
        PlanningContext(0.0, of, Fleet(()), forecast(rate_rps, 0.05), first=True), None
    )
    assert [target.offer for target in plan.targets if target.count] == [chosen]


def test_unlimited_burstables_do_not_stand_by() -> None:
    """They carry load, and a plan that counted a resumed one twice would end it."""
    spot = replace(sold("spot", 0.03, Market.SPOT, "a"), interruptions_per_hour=1.0)
    of = resolved(t3(0.05), spot, latencies_ms={"t3": 100.0, "spot": 20.0})
    assert set(buyable(of)) == {0, 1}
    plan, _ = ExpectedCostPolicy("mark", of).plan(
        PlanningContext(0.0, of, Fleet(()), forecast(100.0, 0.05), first=True), None
    )
    assert plan.standbys == ()


def test_a_spent_one_is_not_planned_and_is_replaced() -> None:
    """One of two has no credits left: it leaves, and the plan asks for a replacement."""
    of = mixed()
    planner = ExpectedCostPolicy("mark", of)
    running = Fleet((started(1, 50.0), started(2, 0.5)))
    plan, memory = planner.plan(PlanningContext(600.0, of, running, forecast(18.0)), None)
    assert [one.number for one in memory.burstables] == [1, 2]
    assert plan.leaving == (2,)
    assert plan.counts == {T2.name: 2}  # one has credits, one is launched
    steady = Fleet((*fleet({"steady/on-demand": 3}).instances, replace(started(9, 0.5), number=9)))
    everything = tuple(Seen(100 + n, 0.0, 60.0, 0.0) for n in range(RESERVE))
    plan, _ = planner.plan(PlanningContext(60.0, of, steady, forecast(25.0)), ExpectedCostMemory(everything))
    assert T2.name not in plan.counts
    assert plan.leaving == (9,)


def test_the_replacement_is_launched_before_the_credits_end() -> None:
    """A boot takes three steps: with twenty steps of credits left nothing is bought, with three a new instance is."""
    of = mixed()
    planner = ExpectedCostPolicy("mark", of)

    def bought(credits: float) -> int:
        running = Fleet((started(1, credits), *fleet({"steady/on-demand": 0}).instances))
        plan, _ = planner.plan(PlanningContext(60.0, of, running, forecast(6.0)), None)
        return sum(plan.counts.values()) - 1

    assert bought(1.6 * 20) == 0
    assert bought(1.6 * 3) == 1


def test_the_last_instance_stays_when_no_starts_are_left() -> None:
    """Without requests a burstable does not pay, but it is the cheapest instance that may be there for one."""
    memory = ExpectedCostMemory(tuple(Seen(100 + n, -60.0, 60.0, -60.0) for n in range(RESERVE)))
    context = PlanningContext(0.0, mixed(), Fleet((started(1, 60.0),)), forecast(0.0))
    plan, _ = ExpectedCostPolicy("mark", context.resolved).plan(context, memory)
    assert plan.counts == {T2.name: 1}


def test_the_first_fleet_takes_no_more_than_the_reserve() -> None:
    of = mixed()
    planner = ExpectedCostPolicy("mark", of)
    plan, _ = planner.plan(PlanningContext(0.0, of, Fleet(()), forecast(300.0), first=True), None)
    assert plan.counts[T2.name] == RESERVE
    assert plan.counts["steady/on-demand"] > 10


def test_plans_without_burstables_are_as_ever() -> None:
    """A burstable that may not carry changes no plan, and the planner remembers nothing of it."""
    latencies_ms = {"steady": 100.0, "t2": 100.0}
    plain = resolved(sold("steady", 0.2), latencies_ms=latencies_ms)
    dear = resolved(replace(T2, usd_per_hour=0.3), sold("steady", 0.2), latencies_ms=latencies_ms)
    for running in (0, 2, 8):
        of_both = [
            ExpectedCostPolicy("mark", of).plan(
                PlanningContext(0.0, of, fleet({"steady/on-demand": running}), forecast(47.0, 0.3)), None
            )
            for of in (plain, dear)
        ]
        assert of_both[0] == of_both[1]
        assert of_both[0][1] == ExpectedCostMemory()
