"""What can be bought beside instances: a serverless function, and what a request costs that overflows to it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FunctionOffer:
    """A serverless function of one memory size and its account limits."""

    memory_mb: int
    usd_per_gb_second: float
    usd_per_million_requests: float
    billing_step_ms: float
    concurrency: int
    ramp_per_10s: float  # environments that may be added per 10 s, once the burst is used
    keep_alive_s: float
    burst: float = 0.0  # environments that may be added at once; 0: the ramp of one 10 s step
    bills_init: bool = False  # is the initialisation of a cold start billed (AWS: since 2025-08-01)

    @property
    def name(self) -> str:
        return f"lambda:{self.memory_mb}"

    @property
    def usd_per_s(self) -> float:
        """Price of one second of run time; GB are 1,024 MB, as AWS bills them."""
        return self.usd_per_gb_second * self.memory_mb / 1024.0

    def usd_per_request(self, duration_s: float) -> float:
        """The bill of one invocation of `duration_s`, rounded up to the billing step."""
        step_s = self.billing_step_ms / 1e3
        # 1e-9: 300 ms must not become four steps of 100 ms through binary rounding.
        steps = math.ceil(duration_s / step_s - 1e-9)
        return steps * step_s * self.usd_per_s + self.usd_per_million_requests / 1e6
