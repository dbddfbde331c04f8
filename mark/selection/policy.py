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
    """The answer of one candidate. `result` is the model's own, `label` and `score` are read from it."""

    result: Any
    label: Label
    score: float | None = None


class Choice(NamedTuple):
    """The answer to a query. `candidate` is the one whose result it is, None where results were averaged.

    `confidence` is the probability that it is correct, `agreement` the share of a vote that it had; both are 0 to 1.
    """

    result: Any
    label: Label
    candidate: int | None
    confidence: float | None = None
    agreement: float | None = None


class CandidateTables(Protocol):
    """The known scores of candidates."""

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        """The probability that `candidate` is correct where `asked` had this score; None: too few labels."""
        ...


@dataclass(slots=True)
class Query:
    """A query on its way. Candidates are positions in the order of the file; `draw` gives uniform numbers of [0, 1).

    `usd` is the price of a call of each candidate. Only candidates that are `open` may be asked: neither asked before,
    nor switched off, nor refused for want of time. `asked` has each candidate that was asked and has not failed, with
    the probability of asking it; `replies` are those that have come. A policy that draws one candidate leaves the
    probabilities of all candidates in `shares`, because the guard compares candidates by them.
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
    weights: Sequence[float] = ()  # of the candidates, where a policy has reckoned them for this query
    shares: Sequence[float] = ()

    @property
    def waits(self) -> bool:
        """Is a candidate asked whose reply may still come?"""
        return len(self.replies) < len(self.asked)


class SelectionPolicy(Protocol):
    """See the module. Both methods are pure but for `query.draw`."""

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        """Candidates to ask now, each with the probability of asking it; none: decide with the replies that there are.

        Called at the start, after each reply and after each candidate that failed. A policy that waits for replies
        returns none; the query is decided once none is awaited.
        """
        ...

    def combine(self, query: Query) -> Choice:
        """The answer from the replies that there are: one at least."""
        ...

    def settled(self, query: Query) -> bool:
        """Can no awaited reply change the answer?"""
        ...


def draw_one(query: Query, weights: Sequence[float]) -> tuple[int, float]:
    """One of the open candidates, drawn by weight, with its probability. Exploration draws all alike.

    With weights that are all zero the open candidates are alike, too.
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
        if share > 0.0:  # also where rounding leaves a rest, the drawn one has a share
            drawn = one
            point -= share
            if point < 0.0:
                break
    return drawn, shares[drawn]


def answer_of(query: Query, candidate: int, agreement: float | None = None) -> Choice:
    """The answer of one candidate, unchanged, with the probability that it is correct where its score says one."""
    reply = query.replies[candidate]
    confidence = None if reply.score is None else query.tables.correct(candidate, reply.score, candidate)
    return Choice(reply.result, reply.label, candidate, confidence, agreement)
