"""What can be bought beside instances: a serverless function, and what a request costs that overflows to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

# Among the sizes that a service's function may have: each that has a profile, of one kind of processors.
EVERY_FUNCTION, EVERY_ARM64_FUNCTION = "lambda:*", "lambda-arm64:*"
_KINDS = {EVERY_FUNCTION: "lambda:", EVERY_ARM64_FUNCTION: "lambda-arm64:"}


def is_function(instance: str) -> bool:
    """Does a profile's or a catalogue's name of a type mean a function of some size?"""
    return instance.startswith(tuple(_KINDS.values()))


def sizes_among(every: str, instances: Iterable[str]) -> list[str]:
    """The functions of `instances` that `lambda:*` or `lambda-arm64:*` stands for; KeyError for anything else."""
    return [name for name in instances if name.startswith(_KINDS[every])]


def size_and_processor(name: str) -> tuple[int, bool] | None:
    """Memory in MB, and whether it runs on arm64, of `lambda:MEMORY_MB` or `lambda-arm64:MEMORY_MB`; else None."""
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
    bills_init: bool = False  # is the initialisation of a cold start billed (AWS: since 2025-08-01)
    arm64: bool = False  # its processors; else x86-64

    @property
    def name(self) -> str:
        return f"lambda{'-arm64' if self.arm64 else ''}:{self.memory_mb}"

    @property
    def usd_per_s(self) -> float:
        """Price of one second of run time; GB are 1,024 MB, as AWS bills them."""
        return self.usd_per_gb_second * self.memory_mb / 1024.0

    def billed_s(self, duration_s: float) -> float:
        """What one invocation of `duration_s` is billed for: rounded up to the billing step."""
        step_s = self.billing_step_ms / 1e3
        # 1e-9: 300 ms must not become four steps of 100 ms through binary rounding.
        return math.ceil(duration_s / step_s - 1e-9) * step_s

    def usd_per_request(self, duration_s: float) -> float:
        """The bill of one invocation of `duration_s`."""
        return self.billed_s(duration_s) * self.usd_per_s + self.usd_per_million_requests / 1e6


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """What a function was asked for: `calls` for requests, `cold` of them with a cold start, and `pings` beside them.

    `throttled` requests found no environment that may be used or started; pings that found none are counted, too.
    """

    calls: int = 0
    cold: int = 0
    pings: int = 0
    throttled: int = 0
    billed_gb_s: float = 0.0  # GB are 1,024 MB

    @property
    def cold_share(self) -> float | None:
        return self.cold / self.calls if self.calls else None
