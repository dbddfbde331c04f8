"""Sampling of batch times: which size to measure next, when to stop, and the statistics.

Sizes take turns in random order, so that a machine that slows down during the measurement affects all of them alike.
Statistics use batch means, because consecutive times are correlated: the sequence is cut into at most 20 blocks, and
the means of these give the interval (Law and Kelton, Simulation Modeling and Analysis, chapter 9).
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.percent import percent
from mark.domain.profile import MOST_BATCH, Profile, ProfileRow
from mark.profiling.table import load_profiles

SIZES = (1, 2, 4, 8, 16, 32)
WARM_UPS = 3  # first rounds, which are not recorded
LEAST = 3  # fewest times of a size, however long they take
# The largest of n samples exceeds the 99th percentile with a probability of 95 % if 1 - 0.99^n >= 0.95.
LEAST_FOR_P99 = 299
# Share of the best throughput that defines the knee.
KNEE_SHARE = 0.95
# The p99 of a lognormal is at most 14.97 times its mean; a larger one could not be read back.
_MOST_P99 = 14.9
_BLOCKS = 20
# Quantile 0.975 of Student's t, for 1 to 19 degrees of freedom.
_T975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)


def check_sizes(sizes: Sequence[int], where: str) -> tuple[int, ...]:
    """Return the batch sizes in ascending order.

    Raises BadInput for an empty list, a repeated size, and a size outside a profile's range.
    """
    if not sizes or len(set(sizes)) < len(sizes):
        raise BadInput("must be batch sizes, each once", where, ",".join(map(str, sizes)))
    for size in sizes:
        if not 1 <= size <= MOST_BATCH:
            raise BadInput(f"a batch holds 1 to {MOST_BATCH:,} items", where, size)
    return tuple(sorted(sizes))


def mean_and_half_s(times_s: Sequence[float] | FloatArray) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % interval, which is infinite for fewer than two times."""
    times = np.asarray(times_s)
    blocks = min(_BLOCKS, len(times))
    if blocks < 2:
        return float(times.mean()), math.inf
    means = [block.mean() for block in np.array_split(times, blocks)]
    return float(times.mean()), _T975[blocks - 2] * float(np.std(means, ddof=1)) / math.sqrt(blocks)


class Sampling:
    """Chooses the size to measure next, until each is precise enough or has used its time.

    A size is done when the interval of its mean is within `precision` (a share of the mean) and its 99th percentile is
    known, or after `seconds`. The first `WARM_UPS` rounds are not recorded. The order follows from `seed`.
    """

    def __init__(self, sizes: Collection[int], *, precision: float, seconds: float, seed: int = 0) -> None:
        self.times_s: dict[int, list[float]] = {size: [] for size in sizes}
        self.service_s: dict[int, list[float]] = {size: [] for size in sizes}
        self.cpu_s: dict[int, list[float]] = {size: [] for size in sizes}
        self.failed: dict[int, str] = {}
        self._precision, self._seconds = precision, seconds
        self._random = random.Random(seed)
        self._spent_s = dict.fromkeys(sizes, 0.0)
        self._open = sorted(sizes)
        self._round: list[int] = []
        self._rounds = 0

    def next(self) -> int | None:
        """Return the next size, or None when all are done."""
        if not self._round:
            self._round = self._random.sample(self._open, len(self._open))
            self._rounds += 1
        return self._round.pop() if self._round else None

    def record(
        self,
        size: int,
        times_s: Sequence[float],
        service_s: Sequence[float] = (),
        cpu_s: float | None = None,
    ) -> None:
        """Record the times of the size that `next` returned, one for each worker that had a batch at the same time.

        `times_s` is from send to done, `service_s` the worker's part of it, `cpu_s` the processor seconds of all
        workers together; the last two only if known.
        """
        if self._rounds <= WARM_UPS:
            return
        self.times_s[size] += times_s
        self.service_s[size] += service_s
        if cpu_s is not None:
            self.cpu_s[size].append(cpu_s)
        self._spent_s[size] += max(times_s)
        if self._is_done(size):
            self._open.remove(size)

    def fail(self, size: int, reason: str) -> None:
        """Stop measuring a size that cannot be run, and discard its times."""
        self.failed[size] = reason
        self._open.remove(size)
        self.times_s[size] = []

    def share_done(self) -> float:
        """Return the progress from 0 to 1, by the most time that the open sizes may still take."""
        left = sum(max(0.0, 1.0 - self._spent_s[size] / self._seconds) for size in self._open)
        return 1.0 - left / len(self._spent_s)

    def _is_done(self, size: int) -> bool:
        times = self.times_s[size]
        if self._spent_s[size] >= self._seconds and len(times) >= LEAST:
            return True
        if len(times) < LEAST_FOR_P99 or len(times) % _BLOCKS:  # computing the interval costs more than a small batch
            return False
        mean_s, half_s = mean_and_half_s(times)
        return half_s <= self._precision * mean_s


@dataclass(frozen=True, slots=True)
class Size:
    """The measurement of one batch size, with `count` times in seconds.

    The 95 % interval of the mean is `mean_s` +- `half_s`; `p99_s` is certain from `LEAST_FOR_P99` times on. `service_s`
    is the mean of the worker's part, `vcpus` the processors that a worker kept busy; None if unknown.
    """

    batch: int
    count: int
    mean_s: float
    half_s: float
    p99_s: float
    service_s: float | None
    vcpus: float | None = None

    @property
    def p99_is_certain(self) -> bool:
        return self.count >= LEAST_FOR_P99


@dataclass(frozen=True, slots=True)
class Measured:
    """A model measured on a machine with `workers` batches at a time.

    `overhead_s` is the time that the bouncer adds to a single request, `cold_s` the time from start to ready,
    `memory_bytes` the peak memory of one worker; None if not measured. `failed` has the reasons of sizes without a
    time. `notes` are remarks of the measurement.
    """

    model: str
    instance: str
    sizes: tuple[Size, ...]
    workers: int = 1
    overhead_s: float | None = None
    cold_s: float | None = None
    memory_bytes: float | None = None
    precision: float = 0.02
    background: int = 0
    failed: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def throughput_rps(self, size: Size) -> float:
        """Return items/s with all workers busy."""
        return self.workers * size.batch / size.mean_s

    @property
    def knee(self) -> Size:
        """The smallest batch with 95 % of the best throughput; larger ones add latency and little throughput."""
        best_rps = max(map(self.throughput_rps, self.sizes))
        return next(size for size in self.sizes if self.throughput_rps(size) >= KNEE_SHARE * best_rps)

    def warnings(self) -> list[str]:
        """Return the reasons to doubt the numbers."""
        found = [f"no batch of {batch}: {reason}" for batch, reason in sorted(self.failed.items())]
        noisy = [size for size in self.sizes if size.half_s > self.precision * size.mean_s]
        if noisy:
            found.append(
                f"the mean of {_listed(noisy)} is less precise than +-{percent(self.precision)}: the machine is "
                "noisy, or more seconds are needed"
            )
        if few := [size for size in self.sizes if not size.p99_is_certain]:
            found.append(f"p99 is uncertain for {_listed(few)}: measured fewer than {LEAST_FOR_P99} times")
        for smaller, larger in zip(self.sizes, self.sizes[1:], strict=False):
            if larger.mean_s + larger.half_s < smaller.mean_s - smaller.half_s:
                found.append(
                    f"a batch of {larger.batch} takes less than one of {smaller.batch}: "
                    "the machine was disturbed, measure again"
                )
        if strange := [size for size in self.sizes if not size.mean_s <= size.p99_s <= _MOST_P99 * size.mean_s]:
            found.append(
                f"p99 of {_listed(strange)} is that of no lognormal, and was moved to between 1 and {_MOST_P99} x the "
                "mean: pauses of the machine?"
            )
        return [*found, *self.notes]

    def profile(self) -> Profile:
        """Return the profile for planners."""
        return Profile(self.model, self.instance, tuple(map(self._row, self.sizes)))

    def as_json(self) -> dict[str, Any]:
        knee = self.knee
        return {
            "schema": 1,
            "model": self.model,
            "instance": self.instance,
            "workers": self.workers,
            "overhead_ms": _ms(self.overhead_s),
            "cold_ms": _ms(self.cold_s),
            "memory_mb": _mb(self.memory_bytes),
            "background": self.background,
            "knee_batch": knee.batch,
            "sizes": [
                {
                    "batch": size.batch,
                    "count": size.count,
                    "mean_ms": size.mean_s * 1e3,
                    "ci95_ms": [(size.mean_s - size.half_s) * 1e3, (size.mean_s + size.half_s) * 1e3],
                    "p99_ms": size.p99_s * 1e3,
                    "p99_is_certain": size.p99_is_certain,
                    "service_ms": _ms(size.service_s),
                    "vcpus": size.vcpus,
                    "throughput_rps": self.throughput_rps(size),
                }
                for size in self.sizes
            ],
            "failed": {str(batch): reason for batch, reason in self.failed.items()},
            "warnings": self.warnings(),
        }

    def _row(self, size: Size) -> ProfileRow:
        p99_s = min(max(size.p99_s, size.mean_s), _MOST_P99 * size.mean_s)
        return ProfileRow(
            batch=size.batch,
            latency_ms=_rounded_ms(size.mean_s),
            p99_ms=_rounded_ms(p99_s),
            overhead_ms=_rounded_ms(self.overhead_s or 0.0),
            cold_ms=None if self.cold_s is None else _rounded_ms(self.cold_s),
            workers=self.workers,
            vcpus=size.vcpus,
            memory_mb=_mb(self.memory_bytes),
        )


def sizes_of(sampling: Sampling) -> tuple[Size, ...]:
    """Return the statistics of all sizes with a time, in ascending order."""
    found = []
    for batch, times_s in sorted(sampling.times_s.items()):
        if times_s:
            mean_s, half_s = mean_and_half_s(times_s)
            own = sampling.service_s[batch]
            p99_s = float(np.quantile(times_s, 0.99, method="higher"))
            cpu_s = sampling.cpu_s[batch]
            vcpus = round(sum(cpu_s) / sum(times_s), 3) if cpu_s else None
            found.append(Size(batch, len(times_s), mean_s, half_s, p99_s, float(np.mean(own)) if own else None, vcpus))
    return tuple(found)


_COLUMNS = (
    *("model", "instance", "batch", "latency_ms", "p99_ms", "w_batch_ms", "overhead_ms", "cold_ms", "workers"),
    *("vcpus", "memory_mb", "basis", "source"),
)


def profile_csv(measured: Sequence[Measured], file: Path) -> str:
    """Return the text of a profile file with the measurements and the other rows of `file`.

    Raises BadInput if the file exists and is not a profile.
    """
    others: list[dict[str, str]] = []
    if file.exists():
        load_profiles(str(file))
        rows = csv.DictReader(StringIO(file.read_text("utf-8-sig"), newline=""), skipinitialspace=True)
        others = [{(key or "").strip(): cell.strip() for key, cell in row.items()} for row in rows]
        if "units_per_s" in others[0]:
            raise BadInput("is a profile in another unit than requests: write to another file", str(file))
        ours = {(one.model, one.instance) for one in measured}
        others = [row for row in others if (row["model"], row["instance"]) not in ours]
    text = StringIO(newline="")
    writer = csv.DictWriter(text, _COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(others)
    rows_of = ((one, *pair) for one in measured for pair in zip(one.profile().rows, one.sizes, strict=True))
    for one, row, size in rows_of:
        said = f"mark profile: {size.count} times, +-{percent(size.half_s / size.mean_s)}"
        source = said if size.p99_is_certain else f"{said}, p99 uncertain"
        writer.writerow({"model": one.model, "instance": one.instance, **asdict(row), "source": source})
    return text.getvalue()


def _listed(sizes: Sequence[Size]) -> str:
    return f"{'batches' if len(sizes) > 1 else 'a batch'} of {', '.join(str(size.batch) for size in sizes)}"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _mb(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else round(size_bytes / 1e6, 1)


def _rounded_ms(seconds: float) -> float:
    return round(seconds * 1e3, 4)
