"""CPU credits of a burstable instance: earned by time, spent by busy vCPU-minutes, launch credits first."""

from __future__ import annotations

import urllib.request
from collections import deque

from mark.domain.offer import BurstCredits
from mark_infra.telemetry.counters import read_bouncer

STEP_S = 5.0
LAUNCH_CREDITS_PER_DAY = 100  # starts with launch credits in any 24 h: AWS's account limit for t2
DAY_S = 86400.0


class CreditAccount:
    """One instance's balance. In unlimited mode surplus credits are charged, else the speed falls to the baseline."""

    def __init__(self, credits: BurstCredits, vcpu: float, *, unlimited: bool) -> None:
        self.credits, self._vcpu, self.unlimited = credits, vcpu, unlimited
        self.launch = 0.0
        self.earned = 0.0  # below zero: surplus credits owed
        self.speed = 1.0

    @property
    def balance(self) -> float:
        """Credits left."""
        return self.launch + self.earned

    def settle(self, passed_s: float, busy_s: float) -> float:
        """Bring it up to date: of the time passed the CPU was busy so long. Returns dollars owed for surplus credits.

        Dollars below zero pay back what was owed and has been earned since.
        """
        credits = self.credits
        used = min(busy_s, passed_s) * self.speed * self._vcpu / 60.0
        from_launch = min(self.launch, used)
        self.launch -= from_launch
        balance = self.earned + credits.credits_per_hour / 3600.0 * passed_s - (used - from_launch)
        balance = min(balance, credits.max_credits)
        usd = 0.0
        if self.unlimited:
            # Surplus is paid down by earned credits; what exceeds a day's earnings is charged at once.
            kept = max(balance, -credits.max_credits)
            owed = (kept - balance) + max(0.0, -kept) - max(0.0, -self.earned)
            usd = owed / 60.0 * (credits.surplus_usd_per_vcpu_hour or 0.0)
            self.earned = kept
        else:
            self.earned = max(0.0, balance)
            # Full speed needs more than one step's worth, so that no step spends what is not there.
            spare = self.balance - self._vcpu / 60.0 * STEP_S
            self.speed = credits.baseline if spare <= 0.0 else 1.0
        return usd

    def stopped(self) -> None:
        """Standard mode loses its balance at a stop, unlimited mode keeps what it earned (for a week)."""
        self.launch, self.speed = 0.0, 1.0
        self.earned = max(0.0, self.earned) if self.unlimited else 0.0


class LaunchCredits:
    """Grants launch credits, as often as the account may have them in a day."""

    def __init__(self) -> None:
        self._at_s: deque[float] = deque()

    def grant(self, account: CreditAccount, now_s: float) -> None:
        """To an instance that starts."""
        amount = account.credits.launch_credits
        while self._at_s and self._at_s[0] <= now_s - DAY_S:
            self._at_s.popleft()
        if amount > 0.0 and len(self._at_s) < LAUNCH_CREDITS_PER_DAY:
            self._at_s.append(now_s)
            account.launch = amount


def busy_s(address: str, port: int) -> float:
    """Seconds that the workers of the bouncer there have computed, on average. Raises OSError where none answers."""
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=1.0) as answer:
        page = answer.read()
    try:
        counts = read_bouncer(page)
    except ValueError as error:
        raise OSError(f"{address} is no bouncer") from error
    return counts.service_s / max(1.0, counts.workers)
