"""What a Prometheus says of one workload: the port that its client implements, and the values that pass through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mark.domain.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class WorkloadNow:
    """A workload at `at_unix_s`, by Prometheus' clock; None where Prometheus has no number.

    `rps` is the mean rate of the last minute, `replicas` are ready, and of the answers of the last two minutes
    `answered` were given, `in_time` of them within RT_max.
    """

    at_unix_s: float
    rps: float | None
    replicas: int | None
    answered: float | None = None
    in_time: float | None = None


@dataclass(frozen=True, slots=True)
class WorkloadMinutes:
    """Requests/s of consecutive minutes, and the share of their answers within RT_max; NaN where nothing is known."""

    rps: FloatArray
    in_time_share: FloatArray


class WatchedWorkload(Protocol):
    """One workload, as Prometheus knows it. Both methods wait for an answer, and raise CloudError without one."""

    def now(self) -> WorkloadNow: ...

    def minutes(self, begin_unix_s: float, count: int) -> WorkloadMinutes:
        """The `count` minutes from then on, all of them over. Repeatable."""
