from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offer import Delay
from mark.planning.solver.boot_law import absent, ready_by, there, with_law
from mark.planning.solver.program import Program, wanted_now
from mark.planning.solver.solve import solve
from tests.planning.solver.programs import covering, program

BOOT = Delay(60.0, 120.0)
CERTAIN = Delay(60.0, 60.0)
NORMAL = NormalDist()


def burst(
    usd_per_rps: float, at: int = 6, boot: Delay = BOOT, *, lasts: int = 1, offers: int = 1, running: int = 0
) -> Program:
    """Return a burst of 8 requests/s in ten minutes without load; an instance serves 2 for 1 $ a minute."""
    load = [8.0 if at <= step < at + lasts else 0.0 for step in range(10)]
    steps = math.ceil(boot.mean_s / 60.0)
    of = program((1.0,) * offers, (2.0,) * offers, load, launch=0.5, boot=steps, running=running)
    return with_law(replace(of, overflow_usd=covering(load, usd_per_rps)), there([boot] * offers, 40))


@given(z=st.floats(-0.9, 4.0))
def test_law_is_that_of_the_draws(z: float) -> None:
    assert ready_by(BOOT, BOOT.at(z)) == pytest.approx(NORMAL.cdf(z), abs=1e-5)


def test_law_is_cut_below_the_shortest_draw() -> None:
    """No boot takes less than half of the mean, and 95 % take no more than the 95th percentile."""
    assert there([BOOT], 3)[0] == pytest.approx([0.0, 0.598, 0.95], abs=1e-3)
    assert ready_by(BOOT, 29.0) == 0.0
    assert ready_by(BOOT, 30.0) == pytest.approx(0.125, abs=1e-3)


@pytest.mark.parametrize(("mean_s", "steps"), [(0.0, 0), (60.0, 1), (61.0, 2), (120.0, 2), (119.0, 2)])
def test_certain_boot_serves_from_the_first_whole_step_on(mean_s: float, steps: int) -> None:
    assert there([Delay(mean_s, mean_s)], 4).tolist() == [[0.0] * steps + [1.0] * (4 - steps)]


def test_absence_is_conditional_on_the_age_of_the_boot() -> None:
    """Young: 40 % still boot after a minute. Two minutes old: most of the few that are left do so after another one."""
    assert absent(BOOT, 60.0, 0.0, 4) == pytest.approx([1.0, 0.402, 0.05, 0.006], abs=2e-3)
    late = absent(BOOT, 60.0, 120.0, 4)
    assert late[1] == pytest.approx((1.0 - ready_by(BOOT, 180.0)) / (1.0 - ready_by(BOOT, 120.0)))
    assert (np.diff(late) < 0.0).all()


def test_absence_follows_the_expected_time_of_this_boot() -> None:
    """A boot that is expected to take twice as long is half as far."""
    assert absent(BOOT, 120.0, 60.0, 9)[2::2] == pytest.approx(absent(BOOT, 60.0, 30.0, 5)[1:])


@pytest.mark.parametrize("age_s", [0.0, 30.0, 59.0, 60.0, 90.0])
def test_certain_or_overdue_boot_is_absent_for_a_step(age_s: float) -> None:
    assert absent(CERTAIN, 60.0, age_s, 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert absent(Delay(90.0, 90.0), 90.0, age_s, 4)[1] == float(age_s + 60.0 < 90.0)
    for boot in (BOOT, CERTAIN):
        assert absent(boot, 0.0, age_s, 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert absent(BOOT, 60.0, 1e6, 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert absent(BOOT, math.inf, age_s, 4).tolist() == [1.0] * 4


def test_certain_boots_leave_the_program_as_it_is() -> None:
    of = program(boot=1)
    assert with_law(of, there([CERTAIN], 40)) is of


def test_dear_misses_are_launched_for_earlier_than_cheap_ones() -> None:
    leads = []
    for usd_per_rps in (1.0, 10.0, 100.0):
        of = burst(usd_per_rps)
        assert of.lead_steps is not None
        leads.append(int(of.lead_steps[0, 6]))
    assert leads == sorted(set(leads))
    assert leads[0] == 1


@pytest.mark.parametrize("usd_per_rps", [1.0, 10.0, 100.0])
def test_lead_costs_least_of_rent_and_misses(usd_per_rps: float) -> None:
    """One instance saves 2 requests/s in its first step only: k dollars of rent, or the share that is late."""
    of, law = burst(usd_per_rps), there([BOOT], 10)[0]
    assert of.lead_steps is not None
    cost = [k + (1.0 - law[k]) * 2.0 * usd_per_rps for k in range(1, 7)]
    assert of.lead_steps[0, 6] == 1 + int(np.argmin(cost))


def test_launch_is_priced_only_where_its_best_lead_has_passed() -> None:
    """A burst in three minutes: launched now it costs no more than ever. In one minute 40 % of it are lost."""
    of = burst(10.0, at=1)
    assert of.late_usd is not None
    assert of.late_usd[0, 1] > 5.0
    of = burst(10.0, at=3)
    assert of.late_usd is not None
    assert of.late_usd[0, 3] == 0.0


def test_plan_launches_for_a_burst_when_its_lead_has_come() -> None:
    """It launches once, and keeps the instances until the burst, because another launch would then come too late."""
    of = burst(10.0)
    assert of.lead_steps is not None
    lead = int(of.lead_steps[0, 6])
    wanted = [int(wanted_now(now, solve(now).counts)[0]) for at in range(7) for now in [burst(10.0, at=at)]]
    assert wanted[lead + 1 :] == [0] * (6 - lead)
    assert wanted[lead] == 4
    booting = burst(10.0, at=1, running=4)
    assert wanted_now(booting, solve(booting).counts)[0] == 4


def test_offer_that_boots_too_long_is_not_launched() -> None:
    """After a boot of twenty minutes it serves in none of ten."""
    of = burst(10.0, boot=Delay(1200.0, 1300.0))
    assert not of.can_launch.any()
    assert not solve(of).counts.any()


def test_equal_offers_are_pruned_whatever_the_law() -> None:
    of = burst(10.0, offers=3)
    assert solve(of).counts[1:].sum() == 0
    assert solve(of).counts[0].any()
