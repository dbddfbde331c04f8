"""Builders of learners, tables and observations, and a row store in memory that can fail."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.personal.key_book import RowStore
from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.settings import PersonalSettings
from mark.personal.table import ItemTable

ITEMS, DIMENSION, KEYS = 12, 4, 5


class RowsInMemory:
    """A `RowStore` in a dictionary, with the calls that it was given."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[float, bytes]] = {}
        self.calls: list[tuple[str, str]] = []

    def get(self, key: str) -> bytes | None:
        self.calls.append(("get", key))
        found = self.rows.get(key)
        return None if found is None else found[1]

    def put(self, key: str, newest_s: float, rows: bytes) -> None:
        self.calls.append(("put", key))
        self.rows[key] = newest_s, rows

    def delete(self, key: str) -> None:
        self.calls.append(("delete", key))
        self.rows.pop(key, None)

    def keys(self, before_s: float = math.inf) -> Iterator[str]:
        return iter([key for key, (newest_s, _) in self.rows.items() if newest_s < before_s])


_fits: type[RowStore] = RowsInMemory


def table(items: int = ITEMS, dimension: int = DIMENSION, seed: int = 0) -> ItemTable:
    vectors = np.random.default_rng(seed).normal(size=(items, dimension))
    return ItemTable([f"i{at}" for at in range(items)], vectors, "items.npz")


def by_table(store: RowStore | None = None, items: ItemTable | None = None, **settings: Any) -> PersonalLearner:
    """Return a learner of a table."""
    found = replace(PersonalSettings(table="items.npz"), **settings)
    return PersonalLearner(found, version="1", table=items or table(), store=store)


def by_vectors(
    store: RowStore | None = None, dimension: int = DIMENSION, version: str = "1", **settings: Any
) -> PersonalLearner:
    """Return a learner of a features stage."""
    found = replace(PersonalSettings(features="tower"), **settings)
    return PersonalLearner(found, version=version, dimension=dimension, store=store)


def observations(
    count: int, *, vectors: bool = False, logistic: bool = False, named: bool = True, seed: int = 1, step_s: float = 1.0
) -> list[PersonalObservation]:
    """Return rewards of some keys, one each `step_s` seconds; with `vectors` each item has its vector of the table."""
    draw, items = np.random.default_rng(seed), table()
    tastes = draw.normal(size=(KEYS, DIMENSION))
    found = []
    for at in range(count):
        key, item = int(draw.integers(KEYS)), int(draw.integers(ITEMS))
        expected = float(items.vectors[item] @ tastes[key])
        reward = float(draw.random() < 1.0 / (1.0 + math.exp(-expected))) if logistic else 3.0 + expected
        found.append(
            PersonalObservation(
                f"u{key}",
                f"i{item}" if named else None,
                items.vectors[item] if vectors else None,
                reward if logistic else reward + 0.3 * float(draw.normal()),
                at * step_s,
            )
        )
    return found


def learn(learner: PersonalLearner, rewards: Sequence[PersonalObservation], *, judged: bool = True) -> PersonalLearner:
    for one in rewards:
        assert learner.observe(one, judged=judged)
    return learner


def weights(learner: PersonalLearner, key: str) -> FloatArray:
    """Return the weights of a key, built from its rows."""
    shown = learner.show(key)
    assert shown is not None
    return np.array(shown["weights"])


def all_weights(learner: PersonalLearner) -> dict[str, FloatArray]:
    """Return the weights of each test key that has any."""
    return {key: weights(learner, key) for key in (f"u{at}" for at in range(KEYS)) if learner.show(key) is not None}
