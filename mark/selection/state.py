"""All that a selection has learned: a sum of facts, the same in whichever order they came.

Every process holds all of it. `mark.serving.learned` brings each fact to each process once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from mark.selection import guard
from mark.selection.guard import Duel
from mark.selection.labels import Label, NoAnswer, label_of, loss_of, same_kind
from mark.selection.outcome import Loss, QueryNote, SelectionFact, context_key
from mark.selection.score_table import Fading, ScoreTable, grid_place
from mark.selection.settings import BANDITS, CASCADE, EXP4_THESIS, SelectionSettings
from mark.selection.tally import LossTally, Observed, Sums, Tallies, discount_of

ALL = ""  # the context that every query belongs to
PRIOR_COUNT = 10.0  # a context begins with the mean of all, as if that had been seen so often
# Of contexts the mean of all is a prior, which need not follow each change at once.
_SHARED_MEMORY = 10.0
_TABLE_MEMORY = 4.0  # half-lives of a score table: it needs more labels than a mean
FEWEST_LABELS = 50.0  # before a table of scores is believed
FEWEST_VOTES = 200.0  # and before the agreement of a vote is
FORMAT = 3
AGAINST = ">"  # in the evidence of a fact, between the champion and the candidate that is tested
_MOST_GIVEN = 10_000
_LENGTH = 8  # bytes of a number in a snapshot


class SelectionState:
    """The sums, score tables and evidence of a selection among `candidates`, given by their keys."""

    def __init__(self, candidates: Sequence[str], settings: SelectionSettings) -> None:
        self.candidates, self.settings = tuple(candidates), settings
        self._of = {key: at for at, key in enumerate(self.candidates)}
        n, memory = len(self.candidates), settings.memory
        forgets = settings.policy != EXP4_THESIS
        self._all = LossTally(n, discount_of(memory * (_SHARED_MEMORY if settings.by_key else 1.0)) if forgets else 1.0)
        self._contexts = Tallies(n, discount_of(memory) if forgets else 1.0)
        self._fading = Fading(_table_memory(settings))
        # By a candidate with a score: tables of its own answers and those of all after it, because a cascade asks in
        # this order.
        self._tables = [[ScoreTable(self._fading) for _ in range(asked, n)] for asked in range(n)]
        self.votes = ScoreTable(self._fading)
        # How likely each one is worse than the champion; what was gathered against another champion does not count.
        self.evidence = [0.0] * n
        self.champion = next((key for key in self.candidates if key.partition("@")[0] == settings.champion), "")
        self.off: frozenset[int] = frozenset()  # candidates that the guard has switched off
        self.answers, self.errors = [0.0] * n, [0.0] * n  # with feedback, and their losses; never discounted
        self.facts = 0

    # Reading

    def context_of(self, key: str) -> str:
        """The context of a query with this `mark-key`. Queries without one share the context of all."""
        return context_key(key) if key and self.settings.by_key else ALL

    def sums(self, context: str) -> Sums:
        """The sums of a context, with the mean of all contexts as a prior."""
        shared = self._all.sums
        if context == ALL:
            return shared
        own = self._contexts.sums(int(context, 16))
        if own is None:
            zeros = [0.0] * len(self.candidates)
            own = Sums(zeros, zeros, zeros)
        counts, losses, weighted = list(own.counts), list(own.losses), list(own.weighted)
        for one, count in enumerate(shared.counts):
            if count > 0.0:
                prior = PRIOR_COUNT * shared.losses[one] / count
                counts[one] += PRIOR_COUNT
                losses[one] += prior
                weighted[one] += prior
        return Sums(counts, losses, weighted)

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        """The probability that a candidate is correct where `asked` had this score.

        None: there are too few labels, or the candidate stands before `asked`.
        """
        if candidate < asked:
            return None
        table = self._tables[asked][candidate - asked]
        return table.probability(score) if table.total >= FEWEST_LABELS else None

    def vote_correct(self, agreement: float) -> float | None:
        """The probability that an answer with this agreement is correct; None: too few labels."""
        return self.votes.probability(agreement) if self.votes.total >= FEWEST_VOTES else None

    @property
    def contexts(self) -> int:
        """How many contexts have facts."""
        return len(self._contexts)

    def stamps(self, context: str) -> tuple[int, int]:
        """How many facts there were: of the context, and in all."""
        own = self._contexts.facts(int(context, 16)) if context != ALL else self._all.facts
        return own, self._all.facts

    # Learning

    def apply(self, fact: SelectionFact) -> None:
        """Add a fact. Candidates of another release are left out."""
        _, stamp, stamp_all, losses, vote, evidence = fact
        observed: list[Observed] = []
        scored: list[tuple[int, float]] = []
        judged: list[tuple[int, float]] = []
        for key, loss, propensity, score, answered in losses:
            at = self._of.get(key)
            if at is None:
                continue
            observed.append((at, loss, propensity))
            if answered:
                self.answers[at] += 1.0
                self.errors[at] += loss
                judged.append((at, 1.0 - loss))
                if score is not None:
                    scored.append((at, score))
        self._all.add(stamp_all, observed)
        if fact.context != ALL and self.settings.by_key:
            self._contexts.add(int(fact.context, 16), stamp, stamp_all, observed)
        weight = self._fading.weight(stamp_all)
        for asked, score in scored:
            place, tables = grid_place(score), self._tables[asked]
            for at, right in judged:
                if at >= asked:
                    tables[at - asked].put(place, weight, right)
        if vote is not None:
            self.votes.put(grid_place(vote[0]), weight, vote[1])
        if evidence:
            for pair, grown in evidence.items():
                champion, _, key = pair.partition(AGAINST)
                if champion == self.champion and key in self._of:
                    self.evidence[self._of[key]] += grown
            self._switch_off()
        self.facts += 1

    def _switch_off(self) -> None:
        challengers = len(self.candidates) - 1
        self.off = frozenset([one for one, known in enumerate(self.evidence) if guard.switches_off(known, challengers)])

    # Snapshots

    def dump(self) -> bytes:
        """The state: the length of its JSON, the JSON, then the contexts."""
        said: dict[str, Any] = {
            "format": FORMAT,
            "candidates": self.candidates,
            "all": self._all.dump(),
            "fading": self._fading.dump(),
            "tables": [[table.dump() for table in row] for row in self._tables],
            "votes": self.votes.dump(),
            "evidence": self.evidence,
            "champion": self.champion,
            "answers": self.answers,
            "errors": self.errors,
            "facts": self.facts,
        }
        head = orjson.dumps(said)
        return b"".join((len(head).to_bytes(_LENGTH, "little"), head, self._contexts.dump()))

    def load(self, data: bytes) -> None:
        """Replace the state. Candidates that it does not know begin anew.

        Raises ValueError for another format or damaged data; then the state is as it was.
        """
        loaded = SelectionState(self.candidates, self.settings)
        loaded._read(data)
        self.__dict__.update(loaded.__dict__)

    def _read(self, data: bytes) -> None:
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        try:
            said = orjson.loads(data[_LENGTH:end])
            if said["format"] != FORMAT:
                raise ValueError(f"the state of a selection has format {said['format']!r}, and this is {FORMAT}")
            self._load(said, memoryview(data)[end:])
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"no state of a selection: {error!r}") from None

    def _load(self, said: dict[str, Any], contexts: memoryview) -> None:
        theirs: list[str] = said["candidates"]
        places = [theirs.index(key) if key in theirs else None for key in self.candidates]
        head, columns = said["all"][:2], said["all"][2:]
        moved = [
            0.0 if at is None else columns[first + at] for first in range(0, len(columns), len(theirs)) for at in places
        ]
        self._all.load([*head, *moved])
        self._contexts.load(contexts, places, len(theirs))
        self._fading.load(said["fading"])
        for asked, row in enumerate(self._tables):
            for at, table in enumerate(row, asked):
                mine, other = places[asked], places[at]
                # Of two candidates that have changed places nothing is known of the later one after the earlier.
                if mine is None or other is None or other < mine:
                    table.load({})
                else:
                    table.load(said["tables"][mine][other - mine])
        self.votes.load(said["votes"])
        for name in ("evidence", "answers", "errors"):
            setattr(self, name, [0.0 if at is None else float(said[name][at]) for at in places])
        if said["champion"] != self.champion:
            self.evidence = [0.0] * len(self.candidates)
        self.facts = int(said["facts"])
        self._switch_off()


def _table_memory(settings: SelectionSettings) -> float:
    """The half-life of score tables in facts.

    The explored queries alone keep a cascade's tables above `FEWEST_LABELS`, otherwise it would ask all for more.
    """
    explored = FEWEST_LABELS / settings.explores if settings.policy == CASCADE and settings.explores else 0.0
    return max(_TABLE_MEMORY * settings.memory, explored)


class Judge:
    """Turns feedback into facts. Each writer has one, because evidence is gathered in the order of its own feedback.

    It may run in another thread than `SelectionState.apply`, because it reads counts of facts only.
    """

    def __init__(self, state: SelectionState, champion: str | None) -> None:
        self._state, self._champion = state, champion
        self._duels: dict[str, Duel] = {}
        self._given: dict[str, int] = {}  # the last stamps of contexts, the newest last
        self._given_all = 0
        # One that a bandit asks in vain counts as wrong. In a vote it is only missing.
        self._misses_count = state.settings.policy in BANDITS

    def by_label(self, note: QueryNote, label: Label) -> SelectionFact | None:
        """The fact of a query whose right answer is known.

        None: no candidate was judged, or `label` can be no answer of theirs, as a text where they answer with numbers.
        """
        settings = self._state.settings
        kind, scale = settings.loss, settings.loss_scale
        try:
            right = label_of(label)
        except NoAnswer:
            return None
        answers = [one.label for one in note.asked if one.answered]
        if answers and not any(same_kind(answer, right) for answer in answers):
            return None
        losses = []
        for candidate, propensity, answered, answer, score in note.asked:
            if answered:
                losses.append(Loss(candidate, loss_of(answer, right, kind, scale), propensity, score))
            elif self._misses_count:
                losses.append(Loss(candidate, 1.0, propensity, None, False))
        return self._fact(note, losses, 1.0 - loss_of(note.label, right, kind, scale))

    def by_reward(self, note: QueryNote, reward: float) -> SelectionFact | None:
        """The fact of a query whose answer had this reward, 0 to 1. It counts for all that gave the same answer.

        None: the reward is of the default or of an average, which no candidate gave. Raises ValueError for a reward
        out of range.
        """
        if not 0.0 <= reward <= 1.0:
            raise ValueError(f"a reward is 0 to 1, and not {reward}")
        if note.by_default or not note.chosen:
            return None
        losses = []
        for candidate, propensity, answered, answer, score in note.asked:
            if answered and (candidate == note.chosen or answer == note.label):
                losses.append(Loss(candidate, 1.0 - reward, propensity, score))
            elif not answered and self._misses_count:
                losses.append(Loss(candidate, 1.0, propensity, None, False))
        return self._fact(note, losses, reward)

    def loss(self, answer: Label, label: Label) -> float:
        """The loss of an answer where `label` is right."""
        settings = self._state.settings
        return loss_of(answer, label, settings.loss, settings.loss_scale)

    def _fact(self, note: QueryNote, losses: list[Loss], right: float) -> SelectionFact | None:
        if not losses:
            return None
        stamp, stamp_all = self._stamps(note.context)
        vote = None if note.agreement is None else (note.agreement, right)
        evidence = self._evidence(note, losses) if self._champion is not None else None
        return SelectionFact(note.context, stamp, stamp_all, tuple(losses), vote, evidence)

    def _stamps(self, context: str) -> tuple[int, int]:
        """The stamps of a new fact: facts that are made before the first of them is applied follow each other, too."""
        known, known_all = self._state.stamps(context)
        stamp = max(known, self._given.pop(context, 0)) + 1
        self._given[context] = stamp
        if len(self._given) > _MOST_GIVEN:
            del self._given[next(iter(self._given))]
        self._given_all = max(known_all, self._given_all) + 1
        return stamp, self._given_all

    def _evidence(self, note: QueryNote, losses: list[Loss]) -> dict[str, float] | None:
        champion = self._champion
        assert champion is not None
        of = {one.candidate: one.loss for one in losses if one.answered}
        found = {}
        for key in self._state.candidates:
            if key == champion:
                continue
            if champion in of and key in of:
                grown = self._duel(key).pair(of[champion], of[key])
            elif note.shares and len(note.asked) == 1 and (champion in of or key in of):
                grown = self._alone(key, note.shares, next(iter(of.items())))
            else:
                continue
            if grown:
                found[f"{champion}{AGAINST}{key}"] = grown
        return found or None

    def _alone(self, challenger: str, shares: dict[str, float], answered: tuple[str, float]) -> float:
        """The evidence of a query that asked one candidate. Others are missing for a reason, such as being late."""
        asked, loss = answered
        assert self._champion is not None
        own, other = shares.get(challenger, 0.0), shares.get(self._champion, 0.0)
        if not (own and other):  # there was no choice
            return 0.0
        return self._duel(challenger).alone(challenger=asked == challenger, loss=loss, share=own / (own + other))

    def _duel(self, challenger: str) -> Duel:
        return self._duels.setdefault(challenger, Duel())
