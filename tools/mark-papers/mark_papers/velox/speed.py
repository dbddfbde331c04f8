"""Figs. 2.3 and 2.4: the times of an online update and of finding a set's best items, by the number of factors.

Processor seconds are measured, so that a busy machine changes little. Vectors are drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from mark.domain.arrays import FloatArray
from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.settings import PersonalSettings
from mark.personal.table import ItemTable
from mark_papers.panels import Curve, FigurePanel, PanelFigure, Row

PAPER = "Crankshaw's thesis (Velox)"
FACTORS = (10, 20, 50, 100, 200, 500, 1000)
SET_SIZES = (10, 100, 1_000, 10_000)
SET_FACTORS = (10, 100, 1000)
UPDATES, ASKED = 5_000, 200
_KEYS, _ITEMS, _BEST = 20, 1_000, 10
_BLOCKS = 20  # that give the interval of the mean


def run_velox_fig2_3(
    *, factors: Sequence[int] = FACTORS, updates: int = UPDATES, progress: Callable[[float], None] | None = None
) -> PanelFigure:
    """Measure the time of an observation: the update of a user's model in place, with its statistics."""
    rows: list[Row] = []
    for place, count in enumerate(factors):
        mean_us, half_us = _per_call(_observing(count), max(_BLOCKS, min(updates, 5_000_000 // count**2 * 10)))
        rows.append({"factors": str(count), "update_us": mean_us, "95 %_us": half_us})
        if progress is not None:
            progress((place + 1) / len(factors))
    curve = Curve("update", tuple(map(float, factors)), tuple(float(row["update_us"]) for row in rows))
    panel = FigurePanel("one observation, in microseconds of a core", tuple(rows), (curve,), ("factors", "update_us"))
    return PanelFigure(
        "velox-fig2-3",
        PAPER,
        "Fig. 2.3 of Velox: an update by the number of factors",
        (panel,),
        ("The thesis solves the normal equations anew at each update, which is cubic; in place it is quadratic.",),
        (f"random users and items, {_KEYS} and {_ITEMS:,}; 95 %: half the interval of the mean", _NOTE),
    )


def run_velox_fig2_4(
    *,
    factors: Sequence[int] = SET_FACTORS,
    sizes: Sequence[int] = SET_SIZES,
    asked: int = ASKED,
    progress: Callable[[float], None] | None = None,
) -> PanelFigure:
    """Measure the time of finding the ten best items in a set for a user."""
    rows: list[Row] = []
    for place, size in enumerate(sizes):
        row: dict[str, str | float] = {"items": f"{size:,}"}
        for count in factors:
            row[f"{count} factors_us"], _ = _per_call(_asking(count, size), asked)
        rows.append(row)
        if progress is not None:
            progress((place + 1) / len(sizes))
    curves = tuple(
        Curve(f"{n} factors", tuple(map(float, sizes)), tuple(float(row[f"{n} factors_us"]) for row in rows))
        for n in factors
    )
    panel = FigurePanel("the ten best, in microseconds of a core", tuple(rows), curves, ("items", "time_us"))
    return PanelFigure(
        "velox-fig2-4",
        PAPER,
        "Fig. 2.4 of Velox: the best items by their number and factors",
        (panel,),
        ("There is no cache of predictions: a product of two vectors takes less than finding it in a cache.",),
        ("item vectors are in memory, as a table; greedy", _NOTE),
    )


_NOTE = "measured on this machine, with one thread; vectors are drawn, because times do not depend on them"


def _per_call(call: Callable[[int], object], calls: int) -> tuple[float, float]:
    """Return the mean microseconds of a call, and half of its 95 % interval."""
    call(0)
    means, each = [], max(1, calls // _BLOCKS)
    for block in range(_BLOCKS):
        began_s = time.process_time()
        for number in range(each):
            call(block * each + number)
        means.append(1e6 * (time.process_time() - began_s) / each)
    return float(np.mean(means)), 1.96 * float(np.std(means, ddof=1)) / _BLOCKS**0.5


def _observing(factors: int) -> Callable[[int], object]:
    learner, rng = _learner(factors, _ITEMS)
    keys, items = rng.integers(0, _KEYS, UPDATES), rng.integers(0, _ITEMS, UPDATES)

    def observe(number: int) -> object:
        at = number % UPDATES
        return learner.observe(PersonalObservation(f"u{keys[at]}", f"i{items[at]}", None, 3.5, float(number)))

    return observe


def _asking(factors: int, size: int) -> Callable[[int], object]:
    learner, rng = _learner(factors, size)
    for number, item in enumerate(rng.integers(0, size, 10 * _KEYS).tolist()):
        learner.observe(PersonalObservation(f"u{number % _KEYS}", f"i{item}", None, 3.5, float(number)))
    return lambda number: learner.top(f"u{number % _KEYS}", _BEST)


def _learner(factors: int, items: int) -> tuple[PersonalLearner, np.random.Generator]:
    rng = np.random.default_rng(0)
    vectors: FloatArray = rng.normal(scale=factors**-0.5, size=(items, factors))
    table = ItemTable([f"i{at}" for at in range(items)], vectors.astype(np.float32), "drawn vectors")
    return PersonalLearner(PersonalSettings(), table=table), rng
