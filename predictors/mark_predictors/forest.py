"""`forest`: the futures of similar moments in the past, found by a forest; it forecasts whole paths.

A surge either comes or does not, and lasts or does not. The honest forecast is therefore a set of futures and not a
curve: the continuations of similar origins in the history. The similarity is learned: extremely randomised trees
(Geurts et al. 2006) split the origins of the last weeks by clock, recent load and the same time of former days, so that
the continuations within a leaf vary least. An origin's weight is how often it shares a leaf with now (the weights of
quantile regression forests, Meinshausen 2006, eq. 4, here on paths instead of single values).

Paths are relative to the median of the last two hours, so that they fit a load that has grown since.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark_predictors.forest_features import LAGS, fill_features, weigh, width_of
from mark_predictors.logload import LogLoad
from mark_predictors.trees import Tree, grow_trees

PATHS = 100
_TREES = 24
_LEAF = 12  # fewest origins in a leaf
_MOST = 6_000  # most origins to learn from
_LEAST = 200  # fewest origins for a forecast
_DAYS = 21  # from which origins are taken
_SPANS = (5, 15, 30, 60, 120)  # minutes of recent load, for features
# Cuts, as shares of the horizon, between the stretches whose means the trees distinguish.
_STRETCHES = np.array([0.0, 0.02, 0.05, 0.1, 0.17, 0.25, 0.33, 0.42, 0.5, 0.58, 0.67, 0.75, 0.83, 0.92, 1.0])
_QUARTERS = ((0.0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))  # of the horizon, for features


class Analogs:
    """The forest itself, over a `LogLoad` that grows."""

    def __init__(self, load: LogLoad, seed: int) -> None:
        self._load, self._seed = load, seed
        self._width = max(4, 2 * load.hour)
        self._horizon = load.hour
        self._origins: IntArray | None = None  # (N,), used for learning

    @property
    def ready(self) -> bool:
        return self._origins is not None

    def learn(self) -> None:
        """Grow the forest on the current load. With too little load it stays unchanged."""
        load, horizon = self._load, self._horizon
        first = max(self._width, min(2 * load.day, len(load) // 3), len(load) - _DAYS * load.day)
        origins = np.arange(first, max(first, len(load) - horizon + 1))
        origins = origins[load.known(origins, horizon)]
        if len(origins) < _LEAST:
            if self._origins is not None:  # the logarithms may have been recomputed
                self._base = np.median(load.before(self._origins, self._width), axis=1)[:, None]
            return
        if len(origins) > _MOST:
            chosen = np.random.default_rng(self._seed).choice(len(origins), _MOST, replace=False)
            origins = origins[np.sort(chosen)]
        features, base = self._features(origins)
        base = base[:, None]
        ahead = origins[:, None] + np.arange(horizon)
        paths = load.logs[ahead] - base
        cuts = np.unique(np.round(horizon * _STRETCHES).astype(np.int64))
        stretches = np.add.reduceat(paths, cuts[:-1], axis=1) / np.diff(cuts)
        self._keep(grow_trees(features, stretches, trees=_TREES, leaf=_LEAF, share=0.5, seed=self._seed))
        self._origins, self._base = origins, base
        # Paths are ordered by their level, so that drawing at even distances covers low to high levels evenly.
        self._rank = np.argsort(np.argsort(paths.mean(axis=1), kind="stable")).astype(np.int16)

    def paths(self, steps: int) -> FloatArray:
        """Return equally likely futures of the mean rate: (PATHS, steps) requests/s."""
        assert self._origins is not None
        features, base = self._features(np.array([len(self._load)]))
        weights = np.zeros(len(self._origins))
        weigh(
            features[0],
            self._roots,
            self._feature,
            self._threshold,
            self._left,
            self._right,
            self._begin,
            self._members,
            weights,
        )
        alike = np.flatnonzero(weights)
        alike = alike[np.argsort(self._rank[alike])]
        reached = np.cumsum(weights[alike])
        drawn = alike[np.searchsorted(reached, (np.arange(PATHS) + 0.5) / PATHS * reached[-1])]
        # The continuation of each origin, on the same log scale as in learning, which changes only in `measure`.
        ahead = self._origins[drawn][:, None] + np.arange(min(steps, self._horizon))
        logs = self._load.logs[ahead] - self._base[drawn] + base[0]
        if steps > self._horizon:  # beyond the horizon the last value stays
            logs = np.concatenate([logs, np.repeat(logs[:, -1:], steps - self._horizon, axis=1)], axis=1)
        return self._load.rates(logs)

    def _keep(self, trees: Sequence[Tree]) -> None:
        """Keep all trees in one set of arrays, with the training origins of every leaf."""
        shift = np.concatenate([[0], np.cumsum([len(tree.feature) for tree in trees])])
        self._roots = shift[:-1]
        # Small integers save memory, because two hundred services have two hundred forests.
        self._feature = np.concatenate([tree.feature for tree in trees]).astype(np.int16)
        self._threshold = np.concatenate([tree.threshold for tree in trees])
        left = [tree.left + s for tree, s in zip(trees, shift, strict=False)]
        right = [tree.right + s for tree, s in zip(trees, shift, strict=False)]
        self._left, self._right = (np.concatenate(side).astype(np.int32) for side in (left, right))
        leaves = (np.stack([tree.leaf_of for tree in trees], axis=1) + self._roots).ravel()
        order = np.argsort(leaves, kind="stable")
        self._members = (order // len(trees)).astype(np.int16)
        self._begin = np.searchsorted(leaves[order], np.arange(shift[-1] + 1)).astype(np.int32)

    def _features(self, origins: IntArray) -> tuple[NDArray[np.float32], FloatArray]:
        """Return the features at each origin: (K, features) in the trees' single precision, and the base (K,)."""
        load, width, horizon = self._load, self._width, self._horizon
        quarters = np.array([(int(a * horizon), max(int(b * horizon), int(a * horizon) + 1)) for a, b in _QUARTERS])
        spans = np.array([load.steps(minutes) for minutes in _SPANS])
        features = np.empty((len(origins), width_of(width, len(quarters))), dtype=np.float32)
        base = np.empty(len(origins))
        fill_features(load.logs, origins, horizon, load.day, width, spans, quarters, LAGS, features, base)
        return features, base
