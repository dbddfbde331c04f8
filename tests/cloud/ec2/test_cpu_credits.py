"""CPU credits earned, spent and owed, in closed form."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloud.ec2.cpu_credits import CREDIT_STEP_S, CreditAccount, LaunchCredits
from mark.domain.ec2_limits import LAUNCH_CREDIT_STARTS_PER_DAY
from mark.domain.offer import BurstCredits, Delay, Market, Offer
from mark.domain.time import DAY_S, HOUR_S

BOOT = Delay(60.0, 60.0)
T2 = Offer("t2.medium", Market.BURSTABLE, 0.05, BOOT, vcpu=2.0, credits=BurstCredits(0.2, 24.0, 576.0, 60.0))
T3 = Offer(
    "t3.medium", Market.BURSTABLE, 0.05, BOOT, vcpu=2.0,
    credits=BurstCredits(0.2, 24.0, 576.0, 0.0, surplus_usd_per_vcpu_hour=0.05),
)  # fmt: skip
USES = st.lists(st.tuples(st.floats(0.0, 20_000.0), st.floats(0.0, 1.0)), max_size=20)


def test_an_offer_without_credits_has_no_account() -> None:
    """The error names the offer."""
    with pytest.raises(ValueError, match=r"c5\.large/on-demand has no CPU credits"):
        CreditAccount(Offer("c5.large", Market.ON_DEMAND, 0.1, BOOT))


@pytest.mark.parametrize("offer", [T2, T3])
def test_an_idle_instance_earns_credits_up_to_its_cap(offer: Offer) -> None:
    """24 credits an hour, 576 at most."""
    account = CreditAccount(offer)
    assert account.settle(2.0 * HOUR_S, 0.0) == 0.0
    assert account.balance == pytest.approx(48.0)
    account.settle(30.0 * HOUR_S, 0.0)
    assert account.balance == 576.0


def test_launch_credits_are_spent_first() -> None:
    """A minute of two busy vCPUs costs two credits, and earns 0.4."""
    account = CreditAccount(T2)
    LaunchCredits().grant(account, 0.0)
    account.settle(60.0, 60.0)
    assert (account.launch, account.earned) == (pytest.approx(58.0), pytest.approx(0.4))


def test_standard_mode_slows_when_less_than_a_step_is_left() -> None:
    """It is fast again once a step's credits are earned."""
    account = CreditAccount(T2)
    account.settle(0.0, 0.0)
    assert account.speed == 0.2
    wait_s = account.steady_s()
    assert wait_s == pytest.approx(T2.vcpu / 60.0 * CREDIT_STEP_S / (24.0 / HOUR_S))
    account.settle(wait_s * 0.999, 0.0)
    assert account.speed == 0.2
    account.settle(wait_s * 0.002, 0.0)
    assert account.speed == 1.0


def test_at_the_baseline_speed_credits_stay_as_they_are() -> None:
    """A load of 0.2 on two vCPUs uses the 24 credits that an hour earns."""
    account = CreditAccount(T2)
    account.settle(0.0, 0.0)
    account.settle(HOUR_S, HOUR_S)
    assert account.balance == pytest.approx(0.0, abs=1e-9)


def test_unlimited_mode_owes_what_it_uses_beyond_its_earnings() -> None:
    """Ten busy minutes: 20 credits less 4, at 0.05 $ per 60; earning pays them back."""
    account = CreditAccount(T3)
    owed = account.settle(600.0, 600.0)
    assert owed == pytest.approx(16.0 / 60.0 * 0.05)
    assert (account.speed, account.steady_s()) == (1.0, math.inf)
    assert account.settle(16.0 / 24.0 * HOUR_S, 0.0) == pytest.approx(-owed)
    assert account.balance == pytest.approx(0.0, abs=1e-9)


def test_surplus_beyond_a_days_earnings_is_never_paid_back() -> None:
    """The rest is charged at once: 96 credits an hour owed for 10 h, of which 576 are earned back idle."""
    account = CreditAccount(T3)
    owed = account.settle(10.0 * HOUR_S, 10.0 * HOUR_S)
    assert owed == pytest.approx(960.0 / 60.0 * 0.05)
    assert account.balance == -576.0
    assert owed + account.settle(24.0 * HOUR_S, 0.0) == pytest.approx((960.0 - 576.0) / 60.0 * 0.05)


def test_the_mode_may_differ_from_the_catalogues() -> None:
    """CreditSpecification: a T3 in standard mode slows, and owes nothing."""
    account = CreditAccount(T3, unlimited=False)
    assert account.settle(600.0, 600.0) == 0.0
    assert account.speed == 0.2


@pytest.mark.parametrize(("offer", "kept"), [(T2, 0.0), (T3, 24.0)])
def test_a_stop_keeps_the_balance_of_unlimited_mode_only(offer: Offer, kept: float) -> None:
    """The instance runs at full speed again in either case; a debt is not kept."""
    account = CreditAccount(offer)
    account.settle(HOUR_S, 0.0)
    account.stop()
    assert (account.balance, account.speed) == (pytest.approx(kept), 1.0)
    account.settle(10.0 * HOUR_S, 10.0 * HOUR_S)
    account.stop()
    assert account.balance == 0.0


def test_launch_credits_are_granted_a_hundred_times_a_day() -> None:
    """Types without launch credits use up none; a day later there are some again."""
    grants = LaunchCredits()
    for _ in range(50):
        grants.grant(CreditAccount(T3), 0.0)
    accounts = [CreditAccount(T2) for _ in range(LAUNCH_CREDIT_STARTS_PER_DAY + 2)]
    for account in accounts[:-1]:
        grants.grant(account, 0.0)
    assert [account.launch for account in accounts[-3:]] == [60.0, 0.0, 0.0]
    grants.grant(accounts[-1], DAY_S - 1.0)
    assert accounts[-1].launch == 0.0
    grants.grant(accounts[-1], DAY_S)
    assert accounts[-1].launch == 60.0


@given(USES, st.sampled_from([T2, T3]))
def test_balances_stay_within_their_bounds(uses: list[tuple[float, float]], offer: Offer) -> None:
    """The bounds are 0 or a day's debt, and the cap plus the launch credits; in standard mode 0 is the least."""
    account = CreditAccount(offer)
    LaunchCredits().grant(account, 0.0)
    for passed_s, busy in uses:
        usd = account.settle(passed_s, busy * passed_s)
        lowest = -576.0 if account.unlimited else 0.0
        assert lowest <= account.earned <= 576.0
        assert 0.0 <= account.launch <= 60.0
        assert account.speed in ((1.0,) if account.unlimited else (0.2, 1.0))
        assert account.unlimited or usd == 0.0
        assert account.steady_s() >= 0.0


@given(USES)
def test_every_credit_is_earned_launched_spent_or_owed(uses: list[tuple[float, float]]) -> None:
    """Unlimited mode below its cap: balance = earned - spent + charged for good."""
    account, owed_usd, earned, used = CreditAccount(T3), 0.0, 0.0, 0.0
    for passed_s, busy in uses:
        owed_usd += account.settle(passed_s, max(0.2, busy) * passed_s)  # uses at least its earnings
        earned += 24.0 / HOUR_S * passed_s
        used += max(0.2, busy) * passed_s * 2.0 / 60.0
    assert owed_usd / 0.05 * 60.0 == pytest.approx(used - earned, rel=1e-9, abs=1e-6)
