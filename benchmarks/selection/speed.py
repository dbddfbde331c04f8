"""Microseconds of CPU time that the pure core takes for a query and for its feedback.

    python benchmarks/selection/speed.py

A query is opened, started, given each asked candidate's answer, and decided. Its feedback is the note, the fact, and
the fact applied. `both` is a query with its feedback, so that no curve or sum is ready from before. Target: 15 us each
with two candidates.
"""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mark.selection.policies import policy_of
from mark.selection.policy import CandidateReply
from mark.selection.query import SelectedQuery, Selection
from mark.selection.settings import SelectionSettings
from mark.selection.state import Judge, SelectionState

QUERIES, CALLS, REPEATS = 1_000, 200, 15
CASES: tuple[tuple[str, int, bool, dict[str, Any]], ...] = (
    ("split", 2, False, {}),
    ("thompson", 2, False, {}),
    ("exp3", 2, False, {}),
    ("cascade", 2, True, {"threshold": 0.5}),
    ("cascade", 2, True, {"correct_usd": 1e-4}),
    ("exp4", 2, False, {}),
    ("exp4", 5, False, {}),
    ("exp4", 5, True, {}),
    ("exp4", 5, False, {"champion": "m0"}),
    ("exp4", 5, False, {"by_key": True}),
    ("thompson", 5, False, {}),
)


def parts(
    policy: str, n: int, scored: bool, others: dict[str, Any]
) -> tuple[Callable[[int], SelectedQuery], Callable[[SelectedQuery], None]]:
    """Return the two halves of a query: asking by its number, and its feedback."""
    names = [f"m{one}@0000000{one}" for one in range(n)]
    settings, generator = SelectionSettings(policy, **others), np.random.default_rng(1)
    state = SelectionState(names, settings)
    selection = Selection(policy_of(settings, n, generator), state, settings, generator.random)
    judge = Judge(state, names[0] if settings.champion else None)
    answers = [[7 if generator.random() > 0.05 * (one + 1) else 3 for one in range(n)] for _ in range(QUERIES)]
    # Right answers have higher scores.
    replies = [
        [CandidateReply(one, one, generator.random() ** (0.2 if one == 7 else 1.0) if scored else None) for one in row]
        for row in answers
    ]
    usd = [0.0] * n

    def ask(number: int) -> SelectedQuery:
        query = selection.open("ann" if settings.by_key else "", usd, math.inf, 0.0)
        waiting = list(query.start(0.0))
        while waiting:
            one = waiting.pop(0)
            waiting += query.answered(one, replies[number % QUERIES][one], 0.0)
        return query

    def observe(query: SelectedQuery) -> None:
        fact = judge.by_label(query.note(), 7)
        assert fact is not None
        state.apply(fact)

    return ask, observe


def microseconds(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS, timer=time.process_time)) / CALLS * 1e6


def measured(policy: str, n: int, scored: bool, others: dict[str, Any]) -> str:
    ask, observe = parts(policy, n, scored, others)
    for number in range(300):
        observe(ask(number))
    query, numbers = ask(0), iter(range(10**9))

    def both() -> None:
        observe(ask(next(numbers)))

    alone, learned = microseconds(partial(ask, 0)), microseconds(partial(observe, query))
    kind = ", ".join(
        [policy, f"{n} candidates", *["scored"] * scored, *[f"{key} {one}" for key, one in others.items()]]
    )
    return f"{kind:50} query {alone:5.1f}  feedback {learned:5.1f}  both {microseconds(both):5.1f}"


def main() -> None:
    for case in CASES:
        print(measured(*case), flush=True)


if __name__ == "__main__":
    main()
