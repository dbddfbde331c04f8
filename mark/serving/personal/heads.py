"""The heads of one process: their state, the facts that change it, and counts of their answers.

`mark.serving.learned` stores the facts, and brings those of other processes.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mark.personal.key_book import RowStore
from mark.personal.learner import PersonalLearner, PersonalObservation, Scores, TopItems
from mark.personal.settings import LOGISTIC, PersonalSettings
from mark.personal.table import ItemTable
from mark.personal.top import INDEXED_FROM, NearItems
from mark.serving.feedback.port import Observation
from mark.serving.personal.notes import HeadFact, HeadNote, Scored, Vector, fact_in, id_name, notes_in

_LOG = logging.getLogger("mark.serving")
_MOST_IDS = 1_000_000  # number of remembered ids of feedback without an answer
_RATE_S = 60
_INDEX_GROWTH = 1.2  # growth of all observations after which an index is built again, because items' means have moved
BY_HEAD, BY_PRIOR, WITHOUT_KEY = "head", "prior", "without_key"


class PersonalHeads:
    """The learner of one service, with item vectors of `version`, from `table` or from a stage.

    The first vector of a stage fixes the length of all. An id of feedback without an answer counts once in `horizon_s`.
    `now` is monotonic, in seconds.
    """

    def __init__(
        self,
        settings: PersonalSettings,
        version: str,
        *,
        now: Callable[[], float],
        table: ItemTable | None = None,
        horizon_s: float = 86_400.0,
    ) -> None:
        self.settings, self.version, self.table = settings, version, table
        self.answers: Counter[str] = Counter()  # by the head of a key, the prior, or the prior without a key
        self.repeated = self.unusable = self.forgotten = 0
        self.erase: Callable[[str, float], None] = lambda key, at_s: None  # erases a key outside of this state
        self.forgot: Callable[[], None] = lambda: None  # called after the deletion of any key
        self._now, self._horizon_s = now, horizon_s
        self._store: RowStore | None = None
        self._draw = np.random.default_rng()
        self._explores = settings.explore.alpha > 0.0 or settings.explore.share > 0.0
        self._ids: dict[int, float] = {}  # of feedback without an answer, in order of arrival
        self._early: dict[str, float] = {}  # keys deleted before anything was learned
        self._shown = bytearray(0 if table is None else len(table))
        self._per_second: deque[tuple[int, int]] = deque(maxlen=_RATE_S + 1)
        self._learner: PersonalLearner | None = None
        self._is_indexing, self._index_until = False, 0.0

    def keep_rows_in(self, store: RowStore) -> None:
        """Keep rows there that exceed the allowed memory. Call it before anything is learned."""
        self._store = store

    # Answers

    def score(self, key: str, scored: Scored) -> Scores:
        """Return the expected reward of one item for a key, or the prior's for the key "".

        Raises ValueError for a bad vector.
        """
        learner = self._of(scored.vector)
        vectors = None if scored.vector is None else scored.vector[None, :]
        found = learner.score(key or None, vectors, None if scored.item is None else [scored.item])
        self._count(key, found.prior)
        return found

    def top(
        self,
        key: str,
        k: int,
        items: Sequence[str] | None,
        vectors: Sequence[Vector] | None = None,
        exclude: Collection[str] = (),
    ) -> TopItems:
        """Return the best items for a key. Raises ValueError for unknown items and bad vectors."""
        rows = None
        if vectors is not None:
            if len({one.shape for one in vectors}) > 1:
                raise ValueError("the features stage gives vectors of different lengths")
            rows = np.stack(vectors)
        learner = self._of(None if rows is None else rows[0])
        draw = self._draw if self._explores else None
        found = learner.top(key or None, k, items, draw, vectors=rows, exclude=exclude)
        self._count(key, found.prior)
        if self.table is not None:
            for name in found.items:
                self._shown[self.table.numbers[name]] = 1
        return found

    def to_index(self) -> NDArray[np.float32] | None:
        """Return the rows for a new index of the table; None: no new one is needed, or one is being built."""
        if self.table is None or len(self.table) <= INDEXED_FROM or self._explores or self._is_indexing:
            return None
        learner = self._of(None)
        if learner.observations <= self._index_until:
            return None
        self._is_indexing, self._index_until = True, _INDEX_GROWTH * learner.observations
        return learner.indexed()

    def use_index(self, index: NearItems) -> None:
        """Rank the table by an index of the rows of `to_index`, if it finds the best items of recent keys."""
        self._is_indexing = False
        if not self._of(None).index_by(index):
            _LOG.warning("the index of the table finds too few of the best items, and is not used")

    def expire(self, now_s: float) -> None:
        """Delete keys without an observation for `keep_days`, by Unix time."""
        for key in [] if self._learner is None else self._learner.expire(now_s):
            self.erase(key, now_s)

    def show(self, key: str) -> dict[str, Any] | None:
        """Return the state of a key; None: the key is unknown."""
        return None if self._learner is None else self._learner.show(key)

    def newest_s(self, key: str) -> float:
        """Return the Unix time of the newest observation of a key, which a clock that is ahead may have set, or 0."""
        return 0.0 if self._learner is None else max(0.0, self._learner.newest_s(key))

    def deleted_s(self, key: str) -> float:
        """Return the Unix time until which data of a key is deleted. Any thread may call it."""
        return self._early.get(key, -math.inf) if self._learner is None else self._learner.deleted_s(key)

    def deleted(self) -> dict[str, float]:
        """Return the deleted keys, each with the Unix time until which its data is deleted."""
        return self._early.copy() if self._learner is None else self._learner.tombstones

    def logged(self) -> Iterator[PersonalObservation]:
        """Return all observations of items of the table, by key."""
        return iter(()) if self._learner is None else self._learner.logged()

    def has_item(self, item: str) -> bool:
        """Return whether the table has an item of this name."""
        return self.table is not None and item in self.table.numbers

    # The port `mark.serving.learned.learner_port.Learner`

    def fact(self, observation: Observation) -> bytes | None:
        """Return the fact in feedback, with or without an answer of the model. Another thread may call it."""
        provenance = observation.answer.provenance
        if provenance is None or not provenance.note:
            return None
        if "forget" in observation.feedback.said:
            key = str(observation.feedback.said["forget"])
            newest_s = float(observation.feedback.said.get("newest_s", 0.0))
            return HeadFact(key, max(observation.received_at_s, newest_s, self._after_deletion_s(key))).to_json()
        found = self.learnable(provenance.note, observation.feedback.said, observation.received_at_s)
        return None if found is None else found.to_json()

    def learnable(self, note: bytes, said: dict[str, Any], at_s: float) -> HeadFact | None:
        """Return the fact in feedback on an answer with this note; None: nothing can be learned from it."""
        found = learnable(self.settings, note, said, at_s)
        if found is None or (self.table is None and (found.version != self.version or found.vector is None)):
            return None
        if self.table is not None and not self.has_item(found.item or ""):
            return None
        seen = PersonalObservation(found.key, found.item, found.vector, found.reward or 0.0, at_s)
        if self._learner is not None and self._learner.problem(seen) is not None:
            return None
        return replace(found, version=self.version, at_s=max(found.at_s, self._after_deletion_s(found.key)))

    def apply(self, fact: bytes) -> None:
        """Apply a fact of this process or another one. A malformed fact is logged and ignored."""
        try:
            found = fact_in(fact)
        except ValueError as error:
            _LOG.error("a fact of another process is malformed: %s", error)
            return
        if found is None:
            return
        if found.reward is None:
            self._forget(found.key, found.at_s)
            return
        if found.own_id and not self._first(found.own_id, found.at_s):
            self.repeated += 1
            return
        if self.table is None and found.version != self.version:
            self.unusable += 1
            return
        try:
            learner = self._of(found.vector)
        except ValueError:
            self.unusable += 1
            return
        seen = PersonalObservation(found.key, found.item, found.vector, found.reward, found.at_s)
        if learner.observe(seen):
            self._observed()
        else:
            self.unusable += 1

    def freeze(self) -> Callable[[], bytes]:
        """Return a function that encodes the state after all facts applied so far. Another thread may call it."""
        head = {"ids": list(self._ids.items()), "early": self._early.copy()}
        state = None if self._learner is None else self._learner.freeze()

        def snapshot() -> bytes:
            return orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE) + (b"" if state is None else state())

        return snapshot

    def restore(self, state: bytes) -> None:
        """Replace the state. Raises ValueError unless the bytes are a snapshot for this table or features stage."""
        line, _, heads = state.partition(b"\n")
        before = self.deleted()
        try:
            said = orjson.loads(line)
            ids = {int(number): float(at_s) for number, at_s in said["ids"]}
            early = {str(key): float(at_s) for key, at_s in said["early"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no snapshot of heads ({error})") from None
        if heads:
            learner = self._learner or self._made(int(orjson.loads(heads).get("dimension", 0)))
            learner.load(heads)
            self._learner = learner
        else:
            self._learner = None
        self._ids, self._early = ids, early
        if new := {key: at_s for key, at_s in self.deleted().items() if at_s > before.get(key, -math.inf)}:
            for key, at_s in new.items():
                self.erase(key, at_s)
            self.forgot()

    # Ids of feedback without an answer

    def has_seen(self, identity: str) -> bool:
        """Return whether feedback without an answer with this id was learned."""
        return id_name(identity) in self._ids

    def _first(self, number: int, at_s: float) -> bool:
        if number in self._ids:
            return False
        self._ids[number] = at_s
        # The oldest go first. They are ordered by arrival, so a late one delays the removal of later ones.
        while len(self._ids) > _MOST_IDS or at_s - next(iter(self._ids.values())) > self._horizon_s:
            del self._ids[next(iter(self._ids))]
        return True

    # Numbers

    @property
    def observations(self) -> int:
        """Return the count of observations that are learned and not deleted."""
        return 0 if self._learner is None else self._learner.observations

    def observations_per_s(self) -> float:
        """Return the rate over the last minute."""
        since = int(self._now()) - _RATE_S
        return sum(count for second, count in self._per_second if second > since) / _RATE_S

    def said(self) -> dict[str, Any]:
        """Return the current values."""
        learner = self._learner
        errors = [
            {"version": version, "keys": segment, "observations": one.count, "mean": one.mean, "interval": bounds}
            for version, segment, one in ([] if learner is None else learner.judge.rows())
            for bounds in [[bound if math.isfinite(bound) else None for bound in one.interval()]]
        ]
        return {
            "version": self.version,
            "loss": self.settings.loss,
            "explore": self.settings.explore.policy,
            "observations": self.observations,
            "observations_per_s": self.observations_per_s(),
            "keys_in_memory": 0 if learner is None else learner.keys_in_memory,
            "heads": 0 if learner is None else learner.heads,
            "used_bytes": 0 if learner is None else learner.used_bytes,
            "memory_bytes": self.settings.memory_mb * 1_000_000,
            "reach": sum(self._shown) / len(self._shown) if self._shown else None,
            "answers": {by: self.answers[by] for by in (BY_HEAD, BY_PRIOR, WITHOUT_KEY)},
            "repeated": self.repeated,
            "unusable": self.unusable,
            "deleted": self.forgotten,
            "errors": errors,
        }

    def metrics(self, model: str) -> Iterator[Metric]:
        """Yield the metrics for the page of the process."""
        answers = CounterMetricFamily(
            "mark_personal_answers",
            "Answers of the head of a key, of the prior for a new key, or of the prior for want of a key.",
            labels=("model", "by"),
        )
        for by in (BY_HEAD, BY_PRIOR, WITHOUT_KEY):
            answers.add_metric((model, by), self.answers[by])
        yield answers
        learner = self._learner
        numbers: list[tuple[str, str, float]] = [
            ("observations", "Observations that are learned and not deleted.", self.observations),
            ("heads", "Heads in memory.", 0 if learner is None else learner.heads),
            ("used_bytes", "Memory of rows and heads.", 0 if learner is None else learner.used_bytes),
        ]
        for name, what, value in numbers:
            gauge = GaugeMetricFamily(f"mark_personal_{name}", what, labels=("model",))
            gauge.add_metric((model,), value)
            yield gauge

    # Within

    def _after_deletion_s(self, key: str) -> float:
        """Return the least time after a key's last deletion, which a server whose clock is ahead may have made."""
        return math.nextafter(self.deleted_s(key), math.inf)

    def _of(self, vector: Vector | None) -> PersonalLearner:
        """Return the learner, first making it for vectors of this length if necessary. Raises ValueError."""
        if self._learner is not None:
            return self._learner
        if vector is None and self.table is None:
            raise ValueError("a vector is needed, because there is no table")
        self._learner = self._made(0 if vector is None else len(vector))
        for key, at_s in self._early.items():
            self._learner.forget(key, at_s)
        self._early = {}
        return self._learner

    def _made(self, dimension: int) -> PersonalLearner:
        if self.table is not None:
            return PersonalLearner(self.settings, version=self.version, table=self.table, store=self._store)
        return PersonalLearner(self.settings, version=self.version, dimension=dimension, store=self._store)

    def _forget(self, key: str, at_s: float) -> None:
        try:
            if self._learner is None:
                self._early[key] = max(at_s, self._early.get(key, at_s))
            else:
                self._learner.forget(key, at_s)
        finally:  # also if the file of rows fails
            self.forgotten += 1
            self.erase(key, at_s)
            self.forgot()

    def _count(self, key: str, prior: bool) -> None:
        self.answers[WITHOUT_KEY if not key else BY_PRIOR if prior else BY_HEAD] += 1

    def _observed(self) -> None:
        second = int(self._now())
        if self._per_second and self._per_second[-1][0] == second:
            self._per_second[-1] = (second, self._per_second[-1][1] + 1)
        else:
            self._per_second.append((second, 1))


def note_of(key: str, version: str, found: TopItems, vectors: dict[str, Vector] | None) -> HeadNote:
    """Return the note of an answer with the best items."""
    rows = zip(found.items, found.propensities.tolist(), strict=True)
    return HeadNote(
        key,
        version,
        [Scored(item, None if vectors is None else vectors[item], propensity) for item, propensity in rows],
    )


def learnable(settings: PersonalSettings, note: bytes, said: dict[str, Any], at_s: float) -> HeadFact | None:
    """Return the fact in feedback on an answer of any version with this note; None: nothing can be learned from it."""
    reward = said.get("reward", said.get("label"))
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        return None
    if settings.loss == LOGISTIC and not 0.0 <= reward <= 1.0:
        return None
    chosen = [(one, scored) for one in notes_in(note) for scored in one.scored]
    if "item" in said and any(scored.item is not None for _, scored in chosen):
        chosen = [(one, scored) for one, scored in chosen if scored.item == said["item"]]
    if len(chosen) != 1:  # the reward could belong to any of them
        return None
    head, scored = chosen[0]
    item = scored.item
    if item is None and isinstance(said.get("item"), str) and said["item"]:
        item = said["item"]
    if not head.key or (scored.vector is None and item is None):
        return None
    return HeadFact(head.key, at_s, head.version, float(reward), item, scored.vector, head.own_id)
