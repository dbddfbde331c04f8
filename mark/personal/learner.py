"""The learned state of one process for one version of the item vectors: heads of keys, means of items, and errors.

The state is a sum of observations, so processes that apply the same observations, in any order, have the same heads. A
head in use is updated in place, and from time to time is built from its rows again, because the means of items move.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.features import HeadFeatures
from mark.personal.head import Head, HeadPrior, sigmoid, sigmoids
from mark.personal.head_ranking import HeadRanking
from mark.personal.item_means import NO_ITEM, ItemMeans
from mark.personal.judge import ErrorJudge
from mark.personal.key_book import KeyBook, RowStore
from mark.personal.key_rows import KeyRows, PackedRows, RowArrays
from mark.personal.settings import LONGEST_NAME, MEAN, MOST_DIMENSION, SQUARED, PersonalSettings
from mark.personal.table import MOST_VALUE, ItemTable, usable
from mark.personal.top import NearItems

SCHEMA = 1
TOMBSTONE_DAYS = 31.0  # a fact that is older is refused anyway
_DAY_S = 86_400.0
# A head is built again after at least so many updates, once they are an eighth of its rows, so that building costs as
# much as updating.
_REBUILT_AFTER, _REBUILT_SHARE = 64, 8
# It is also built again after all observations have grown by this factor, because the means of items have moved.
_GROWTH = 1.2
_MOST_REWARD = 1e9
_NOISE_OBSERVATIONS = 5.0  # the variance of the noise begins with so many observations of 1
# To be used, an index must find the share `_LEAST_RECALL` of the best `_CHECKED_PLACES` items of so many recent keys.
_CHECKED_KEYS, _CHECKED_PLACES, _LEAST_RECALL = 20, 10, 0.95


@dataclass(frozen=True, slots=True, eq=False)
class PersonalObservation:
    """A reward of a key at Unix time `at_s`, for an item of the table, or for a vector with or without an item's name.

    The vector comes from the learner's own version of the features stage.
    """

    key: str
    item: str | None
    vector: NDArray[np.floating] | None
    reward: float
    at_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Expected rewards and their standard deviations. `prior`: the key is new or absent, and the prior answers."""

    values: FloatArray
    uncertainty: FloatArray
    prior: bool


@dataclass(frozen=True, slots=True, eq=False)
class TopItems:
    """The best items in the order of places. A propensity is the probability of the item for its place."""

    items: list[str]
    values: FloatArray
    uncertainty: FloatArray
    propensities: FloatArray
    prior: bool


class PersonalLearner:
    """Scores items for a key, and learns from observations.

    Item vectors come from `table`, or from the features stage with `dimension` numbers. `near` is an index that finds
    the best of more than 10,000 items of the table. Rows beyond the memory budget are in `store`.
    """

    def __init__(
        self,
        settings: PersonalSettings,
        *,
        version: str = "",
        table: ItemTable | None = None,
        dimension: int = 0,
        store: RowStore | None = None,
    ) -> None:
        if (table is None) == (dimension == 0):
            raise ValueError("a learner has a table or a dimension")
        if not 0 <= dimension <= MOST_DIMENSION:
            raise ValueError(f"a vector has {MOST_DIMENSION:,} numbers at most, and not {dimension:,}")
        self.settings, self.version, self.table = settings, version, table
        self.dimension = dimension if table is None else table.dimension
        self.near: NearItems | None = None
        self.judge = ErrorJudge()
        self._squared = settings.loss == SQUARED
        self._row_dimension = dimension  # 0 if rows name items of the table
        self._book = KeyBook(dimension, settings.memory_mb * 1_000_000, self._slot, self._name, store)
        self._begin(self._no_means())

    @property
    def used_bytes(self) -> int:
        """The memory of the state and the table, roughly. The table does not count against the budget."""
        table = self.table.memory_bytes if self.table is not None else 0
        return self._book.used_bytes + self._means.memory_bytes + table

    @property
    def observations(self) -> int:
        """The count of observations that are learned and not deleted."""
        return round(self._means.count)

    @property
    def keys_in_memory(self) -> int:
        """The count of keys whose rows are in memory."""
        return self._book.in_memory

    @property
    def heads(self) -> int:
        """The count of heads in memory."""
        return self._book.heads

    @property
    def noise(self) -> float:
        """The variance of a reward around its prediction. With the logistic loss it is 1, on the scale of logits."""
        if not self._squared:
            return 1.0
        tally = self.judge.tally(self.version)
        return (tally.total + _NOISE_OBSERVATIONS) / (tally.count + _NOISE_OBSERVATIONS)

    def problem(self, observation: PersonalObservation) -> str | None:
        """Return why an observation cannot be learned from; None if it can."""
        found = self._bad_value(observation)
        if found is None and self.table is not None and observation.item not in self.table.numbers:
            return f"item {observation.item!r} is not in the table"
        return found

    def _bad_value(self, observation: PersonalObservation) -> str | None:
        item, vector, reward = observation.item, observation.vector, observation.reward
        if not 0 < len(observation.key) <= LONGEST_NAME:
            return f"a key has 1 to {LONGEST_NAME} characters, and not {len(observation.key)}"
        if item is not None and not 0 < len(item) <= LONGEST_NAME:
            return f"an item has 1 to {LONGEST_NAME} characters, and not {len(item)}"
        if not math.isfinite(observation.at_s):
            return f"a time must be finite, and not {observation.at_s}"
        if not self._squared and not 0.0 <= reward <= 1.0:
            return f"a reward must lie between 0 and 1 with the logistic loss, and not be {reward}"
        if not abs(reward) <= _MOST_REWARD:
            return f"a reward must be finite, {_MOST_REWARD:g} at most, and not {reward}"
        if self.table is not None:
            return "an item of the table is needed" if item is None else None
        if vector is None:
            return "the vector of the item is needed"
        if vector.shape != (self.dimension,):
            return f"a vector has {self.dimension} numbers, and not the shape {vector.shape}"
        return None if usable(vector) else f"a vector must be finite, each number {MOST_VALUE:g} at most"

    def observe(self, observation: PersonalObservation, *, judged: bool = True) -> bool:
        """Learn from an observation. Return False if it cannot be used, or is older than the deletion of its key.

        With `judged` the prediction before the reward is judged, which needs a head. The row of an item that the table
        lacks is kept, because the next table may have the item; callers that refuse such items ask `problem` first.
        """
        if self._bad_value(observation) is not None:
            return False
        key, reward = observation.key, float(observation.reward)
        if self._book.is_buried(key, observation.at_s):
            return False
        slot = self._slot(observation.item)
        vector = None if self.table is not None else np.asarray(observation.vector, dtype=np.float32)
        rows = self._book.new_rows(key)
        before = rows.memory_bytes
        if self.table is None or slot < len(self.table):
            self._teach(key, rows, slot, vector, reward, judged=judged)
        rows.add(slot, reward, observation.at_s, vector)
        self._means.add(slot, reward)
        if self._squared:
            rows.pack()
            if slot == NO_ITEM and vector is not None and self._fits_all:
                self._unnamed.add(vector[None, :].astype(np.float64), np.array([reward]))
        self._book.changed(rows, rows.memory_bytes - before)
        self._book.shrink()
        return True

    def forget(self, key: str, at_s: float) -> None:
        """Delete the observations of a key until this time, and refuse such observations if they arrive later."""
        if self._book.is_buried(key, at_s):
            return
        self._unlearn(self._book.bury(key, at_s))
        self._book.shrink()

    def deleted_s(self, key: str) -> float:
        """Return the time until which observations of a key are deleted. Any thread may call it."""
        return self._book.tombstones.get(key, -math.inf)

    @property
    def tombstones(self) -> dict[str, float]:
        """The deleted keys, each with the time until which its observations are deleted."""
        return self._book.tombstones.copy()

    def newest_s(self, key: str) -> float:
        """Return the time of the newest observation of a key."""
        rows = self._book.rows(key)
        return -math.inf if rows is None else rows.newest_s

    def expire(self, now_s: float) -> list[str]:
        """Delete and return the keys without an observation for `keep_days`.

        Tombstones older than any fact that is still accepted are deleted too.
        """
        old_s = now_s - TOMBSTONE_DAYS * _DAY_S
        for key in [key for key, at_s in self._book.tombstones.items() if at_s < old_s]:
            del self._book.tombstones[key]
        if self.settings.keep_days is None:
            return []
        gone = self._book.known(now_s - self.settings.keep_days * _DAY_S)
        for key in gone:
            self._unlearn(self._book.remove(key))
        self._book.shrink()
        return gone

    def score(
        self, key: str | None, vectors: NDArray[np.floating] | None, items: Sequence[str] | None = None
    ) -> Scores:
        """Return the expected reward of each item for a key; without a key the prior answers.

        With a table, `items` suffice. Raises ValueError for vectors of another shape, and for items that are not in
        the table.
        """
        slots, found = self._given(vectors, items)
        head, prior = self._head_or_prior(key)
        features = self._features.matrix(slots, found)
        self._book.shrink()
        return self._scores(head, features, prior)

    def top(
        self,
        key: str | None,
        k: int,
        items: Sequence[str] | None = None,
        draw: np.random.Generator | None = None,
        *,
        vectors: NDArray[np.floating] | None = None,
        exclude: Collection[str] = (),
    ) -> TopItems:
        """Return the best `k` of the given items, or of the whole table, without the excluded ones.

        With `draw` the policy of `[personal] explore` ranks, otherwise the ranking is greedy. Raises ValueError as
        `score` does, and if there is neither a table nor items.
        """
        if items is not None and len(set(items)) < len(items):
            raise ValueError("items names an item twice")
        if items is None and self.table is None:
            raise ValueError("items are needed, because there is no table")
        head, prior = self._head_or_prior(key)
        if items is None:
            places = self._ranking.of_table(head, self.noise, k, draw, exclude, self.near)
            slots = places.numbers
            rows: NDArray[np.floating] = self._table.vectors[slots]
            names = [self._table.ids[at] for at in slots]
        else:
            all_slots, all_rows = self._given(vectors, items)
            left = np.array([at for at, name in enumerate(items) if name not in exclude], dtype=np.int64)
            places = self._ranking.of_items(head, self.noise, k, draw, all_slots[left], all_rows[left])
            shown = left[places.numbers]
            slots, rows = all_slots[shown], all_rows[shown]
            names = [items[at] for at in shown]
        scores = self._scores(head, self._features.matrix(slots, rows), prior)
        self._book.shrink()
        return TopItems(names, scores.values, scores.uncertainty, places.propensities, prior)

    def show(self, key: str) -> dict[str, Any] | None:
        """Return the state of a key for its user, with a head built from its rows; None if the key is unknown."""
        rows = self._book.rows(key)
        if rows is None:
            return None
        self._outdate_prior()
        head = self._features.head(self._prior(), rows.arrays())
        return {
            "key": key,
            "observations": rows.count,
            "newest_s": rows.newest_s,
            "error": math.sqrt(rows.squares / rows.judged) if rows.judged else None,
            "weights": head.weights.tolist(),
            "biases": ["constant", "item mean"][: self._features.biases],
        }

    def logged(self) -> Iterator[PersonalObservation]:
        """Yield all observations of a table's items, key by key, for each key in the order of arrival."""
        for key in self._book.known():
            rows = self._book.rows(key)
            if rows is None or self.table is None:
                continue
            for slot, reward, at_s, _ in rows.freeze().records().tolist():
                yield PersonalObservation(key, self._name(slot), None, reward, at_s)
            self._book.shrink()

    def holds(self, key: str) -> bool:
        """Return whether memory or the store has rows or a head of this key. A tombstone does not count."""
        return self._book.dump(key) is not None or self._book.head(key) is not None

    def flush(self) -> None:
        """Write all rows that changed to the store."""
        self._book.flush()

    def indexed(self) -> NDArray[np.float32]:
        """Return the rows of an index for `near`: the items' means if heads use them, then the vectors of the table."""
        return self._ranking.index_rows()

    def index_by(self, near: NearItems) -> bool:
        """Rank by this index if it finds 95 % of the best ten items of recent keys; return whether it does."""
        keys, self.near = self._book.recent(_CHECKED_KEYS), None
        exact = [self.top(key, _CHECKED_PLACES).items for key in keys]
        self.near = near
        hits = sum(len({*best} & {*self.top(key, len(best)).items}) for key, best in zip(keys, exact, strict=True))
        if not keys or hits < _LEAST_RECALL * sum(map(len, exact)):
            self.near = None
        return self.near is not None

    def freeze(self) -> Callable[[], bytes]:
        """Return a function that encodes the present state, stored rows included. Another thread may call it."""
        said: dict[str, Any] = {
            "schema": SCHEMA,
            "loss": self.settings.loss,
            "version": self.version,
            "dimension": self._row_dimension,
            "tombstones": self._book.tombstones.copy(),
            "errors": self.judge.to_json(),
        }
        keys, name = self._book.freeze(), self._means.name

        def snapshot() -> bytes:
            rows = (
                (key, one if isinstance(one, bytes) else one.to_bytes(name))
                for key, one in sorted(keys.items(), key=itemgetter(0))
            )
            return orjson.dumps(said | {"keys": {key: b64encode(data).decode() for key, data in rows}})

        return snapshot

    def load(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raises ValueError, and keeps the state, for other bytes.

        With a table the snapshot may be of another version, because its rows name items. Vectors must be of this one.
        """
        try:
            said = orjson.loads(data)
            if said["schema"] != SCHEMA:
                raise ValueError(f"schema {said['schema']} is not {SCHEMA}")
            if said["loss"] != self.settings.loss:
                raise ValueError(f"it was learned with the loss {said['loss']}, and not {self.settings.loss}")
            if said["dimension"] != self._row_dimension:
                raise ValueError(f"its vectors have {said['dimension']} numbers, and not {self._row_dimension}")
            if self._row_dimension and said["version"] != self.version:
                raise ValueError(f"its vectors are of version {said['version']!r}, and not {self.version!r}")
            judge = ErrorJudge.of_json(said["errors"])
            tombstones = {str(key): float(at_s) for key, at_s in said["tombstones"].items()}
            means = self._no_means()
            rows = {
                str(key): KeyRows.of_bytes(b64decode(text, validate=True), self._row_dimension, means.slot)
                for key, text in said["keys"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no snapshot of personal heads ({error})") from None
        self._book.clear()
        self._book.tombstones.update(tombstones)
        self.judge = judge
        self._begin(means)
        for key, one in rows.items():
            self._count(one.arrays())
            self._book.take(key, one)
            self._book.shrink()

    def _begin(self, means: ItemMeans) -> None:
        self._means = means
        self._features = HeadFeatures(self.settings, self.table, self.dimension, means)
        self._ranking = HeadRanking(self.settings, self.table, self._features, means)
        self._fits_all = self.settings.prior == MEAN
        self._unnamed = PackedRows.empty(self._row_dimension)  # sums of all rows without an item, if `_fits_all`
        self._prior_found, self._prior_until = self._features.by_item, math.inf
        self._new_key = self._prior_found.head()
        self._outdate_prior()

    def _no_means(self) -> ItemMeans:
        return ItemMeans(self.settings.loss, self._table.ids if self.table is not None else ())

    # The book gets these two methods and not those of the means, because `load` replaces the means.
    def _slot(self, name: str | None) -> int:
        return self._means.slot(name)

    def _name(self, slot: int) -> str | None:
        return self._means.name(slot)

    @property
    def _table(self) -> ItemTable:
        assert self.table is not None
        return self.table

    def _prior(self) -> HeadPrior:
        if self._means.count >= self._prior_until:
            self._prior_found = self._features.fitting_all(self._unnamed)
            self._prior_until = self._until()
            self._new_key = self._prior_found.head()
        return self._prior_found

    def _outdate_prior(self) -> None:
        """Have a fitted prior fitted again at its next use."""
        if self._fits_all:
            self._prior_until = -1.0

    def _until(self) -> float:
        return _GROWTH * self._means.count

    def _head(self, key: str, rows: KeyRows) -> Head:
        head = self._book.head(key)
        if head is None or self._means.count > head.until or self._is_old(head, rows):
            head = self._features.head(self._prior(), rows.arrays())
            head.until = self._until()
            self._book.keep_head(key, head)
        return head

    def _is_old(self, head: Head, rows: KeyRows) -> bool:
        return head.updates >= _REBUILT_AFTER and head.updates * _REBUILT_SHARE >= rows.count

    def _head_or_prior(self, key: str | None) -> tuple[Head, bool]:
        rows = None if key is None else self._book.rows(key)
        if key is None or rows is None:
            self._prior()
            return self._new_key, True
        return self._head(key, rows), False

    def _teach(
        self,
        key: str,
        rows: KeyRows,
        slot: int,
        vector: NDArray[np.float32] | None,
        reward: float,
        *,
        judged: bool,
    ) -> None:
        """Update the head, with `judged` after judging its prediction. Without `judged` a missing head is not built."""
        head = self._head(key, rows) if judged else self._book.head(key)
        if head is None:
            return
        features, offset = self._features.row(slot, vector), self._features.offset
        if judged:
            predicted = float(features @ head.weights) + offset
            error = (reward - (predicted if self._squared else sigmoid(predicted))) ** 2
            self.judge.add(self.version, rows.count, error)
            rows.judged += 1
            rows.squares += error
        if self._squared:
            head.learn(features, reward - offset)
        else:
            head.learn_logistic(features, offset, reward)

    def _count(self, rows: RowArrays, times: float = 1.0) -> None:
        """Count the rewards of rows; with `times = -1` subtract them."""
        self._means.change(rows.slots, rows.rewards, times)
        if rows.packed is not None:
            self._means.change_total(rows.packed.rows, float(rows.packed.moment[0]), times)
        if self._fits_all and self._squared and self._row_dimension:
            unnamed = rows.slots == NO_ITEM
            self._unnamed.add(rows.vectors[unnamed], rows.rewards[unnamed], times)
            if rows.packed is not None:
                self._unnamed.merge(rows.packed, times)

    def _unlearn(self, rows: RowArrays | None) -> None:
        if rows is not None:
            self._count(rows, -1.0)
            self._outdate_prior()

    def _given(
        self, vectors: NDArray[np.floating] | None, items: Sequence[str] | None
    ) -> tuple[IntArray, NDArray[np.floating]]:
        """Return the slots and vectors of items. Raises ValueError."""
        if self.table is not None:
            if items is None:
                raise ValueError("items of the table are needed")
            unknown = next((name for name in items if name not in self.table.numbers), None)
            if unknown is not None:
                raise ValueError(f"item {unknown!r} is not in the table")
            slots = np.array([self.table.numbers[name] for name in items], dtype=np.int64)
            return slots, self.table.vectors[slots]
        if vectors is None:
            raise ValueError("the vectors of the items are needed")
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ValueError(f"a vector has {self.dimension} numbers, and not the shape {vectors.shape[1:]}")
        if not usable(vectors).all():
            raise ValueError(f"vectors must be finite, each number {MOST_VALUE:g} at most")
        if items is None:
            return np.full(len(vectors), NO_ITEM), vectors
        if len(items) != len(vectors):
            raise ValueError(f"{len(items)} items have {len(vectors)} vectors")
        return np.array([self._means.find(name) for name in items], dtype=np.int64), vectors

    def _scores(self, head: Head, matrix: FloatArray, prior: bool) -> Scores:
        values = matrix @ head.weights + self._features.offset
        deviations = np.sqrt(self.noise * head.variances(matrix))
        if self._squared:
            return Scores(values, deviations, prior)
        shares = sigmoids(values)
        return Scores(shares, shares * (1.0 - shares) * deviations, prior)
