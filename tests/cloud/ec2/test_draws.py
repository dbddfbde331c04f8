"""Draws of boots and interruptions: repeatable, independent, of the right size."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest

from mark.cloud.ec2.draws import Start
from mark.domain.offer import Delay, Market, Offer

SPOT = Offer("c5.large", Market.SPOT, 0.03, Delay(60.0, 120.0), zone="a", interruptions_per_hour=1.0)


def test_the_same_start_draws_the_same() -> None:
    """Earlier draws do not matter; seeds have any size or sign."""
    for seed in (1, -1, 2**70):
        one, other = Start(seed, 1, 0), Start(seed, 1, 0)
        other.until_interruption_s(SPOT)
        assert one.boot_s(SPOT) == other.boot_s(SPOT)
        assert one.until_interruption_s(SPOT) == other.until_interruption_s(SPOT)


def test_seed_number_start_and_purpose_draw_apart() -> None:
    """Each of them is part of the key."""
    starts = [Start(1, 1, 0), Start(2, 1, 0), Start(1, 2, 0), Start(1, 1, 1)]
    assert len({start.until_interruption_s(SPOT) for start in starts}) == 4
    assert len({start.boot_s(SPOT) for start in starts}) >= 3


def test_a_resume_takes_the_resume_delay_where_there_is_one() -> None:
    """Constant delays show which delay was taken."""
    boot, resume = Delay(100.0, 100.0), Delay(30.0, 30.0)
    offer = replace(SPOT, boot=boot, resume=resume)
    assert [Start(1, 1, nth).boot_s(offer) for nth in (0, 1, 2)] == [100.0, 30.0, 30.0]
    assert Start(1, 1, 1).boot_s(replace(offer, resume=None)) == 100.0


def test_boots_have_the_mean_and_floor_of_their_delay() -> None:
    """The mean of 2,000 launches."""
    boots = [Start(3, number, 0).boot_s(SPOT) for number in range(1, 2001)]
    assert min(boots) >= 30.0
    assert fmean(boots) == pytest.approx(60.0, rel=0.05)


def test_interruptions_come_at_the_hazard_rate() -> None:
    """Exponential: mean 1 h, and about 1/e are later than that; never without a hazard."""
    after_s = [Start(3, number, 0).until_interruption_s(SPOT) for number in range(1, 2001)]
    assert fmean(after_s) == pytest.approx(3600.0, rel=0.07)
    assert sum(s > 3600.0 for s in after_s) / 2000 == pytest.approx(math.exp(-1.0), abs=0.03)
    assert Start(3, 1, 0).until_interruption_s(replace(SPOT, interruptions_per_hour=0.0)) == math.inf
