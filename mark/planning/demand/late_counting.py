"""The late shares (`LateShares`) of an instance type, counted with the kernel by the service's own rules.

A formula of capacity knows the mean of a service time but not its tail: it promises 1,258 requests/s of an instance
that keeps its promise at 3/s. So fleets of 1 to 64 instances are simulated at loads from nearly zero to more than they
can serve, with the service's routing, batches and admission: one to two seconds a type. Tables depend on the arguments
only, and are kept beside the compiled kernel, in the folder named after its sources, under names that hold a hash of
the arguments and of this file.

Near the promise a request counts as its probability of being late when its service begins, instead of by the drawn
time. Both have the same expectation, but if few requests wait the drawn result is nearly all chance.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.function_offer import FunctionOffer
from mark.domain.late_shares import LateShares
from mark.domain.profile import Candidate
from mark.domain.rules.admission import LATE, TOLERANCE_S, in_time, late_share, least_probability
from mark.domain.service import FunctionUse, ServiceConfig
from mark.kernel.accounting import Accounting
from mark.kernel.compiled import CACHE_DIR, sources_hash
from mark.kernel.stage import Admission, StageSimulation
from mark.planning.demand.counting_watch import counting_watched

INSTANCES = np.array([1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 26, 32, 48, 64])
# Size of the fleets by which the capacities of types are compared
TYPICAL = 4
LOADS = 125  # columns; every `_STEP`th is counted, the others only near the promise
_STEP = 4
_STRAIGHT = 0.25  # of the allowed share: columns that differ by less are joined by a line
# Requests counted for a cell, and the number of drawn times whose exactness a cell near the promise must have
REQUESTS, CLOSE_REQUESTS = 20_000, 80_000
_CLOSE = (0.4, 2.5)  # a cell is near the promise if its late share is between these multiples of the allowed one
_BLOCK = 500  # block size in requests, by which late ones are counted for the dispersion
_LONG = 5  # blocks that are joined to measure how long misses cluster
_LEAST_LOAD, _MOST_LOAD = 0.02, 1.3  # of one worker without batches; of all workers with full batches
_SETTLED = 5.0  # after this multiple of RT_max a fleet has forgotten that it began empty
_ENVIRONMENTS = 1 << 16
_SOURCE = sources_hash([Path(__file__)])  # a kept table is of this source, and of the kernel that names its folder


def count_late_shares(candidate: Candidate, service: ServiceConfig, function: FunctionUse | None) -> LateShares:
    """Return the table of one instance type under a service's promise; equal arguments, equal tables.

    `function` answers the requests that are passed on to it, always warm and without a limit; None: without a function.
    """
    warm_s = None if function is None else function.warm_s
    return _counted(_Question(candidate, service, warm_s))


class _Question:
    """The arguments that a table depends on, compared by value."""

    def __init__(self, candidate: Candidate, service: ServiceConfig, function_s: float | None) -> None:
        self.candidate, self.service, self.function_s = candidate, service, function_s
        c = candidate
        self.key = hashlib.sha256(
            repr(
                (
                    _SOURCE, REQUESTS, CLOSE_REQUESTS, LOADS, _STEP, INSTANCES.tolist(), c.service_s.tolist(), c.sigma,
                    c.overhead_s, c.workers, c.policy.n_batch, c.policy.w_batch_s, service.slo.rt_max_s,
                    service.slo.attainment, service.routing, service.late, function_s,
                )
            ).encode()
        ).hexdigest()[:32]  # fmt: skip

    @property
    def passes_on(self) -> bool:
        """Whether a function gets the requests that no instance can answer in time."""
        return self.function_s is not None and (self.answers or self.service.late == "function")

    @property
    def answers(self) -> bool:
        """Whether the function is in time."""
        return self.function_s is not None and in_time(self.function_s, self.service.slo.rt_max_s)

    @property
    def always_warm(self) -> FunctionUse:
        """The function, without cold starts and with more environments than a fleet of the table can use."""
        assert self.function_s is not None, "only where there is one"
        offer = FunctionOffer(128, 0.0, 0.0, 1.0, _ENVIRONMENTS, 1e9, math.inf, 1e9)
        return FunctionUse(offer, self.function_s, 0.0, "derived")

    @property
    def is_known(self) -> bool:
        """Whether the table was counted before."""
        return CACHE_DIR is not None and (Path(CACHE_DIR) / f"late-{self.key}.npy").exists()

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.key == other.key


@lru_cache(maxsize=256)
def _counted(question: _Question) -> LateShares:
    c = question.candidate
    one_rps = 1.0 / float(c.service_s[1])
    load_rps = np.geomspace(_LEAST_LOAD * one_rps, _MOST_LOAD * max(_throughput_rps(c), one_rps), LOADS)
    found = _kept(question.key)
    if found is None:
        found = np.stack([_row(question, i, load_rps) for i in range(len(INSTANCES))], axis=1)
        _keep(question.key, found)
    late, calls, dispersion = found
    overload = np.maximum(0.0, 1.0 - max(_throughput_rps(c), one_rps) / load_rps)
    # Counted requests may end before an overload fills the queue, which a lasting one does.
    for shares, shows in ((late, not question.answers), (calls, question.passes_on)):
        if shows:
            np.maximum(shares, overload, out=shares)
    return LateShares(
        INSTANCES,
        load_rps,
        late,
        calls,
        dispersion,
        question.service.slo.rt_max_s,
        CLOSE_REQUESTS,
        float(not question.answers),
        float(question.passes_on),
    )


def _row(question: _Question, row: int, load_rps: FloatArray) -> FloatArray:
    """Count the fleets of one size: (3, U) late shares, shares of calls and dispersions.

    Every `_STEP`th column is counted. The columns in between are counted near the promise, because interpolation would
    put the load that a fleet carries off by up to a tenth there; elsewhere they are interpolated.
    """
    allowed = 1.0 - question.service.slo.attainment
    found = np.full((3, len(load_rps)), np.nan)

    def count(column: int) -> None:
        counted = _count(question, int(INSTANCES[row]), float(load_rps[column]), REQUESTS, (row, column, 0))
        if _CLOSE[0] * allowed < counted.late < _CLOSE[1] * allowed:
            counted = counted.smoothed()
            more = counted.more_for(CLOSE_REQUESTS)
            if more > 0:
                again = _count(question, int(INSTANCES[row]), float(load_rps[column]), more, (row, column, 1))
                counted = counted.with_more(again.smoothed())
        found[:, column] = counted.late, counted.calls, counted.dispersion

    for column in range(0, len(load_rps), _STEP):
        count(column)
    step = _STEP
    while step > 1:
        step //= 2
        for column in range(step, len(load_rps), 2 * step):
            sides = found[:, [column - step, column + step]]
            unserved = sides[0] + sides[1]
            if unserved.min() < _CLOSE[1] * allowed and np.ptp(unserved) > _STRAIGHT * allowed:
                count(column)
            else:
                found[:, column] = sides.mean(axis=1)
    return found


def _throughput_rps(candidate: Candidate) -> float:
    full = candidate.policy.n_batch
    return candidate.workers * full / float(candidate.service_s[full])


@dataclass(frozen=True, slots=True)
class _Count:
    """Result of a run: late and called shares, and the variance of the late requests in blocks over their mean.

    `expected` has, by block, the requests expected to be late when their service began (`smoothed`). `late` is then
    their mean, which has the expectation of the counted share with less chance in it.
    """

    requests: int
    late: float
    calls: float
    dispersion: float
    room_s: FloatArray  # left when its service began, for each settled request that an instance served; else NaN
    mean_s: Callable[[], FloatArray]  # mean time of each request's batch
    missed: FloatArray  # 1 for a request that was refused and got no answer in time
    sigma: float
    expected: FloatArray | None = None

    def smoothed(self) -> _Count:
        """Count each served request with the probability that its service time makes it late."""
        served = np.isfinite(self.room_s)
        chance = self.missed.copy()
        room_s = np.maximum(self.room_s[served], 1e-12)
        deviations = np.log(room_s / self.mean_s()[served]) / self.sigma + 0.5 * self.sigma
        # Half of erfc is the normal law's tail, which numpy lacks.
        tail = 0.5 * np.fromiter(map(math.erfc, (deviations / math.sqrt(2.0)).tolist()), np.float64, len(deviations))
        chance[served] = np.where(self.room_s[served] > 0.0, tail, 1.0)
        whole = len(chance) // _BLOCK * _BLOCK
        return replace(self, late=float(chance.mean()), expected=chance[:whole].reshape(-1, _BLOCK).sum(axis=1))

    def more_for(self, requests: int) -> int:
        """Return the further requests needed to be as exact as a share counted plainly with `requests`."""
        assert self.expected is not None
        plain = self.dispersion * self.late / requests
        # Compare longer blocks too, because a full queue outlasts a block.
        long = self.expected[: len(self.expected) // _LONG * _LONG].reshape(-1, _LONG).sum(axis=1)
        of_long = float(long.var()) / _LONG if len(long) > 1 else 0.0
        own = max(float(self.expected.var()), of_long) / _BLOCK / self.requests
        return min(requests, math.ceil(self.requests * (own / plain - 1.0))) if plain > 0.0 else requests

    def with_more(self, more: _Count) -> _Count:
        """Return both runs together."""
        share = self.requests / (self.requests + more.requests)

        def of_both(one: float, other: float) -> float:
            return share * one + (1.0 - share) * other

        return replace(
            self,
            requests=self.requests + more.requests,
            late=of_both(self.late, more.late),
            calls=of_both(self.calls, more.calls),
            dispersion=of_both(self.dispersion, more.dispersion),
        )


def _count(question: _Question, instances: int, each_rps: float, requests: int, seed: tuple[int, int, int]) -> _Count:
    """Simulate a fleet at a constant load per instance."""
    service, candidate = question.service, question.candidate
    rt_max_s = service.slo.rt_max_s
    draws = np.random.default_rng(seed)
    arrivals_s = np.cumsum(draws.exponential(1.0 / (instances * each_rps), requests))
    stage = StageSimulation(
        [candidate],
        accounts=Accounting(rt_max_s=rt_max_s, end_s=float(arrivals_s[-1]) + 1.0),
        admission=Admission(
            late=LATE[service.late],
            least_in_time=least_probability(service.slo.attainment),
            late_share=late_share(service.slo.attainment),
        ),
        function=question.always_warm if question.passes_on else None,
        routing=service.routing,
        seed=int(draws.integers(2**31)),
        keep=True,
    )
    for number in range(instances):
        stage.add(number, 0, 0.0)
    stage.advance(arrivals_s, 0, np.inf)
    stage.finish()
    recording = stage.recording()
    late = recording.finish_s - arrivals_s > rt_max_s + TOLERANCE_S  # refused requests are never answered
    refused = recording.slot < 0
    calls = refused & question.passes_on
    settled = arrivals_s > min(_SETTLED * rt_max_s, 0.2 * float(arrivals_s[-1]))
    start_s = recording.start_s

    def mean_s() -> FloatArray:
        # Batches begin at different times: at an arrival, or at the end of the batch before.
        _, batch, sizes = np.unique(start_s, return_inverse=True, return_counts=True)
        return np.asarray(candidate.service_s[np.minimum(sizes, candidate.policy.n_batch)[batch]])[settled]

    room_s = np.where(refused, np.nan, rt_max_s + TOLERANCE_S - candidate.overhead_s - (start_s - arrivals_s))
    late, calls = late[settled], calls[settled]
    blocks = late[: len(late) // _BLOCK * _BLOCK].reshape(-1, _BLOCK).sum(axis=1)
    return _Count(
        len(late),
        float(late.mean()),
        float(calls.mean()),
        float(blocks.var() / blocks.mean()) if blocks.any() else 1.0,
        room_s[settled],
        mean_s,
        (late & refused[settled]).astype(np.float64),
        candidate.sigma,
    )


def _kept(key: str) -> FloatArray | None:
    """Return a table that was counted before; None if no readable one is kept."""
    if CACHE_DIR is None:
        return None
    with suppress(OSError, ValueError, EOFError):
        found = np.load(Path(CACHE_DIR) / f"late-{key}.npy", allow_pickle=False)
        if found.shape == (3, len(INSTANCES), LOADS) and np.isfinite(found).all():
            return np.asarray(found, dtype=np.float64)
    return None


def _keep(key: str, found: FloatArray) -> None:
    """Keep a table. If the folder cannot be written, it is counted again the next time."""
    if CACHE_DIR is None:
        return
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=CACHE_DIR, suffix=".npy", delete=False) as file:
        np.save(file, found)
        file.close()
        os.replace(file.name, Path(CACHE_DIR) / f"late-{key}.npy")


def counted_types(
    candidates: Mapping[str, Candidate], service: ServiceConfig, function: FunctionUse | None
) -> dict[str, Candidate]:
    """Apply `counted` to each; `counting_watched` is told of those that were never counted before."""
    warm_s = None if function is None else function.warm_s
    new = [name for name, c in candidates.items() if c.sigma > 0.0 and not _Question(c, service, warm_s).is_known]
    told = counting_watched.get() or (lambda done, types: None)
    found: dict[str, Candidate] = {}
    for name, one in candidates.items():
        if name in new:
            told(new.index(name), new)
        found[name] = counted(one, service, function)
    if new:
        told(len(new), new)
    return found


def counted(candidate: Candidate, service: ServiceConfig, function: FunctionUse | None) -> Candidate:
    """Return the candidate with its late shares and an honest capacity if its service times scatter; else unchanged."""
    if candidate.sigma <= 0.0:
        return candidate
    shares = count_late_shares(candidate, service, function)
    carried_rps = shares.carries_rps(float(TYPICAL), 1.0 - service.slo.attainment)
    return replace(candidate, late_shares=shares, capacity_rps=max(carried_rps / TYPICAL, float(shares.load_rps[0])))
