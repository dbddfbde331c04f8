"""The planner's program: which instances to pay for over the next steps. Also prices of plans, and unneeded offers.

A plan is n[j, t], instances of offer j that serve in step t. It costs

    sum_jt usd_per_step[j] n[j, t] + sum_jt launch_usd[j] (n[j, t] - n[j, t-1])+ + sum_t overflow_t(sum_j C_j n[j, t])

with n[j, -1] the running instances, and overflow_t(x) the expected dollars of requests that capacity x leaves to
functions in step t, or too late. An instance launched now serves from step boot_steps[j] on, so before that n[j, .]
cannot rise. A launch costs as much as its boot; an instance is *held*, and counts against the limits, while it serves
or boots.

Boots that are not certain have a price by step (mark/planning/solver/boot_law.py): an instance that serves from step t
on is launched lead_steps[j, t] steps before, and costs late_usd[j, t] more.

A service's least number of instances has a price, too: each instance below `least` in a step costs more than one
instance throughout, so no best plan lacks one that can be there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.copying import unchecked
from mark.domain.errors import BadInput
from mark.kernel.compiled import compiled

GAP = 0.01  # a plan is proven if its bound is closer than this, relative to its price
ROUNDING = 1e-9  # relative, of sums of dollars or requests/s


@dataclass(frozen=True, slots=True)
class Program:
    """T steps, J offers, in an order that decides between equal costs.

    `overflow_usd[t, k]`: expected dollars of requests that capacity k x `spacing_rps` leaves unserved in step t; linear
    between, constant beyond the last level, convex and not increasing (`overflow_usd` makes it so). `most`: instances
    that can be had, including running ones. `first`: a first fleet, which is ready immediately, its launch free. Raises
    BadInput.
    """

    usd_per_step: FloatArray  # (J,)
    launch_usd: FloatArray  # (J,)
    capacity_rps: FloatArray  # (J,) above zero
    boot_steps: IntArray  # (J,)
    running: IntArray  # (J,) live instances: serving or booting already
    most: IntArray  # (J,)
    overflow_usd: FloatArray  # (T, K + 1)
    spacing_rps: float
    max_instances: int = 2**40
    max_usd_per_step: float = math.inf
    first: bool = False
    late_usd: FloatArray | None = None  # (J, T); None: nothing
    lead_steps: IntArray | None = None  # (J, T), at most t from `boot_steps` on; None: `boot_steps`
    least: IntArray | None = None  # (T,) instances that serve, of any offer; `with_least` sets it; None: none

    def __post_init__(self) -> None:
        rows = (self.usd_per_step, self.launch_usd, self.capacity_rps, self.boot_steps, self.running, self.most)
        shape = self.usd_per_step.shape
        if len(shape) != 1 or any(row.shape != shape for row in rows):
            raise BadInput("offers differ in number", "program", tuple(row.shape for row in rows))
        if not 0.0 <= (every := np.concatenate(rows)).min(initial=0.0) <= every.max(initial=0.0) < np.inf:  # nor NaN
            raise BadInput("prices and counts must be finite and not negative", "program", every.tolist())
        for by_step in (self.late_usd, self.lead_steps):
            if by_step is not None and by_step.shape != (*shape, len(self.overflow_usd)):
                raise BadInput("launches differ in number from offers and steps", "program", by_step.shape)
        if (
            self.late_usd is not None
            and not 0.0 <= self.late_usd.min(initial=0.0) <= self.late_usd.max(initial=0.0) < np.inf
        ):
            raise BadInput("prices of launches must be finite and not negative", "program", "late_usd")
        if (self.capacity_rps <= 0.0).any():
            raise BadInput("capacities must be positive", "program", self.capacity_rps.tolist())
        overflow = self.overflow_usd
        if overflow.ndim != 2 or overflow.shape[0] < 1 or overflow.shape[1] < 2:
            raise BadInput("overflow needs a step and two levels at least", "program", overflow.shape)
        if not (math.isfinite(self.spacing_rps) and self.spacing_rps > 0.0):
            raise BadInput("the spacing of levels must be positive", "program", self.spacing_rps)
        if not 0.0 <= overflow.min() <= overflow.max() < np.inf:
            raise BadInput("overflow must be finite and not negative", "program", float(overflow.min()))
        slopes = overflow[:, 1:] - overflow[:, :-1]
        rounding = ROUNDING * (float(overflow.max()) + 1e-300)
        if slopes.max() > rounding or (slopes[:, 1:] - slopes[:, :-1]).min(initial=0.0) < -rounding:
            raise BadInput("overflow must be convex and not increase with capacity", "program", "overflow_usd")
        if not (self.max_instances >= 0 and self.max_usd_per_step >= 0.0):
            raise BadInput("limits must not be negative", "program", (self.max_instances, self.max_usd_per_step))

    @property
    def steps(self) -> int:
        return len(self.overflow_usd)

    @property
    def offers(self) -> int:
        return len(self.usd_per_step)

    @property
    def levels(self) -> int:
        """Segments of the overflow's line: one less than its points."""
        return int(self.overflow_usd.shape[1]) - 1

    @property
    def before(self) -> IntArray:
        """n[j, -1]: (J,). A first fleet counts as if all instances ran already."""
        return np.minimum(self.most, self.useful()) if self.first else self.running

    @property
    def can_launch(self) -> BoolArray:
        """(J, T): whether a launch may serve from that step on."""
        return np.arange(self.steps) >= self.boot_steps[:, None]

    @property
    def leads(self) -> IntArray:
        """Steps between a launch and its first step, where `can_launch`: (J, T)."""
        if self.lead_steps is not None:
            return self.lead_steps
        return np.broadcast_to(self.boot_steps[:, None], (self.offers, self.steps))

    @property
    def missing_usd(self) -> float:
        """Dollars of each instance below `least` in a step: more than any instance costs throughout."""
        usd = self.launch_usd + self.steps * self.usd_per_step
        late_usd = 0.0 if self.late_usd is None else float(self.late_usd.max(initial=0.0))
        return 2.0 * (float(usd.max(initial=0.0)) + late_usd)

    def missing(self, instances: IntArray) -> IntArray:
        """Return how many are missing to the least number, by step: (..., T) of (..., T)."""
        return np.zeros_like(instances) if self.least is None else np.maximum(self.least - instances, 0)

    def launches_usd(self) -> FloatArray:
        """Return the dollars of a launch by its first step: (J, T), infinite if it cannot serve by then."""
        usd = self.launch_usd[:, None] if self.late_usd is None else self.launch_usd[:, None] + self.late_usd
        return np.where(self.can_launch, usd, np.inf)

    def only(self, offers: IntArray) -> Program:
        """Return the program with some of the offers."""
        return unchecked(
            self,
            usd_per_step=self.usd_per_step[offers],
            launch_usd=self.launch_usd[offers],
            capacity_rps=self.capacity_rps[offers],
            boot_steps=self.boot_steps[offers],
            running=self.running[offers],
            most=self.most[offers],
            late_usd=None if self.late_usd is None else self.late_usd[offers],
            lead_steps=None if self.lead_steps is None else self.lead_steps[offers],
        )

    def useful(self) -> IntArray:
        """Return how many instances of an offer reach the last level and the least number: (J,). More never pay."""
        useful = np.ceil(self.levels * self.spacing_rps / self.capacity_rps - ROUNDING).astype(np.int64)
        return useful if self.least is None else np.maximum(useful, self.least.max())

    def overflow_at(self, capacity_rps: FloatArray) -> FloatArray:
        """Return the expected dollars of overflow in each step, for capacities of shape (..., T)."""
        place = np.minimum(capacity_rps * (1.0 / self.spacing_rps), float(self.levels))
        low = np.minimum(place.astype(np.int64), self.levels - 1)
        place -= low
        low += np.arange(self.steps) * (self.levels + 1)  # in the flat array
        below = self.overflow_usd.take(low)
        low += 1
        place *= self.overflow_usd.take(low) - below
        return np.asarray(below + place)


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan that can be carried out, its price, and a lower bound of any plan's price.

    `solver` made the plan: "fast" (by local search), "dp" (by a dynamic program), "highs" or "cbc". `status`: "proven"
    (the bound is near enough), "feasible" (it is not), or "time-out" (it is not, and a time budget stopped the integer
    program: another machine may find another plan).
    """

    counts: IntArray  # (J, T)
    usd: float
    bound_usd: float
    solver: str
    status: str

    @property
    def gap(self) -> float:
        """The most by which the price can exceed the best price, relative to the price."""
        return max(0.0, self.usd - self.bound_usd) / self.usd if self.usd > 0.0 else 0.0


def with_least(program: Program, instances: int) -> Program:
    """Return the program with at least `instances` in each step, or as many as limits and boots allow."""
    there = np.minimum(program.running, program.most)[:, None]
    there = np.where(program.can_launch | program.first, program.most[:, None], there)
    if math.isfinite(program.max_usd_per_step):
        cheapest = np.argsort(program.usd_per_step, kind="stable")
        there, usd = there[cheapest], np.maximum(program.usd_per_step[cheapest, None], 1e-12)
        left = program.max_usd_per_step * (1.0 + ROUNDING) - np.cumsum(there * usd, axis=0) + there * usd
        there = np.minimum(there, np.maximum(0.0, left // usd).astype(np.int64))
    least = np.minimum(there.sum(axis=0), max(0, min(instances, program.max_instances)))
    return unchecked(program, least=least) if least.any() else program


def wanted_now(program: Program, counts: IntArray) -> IntArray:
    """Return the instances that a plan (J, T) holds from now on: serving in the first step or launched now: (J,)."""
    boots_now = program.leads[:, 1:] >= np.arange(1, program.steps)
    return np.asarray(counts[:, 0] + np.where(boots_now, rises(counts, program.before)[:, 1:], 0).sum(axis=1))


def price(program: Program, counts: IntArray, more_rps: FloatArray | float = 0.0) -> float:
    """Return the dollars of a plan (J, T), exactly; with `more_rps` of capacity (T,) that cost nothing.

    `violation` says whether it can be carried out.
    """
    running = float(program.usd_per_step @ counts.sum(axis=1))
    if program.least is not None:
        running += program.missing_usd * float(program.missing(counts.sum(axis=0)).sum())
    return (
        running
        + launching_usd(program, counts)
        + float(program.overflow_at(program.capacity_rps @ counts + more_rps).sum())
    )


def launching_usd(program: Program, counts: IntArray) -> float:
    """Return the dollars of a plan's launches, from the first step on."""
    up = rises(counts, program.before)
    usd = float(program.launch_usd @ up.sum(axis=1))
    return usd if program.late_usd is None else usd + float((program.late_usd * up).sum())


def rises(counts: IntArray, before: IntArray) -> IntArray:
    """Return by how many instances a plan (J, T) rises in each step, from `before` (J,) on: (J, T)."""
    up = counts.copy()
    up[:, 0] -= before
    up[:, 1:] -= counts[:, :-1]
    return np.maximum(up, 0, out=up)


def held(program: Program, counts: IntArray) -> IntArray:
    """Return the instances that serve or boot in each step: (J, T). A boot fills the `leads` before its first step."""
    up = rises(counts, program.before)
    within, leads = counts.copy(), program.leads
    for ahead in range(1, min(int(leads.max(initial=0)), program.steps - 1) + 1):
        within[:, :-ahead] += np.where(leads[:, ahead:] >= ahead, up[:, ahead:], 0)
    return within


def violation(program: Program, counts: IntArray) -> str:
    """Return why a plan (J, T) cannot be carried out; empty if it can."""
    if counts.shape != (program.offers, program.steps) or (counts < 0).any():
        return "counts must be one per offer and step, not negative"
    if (counts > program.most[:, None]).any():
        return "more instances than can be had"
    if (rises(counts, program.before)[~program.can_launch] > 0).any():
        return "an instance serves before it has booted"
    within = held(program, counts)
    if (within.sum(axis=0) > program.max_instances).any():
        return "more instances than the limit"
    if (program.usd_per_step @ within > program.max_usd_per_step * (1.0 + ROUNDING)).any():
        return "more dollars than the limit"
    return ""


def prune(program: Program, scaled: bool) -> tuple[Program, IntArray]:
    """Return the program without the offers that are not needed, and the indices of the others.

    An offer is not needed if another, which is available in sufficient number, stands in for it: no smaller, no dearer,
    no later. With `scaled` several instances of the other may (two of half the size), which is exact only without
    limits on instances. Running instances of such an offer may stay but are not launched again. The optimum is the
    same: the other offer can replace every instance of the dropped one, and instances beyond the last level are worth
    nothing.
    """
    usd, launch, size, boot = program.usd_per_step, program.launch_usd, program.capacity_rps, program.boot_steps
    useful = program.useful()
    copies = np.ceil(size / size[:, None] * (1.0 - ROUNDING))  # number of i for one of j
    rounded = 1.0 + 1e-12
    stands_in = (copies * usd[:, None] <= usd * rounded) & (copies * launch[:, None] <= launch * rounded)
    stands_in &= (boot[:, None] <= boot) & (program.most >= useful)[:, None] & (scaled | (copies <= 1.0))
    if program.late_usd is not None:
        late = program.late_usd
        stands_in &= (copies[:, :, None] * late[:, None] <= late * rounded).all(axis=2)
        stands_in &= scaled | (program.leads[:, None] <= program.leads).all(axis=2)
    # If two could stand in for each other the first stays.
    stands_in &= ~stands_in.T | np.tri(program.offers, k=-1, dtype=np.bool_).T
    dropped = stands_in.any(axis=0)
    running = np.zeros_like(useful) if program.first else program.running
    most = np.minimum(np.where(dropped, np.minimum(running, program.most), program.most), useful)
    left = np.flatnonzero(most > 0)
    return unchecked(program, boot_steps=np.where(dropped, program.steps, boot), most=most).only(left), left


def overflow_usd(served: FloatArray, load_rps: FloatArray | None, usd_per_request: float, step_s: float) -> FloatArray:
    """Return the dollars of overflow by step and level of capacity, made convex: (T, K + 1).

    `served` (K + 1, T + 1): the requests/s-steps that each level serves in the first e steps. `load_rps` (T,): the
    load; None: the load that the last level serves. A formula of `served` may not be convex where capacity holds a few
    requests only: then the largest convex function below it is taken, which two capacities attain in turns.
    """
    by_step = np.diff(served, axis=1).T
    load = by_step[:, -1] if load_rps is None else np.maximum(load_rps, by_step[:, -1])
    dollars = np.maximum(0.0, load[:, None] - by_step) * (usd_per_request * step_s)
    rows = np.minimum.accumulate(dollars, axis=1, out=np.empty(dollars.shape))
    _make_convex(rows, np.empty(rows.shape[1], dtype=np.int64))
    return rows


@compiled
def _make_convex(rows: FloatArray, corners: IntArray) -> None:
    """Lower rows of points (R, K + 1) to the largest convex functions below; `corners` (K + 1,) is scratch."""
    for r in range(len(rows)):
        row = rows[r]
        last = -1
        for k in range(len(row)):
            # A corner above the line from the one before it to here is dropped (Andrew's monotone chain).
            while last > 0:
                a, b = corners[last - 1], corners[last]
                if (row[b] - row[a]) * (k - b) < (row[k] - row[b]) * (b - a):
                    break
                last -= 1
            last += 1
            corners[last] = k
        for i in range(last):
            a, b = corners[i], corners[i + 1]
            slope = (row[b] - row[a]) / (b - a)
            for k in range(a + 1, b):
                row[k] = row[a] + (k - a) * slope
