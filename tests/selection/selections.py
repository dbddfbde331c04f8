"""Builders of selections and queries, so that a test shows only the values that matter to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mark.selection.policies import policy_of
from mark.selection.policy import CandidateReply, Query, SelectionPolicy
from mark.selection.query import SelectedQuery, Selection
from mark.selection.settings import SelectionSettings
from mark.selection.state import SelectionState
from mark.selection.tally import Sums

NAMES = ("a@00", "b@00", "c@00", "d@00", "e@00")


class FixedTables:
    """Probabilities of being correct by pair of candidates, for any score."""

    def __init__(self, known: Mapping[tuple[int, int], float] | None = None) -> None:
        self._known = known or {}

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        return self._known.get((asked, candidate))


class HalfRight(SelectionState):
    """A first candidate that is right in every second case, and others that always are, for any score."""

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        return 1.0 if candidate else 0.5


def sums_of(losses: Sequence[float], counts: Sequence[float] | None = None) -> Sums:
    """Return sums of candidates that were asked equally often, unless `counts` is given."""
    return Sums(counts or [100.0] * len(losses), list(losses), list(losses))


def numbers(*values: float) -> Callable[[], float]:
    """Return a generator whose uniform numbers are these."""
    rest = iter(values)
    return lambda: next(rest)


def query_of(
    losses: Sequence[float],
    *,
    counts: Sequence[float] | None = None,
    tables: FixedTables | None = None,
    usd: Sequence[float] | None = None,
    draw: Callable[[], float] | None = None,
    **others: Any,
) -> Query:
    """Return a query with candidates of these summed losses."""
    n = len(losses)
    others.setdefault("open", set(range(n)))
    return Query(
        sums_of(losses, counts),
        tables or FixedTables(),
        usd or [0.0] * n,
        draw or np.random.default_rng(7).random,
        **others,
    )


def replied(query: Query, labels: Mapping[int, Any]) -> Query:
    """Return the query after these candidates were asked and answered."""
    for one, label in labels.items():
        query.open.discard(one)
        query.asked[one] = 1.0
        query.replies[one] = label if isinstance(label, CandidateReply) else CandidateReply(label, label)
    return query


def selection_of(
    policy: str | SelectionPolicy = "exp4", candidates: int = 3, *, seed: int = 1, **others: Any
) -> Selection:
    """Return a selection that has learned nothing."""
    settings = SelectionSettings(policy if isinstance(policy, str) else "own:SelectionPolicy", **others)
    generator = np.random.default_rng(seed)
    known = policy_of(settings, candidates, generator) if isinstance(policy, str) else policy
    return Selection(known, SelectionState(NAMES[:candidates], settings), settings, generator.random)


def opened(selection: Selection, *, key: str = "", deadline_s: float = math.inf, now_s: float = 0.0) -> SelectedQuery:
    """Return a query whose calls are free."""
    return selection.open(key, [0.0] * len(selection.state.candidates), deadline_s, now_s)


def answer_all(query: SelectedQuery, labels: Mapping[int, Any], now_s: float = 0.0) -> list[int]:
    """Start the query and give each asked candidate's answer, or fail a candidate without one.

    Returns the asked candidates.
    """
    waiting, asked = list(query.start(now_s)), []
    while waiting:
        one = waiting.pop(0)
        asked.append(one)
        if one in labels:
            label = labels[one]
            waiting += query.answered(
                one, label if isinstance(label, CandidateReply) else CandidateReply(label, label), now_s
            )
        else:
            waiting += query.missed(one, now_s)
    return asked


def close(found: Iterable[float], wanted: Iterable[float]) -> bool:
    """Return whether the numbers are equal to twelve digits."""
    return bool(np.allclose(list(found), list(wanted), rtol=1e-12, atol=1e-12))
