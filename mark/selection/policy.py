"""The port of a selection policy: which candidates a query asks next, and the answer from those that replied.

A policy keeps no state. It reads the sums and the score tables of `mark.selection.state`, so a change of policy forgets
nothing, and every process with the same facts decides alike. Clipper (Crankshaw et al., NSDI 2017, section 5) calls the
two functions select and combine; its init and observe are the state's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from mark.selection.labels import Label
from mark.selection.tally import Sums


class CandidateReply(NamedTuple):
    """The answer of one candidate. `label` and `score` are read from the model's `result`."""

    result: Any
    label: Label
    score: float | None = None


class Choice(NamedTuple):
    """The answer to a query. `candidate` gave the result; it is None if results were averaged.

    `confidence` is the probability that the answer is correct, `agreement` its share of a vote; both are 0 to 1.
    """

    result: Any
    label: Label
    candidate: int | None
    confidence: float | None = None
    agreement: float | None = None


class CandidateTables(Protocol):
    """The known scores of candidates."""

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        """Return the probability that `candidate` is correct if `asked` had this score; None for too few labels."""
        ...


@dataclass(slots=True)
class Query:
    """A query on its way. Candidates are positions in the order of the file; `draw` gives uniform numbers of [0, 1).

    `usd` is the price of a call of each candidate. Only `open` candidates may be asked: they were not asked before, and
    the guard has not switched them off. `asked` has each candidate that was asked and has not failed, with the
    probability of asking it; `replies` has the replies so far. A policy that draws one candidate sets `shares` to the
    probabilities of all candidates, because the guard needs them.
    """

    sums: Sums
    tables: CandidateTables
    usd: Sequence[float]
    draw: Callable[[], float]
    open: set[int]
    asked: dict[int, float] = field(default_factory=dict)
    replies: dict[int, CandidateReply] = field(default_factory=dict)
    explores: bool = False  # drawn once a query, with the probability `explore`
    explore: float = 0.0
    weights: Sequence[float] = ()  # of the candidates; a policy keeps them here for this query
    shares: Sequence[float] = ()

    @property
    def waits(self) -> bool:
        """Whether the reply of a candidate may still come."""
        return len(self.replies) < len(self.asked)


class SelectionPolicy(Protocol):
    """The port of the module. Methods draw at random and set the query's `weights` and `shares`; else they are pure."""

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        """Return the candidates to ask now, each with the probability of asking it.

        Called at the start, after each reply and after each failure of a candidate. If the result is empty, the query
        is decided once no reply is awaited.
        """
        ...

    def combine(self, query: Query) -> Choice:
        """Return the answer from the replies so far, of which there is at least one."""
        ...

    def settled(self, query: Query) -> bool:
        """Return whether no awaited reply can change the answer."""
        ...


def draw_one(query: Query, weights: Sequence[float]) -> tuple[int, float]:
    """Draw an open candidate by weight, and return it with its probability.

    Exploration gives all open candidates the same probability, and so do weights that are all zero.
    """
    among, explore = sorted(query.open), query.explore
    total = math.fsum([weights[one] for one in among])
    even = 1.0 / len(among)
    shares = [0.0] * len(weights)
    for one in among:
        by_weight = weights[one] / total if total > 0.0 else even
        shares[one] = min(1.0, (1.0 - explore) * by_weight + explore * even)
    query.shares = shares
    point = query.draw()
    drawn = among[0]
    for one in among:
        share = shares[one]
        if share > 0.0:  # even if rounding leaves a rest, a candidate with a share is drawn
            drawn = one
            point -= share
            if point < 0.0:
                break
    return drawn, shares[drawn]


def answer_of(query: Query, candidate: int, agreement: float | None = None) -> Choice:
    """Return the answer of one candidate, with the probability that it is correct if its score gives one."""
    reply = query.replies[candidate]
    confidence = None if reply.score is None else query.tables.correct(candidate, reply.score, candidate)
    return Choice(reply.result, reply.label, candidate, confidence, agreement)
