"""Replay learning by key on logged rewards, as in chapter 2 of Crankshaw's thesis.

The log is split at random into three parts. Item vectors are fitted to the first part. Heads learn from the first part
and then, observation by observation, from the second. Errors are measured on the third. They are compared with heads
that stop after the first part (static), and with vectors and heads that are fitted to both parts (retrained).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.factors import RIDGE, item_factors
from mark.personal.judge import ErrorTally
from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.settings import ALPHAS, Exploration, PersonalSettings
from mark.personal.table import ItemTable

CANDIDATES = 20  # the most items of a visit among which a policy chooses
_TABLE = "item vectors"


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRewards:
    """Rewards in the order of a log. `keys` and `items` are positions in `key_names` and `item_names`."""

    keys: IntArray
    items: IntArray
    rewards: FloatArray
    times_s: FloatArray
    key_names: Sequence[str]
    item_names: Sequence[str]

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True, slots=True)
class ShownItems:
    """The result of a policy: the mean reward, and the share of the items on offer that it showed."""

    reward: float
    reach: float
    visits: int


@dataclass(slots=True)
class PersonalReplay:
    """Root mean squared errors on the held-out part, and the results of policies by name.

    `by_experience` has the errors on the second part before each reward was learned, by segment of the key.
    """

    observations: int
    keys: int
    items: int
    held_out: int
    static_rmse: float
    online_rmse: float
    retrained_rmse: float
    by_experience: dict[str, ErrorTally] = field(default_factory=dict)
    policies: dict[str, ShownItems] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SplitLog:
    """The rows of the three parts, each in the order of time."""

    initial: IntArray
    online: IntArray
    held_out: IntArray

    @staticmethod
    def drawn(log: LoggedRewards, shares: Sequence[float], seed: int) -> SplitLog:
        """Draw a part for each row, with the probabilities `shares`."""
        drawn = np.random.default_rng(seed).random(len(log))
        order = np.argsort(log.times_s, kind="stable")
        first, second = shares[0], shares[0] + shares[1]
        part = np.where(drawn < first, 0, np.where(drawn < second, 1, 2))[order]
        return SplitLog(order[part == 0], order[part == 1], order[part == 2])


def replay_learning(
    log: LoggedRewards,
    split: SplitLog,
    policies: Sequence[str],
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> PersonalReplay:
    """Replay the split log, and then each policy. No part of the split may be empty."""
    steps = 3 + len(policies)

    def done(step: int) -> None:
        if progress is not None:
            progress(step / steps)

    table = _table(log, split.initial, seed)
    learner = _learner(table)
    for row in split.initial:
        learner.observe(_observation(log, row), judged=False)
    static = _rmse(learner, log, split.initial, split.held_out)
    done(1)
    known = np.concatenate((split.initial, split.online))
    for row in split.online:
        learner.observe(_observation(log, row))
    online = _rmse(learner, log, known, split.held_out)
    done(2)
    retrained = _learner(_table(log, known, seed))
    for row in known:
        retrained.observe(_observation(log, row), judged=False)
    found = PersonalReplay(
        observations=len(log),
        keys=len(log.key_names),
        items=len(log.item_names),
        held_out=len(split.held_out),
        static_rmse=static,
        online_rmse=online,
        retrained_rmse=_rmse(retrained, log, known, split.held_out),
        by_experience={segment: tally for _, segment, tally in learner.judge.rows()},
    )
    done(3)
    for number, policy in enumerate(policies):
        found.policies[policy] = shown_items(log, split, table, policy, seed)
        done(4 + number)
    return found


def shown_items(log: LoggedRewards, split: SplitLog, table: ItemTable, policy: str, seed: int) -> ShownItems:
    """Let a policy choose which of a key's logged items is shown next.

    Keys visit in random order. At a visit the policy chooses among up to 20 items that the key has not been shown yet
    and rewarded in the second or third part of the log, and learns the logged reward. A key visits until half of its
    items were shown, so that the choice matters.
    """
    draw = np.random.default_rng(seed)
    learner = _learner(table, Exploration(policy, ALPHAS[policy]))
    for row in split.initial:
        learner.observe(_observation(log, row), judged=False)
    pools: dict[int, dict[int, int]] = {}  # for each key, the row of each item
    for row in np.concatenate((split.online, split.held_out)):
        pools.setdefault(int(log.keys[row]), {}).setdefault(int(log.items[row]), int(row))
    available = {item for pool in pools.values() for item in pool}
    visits = np.repeat(list(pools), [len(pool) // 2 for pool in pools.values()])
    total, shown = 0.0, set[int]()
    for key in draw.permutation(visits):
        pool = pools[int(key)]
        offered = list(pool)
        if len(offered) > CANDIDATES:
            offered = [offered[at] for at in draw.choice(len(offered), CANDIDATES, replace=False)]
        names = [log.item_names[item] for item in offered]
        (best,) = learner.top(log.key_names[key], 1, names, draw).items
        item = offered[names.index(best)]
        row = pool.pop(item)
        total += float(log.rewards[row])
        shown.add(item)
        learner.observe(_observation(log, row))
    reward = total / len(visits) if len(visits) else math.nan
    return ShownItems(reward, len(shown) / len(available) if available else math.nan, len(visits))


def _table(log: LoggedRewards, rows: IntArray, seed: int) -> ItemTable:
    vectors = item_factors(log.keys[rows], log.items[rows], log.rewards[rows], len(log.item_names), seed)
    return ItemTable(log.item_names, vectors, _TABLE)


def _learner(table: ItemTable, explore: Exploration | None = None) -> PersonalLearner:
    settings = PersonalSettings(table=_TABLE, ridge=RIDGE, explore=explore or Exploration(), memory_mb=100_000)
    return PersonalLearner(settings, table=table)


def _observation(log: LoggedRewards, row: int) -> PersonalObservation:
    return PersonalObservation(
        log.key_names[log.keys[row]],
        log.item_names[log.items[row]],
        None,
        float(log.rewards[row]),
        float(log.times_s[row]),
    )


def _rmse(learner: PersonalLearner, log: LoggedRewards, known: IntArray, held_out: IntArray) -> float:
    """Return the error on held-out rows, with predictions clipped to the range of the known rewards."""
    least, most = log.rewards[known].min(), log.rewards[known].max()
    squares = 0.0
    order = held_out[np.argsort(log.keys[held_out], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(log.keys[order])) + 1):
        names = [log.item_names[item] for item in log.items[rows]]
        values = learner.score(log.key_names[log.keys[rows[0]]], None, names).values
        squares += float(((np.clip(values, least, most) - log.rewards[rows]) ** 2).sum())
    return math.sqrt(squares / len(held_out))
