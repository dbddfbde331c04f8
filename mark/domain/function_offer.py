"""Serverless functions as offers: their sizes, limits, and the price of a request that overflows to one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

# Patterns: mark chooses among all sizes with a profile on this kind of processor.
EVERY_FUNCTION, EVERY_ARM64_FUNCTION = "lambda:*", "lambda-arm64:*"
_KINDS = {EVERY_FUNCTION: "lambda:", EVERY_ARM64_FUNCTION: "lambda-arm64:"}
# Idle environments are pinged after this share of the keep-alive, because AWS guarantees no keep-alive.
REFRESH_SHARE = 0.5


def is_function(instance: str) -> bool:
    """Return whether the name of a type in a profile or catalogue means a function."""
    return instance.startswith(tuple(_KINDS.values()))


def sizes_among(every: str, instances: Iterable[str]) -> list[str]:
    """Return those `instances` that `lambda:*` or `lambda-arm64:*` stands for. Raises KeyError for other patterns."""
    return [name for name in instances if name.startswith(_KINDS[every])]


def size_and_processor(name: str) -> tuple[int, bool] | None:
    """Return memory in MB and whether it is arm64, for `lambda:MEMORY_MB` or `lambda-arm64:MEMORY_MB`, else None."""
    found = re.fullmatch(r"lambda(-arm64)?:([1-9][0-9]{0,8})", name)
    return None if found is None else (int(found[2]), found[1] is not None)


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
    bills_init: bool = False  # whether the initialisation of a cold start is billed (AWS: since 2025-08-01)
    arm64: bool = False  # the processors; False: x86-64

    @property
    def name(self) -> str:
        return f"lambda{'-arm64' if self.arm64 else ''}:{self.memory_mb}"

    @property
    def usd_per_s(self) -> float:
        """The price of one second of run time; GB are 1,024 MB, as AWS bills them."""
        return self.usd_per_gb_second * self.memory_mb / 1024.0

    def billed_s(self, duration_s: float) -> float:
        """Return the billed time of one invocation of `duration_s`: rounded up to the billing step."""
        step_s = self.billing_step_ms / 1e3
        # 1e-9: 300 ms must not become four steps of 100 ms through binary rounding.
        return math.ceil(duration_s / step_s - 1e-9) * step_s

    def usd_per_request(self, duration_s: float) -> float:
        """Return the price of one invocation of `duration_s`."""
        return self.billed_s(duration_s) * self.usd_per_s + self.usd_per_million_requests / 1e6


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """The calls of a function: `calls` for requests, `cold` of them with a cold start, and `pings`.

    `throttled` counts requests and pings for which no environment was free or could be started.
    """

    calls: int = 0
    cold: int = 0
    pings: int = 0
    throttled: int = 0
    billed_gb_s: float = 0.0  # GB are 1,024 MB

    @property
    def cold_share(self) -> float | None:
        return self.cold / self.calls if self.calls else None
