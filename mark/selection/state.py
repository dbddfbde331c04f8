"""All that a selection has learned: a sum of facts, the same in whichever order they came.

Every process holds all of it. `mark.serving.learned` brings each fact to each process once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from mark.selection import guard
from mark.selection.guard import Duel
from mark.selection.labels import Label, loss_of
from mark.selection.outcome import Fact, Loss, QueryNote
from mark.selection.score_table import ScoreTable
from mark.selection.settings import SelectionSettings
from mark.selection.tally import Sums, Tallies, discount_of

ALL = ""  # the context that every query belongs to
PRIOR_COUNT = 10.0  # a context begins with the mean of all, as if that had been seen so often
# Of contexts the mean of all is a prior, which need not follow each change at once.
_SHARED_MEMORY = 10.0
_TABLE_MEMORY = 4.0  # half-lives of a score table: it needs more labels than a mean
FEWEST_LABELS = 50.0  # before a table of scores is believed
FEWEST_VOTES = 200.0  # and before the agreement of a vote is
FORMAT = 1


class SelectionState:
    """The sums, score tables and evidence of a selection among `candidates`, given by their keys."""

    def __init__(self, candidates: Sequence[str], settings: SelectionSettings) -> None:
        self.candidates, self.settings = tuple(candidates), settings
        self._of = {key: at for at, key in enumerate(self.candidates)}
        n, memory = len(self.candidates), settings.memory
        forgets = settings.policy != "exp4:thesis"
        self._all = Tallies(n, discount_of(memory * (_SHARED_MEMORY if settings.by_key else 1.0)) if forgets else 1.0)
        self._contexts = Tallies(n, discount_of(memory) if forgets else 1.0)
        self._table_memory = _TABLE_MEMORY * memory
        self._tables = {(asked, one): ScoreTable(self._table_memory) for asked in range(n) for one in range(asked, n)}
        self.votes = ScoreTable(self._table_memory)
        self.evidence = [0.0] * n
        self.answers, self.errors = [0.0] * n, [0.0] * n  # with feedback, and their losses; never discounted
        self.facts = 0

    # Reading

    def context_of(self, key: str) -> str:
        """The context of a query with this `mark-key`."""
        return key if self.settings.by_key else ALL

    def sums(self, context: str) -> Sums:
        """The sums of a context, with the mean of all contexts as a prior."""
        shared = self._all.sums(ALL)
        if context == ALL:
            return shared
        own = self._contexts.sums(context)
        counts, losses, weighted = list(own.counts), list(own.losses), list(own.weighted)
        for one, count in enumerate(shared.counts):
            if count > 0.0:
                mean = shared.losses[one] / count
                counts[one] += PRIOR_COUNT
                losses[one] += PRIOR_COUNT * mean
                weighted[one] += PRIOR_COUNT * mean
        return Sums(counts, losses, weighted)

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        """The probability that a candidate is correct where `asked` had this score; None: too few labels."""
        table = self._tables[asked, candidate]
        return table.probability(score) if table.total >= FEWEST_LABELS else None

    def vote_correct(self, agreement: float) -> float | None:
        """The probability that an answer with this agreement is correct; None: too few labels."""
        return self.votes.probability(agreement) if self.votes.total >= FEWEST_VOTES else None

    @property
    def off(self) -> set[int]:
        """Candidates that the guard has switched off."""
        challengers = len(self.candidates) - 1
        return {one for one, known in enumerate(self.evidence) if guard.switches_off(known, challengers)}

    @property
    def contexts(self) -> int:
        """How many contexts have facts."""
        return len(self._contexts)

    # Learning

    def apply(self, fact: Fact) -> None:
        """Add a fact. Candidates of another release are left out."""
        found = [(self._of[one.candidate], one) for one in fact.losses if one.candidate in self._of]
        n = len(self.candidates)
        losses: list[float | None] = [None] * n
        propensities = [1.0] * n
        for at, one in found:
            losses[at], propensities[at] = one.loss, one.propensity
            self.answers[at] += 1.0
            self.errors[at] += one.loss
        self._all.add(ALL, fact.stamp_all, losses, propensities)
        if fact.context != ALL and self.settings.by_key:
            self._contexts.add(fact.context, fact.stamp, losses, propensities)
        for asked, one in found:
            if one.score is not None:
                for at, other in found:
                    if at >= asked:  # a cascade asks in the candidates' order
                        self._tables[asked, at].add(one.score, 1.0 - other.loss, fact.stamp_all)
        if fact.vote is not None:
            self.votes.add(*fact.vote, fact.stamp_all)
        for key, grown in fact.evidence.items():
            if key in self._of:
                self.evidence[self._of[key]] += grown
        self.facts += 1

    def stamps(self, context: str) -> tuple[int, int]:
        """The stamps of a new fact: of its context, and of all."""
        return (self._contexts.seen(context) if context != ALL else 0), self._all.seen(ALL)

    # Snapshots

    def dump(self) -> bytes:
        """The state as JSON."""
        tables = {f"{a} {b}": table.dump() for (a, b), table in self._tables.items() if table.total > 0.0}
        said: dict[str, Any] = {
            "format": FORMAT,
            "candidates": self.candidates,
            "all": self._all.dump(),
            "contexts": self._contexts.dump(),
            "tables": tables,
            "votes": self.votes.dump(),
            "evidence": self.evidence,
            "answers": self.answers,
            "errors": self.errors,
            "facts": self.facts,
        }
        return orjson.dumps(said)

    def load(self, data: bytes) -> None:
        """Replace the state. Candidates that it does not know begin anew. Raises ValueError for another format."""
        said = orjson.loads(data)
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise ValueError("no state of a selection, or of another format")
        theirs: list[str] = said["candidates"]
        places = [theirs.index(key) if key in theirs else None for key in self.candidates]
        self._all.load({context: _moved(row, places, len(theirs)) for context, row in said["all"].items()})
        self._contexts.load({context: _moved(row, places, len(theirs)) for context, row in said["contexts"].items()})
        for (mine, other), table in self._tables.items():
            dumped = said["tables"].get(f"{places[mine]} {places[other]}")
            table.load({"base": 0, "newest": 0, "rows": {}} if dumped is None else dumped)
        self.votes.load(said["votes"])
        for name in ("evidence", "answers", "errors"):
            setattr(self, name, [0.0 if at is None else float(said[name][at]) for at in places])
        self.facts = int(said["facts"])


def _moved(row: list[float], places: Sequence[int | None], theirs: int) -> list[float]:
    """A row of sums with the candidates in another order; unknown ones have zeros."""
    columns = (len(row) - 2) // theirs
    found = row[:2]
    for column in range(columns):
        found += [0.0 if at is None else row[2 + column * theirs + at] for at in places]
    return found


class Judge:
    """Turns feedback into facts. Each writer has one, because evidence is gathered in the order of its own feedback."""

    def __init__(self, state: SelectionState, champion: str | None) -> None:
        self._state, self._champion = state, champion
        self._duels: dict[str, Duel] = {}

    def by_label(self, note: QueryNote, label: Label) -> Fact | None:
        """The fact of a query whose right answer is known; None: no candidate has answered."""
        settings = self._state.settings
        losses = [
            Loss(
                one.candidate, loss_of(one.label, label, settings.loss, settings.loss_scale), one.propensity, one.score
            )
            for one in note.asked
            if one.answered
        ]
        right = 1.0 - loss_of(note.label, label, settings.loss, settings.loss_scale)
        return self._fact(note, losses, right)

    def by_reward(self, note: QueryNote, reward: float) -> Fact | None:
        """The fact of a query whose answer had this reward, 0 to 1. It counts for all that gave the same answer."""
        losses = [
            Loss(one.candidate, 1.0 - reward, one.propensity, one.score)
            for one in note.asked
            if one.answered and (one.candidate == note.chosen or one.label == note.label)
        ]
        return self._fact(note, losses, reward)

    def loss(self, answer: Label, label: Label) -> float:
        """The loss of an answer where `label` is right."""
        settings = self._state.settings
        return loss_of(answer, label, settings.loss, settings.loss_scale)

    def _fact(self, note: QueryNote, losses: list[Loss], right: float) -> Fact | None:
        if not losses:
            return None
        stamp, stamp_all = self._state.stamps(note.context)
        vote = None if note.agreement is None else (note.agreement, right)
        return Fact(note.context, stamp + 1, stamp_all + 1, tuple(losses), vote, self._evidence(losses))

    def _evidence(self, losses: list[Loss]) -> dict[str, float]:
        if self._champion is None:
            return {}
        of = {one.candidate: one.loss for one in losses}
        found = {}
        for key in self._state.candidates:
            if key == self._champion:
                continue
            duel = self._duels.setdefault(key, Duel())
            if self._champion in of and key in of:
                grown = duel.pair(of[self._champion], of[key])
            elif self._champion in of:
                grown = duel.champion(of[self._champion])
            elif key in of:
                grown = duel.challenger(of[key])
            else:
                grown = 0.0
            if grown:
                found[key] = grown
        return found
