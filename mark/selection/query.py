"""One query on its way through a selection: who is asked next, when it is decided, and its answer. No I/O, no clock.

    start ─► ask ─► answered / missed ─► ask ... ─► decided, or lost where no candidate has answered

The shell (`mark.serving.conductor.selected`) tells what happened and at what time. Times are seconds of one
monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mark.selection.outcome import AskedNote, QueryNote
from mark.selection.policy import CandidateReply, Choice, Query, SelectionPolicy
from mark.selection.settings import SelectionSettings
from mark.selection.state import SelectionState


class SelectionDecision(NamedTuple):
    """The answer to a query. `by_default`: it is the configured default, and no candidate's.

    `calibrated` says whether the confidence is a probability of being correct, or only the agreement of the vote.
    """

    choice: Choice
    confidence: float | None
    calibrated: bool
    by_default: bool = False


class Selection:
    """A policy with its learned state. It opens queries."""

    def __init__(
        self, policy: SelectionPolicy, state: SelectionState, settings: SelectionSettings, draw: Callable[[], float]
    ) -> None:
        self.policy, self.state, self.settings, self._draw = policy, state, settings, draw
        self._explore = settings.explores

    def open(
        self,
        key: str,
        usd: Sequence[float],
        deadline_s: float,
        now_s: float,
        planned_usd: Sequence[float] | None = None,
    ) -> SelectedQuery:
        """A query with this `mark-key`; `usd` is the price of a call of each candidate, `planned_usd` the price where
        planned capacity has room for it (None: the same).

        It is decided by `deadline_s` at the latest, where a candidate has answered by then.
        """
        state, settings = self.state, self.settings
        context, explore = state.context_of(key), self._explore
        candidates = set(range(len(state.candidates)))
        query = Query(
            sums=state.sums(context),
            tables=state,
            usd=usd,
            draw=self._draw,
            open=candidates.difference(state.off) if settings.champion is not None else candidates,
            explores=explore > 0.0 and self._draw() < explore,
            explore=explore,
        )
        return SelectedQuery(self, query, context, min(deadline_s, now_s + settings.deadline_s), planned_usd or usd)


class SelectedQuery:
    """See the module. Methods that return candidates want them to be called now."""

    __slots__ = (
        "_asked", "_combined", "_context", "_planned_usd", "_query", "_selection", "_shares", "decision", "due_s",
        "lost",
    )  # fmt: skip

    def __init__(
        self, selection: Selection, query: Query, context: str, due_s: float, planned_usd: Sequence[float]
    ) -> None:
        self._selection, self._query, self._context = selection, query, context
        self._planned_usd = planned_usd
        self.due_s = due_s  # then it is decided with the replies that there are, or else the default
        self._asked: dict[int, float] = {}  # also those that have failed
        self._shares: Sequence[float] = ()  # with which the first candidate was drawn
        self._combined: Choice | None = None  # of candidates' replies
        self.decision: SelectionDecision | None = None
        self.lost = False  # no candidate answers, and there is no default

    @property
    def over(self) -> bool:
        return self.lost or self.decision is not None

    def start(self, now_s: float) -> Sequence[int]:
        """The query has come."""
        return self._go_on(now_s)

    def answered(self, candidate: int, reply: CandidateReply, now_s: float) -> Sequence[int]:
        """A candidate has answered. After the decision the reply only stands in the note, for feedback to judge it."""
        query = self._query
        if candidate not in query.asked or candidate in query.replies:
            return ()
        query.replies[candidate] = reply
        return () if self.over else self._go_on(now_s)

    def missed(self, candidate: int, now_s: float) -> Sequence[int]:
        """A candidate was refused, failed, or cannot be asked for want of time."""
        query = self._query
        if self.over or candidate not in query.asked or candidate in query.replies:
            return ()
        del query.asked[candidate]
        return self._go_on(now_s)

    def woken(self, now_s: float) -> Sequence[int]:
        """It is `due_s`, or later."""
        return () if self.over else self._go_on(now_s)

    @property
    def asked(self) -> Mapping[int, float]:
        """All candidates that were asked, also those that failed, each with the probability of asking it."""
        return self._asked

    def wanted(self) -> Collection[int]:
        """Candidates that were asked, and those that would be asked next if calls had their planned prices.

        Capacity is planned for these: a high price would else hide the calls that it prevents from the planner, and
        stay. Of candidates behind the next one nothing is known, because no reply says how they would be decided.
        """
        query = self._query
        if query.waits or list(self._planned_usd) == list(query.usd):
            return self._asked
        at_planned = replace(query, usd=self._planned_usd, explores=False)
        return {*self._asked, *(candidate for candidate, _ in self._selection.policy.ask(at_planned))}

    def awaited(self) -> Collection[int]:
        """Candidates whose replies may still come."""
        return [one for one in self._query.asked if one not in self._query.replies]

    def give_up(self) -> None:
        """Decide with the replies that there are, at once."""
        if not self.over:
            self._decide()

    def _go_on(self, now_s: float) -> Sequence[int]:
        query, policy = self._query, self._selection.policy
        if now_s >= self.due_s and (query.replies or self._selection.settings.has_default):
            self._decide()
            return ()
        asks = policy.ask(query)
        if asks:
            if not self._asked:
                self._shares = query.shares
            for candidate, propensity in asks:
                if candidate not in query.open or not 0.0 < propensity <= 1.0:
                    what = f"candidate {candidate} with probability {propensity}, and {query.open} are open"
                    raise ValueError(f"the policy {policy!r} asks {what}")
                query.open.remove(candidate)
                query.asked[candidate] = self._asked[candidate] = propensity
            return [candidate for candidate, _ in asks]
        if not query.waits or (query.replies and self._may_be_settled and policy.settled(query)):
            self._decide()
        return ()

    @property
    def _may_be_settled(self) -> bool:
        """May the query be decided early? Awaited replies can still change the confidence of a settled vote."""
        return self._selection.settings.min_confidence is None

    def _decide(self) -> None:
        query, selection, settings = self._query, self._selection, self._selection.settings
        if not query.replies:
            if settings.has_default:
                self.decision = self._by_default(None, calibrated=False)
            else:
                self.lost = True
            return
        choice = self._combined = selection.policy.combine(query)
        confidence, calibrated = choice.confidence, choice.confidence is not None
        if choice.agreement is not None:
            known = selection.state.vote_correct(choice.agreement)
            confidence, calibrated = (choice.agreement, False) if known is None else (known, True)
        # Without a confidence, as before there are enough labels, the candidates' own answer is given.
        if settings.min_confidence is not None and confidence is not None and confidence < settings.min_confidence:
            self.decision = self._by_default(confidence, calibrated=calibrated)
        else:
            self.decision = SelectionDecision(choice, confidence, calibrated)

    def _by_default(self, confidence: float | None, *, calibrated: bool) -> SelectionDecision:
        default = self._selection.settings.default
        return SelectionDecision(Choice(default, default, None), confidence, calibrated, by_default=True)

    def note(self) -> QueryNote:
        """The query as feedback finds it again. It keeps the candidates' own answer where the default was given."""
        settings, keys, replies = self._selection.settings, self._selection.state.candidates, self._query.replies
        asked = tuple(
            [
                AskedNote(keys[one], propensity, True, replies[one].label, replies[one].score)
                if one in replies
                else AskedNote(keys[one], propensity)
                for one, propensity in self._asked.items()
            ]
        )
        by_default = self.decision is not None and self.decision.by_default
        shares = None
        if self._shares and settings.champion is not None:
            shares = dict(zip(keys, self._shares, strict=True))
        combined = self._combined
        if combined is None:
            return QueryNote(self._context, asked, "", settings.default, None, by_default, shares)
        chosen = "" if combined.candidate is None else keys[combined.candidate]
        return QueryNote(self._context, asked, chosen, combined.label, combined.agreement, by_default, shares)
