"""Bound how far a plan is from the best one, with large instances counted whole, and improve the plan.

The linear program takes half a GPU where the best plan must have one or none, and bounds a small fleet badly. Here the
large offers are whole: a dynamic program over their counts gives their cost over time, exactly. The small ones may be
fractions of an instance, and their launches are priced instead of counted: with y[j, t] dollars for an instance that
serves already in the step before, between 0 and its launch, an instance of j is rented in step t for

    rent[j, t] = usd_per_step[j] + y[j, t] - y[j, t+1]

and a fleet costs at least its rents less the y of the instances that ran before. Any y proves a bound; good ones come
from the linear program, then from a mix of the schedules found so far (Dantzig and Wolfe's decomposition, smoothed as
Wentges did). If all offers are large the bound is the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.copying import unchecked
from mark.planning.solver.dynamic_program import cheapest, fewest
from mark.planning.solver.integer_program import quiet_highs, relax, rows_of
from mark.planning.solver.local_search import improve, tight
from mark.planning.solver.program import ROUNDING, Program, price, violation

STATES = 3_000  # combined counts of the large offers, at most
ALONE = 30_000  # the same if all offers are large, so that one round is enough
ROUNDS = 25  # limit of the schedules of the large offers that are tried
_PATIENCE = 6  # rounds in a row that each close less than a hundredth of the gap asked for
_SMOOTHING = 0.9  # weight of the prices with the best proof in the next prices


def fluid_bound(program: Program) -> float:
    """Return a lower bound of any plan's dollars: divisible capacity of the cheapest offer, without launches."""
    usd = float((program.usd_per_step / program.capacity_rps)[program.most > 0].min(initial=np.inf))
    slopes = np.diff(program.overflow_usd, axis=1)
    return float(program.overflow_usd[:, 0].sum() + np.minimum(0.0, slopes + usd * program.spacing_rps).sum())


def prove(
    program: Program, counts: IntArray, gap: float, rounds: int = ROUNDS, states: int = STATES, alone: int = ALONE
) -> tuple[IntArray, float]:
    """Return the best plan (J, T) found, `counts` or a better one, and a lower bound; stop once they are within `gap`.

    The limits bind the plan, not the bound, which is lower for that. The work is counted, not timed: the same arguments
    give the same answer.
    """
    best_usd, bound_usd = price(program, counts), fluid_bound(program)

    def done() -> bool:
        return best_usd - bound_usd <= gap * best_usd

    if done():
        return counts, bound_usd
    less = tight(program, counts)
    scarce = less.most == program.most
    program = less
    large = fewest(program, max(states, alone))
    if len(large) < program.offers:
        large = fewest(program, states)
    small = np.setdiff1d(np.arange(program.offers), large)
    if not small.size:
        usd, found, _ = cheapest(program, large)
        better = usd < best_usd and not violation(program, found)
        return found if better else counts, max(bound_usd, usd * (1.0 - ROUNDING))
    relaxation = relax(program, limits=False)
    bound_usd = max(bound_usd, relaxation.bound_usd)
    if done() or not large.size:
        return counts, bound_usd

    def consider(schedule: IntArray) -> None:
        nonlocal counts, best_usd
        found = np.zeros_like(counts)
        found[large] = schedule
        found = improve(program, found)
        usd = price(program, found)
        if usd < best_usd and not violation(program, found):
            counts, best_usd = found, usd

    mix = _Mix(program, large, small)
    mix.add(counts[large], program.capacity_rps[small] @ counts[small])
    prices = proven = _Prices(relaxation.launch_price[small], relaxation.capacity_price)
    tried: set[bytes] = set()
    in_vain = 0
    for _ in range(rounds):
        open_usd = best_usd - bound_usd
        rent, fixed_usd = prices.rent(program, small, scarce[small])
        usd, schedule, small_rps = cheapest(program, large, rent)
        usd = (usd + fixed_usd) * (1.0 - ROUNDING)
        if usd > bound_usd:
            bound_usd, proven = usd, prices
        if schedule.tobytes() not in tried:
            tried.add(schedule.tobytes())
            consider(schedule)
        in_vain = in_vain + 1 if open_usd - (best_usd - bound_usd) < 0.01 * gap * best_usd else 0
        if done() or in_vain == _PATIENCE:
            break
        mix.add(schedule, small_rps)
        prices = proven.towards(mix.prices())
    return counts, bound_usd


@dataclass(frozen=True, slots=True)
class _Prices:
    """Prices of a small instance that serves already in the step before, (S, T), and of one request/s in a step,
    (T,).
    """

    launch: FloatArray
    capacity: FloatArray

    def towards(self, other: _Prices) -> _Prices:
        keep, take = _SMOOTHING, 1.0 - _SMOOTHING
        return _Prices(keep * self.launch + take * other.launch, keep * self.capacity + take * other.capacity)

    def rent(self, program: Program, small: IntArray, scarce: BoolArray) -> tuple[FloatArray, float]:
        """Return the dollars of small capacity by request/s and step, (T,), and the amount to add to any plan's
        price.
        """
        usd, size, most = program.usd_per_step[small], program.capacity_rps[small], program.most[small]
        launch = np.minimum(self.launch, program.launches_usd()[small])
        launch = np.concatenate([launch, np.zeros((len(small), 1))], axis=1)
        for t in range(program.steps):  # a rent below zero would be taken without end
            np.minimum(launch[:, t + 1], launch[:, t] + usd, out=launch[:, t + 1])
        rent = usd[:, None] + launch[:, :-1] - launch[:, 1:]
        # Scarce offers rent at up to their capacity's price; the surplus comes back once for each instance that can be
        # had.
        extra = np.where(scarce[:, None], np.maximum(0.0, self.capacity * size[:, None] - rent), 0.0)
        fixed = -float(launch[:, 0] @ program.before[small]) - float(extra.sum(axis=1) @ most)
        return np.asarray(((rent + extra) / size[:, None]).min(axis=0)), fixed


class _Mix:
    """The linear program that mixes schedules of the large offers, with the small instances that the mix needs."""

    def __init__(self, program: Program, large: IntArray, small: IntArray) -> None:
        program = unchecked(program, least=None)  # because small and large offers fill the least number together
        self._program = program.only(large)
        rest = program.only(small)
        rows = rows_of(replace(rest, overflow_usd=np.zeros_like(program.overflow_usd)), limits=False)
        self._shape, self._usd = (rest.offers, rest.steps), rows.usd
        self._solver = quiet_highs()
        self._solver.passModel(rows.model())
        self._solver.addRow(1.0, 1.0, 0, np.empty(0, dtype=np.int32), np.empty(0))  # the shares of the mix

    def add(self, schedule: IntArray, small_rps: FloatArray) -> None:
        """Add a schedule (L, T) and the requests/s that small instances serve beside it (T,)."""
        program, (offers, steps) = self._program, self._shape
        usd = price(program, schedule, small_rps)
        needs = np.flatnonzero(small_rps)
        row = np.append(offers * steps + needs, offers * steps + steps).astype(np.int32)
        self._solver.addCol(usd / self._usd, 0.0, np.inf, len(row), row, np.append(-small_rps[needs], 1.0))

    def prices(self) -> _Prices:
        self._solver.run()
        duals = self._usd * np.asarray(self._solver.getSolution().row_dual)
        n = self._shape[0] * self._shape[1]
        return _Prices(np.maximum(0.0, -duals[:n]).reshape(self._shape), np.maximum(0.0, duals[n:-1]))
