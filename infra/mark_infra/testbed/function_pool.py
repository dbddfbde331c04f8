"""The environments of one local function, with Lambda's decisions and bill. No clock, no processes.

An invocation goes to the idle environment that was used last, otherwise to a new one. It is throttled if as many
environments work as the account allows, or if environments were added faster than the ramp allows (a token bucket, as
in the simulator). An environment ends after it was idle for the keep-alive time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mark.domain.function_offer import FunctionOffer

E = TypeVar("E")

# Lambda's reasons for throttling an invocation.
TOO_MANY = "ConcurrentInvocationLimitExceeded"
TOO_FAST = "FunctionInvocationRateLimitExceeded"


@dataclass(slots=True)
class Account:
    """The counts and cost of one function. Every invocation that got an environment is billed, even if it failed."""

    offer: FunctionOffer
    invocations: int = 0
    cold_starts: int = 0
    throttled: int = 0
    failed: int = 0
    billed_ms: int = 0
    usd: float = 0.0

    def add(self, duration_s: float, init_s: float, *, failed: bool) -> int:
        """Add an invocation, with its environment's init if that was started for it. Returns the milliseconds billed.

        The sum of both durations is rounded up to the billing step (AWS: 1 ms).
        """
        if self.offer.bills_init:
            duration_s += init_s
        step_ms = self.offer.billing_step_ms
        billed_ms = round(math.ceil(duration_s * 1e3 / step_ms - 1e-6) * step_ms)
        self.invocations += 1
        self.failed += failed
        self.billed_ms += billed_ms
        self.usd += self.offer.usd_per_request(duration_s)
        return billed_ms


@dataclass(slots=True)
class EnvironmentPool(Generic[E]):
    """The idle and working environments; an environment that starts for an invocation counts as working."""

    offer: FunctionOffer
    idle: dict[E, float] = field(default_factory=dict)  # since when idle; the environment used last comes last
    at_work: set[E] = field(default_factory=set)
    _tokens: float = field(init=False)
    _tokens_at_s: float = 0.0

    def __post_init__(self) -> None:
        self._tokens = self._most_tokens

    @property
    def _most_tokens(self) -> float:
        return self.offer.burst or self.offer.ramp_per_10s

    def take(self, now_s: float) -> E | str | None:
        """Return an idle environment, None for a new one (then call `begin`), or why the invocation is throttled."""
        if len(self.at_work) >= self.offer.concurrency:
            return TOO_MANY
        if self.idle:
            environment, _ = self.idle.popitem()
            self.at_work.add(environment)
            return environment
        refill = (now_s - self._tokens_at_s) * self.offer.ramp_per_10s / 10.0
        self._tokens = min(self._most_tokens, self._tokens + refill)
        self._tokens_at_s = now_s
        return None if self._tokens >= 1.0 else TOO_FAST

    def begin(self, environment: E) -> None:
        """Add a new environment, which starts to work."""
        self._tokens -= 1.0
        self.at_work.add(environment)

    def rest(self, environment: E, now_s: float) -> None:
        """Note that a working environment is idle again."""
        self.at_work.remove(environment)
        self.idle[environment] = now_s

    def lose(self, environment: E) -> None:
        """Remove an environment that has ended."""
        self.at_work.discard(environment)
        self.idle.pop(environment, None)

    def expired(self, now_s: float) -> list[E]:
        """Remove and return the environments that were idle for too long."""
        found = [e for e, since_s in self.idle.items() if since_s + self.offer.keep_alive_s <= now_s]
        for environment in found:
            del self.idle[environment]
        return found
