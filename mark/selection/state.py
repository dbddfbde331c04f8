"""The learned state of a selection: a sum of facts, the same in any order of arrival.

`mark.serving.learned` brings each fact to each process once, and every process holds the whole state. It includes
candidates that only another release has, because a process of that release may copy its state from this one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import orjson

from mark.selection import guard
from mark.selection.guard import Duel
from mark.selection.labels import Label, NoAnswer, label_of, loss_of, same_kind
from mark.selection.outcome import Loss, QueryNote, SelectionFact, context_key
from mark.selection.score_table import Fading, ScoreTable, grid_place
from mark.selection.settings import BANDITS, CASCADE, EXP4_THESIS, MOST_CANDIDATES, SelectionSettings
from mark.selection.tally import LossTally, Observed, Sums, Tallies, discount_of

ALL = ""  # the context that every query belongs to
PRIOR_COUNT = 10.0  # a context begins with the mean of all contexts, as if observed so often
# How many times longer the mean of all contexts remembers: as a prior it need not follow each change at once.
_SHARED_MEMORY = 10.0
_TABLE_MEMORY = 4.0  # half-lives of a score table: it needs more labels than a mean
FEWEST_LABELS = 50.0  # before a table of scores is used
FEWEST_VOTES = 200.0  # before the table of votes is used
FORMAT = 4
AGAINST = ">"  # in the evidence of a fact, between the champion and the candidate that is tested
_MOST_OTHERS = MOST_CANDIDATES  # candidates of other releases
_FORGOTTEN = 50_000  # facts without its name, after which a candidate of another release is dropped
_MOST_GIVEN = 10_000
_LENGTH = 8  # bytes of a number in a snapshot


class SelectionState:
    """The sums, score tables and evidence of a selection among `candidates`, given by their keys.

    `others` are candidates of other releases, whose places come after the own ones.
    """

    def __init__(self, candidates: Sequence[str], settings: SelectionSettings, others: Sequence[str] = ()) -> None:
        self.candidates, self.settings = tuple(candidates), settings
        self._keys = (*self.candidates, *others)
        self._of = {key: at for at, key in enumerate(self._keys)}
        n, memory = len(self._keys), settings.memory
        forgets = settings.policy != EXP4_THESIS
        self._all = LossTally(n, discount_of(memory * (_SHARED_MEMORY if settings.by_key else 1.0)) if forgets else 1.0)
        self._contexts = Tallies(n, discount_of(memory) if forgets else 1.0)
        self._fading = Fading(_table_memory(settings))
        # By two places: of the candidate with the score, and of a candidate that answered the same queries.
        self._tables: dict[tuple[int, int], ScoreTable] = {}
        self.votes = ScoreTable(self._fading)
        self._evidence: dict[str, float] = {}  # by champion and challenger, as facts have it
        self.champion = next((key for key in self.candidates if key.partition("@")[0] == settings.champion), "")
        self.off: frozenset[int] = frozenset()  # candidates that the guard has switched off
        self._answers, self._errors = [0.0] * n, [0.0] * n  # never discounted
        self._named = [0] * n  # the newest stamp of a fact that names the candidate
        self.facts = 0

    # Reading

    def context_of(self, key: str) -> str:
        """Return the context of a query with this `mark-key`: `ALL` without a key, or if keys have no contexts."""
        return context_key(key) if key and self.settings.by_key else ALL

    def sums(self, context: str) -> Sums:
        """Return the sums of a context, with the mean of all contexts as a prior."""
        shared = self._of_own(self._all.sums)
        if context == ALL:
            return shared
        found = self._contexts.sums(int(context, 16))
        zeros = [0.0] * len(self.candidates)
        own = Sums(zeros, zeros, zeros) if found is None else self._of_own(found)
        counts, losses, weighted = list(own.counts), list(own.losses), list(own.weighted)
        for one, count in enumerate(shared.counts):
            if count > 0.0:
                prior = PRIOR_COUNT * shared.losses[one] / count
                counts[one] += PRIOR_COUNT
                losses[one] += prior
                weighted[one] += prior
        return Sums(counts, losses, weighted)

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        """Return the probability that a candidate is correct if `asked` had this score.

        The result is None if labels are too few, or if the candidate stands before `asked`.
        """
        table = None if candidate < asked else self._tables.get((asked, candidate))
        return table.probability(score) if table is not None and table.total >= FEWEST_LABELS else None

    def vote_correct(self, agreement: float) -> float | None:
        """Return the probability that an answer with this agreement is correct; None for too few labels."""
        return self.votes.probability(agreement) if self.votes.total >= FEWEST_VOTES else None

    @property
    def answers(self) -> list[float]:
        """How many answers of each candidate had feedback."""
        return self._answers[: len(self.candidates)]

    @property
    def errors(self) -> list[float]:
        """The sum of the losses of these answers, by candidate."""
        return self._errors[: len(self.candidates)]

    @property
    def evidence(self) -> list[float]:
        """The log evidence that each candidate is worse than this champion; other champions' evidence is left out."""
        return [self._evidence.get(f"{self.champion}{AGAINST}{key}", 0.0) for key in self.candidates]

    @property
    def contexts(self) -> int:
        """How many contexts have facts."""
        return len(self._contexts)

    def stamps(self, context: str) -> tuple[int, int]:
        """Return the numbers of facts: of the context, and in all."""
        own = self._contexts.facts(int(context, 16)) if context != ALL else self._all.facts
        return own, self._all.facts

    # Learning

    def apply(self, fact: SelectionFact) -> None:
        """Add a fact."""
        _, stamp, stamp_all, losses, vote, evidence = fact
        pairs = [] if not evidence else [pair for pair in evidence if _sides(pair) is not None]
        named = [*(one.candidate for one in losses), *(key for pair in pairs for key in _sides(pair) or ())]
        if not self._of.keys() >= set(named):
            self._admit(dict.fromkeys(key for key in named if key not in self.candidates))
        for key in named:
            at = self._of[key]
            self._named[at] = max(self._named[at], stamp_all)
        observed: list[Observed] = []
        scored: list[tuple[int, float]] = []
        judged: list[tuple[int, float]] = []
        for key, loss, propensity, score, answered in losses:
            at = self._of[key]
            observed.append((at, loss, propensity))
            if answered:
                self._answers[at] += 1.0
                self._errors[at] += loss
                judged.append((at, 1.0 - loss))
                if score is not None:
                    scored.append((at, score))
        self._all.add(stamp_all, observed)
        if fact.context != ALL:
            self._contexts.add(int(fact.context, 16), stamp, stamp_all, observed)
        weight = self._fading.weight(stamp_all)
        for asked, score in scored:
            place = grid_place(score)
            for at, right in judged:
                self._table(asked, at).put(place, weight, right)
        if vote is not None:
            self.votes.put(grid_place(vote[0]), weight, vote[1])
        if evidence:
            for pair in pairs:
                self._evidence[pair] = self._evidence.get(pair, 0.0) + evidence[pair]
            self._switch_off()
        self.facts += 1

    def _admit(self, needed: Collection[str]) -> None:
        """Make places for candidates of another release. This is slow, but happens once for each release."""
        others = [key for key in self._others(self._keys, self._named) if key not in needed]
        others = [*others[: max(0, _MOST_OTHERS - len(needed))], *needed]
        self.__dict__.update(self._read(self.dump(), others).__dict__)

    def _others(self, keys: Sequence[str], named: Sequence[int]) -> list[str]:
        """Return the candidates of other releases among `keys` that recent facts name, the newest first."""
        ranked = sorted((-stamp, key) for key, stamp in zip(keys, named, strict=True) if key not in self.candidates)
        oldest = max(named, default=0) - _FORGOTTEN
        return [key for stamp, key in ranked if -stamp >= oldest][:_MOST_OTHERS]

    def _of_own(self, sums: Sums) -> Sums:
        """Return the sums of this release's candidates."""
        own = len(self.candidates)
        return sums if len(self._keys) == own else Sums(sums.counts[:own], sums.losses[:own], sums.weighted[:own])

    def _table(self, asked: int, at: int) -> ScoreTable:
        found = self._tables.get((asked, at))
        if found is None:
            found = self._tables[asked, at] = ScoreTable(self._fading)
        return found

    def _switch_off(self) -> None:
        challengers = len(self.candidates) - 1
        self.off = frozenset([one for one, known in enumerate(self.evidence) if guard.switches_off(known, challengers)])

    # Snapshots

    def dump(self) -> bytes:
        """Return the state as bytes: the length of its JSON, the JSON, then the contexts."""
        said: dict[str, Any] = {
            "format": FORMAT,
            "candidates": self._keys,
            "all": self._all.dump(),
            "fading": self._fading.dump(),
            "tables": [[*pair, table.dump()] for pair, table in self._tables.items()],
            "votes": self.votes.dump(),
            "evidence": self._evidence,
            "answers": self._answers,
            "errors": self._errors,
            "named": self._named,
            "facts": self.facts,
        }
        head = orjson.dumps(said)
        return b"".join((len(head).to_bytes(_LENGTH, "little"), head, self._contexts.dump()))

    def load(self, data: bytes) -> None:
        """Replace the state by a snapshot. Candidates that the snapshot lacks begin without facts.

        Raises ValueError for another format or damaged data, and then leaves the state unchanged.
        """
        self.__dict__.update(self._read(data, others=None).__dict__)

    def _read(self, data: bytes, others: Sequence[str] | None) -> SelectionState:
        """Return the state in a snapshot, with places for `others`; None means those that its recent facts name."""
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        try:
            said = orjson.loads(data[_LENGTH:end])
            if said["format"] != FORMAT:
                raise ValueError(f"the state of a selection has format {said['format']!r}, and this is {FORMAT}")
            if others is None:
                others = self._others(said["candidates"], said["named"])
            found = SelectionState(self.candidates, self.settings, others)
            found._load(said, memoryview(data)[end:])
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"no state of a selection: {error!r}") from None
        return found

    def _load(self, said: dict[str, Any], contexts: memoryview) -> None:
        theirs: list[str] = said["candidates"]
        places = [theirs.index(key) if key in theirs else None for key in self._keys]
        head, columns = said["all"][:2], said["all"][2:]
        moved = [
            0.0 if at is None else columns[first + at] for first in range(0, len(columns), len(theirs)) for at in places
        ]
        self._all.load([*head, *moved])
        self._contexts.load(contexts, places, len(theirs))
        self._fading.load(said["fading"])
        for asked, at, dumped in said["tables"]:
            mine, other = self._of.get(theirs[asked]), self._of.get(theirs[at])
            if mine is not None and other is not None:
                self._table(mine, other).load(dumped)
        self.votes.load(said["votes"])
        for name in ("answers", "errors"):
            setattr(self, f"_{name}", [0.0 if at is None else float(said[name][at]) for at in places])
        self._named = [0 if at is None else int(said["named"][at]) for at in places]
        self._evidence = {
            pair: float(grown) for pair, grown in said["evidence"].items() if self._of.keys() >= set(_sides(pair) or ())
        }
        self.facts = int(said["facts"])
        self._switch_off()


def _sides(pair: str) -> tuple[str, str] | None:
    """Return the champion and the challenger of a pair of evidence; None if it is malformed."""
    champion, against, challenger = pair.partition(AGAINST)
    return (champion, challenger) if champion and against and challenger else None


def _table_memory(settings: SelectionSettings) -> float:
    """Return the half-life of score tables in facts.

    It is long enough that explored queries alone keep a cascade's tables above `FEWEST_LABELS`; otherwise the cascade
    would keep asking every candidate for more labels.
    """
    explored = FEWEST_LABELS / settings.explores if settings.policy == CASCADE and settings.explores else 0.0
    return max(_TABLE_MEMORY * settings.memory, explored)


class Judge:
    """Turn feedback into facts. Each writer has its own judge, because evidence depends on the order of feedback.

    A judge may run in another thread than `SelectionState.apply`, because it only reads counts of facts.
    """

    def __init__(self, state: SelectionState, champion: str | None) -> None:
        self._state, self._champion = state, champion
        self._duels: dict[str, Duel] = {}
        self._given: dict[str, int] = {}  # the last stamps of contexts, the newest last
        self._given_all = 0
        # A candidate that does not answer a bandit counts as wrong; in a vote it is only missing.
        self._misses_count = state.settings.policy in BANDITS

    def by_label(self, note: QueryNote, label: Label) -> SelectionFact | None:
        """Return the fact of a query whose right answer is known.

        The result is None if no candidate was judged, or if no answer could equal `label`, as a text among numbers.
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
        """Return the fact of a query whose answer had this reward, 0 to 1, for all candidates that gave this answer.

        The result is None if no candidate gave it, because it was the default or an average. Raises ValueError for a
        reward out of range.
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
        """Return the loss of an answer if `label` is right."""
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
        """Return the stamps of a new fact. They also count facts that were made and not applied yet."""
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
        """Return the evidence of a query that asked one candidate."""
        asked, loss = answered
        assert self._champion is not None
        own, other = shares.get(challenger, 0.0), shares.get(self._champion, 0.0)
        if not (own and other):  # there was no choice
            return 0.0
        return self._duel(challenger).alone(challenger=asked == challenger, loss=loss, share=own / (own + other))

    def _duel(self, challenger: str) -> Duel:
        return self._duels.setdefault(challenger, Duel())
