"""The state machine of a query in a selection: which candidates it asks, when it is decided, and its answer.

    start ─► ask ─► answered / missed ─► ask ... ─► decided, or lost if no candidate has answered

It has no I/O and no clock: `mark.serving.conductor.selected` calls it with events and their times, in seconds of one
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
    """The answer to a query. `by_default` means that it is the configured default, not a candidate's answer.

    If `calibrated`, the confidence is a probability of being correct; otherwise it is only the agreement of the vote.
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
        """Open a query with this `mark-key`, to be decided by `deadline_s` if a candidate has answered by then.

        `usd` is the present price of a call of each candidate, `planned_usd` its price if planned capacity has room for
        the call (None: the same).
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
    """A query of the module. If a method returns candidates, the caller has to ask them now."""

    __slots__ = (
        "_asked", "_combined", "_context", "_overdue", "_planned_usd", "_query", "_selection", "_shares", "decision",
        "due_s", "lost",
    )  # fmt: skip

    def __init__(
        self, selection: Selection, query: Query, context: str, due_s: float, planned_usd: Sequence[float]
    ) -> None:
        self._selection, self._query, self._context = selection, query, context
        self._planned_usd = planned_usd
        self.due_s = due_s  # see `woken`
        self._asked: dict[int, float] = {}  # with the candidates that failed
        self._overdue: set[int] = set()  # that had not replied when another one was asked in their place
        self._shares: Sequence[float] = ()  # the probabilities when the first candidate was drawn
        self._combined: Choice | None = None  # from the candidates' replies
        self.decision: SelectionDecision | None = None
        self.lost = False  # no candidate answers, and there is no default

    @property
    def over(self) -> bool:
        return self.lost or self.decision is not None

    def start(self, now_s: float) -> Sequence[int]:
        """Start the query."""
        return self._go_on(now_s)

    def answered(self, candidate: int, reply: CandidateReply, now_s: float) -> Sequence[int]:
        """Take a candidate's answer. After the decision it only goes into the note, so that feedback can judge it."""
        query = self._query
        if candidate in self._overdue:
            self._overdue.remove(candidate)
            query.asked[candidate] = self._asked[candidate]
        if candidate not in query.asked or candidate in query.replies:
            return ()
        query.replies[candidate] = reply
        return () if self.over else self._go_on(now_s)

    def missed(self, candidate: int, now_s: float) -> Sequence[int]:
        """Note that a candidate refused or failed, or cannot be asked because too little time is left."""
        if self.over or candidate not in self.awaited():
            return ()
        self._overdue.discard(candidate)
        self._query.asked.pop(candidate, None)
        return self._go_on(now_s)

    def woken(self, now_s: float) -> Sequence[int]:
        """Go on at `due_s` or later: decide, if there is a reply or a default; otherwise ask another candidate."""
        if self.over:
            return ()
        query = self._query
        if now_s >= self.due_s and query.open and not query.replies and not self._selection.settings.has_default:
            self._overdue.update(query.asked)
            query.asked.clear()
        return self._go_on(now_s)

    @property
    def asked(self) -> Mapping[int, float]:
        """All candidates that were asked, even if they failed, each with the probability of asking it."""
        return self._asked

    @property
    def alone(self) -> bool:
        """Whether one candidate was asked and has not failed, so that no other one answers in its place."""
        return len(self._query.asked) == 1

    def wanted(self) -> Collection[int]:
        """Return the candidates that were asked, and those that planned prices would ask next.

        The planner buys capacity for these calls. Otherwise a high price would hide the calls that it prevents, and
        would stay high. Candidates after the next one are unknown, because they depend on its reply.
        """
        query = self._query
        if query.waits or list(self._planned_usd) == list(query.usd):
            return self._asked
        at_planned = replace(query, usd=self._planned_usd, explores=False)
        return {*self._asked, *(candidate for candidate, _ in self._selection.policy.ask(at_planned))}

    def awaited(self) -> Collection[int]:
        """Return the candidates whose replies may still come."""
        return [one for one in (*self._query.asked, *self._overdue) if one not in self._query.replies]

    def give_up(self) -> None:
        """Decide now, with the replies so far."""
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
        waits = query.waits or (self._overdue and not query.replies)
        if not waits or (query.replies and self._may_be_settled and policy.settled(query)):
            self._decide()
        return ()

    @property
    def _may_be_settled(self) -> bool:
        """Whether the query may be decided early: awaited replies can still change the confidence of a settled vote."""
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
        # Without a confidence, as long as labels are too few, the client gets the candidates' answer.
        if settings.min_confidence is not None and confidence is not None and confidence < settings.min_confidence:
            self.decision = self._by_default(confidence, calibrated=calibrated)
        else:
            self.decision = SelectionDecision(choice, confidence, calibrated)

    def _by_default(self, confidence: float | None, *, calibrated: bool) -> SelectionDecision:
        default = self._selection.settings.default
        return SelectionDecision(Choice(default, default, None), confidence, calibrated, by_default=True)

    def note(self) -> QueryNote:
        """Return the note for later feedback. It has the candidates' answer even if the client got the default."""
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
