"""The times of a model on an instance type by batch size, and the batch policy that follows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.late_shares import LateShares
from mark.domain.load_unit import REQUESTS

# Limits, because the kernel reserves memory for every request of a batch and every worker of every instance.
MOST_BATCH = 10_000
MOST_WORKERS = 1_024


class Basis(StrEnum):
    """The source of a row; reports state the share of the bill that rests on assumed rows."""

    MEASURED = "measured"
    DERIVED = "derived"
    ASSUMED = "assumed"


def weakest(found: Iterable[Basis]) -> Basis:
    """Return the weakest basis, which is that of a number derived from all of them."""
    order = (Basis.MEASURED, Basis.DERIVED, Basis.ASSUMED)
    return max(found, key=order.index)


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One batch size of one model on one instance type (or `lambda:MEMORY_MB`); times in milliseconds."""

    batch: int
    latency_ms: float
    p99_ms: float | None = None
    w_batch_ms: float | None = None
    overhead_ms: float = 0.0
    cold_ms: float | None = None
    workers: int = 1
    vcpus: float | None = None  # kept busy by one worker with a batch, including the server's work for it
    memory_mb: float | None = None  # peak memory of one worker
    basis: Basis = Basis.MEASURED
    unit: str = REQUESTS.name  # of the load; in another one `latency_ms` is the time of one unit
    tail_derived: bool = False  # `p99_ms` is the service's stated multiple of the mean, not a measurement

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MOST_BATCH:
            raise BadInput(f"a batch holds 1 to {MOST_BATCH:,} requests", "batch", self.batch)
        if not self.latency_ms > 0.0:
            raise BadInput("a latency must be above zero", "latency_ms", self.latency_ms)
        if not 1e-3 <= self.latency_ms <= 1e9:
            raise BadInput("a latency lies between 0.001 and 1e9 ms", "latency_ms", self.latency_ms)
        if self.p99_ms is not None and self.p99_ms < self.latency_ms:
            raise BadInput("p99 must not be below the mean", "p99_ms", self.p99_ms)
        if not 1 <= self.workers <= MOST_WORKERS:
            raise BadInput(f"an instance has 1 to {MOST_WORKERS:,} workers", "workers", self.workers)
        if self.vcpus is not None and not 0.0 <= self.vcpus <= 1e4:
            raise BadInput("a worker keeps 0 to 10,000 vCPUs busy", "vcpus", self.vcpus)
        if self.memory_mb is not None and not 0.0 <= self.memory_mb <= 1e8:
            raise BadInput("a worker holds 0 to 1e8 MB", "memory_mb", self.memory_mb)
        if self.overhead_ms < 0.0:
            raise BadInput("an overhead must not be negative", "overhead_ms", self.overhead_ms)


@dataclass(frozen=True, slots=True)
class Profile:
    """All rows of one model on one instance type, ascending by batch size."""

    model: str
    instance: str
    rows: tuple[ProfileRow, ...]

    def __post_init__(self) -> None:
        sizes = [row.batch for row in self.rows]
        if not sizes or sizes != sorted(set(sizes)):
            raise BadInput("batch sizes must ascend, each once", f"{self.model} on {self.instance}", sizes)
        if len({row.unit for row in self.rows}) > 1:
            raise BadInput("all rows of a type share one unit", f"{self.model} on {self.instance}")
        if len({row.workers for row in self.rows}) > 1:
            raise BadInput("all rows of a type share one number of workers", f"{self.model} on {self.instance}")

    @property
    def workers(self) -> int:
        return self.rows[0].workers

    @property
    def unit(self) -> str:
        return self.rows[0].unit

    @property
    def vcpus(self) -> float | None:
        """The vCPUs that one worker keeps busy with its most demanding batches; None unless all rows have it."""
        known = [row.vcpus for row in self.rows if row.vcpus is not None]
        return max(known) if len(known) == len(self.rows) else None

    @property
    def memory_mb(self) -> float:
        """The peak memory of one worker; 0 if no row has it."""
        return max(row.memory_mb or 0.0 for row in self.rows)

    @property
    def overhead_s(self) -> float:
        return self.rows[0].overhead_ms / 1e3

    def latency_s(self, batch: float) -> float:
        """Return the mean seconds of a batch: linear between rows, constant below the smallest.

        Raises BadInput above the largest.
        """
        if batch > self.rows[-1].batch:
            raise BadInput("no profile above the largest measured batch", f"{self.model} on {self.instance}", batch)
        return float(np.interp(batch, [r.batch for r in self.rows], [r.latency_ms for r in self.rows])) / 1e3


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch starts: full (`n_batch`), or after its oldest request waited `w_batch_s` (MArk, section 4.3)."""

    n_batch: int
    w_batch_s: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model on one offer's instance type, ready for planner and kernel.

    `service_s[b]` is the mean time of a batch of b (index 0 is unused and 0), shape (n_batch + 1,); `sigma` is the log
    standard deviation of service (0: deterministic). `late_shares` has the late answers of its fleets; None if service
    is deterministic, or not counted.
    """

    profile: Profile
    policy: BatchPolicy
    service_s: NDArray[np.float64]
    # Sustained capacity within the SLO: workers x n_batch / T(n_batch), or by the counted shares.
    capacity_rps: float
    ceiling_rps: float  # workers x max over measured b of b / T_b, regardless of the SLO: the bound's C_i
    sigma: float = 0.0
    late_shares: LateShares | None = None

    @property
    def workers(self) -> int:
        return self.profile.workers

    @property
    def variation(self) -> float:
        """The squared coefficient of variation of a batch's time; a sigma below 0 means exponential (in tests)."""
        return 1.0 if self.sigma < 0.0 else math.expm1(self.sigma**2)

    @property
    def overhead_s(self) -> float:
        return self.profile.overhead_s
