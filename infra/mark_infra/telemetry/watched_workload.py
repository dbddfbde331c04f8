"""Prometheus' view of one workload: the port that its client implements, and the port's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mark.domain.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class WorkloadNow:
    """A workload at `at_unix_s`, by Prometheus' clock; None for numbers that Prometheus lacks.

    `rps` is the mean rate of the last minute, and `replicas` are ready. `answered` is the number of answers in the last
    two minutes, `in_time` their number within RT_max.
    """

    at_unix_s: float
    rps: float | None
    replicas: int | None
    answered: float | None = None
    in_time: float | None = None


@dataclass(frozen=True, slots=True)
class WorkloadMinutes:
    """Requests/s of consecutive minutes, and the share of their answers within RT_max; NaN if unknown."""

    rps: FloatArray
    in_time_share: FloatArray


class WatchedWorkload(Protocol):
    """One workload in Prometheus. Both methods wait for an answer, and raise CloudError without one."""

    def now(self) -> WorkloadNow: ...

    def minutes(self, begin_unix_s: float, count: int) -> WorkloadMinutes:
        """Return the `count` minutes from then on, which must all be over. Repeatable."""
