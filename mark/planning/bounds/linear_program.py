"""The bound's linear program as plain arrays: its solution by HiGHS, and proofs of lower bounds by its dual.

docs/bound.md states the program and derives the dual. Money is counted in `usd` dollars and demand in `requests`
requests, chosen so that the numbers are about 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import highspy
import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import BoolArray, FloatArray
from mark.planning.bounds import dual

# Limit of bins x types^2 for the interior-point method: a few seconds. Longer horizons get their proposal on larger
# bins.
WORK = 1_200_000
# Bins solved in one piece, and how far beyond them to look: several times the time to earn a start back
WINDOW = 16_384
_BEYOND = 1_024
# The smallest price in the interior-point method
_TINY = 1e-6
_STEPS = 80
_AROUND = 60  # bins: roughly the time that a start takes to be earned back


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """T bins, I types. Capacity and demand are in `requests` per bin, money in `usd`.

    A type with credits serves a request at full speed for one unit of credit; running capacity for one request earns
    `earned` units, a start brings `launch` of them, and more may be bought at `surplus` each. `free` is committed
    capacity, which costs nothing more.
    """

    usd: float
    requests: float
    demand: FloatArray  # (T - 1,): requests of the last bin may be served after the end
    price: FloatArray  # (T, I) of running capacity for one request
    available: BoolArray  # (T, I)
    start: FloatArray  # (I,) of starting capacity for one request per bin
    function: float  # price of a call; infinite: no function
    warm_start: bool
    credits: BoolArray  # (I,) whether the type needs credits
    earned: FloatArray  # (I,)
    launch: FloatArray  # (I,)
    surplus: FloatArray  # (I,) infinite: not sold
    launches: float  # limit of the starts that bring credits, all types together
    free: float = 0.0  # per bin

    @property
    def bins(self) -> int:
        return len(self.demand) + 1

    @property
    def types(self) -> int:
        return len(self.start)

    @property
    def stranded(self) -> float:
        """Demand that no instance could serve at any price."""
        held: BoolArray = np.logical_or.reduce(self.available, axis=1)
        left = np.maximum(0.0, self.demand - 2.0 * self.free)  # a request may be served in its own bin and the next
        return float(left[~(held[:-1] | held[1:])].sum())

    @property
    def highest(self) -> float:
        """The highest worth of a request that an instance can serve: the price of a start for its sake."""
        if self.function < math.inf:
            return self.function
        return float(max(self.price.max(axis=0) + self.start, default=1.0))

    def coarse(self, factor: int) -> BoundProgram:
        """Return the same program on bins `factor` times as wide."""
        bins = -(-self.bins // factor)
        cuts = np.arange(bins) * factor
        demand = np.add.reduceat(np.append(self.demand, 0.0), cuts)
        sizes = np.diff(np.append(cuts, self.bins))[:, None]
        return BoundProgram(
            usd=self.usd,
            requests=self.requests,
            demand=demand[:-1],
            price=np.add.reduceat(self.price, cuts, axis=0) / sizes,
            available=np.logical_or.reduceat(self.available, cuts, axis=0),
            start=self.start / factor,
            function=self.function,
            warm_start=self.warm_start,
            credits=self.credits,
            earned=self.earned,
            launch=self.launch,
            surplus=self.surplus,
            launches=self.launches,
            free=self.free * factor,
        )


@dataclass(frozen=True, slots=True)
class BoundSolution:
    """`value` in `usd`; `credit_price` (I,) per request; `late_price` per request; `functions` in `requests`."""

    value: float
    functions: float
    credit_price: FloatArray
    late_price: float


def solve_lp(program: BoundProgram, late: float = 0.0) -> BoundSolution | None:
    """Solve the program unchanged, with HiGHS; `late` requests may be left out. None if it is infeasible.

    HiGHS is called directly, because PuLP takes no arrays: it would make an object of every column and row.
    """
    bins, types = program.bins, program.types
    n = bins * types
    columns = _Columns()
    infinite = math.inf
    x = columns.add(program.price.ravel(), np.where(program.available.ravel(), infinite, 0.0))
    started = np.tile(program.start, (bins, 1))
    if program.warm_start:
        started[0] = 0.0
    y = columns.add(started.ravel(), np.full(n, infinite))
    # The load that an instance serves; without credits, the load that it could serve
    w = columns.add(np.zeros(n), np.full(n, infinite))
    q = columns.add(np.zeros(bins - 1), np.full(bins - 1, infinite))
    has_function = program.function < infinite
    f = columns.add(
        np.full(bins - 1, program.function if has_function else 0.0),
        np.full(bins - 1, infinite if has_function else 0.0),
    )
    z = columns.add(np.zeros(bins - 1), np.full(bins - 1, infinite))
    launched = columns.add(np.zeros(types), np.full(types, infinite))
    for_sale = np.isfinite(program.surplus)
    bought = columns.add(np.where(for_sale, program.surplus, 0.0), np.where(for_sale, infinite, 0.0))

    rows = _Rows()
    bin_of, demanded = np.repeat(np.arange(bins), types), np.arange(bins - 1)
    at_least = np.append(program.demand, 0.0) - program.free
    # q_j - q_j-1 + f_j + z_j + the served load >= a_j
    first = rows.block(at_least, np.full(bins, infinite))
    rows.put(first + bin_of, w, 1.0)
    for column in (q, f, z):
        rows.put(first + demanded, column, 1.0)
    rows.put(first + demanded + 1, q, -1.0)
    # q_j + f_j + z_j <= a_j
    first = rows.block(np.full(bins - 1, -infinite), program.demand)
    for column in (q, f, z):
        rows.put(first + demanded, column, 1.0)
    # x_j - x_j-1 - y_j <= 0
    first = rows.block(np.full(n, -infinite), np.zeros(n))
    every = np.arange(n)
    rows.put(first + every, x, 1.0)
    rows.put(first + every[types:], x[:-types], -1.0)
    rows.put(first + every, y, -1.0)
    # w <= x
    first = rows.block(np.full(n, -infinite), np.zeros(n))
    rows.put(first + every, w, 1.0)
    rows.put(first + every, x, -1.0)
    # Credits: used <= earned + launched + bought.
    limit = np.where(program.credits, 0.0, infinite)
    credit_rows = rows.block(np.full(types, -infinite), limit)
    of_type = np.tile(np.arange(types), bins)
    rows.put(credit_rows + of_type, w, 1.0)
    rows.put(credit_rows + of_type, x, -np.tile(program.earned, bins))
    rows.put(credit_rows + np.arange(types), launched, -program.launch)
    rows.put(credit_rows + np.arange(types), bought, -1.0)
    first = rows.block(np.array([-infinite]), np.array([program.launches]))
    rows.put(np.full(types, first), launched, 1.0)
    late_row = rows.block(np.array([-infinite]), np.array([late]))
    rows.put(np.full(bins - 1, late_row), z, 1.0)

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns.count, rows.count
    lp.col_cost_, lp.col_upper_ = np.concatenate(columns.cost), np.concatenate(columns.upper)
    lp.col_lower_ = np.zeros(columns.count)
    lp.row_lower_, lp.row_upper_ = np.concatenate(rows.lower), np.concatenate(rows.upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.compressed()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, setting in (("output_flag", False), ("threads", 1), ("solver", "simplex")):
        solver.setOptionValue(option, setting)
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    duals = np.asarray(solution.row_dual)
    return BoundSolution(
        value=float(solver.getInfo().objective_function_value),
        functions=float(np.asarray(solution.col_value)[f].sum()),
        credit_price=np.maximum(0.0, -duals[credit_rows : credit_rows + types]),
        late_price=max(0.0, -float(duals[late_row])),
    )


@dataclass(frozen=True, slots=True)
class Proof:
    """A proven lower bound, in `usd`, and roughly how many `requests` the primal leaves to functions or late.

    `gap` is the most by which it may lie below the best proof, relative; None: not measured. The proposal took `factor`
    bins as one. `value` is `demand` times `prices`, less `launched` for starts that bring credits (and less the price
    of free capacity, if there is any): no instance that is paid these prices for its requests earns more than it costs.
    """

    value: float
    left_out: float
    gap: float | None
    factor: int
    prices: FloatArray  # (T - 1,), in `usd` per `requests`
    launched: float  # in `usd`


def prove(
    program: BoundProgram,
    worth: float,
    credit_price: FloatArray,
    tolerance: float = 3e-4,
    work: int = WORK,
    window: int = WINDOW,
) -> Proof:
    """Return the best lower bound found if a request is worth at most `worth` and credits cost `credit_price` (I,).

    Any two prices prove a bound of the program in which no request may be late; if n may be late, n x worth is
    subtracted. `worth` is cut at the function's price. `tolerance` is relative; `work` and `window` limit the size of
    each solution.
    """
    worth = min(worth, program.function)
    # Earning credits lowers the price of capacity; it must not become negative.
    price = np.where(program.credits, program.price.min(axis=0, initial=math.inf), math.inf)
    with np.errstate(divide="ignore", over="ignore"):
        highest = np.minimum(program.surplus, price / program.earned)
    k = np.where(program.credits, np.clip(credit_price, 0.0, highest), 0.0)
    c = program.price - k * program.earned
    launch_usd = float(np.max(k * program.launch, initial=0.0)) * program.launches
    o = program.start
    r0 = o.copy() if program.warm_start else np.zeros_like(o)

    def caps(r: FloatArray) -> FloatArray:
        earlier = np.vstack([r0, r[:-1]])
        each = np.where(program.available, k + c + r - earlier, math.inf)
        return np.asarray(each.min(axis=1, initial=worth), dtype=np.float64)

    def certified(r: FloatArray) -> float:
        value = dual.certify(program.demand, c, program.available, o, r0, k, worth, r)
        return value if program.free == 0.0 else _beside_free(program.demand, caps(r), program.free)

    def prices(r: FloatArray) -> FloatArray:
        cap = caps(r)
        return np.minimum(cap[:-1], cap[1:])

    # All capacity at its running price: a proof too, in case the search finds none
    best = np.tile(r0, (program.bins, 1))
    value = certified(best)
    if not (program.types and worth > _TINY and program.bins > 1):
        left_out = float(program.demand.sum())
        return Proof(max(0.0, value - launch_usd), left_out, None, 1, prices(best), launch_usd)
    factor = max(1, math.ceil(program.bins * program.types**2 / work))
    small = program if factor == 1 else program.coarse(factor)
    if program.free > 0.0:
        # Free capacity takes its share of the demand around a bin. This affects only the quality of the proposal.
        width = max(1, _AROUND // factor)
        around = np.convolve(small.demand, np.full(width, 1.0 / width), mode="full")[width // 2 :][: small.bins - 1]
        left = np.maximum(0.0, 1.0 - small.free / np.maximum(around, _TINY))
        small = replace(small, demand=small.demand * left, free=0.0)
    r, left_out, gap = _propose(small, np.maximum(small.price - k * small.earned, _TINY), k, worth, tolerance, window)
    if factor > 1:
        ends = np.append(-1.0, (np.arange(small.bins) + 1.0) * factor - 1.0)
        known = np.vstack([r0, r * factor])
        at = np.arange(program.bins)
        r = np.stack([np.interp(at, ends, known[:, i]) for i in range(program.types)], axis=1)
    if (found := certified(r)) > value:
        value, best = found, r
    measured = factor == 1 and value > 0.0 and program.free == 0.0
    gap_share = gap / value if measured else None
    return Proof(max(0.0, value - launch_usd), left_out, gap_share, factor, prices(best), launch_usd)


def _beside_free(demand: FloatArray, caps: FloatArray, free: float) -> float:
    """Return the best value by multipliers of 0 or (nearly) `caps` (T,) if capacity for `free` requests a bin is paid.

    Multipliers lambda_j <= cap_j prove sum a_j min(lambda_j, lambda_j+1) - free sum lambda_j. Where the demand stays
    below the free capacity, 0 is better; one pass over the bins finds where.
    """
    ends = np.concatenate(([0.0], caps, [0.0]))
    high = np.minimum(caps, np.maximum(ends[:-2], ends[2:]))  # a multiplier above both neighbours proves no more
    gains: list[float] = (demand * np.minimum(high[:-1], high[1:])).tolist()
    costs: list[float] = (free * high).tolist()
    out, within = 0.0, -costs[0]
    for gain, cost in zip(gains, costs[1:], strict=True):
        out, within = max(out, within), max(out, within + gain) - cost
    return max(out, within)


def _propose(
    program: BoundProgram, c: FloatArray, k: FloatArray, worth: float, tolerance: float, window: int
) -> tuple[FloatArray, float, float]:
    """Return a nearly best r (T, I), the demand left out, and how much better the best may be.

    Solved window by window, which keeps the memory small: each begins with the last r of the window before, and looks
    beyond its end, because the distant future hardly matters.
    """
    o = np.maximum(program.start, _TINY)
    last = o.copy() if program.warm_start else np.zeros_like(o)
    r = np.empty((program.bins, program.types))
    left_out = gap = 0.0
    for begin in range(0, program.bins, window):
        end = min(begin + window, program.bins)
        seen = min(end + _BEYOND, program.bins)
        if not program.demand[begin : seen - 1].any():
            # Without demand an instance earns nothing, and one that stays loses its earnings.
            r[begin:end] = last = np.zeros_like(o)
            continue
        part, left, _, missing = dual.solve(
            program.demand[begin : seen - 1],
            c[begin:seen],
            program.available[begin:seen],
            o,
            last,
            k,
            worth,
            tolerance,
            _STEPS,
        )
        r[begin:end] = part[: end - begin]
        last = np.clip(r[end - 1], 0.0, o)
        left_out += float(left[: end - begin].sum())
        gap += missing
    return r, left_out, gap


class _Columns:
    """Columns of a linear program, all at least zero."""

    def __init__(self) -> None:
        self.count = 0
        self.cost: list[FloatArray] = []
        self.upper: list[FloatArray] = []

    def add(self, cost: FloatArray, upper: FloatArray) -> NDArray[np.int64]:
        self.cost.append(cost)
        self.upper.append(upper)
        self.count += len(cost)
        return np.arange(self.count - len(cost), self.count)


class _Rows:
    """Rows of a linear program, built in blocks."""

    def __init__(self) -> None:
        self.count = 0
        self.lower: list[FloatArray] = []
        self.upper: list[FloatArray] = []
        self._row: list[NDArray[np.int64]] = []
        self._column: list[NDArray[np.int64]] = []
        self._value: list[FloatArray] = []

    def block(self, lower: FloatArray, upper: FloatArray) -> int:
        """Add rows and return the number of the first."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.count += len(lower)
        return self.count - len(lower)

    def put(self, row: NDArray[np.int64], column: NDArray[np.int64], value: float | FloatArray) -> None:
        self._row.append(row)
        self._column.append(column)
        self._value.append(np.broadcast_to(np.asarray(value, dtype=np.float64), row.shape))

    def compressed(self) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
        """Return the start of each row, columns and values."""
        row, column, value = np.concatenate(self._row), np.concatenate(self._column), np.concatenate(self._value)
        order = np.argsort(row, kind="stable")
        start = np.searchsorted(row[order], np.arange(self.count + 1))
        return start, column[order], value[order]
