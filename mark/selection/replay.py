"""Replay policies on a log that has, for each query, the right label and each candidate's answer.

The replay uses the servers' state machine (`mark.selection.query`), and learns each label right after its answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mark.selection.labels import Label, loss_of
from mark.selection.policy import CandidateReply
from mark.selection.query import SelectedQuery, Selection
from mark.selection.state import Judge

Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A query with its right `label`; `replies` and `usd` (the price of a call) are by candidate.

    A reply is None if the log has no answer of the candidate, because then its answer is unknown.
    """

    label: Label
    replies: Sequence[CandidateReply | None]
    usd: Sequence[float]
    key: str = ""


@dataclass(slots=True)
class ReplayWindow:
    """Queries in a row: the sum of losses, and how often each candidate's answer was given."""

    first: int
    queries: int = 0
    loss: float = 0.0
    chosen: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class PolicyReplay:
    """The results of a policy on logged queries. `loss` is the sum over its answers; a missing answer loses 1."""

    windows: list[ReplayWindow] = field(default_factory=list)
    queries: int = 0
    loss: float = 0.0
    asks: int = 0
    usd: float = 0.0
    unanswered: int = 0
    by_default: int = 0  # answered with the configured default
    skipped: int = 0  # queries that asked a candidate without an answer in the log; they count nowhere else
    calls: Counter[tuple[int, ...]] = field(default_factory=Counter)  # sets of candidates that queries asked

    @property
    def error(self) -> float:
        """The mean loss."""
        return self.loss / self.queries if self.queries else 0.0

    def error_interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the mean loss, for queries that are alike and independent."""
        return wilson(self.error, self.queries)


def replay(queries: Iterable[LoggedQuery], selection: Selection, judge: Judge, window: int = 1000) -> PolicyReplay:
    """Give the queries to the policy in their order.

    A query that asks a candidate whose answer the log lacks is skipped, and teaches nothing.
    """
    found, settings = PolicyReplay(), selection.settings
    for query in queries:
        machine, asked = _answered(query, selection)
        if machine is None:
            found.skipped += 1
            continue
        if found.queries % window == 0:
            found.windows.append(ReplayWindow(found.queries))
        decision = machine.decision
        loss = 1.0
        at = found.windows[-1]
        if decision is None:
            found.unanswered += 1
        else:
            loss = loss_of(decision.choice.label, query.label, settings.loss, settings.loss_scale)
            found.by_default += decision.by_default
            if decision.choice.candidate is not None:
                at.chosen[decision.choice.candidate] += 1
            fact = judge.by_label(machine.note(), query.label)
            if fact is not None:
                selection.state.apply(fact)
        found.queries += 1
        found.loss += loss
        at.queries += 1
        at.loss += loss
        found.asks += len(asked)
        found.usd += math.fsum(query.usd[one] for one in asked)
        found.calls[tuple(sorted(asked))] += 1
    return found


def _answered(query: LoggedQuery, selection: Selection) -> tuple[SelectedQuery | None, list[int]]:
    """Return the decided query and the candidates that it asked, which all reply, even after the decision.

    The query is None if the log lacks one of their answers.
    """
    machine = selection.open(query.key, query.usd, math.inf, 0.0)
    asked: list[int] = []
    waiting = list(machine.start(0.0))
    while waiting:
        candidate = waiting.pop(0)
        asked.append(candidate)
        reply = query.replies[candidate]
        if reply is None:
            return None, asked
        waiting += machine.answered(candidate, reply, 0.0)
    return machine, asked


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval (1927) of a share of `count` trials."""
    if count <= 0:
        return 0.0, 1.0
    z2 = Z_95**2 / count
    middle = (share + z2 / 2.0) / (1.0 + z2)
    half = Z_95 * math.sqrt(share * (1.0 - share) / count + z2 / (4.0 * count)) / (1.0 + z2)
    return max(0.0, middle - half), min(1.0, middle + half)
