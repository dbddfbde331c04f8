"""CPU credits of a burstable instance: earned by time, spent by busy vCPU-minutes, launch credits first."""

from __future__ import annotations

import math
from collections import deque

from mark.domain.ec2_limits import LAUNCH_CREDIT_STARTS_PER_DAY
from mark.domain.offer import Offer
from mark.domain.time import DAY_S

CREDIT_STEP_S = 5.0  # longest time that a busy instance goes without settling its balance


class CreditAccount:
    """One instance's balance. In unlimited mode surplus credits are charged, otherwise the speed falls to the baseline.

    With `unlimited` None the catalogue decides. Raises ValueError for an offer that is not burstable.
    """

    def __init__(self, offer: Offer, *, unlimited: bool | None = None) -> None:
        if offer.credits is None:
            raise ValueError(f"{offer.name} has no CPU credits")
        self.credits, self._vcpu = offer.credits, offer.vcpu
        self._surplus_usd_per_vcpu_hour = offer.credits.surplus_usd_per_vcpu_hour
        self.unlimited = self._surplus_usd_per_vcpu_hour is not None if unlimited is None else unlimited
        self.launch = 0.0
        self.earned = 0.0  # below zero: surplus credits owed
        self.speed = 1.0

    @property
    def balance(self) -> float:
        """Credits left."""
        return self.launch + self.earned

    def settle(self, passed_s: float, busy_s: float) -> float:
        """Bring the balance up to date, with all vCPUs busy for `busy_s` of the time passed.

        Return the dollars owed for surplus credits; below zero if earned credits have paid back some of them since.
        """
        credits = self.credits
        used = busy_s * self.speed * self._vcpu / 60.0
        from_launch = min(self.launch, used)
        self.launch -= from_launch
        balance = self.earned + credits.credits_per_hour / 3600.0 * passed_s - (used - from_launch)
        balance = min(balance, credits.max_credits)
        if not self.unlimited:
            self.earned = max(0.0, balance)
            self.speed = credits.baseline if self._spare() <= 0.0 else 1.0
            return 0.0
        # Surplus is paid down by earned credits. AWS charges the excess over a day's earnings immediately and the
        # remainder when the instance ends. Here every call returns its part, so that the bill is right at any moment.
        kept = max(balance, -credits.max_credits)
        owed = (kept - balance) + max(0.0, -kept) - max(0.0, -self.earned)
        self.earned = kept
        return owed / 60.0 * (self._surplus_usd_per_vcpu_hour or 0.0)

    def steady_s(self) -> float:
        """Return the least time until the speed can change, because the spare credits are spent or earned back."""
        if self.unlimited:
            return math.inf
        full, earned = self._vcpu / 60.0, self.credits.credits_per_hour / 3600.0  # credits per second
        spare = self._spare()
        pace = full - earned if spare > 0.0 else earned
        return abs(spare) / pace if pace > 0.0 else math.inf

    def stop(self) -> None:
        """Stop the instance: standard mode (T2) loses its balance; unlimited mode keeps earned credits (a week)."""
        self.launch, self.speed = 0.0, 1.0
        self.earned = max(0.0, self.earned) if self.unlimited else 0.0

    def _spare(self) -> float:
        # Full speed needs more credits than one step can spend, so that no step overdraws the balance.
        return self.balance - self._vcpu / 60.0 * CREDIT_STEP_S


class LaunchCredits:
    """Grants launch credits, up to the account's limit per day."""

    def __init__(self) -> None:
        self._granted_s: deque[float] = deque()

    def grant(self, account: CreditAccount, now_s: float) -> None:
        """Grant credits to an instance that starts."""
        amount = account.credits.launch_credits
        while self._granted_s and self._granted_s[0] <= now_s - DAY_S:
            self._granted_s.popleft()
        if amount > 0.0 and len(self._granted_s) < LAUNCH_CREDIT_STARTS_PER_DAY:
            self._granted_s.append(now_s)
            account.launch = amount
