"""Extremely randomised regression trees (Geurts et al. 2006), compiled, like scikit-learn's `ExtraTreesRegressor`.

scikit-learn 1.9 grows the same trees from the same seed, to the last bit on x86-64; a test compares them. With it and
SciPy, which it needs, the installation would be 230 MB larger, and the start two seconds slower.

No compiled function here calls one of another file, because numba's on-disk cache only watches this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.domain.cached_code import load_alone

_CONSTANT = np.float32(1e-7)  # a feature that varies less within a node is not used to split it
_PURE = float(np.finfo(np.float64).eps)  # a node whose variance is at most this is a leaf
_LARGEST = 2**31 - 1  # of a random number
_WORD = 0xFFFFFFFF

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    made = njit(cache=True, nogil=True, error_model="numpy")(function)
    load_alone(made)
    return cast(_F, made)


@dataclass(frozen=True, slots=True)
class Tree:
    """One row for each node, the root first. A leaf has feature -1; `leaf_of` is the leaf of each training sample."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]  # samples with at most this value of the feature go left
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    leaf_of: NDArray[np.int64]


def grow_trees(
    features: NDArray[np.float32], targets: NDArray[np.float64], *, trees: int, leaf: int, share: float, seed: int
) -> list[Tree]:
    """Grow `trees` trees on features (N, F) and targets (N, K), with at least `leaf` samples in each leaf.

    Each split is the best of random ones, one on each of a random `share` of the features that vary.
    """
    features, targets = np.ascontiguousarray(features), np.ascontiguousarray(targets)
    rng = np.random.RandomState(seed)
    seeds = [rng.randint(_LARGEST) for _ in range(trees)]
    tried = max(1, int(share * features.shape[1]))
    return [
        _grow_tree(features, targets, leaf, tried, np.random.RandomState(own).randint(0, _LARGEST)) for own in seeds
    ]


def _grow_tree(features: NDArray[np.float32], targets: NDArray[np.float64], leaf: int, tried: int, state: int) -> Tree:
    nodes = max(1, 2 * (len(features) // leaf))
    feature, left, right = (np.full(nodes, -1, dtype=np.int64) for _ in range(3))
    threshold = np.zeros(nodes)
    leaf_of = np.empty(len(features), dtype=np.int64)
    size = _grown(features, targets, leaf, tried, state, feature, threshold, left, right, leaf_of)
    return Tree(feature[:size], threshold[:size], left[:size], right[:size], leaf_of)


@compiled
def _drawn(state: int) -> int:
    """Return the next state of a xorshift generator; its lower 31 bits are the random number."""
    state ^= (state << 13) & _WORD
    state ^= state >> 17
    state ^= (state << 5) & _WORD
    return state


@compiled
def _split_samples(
    features: NDArray[np.float32], samples: NDArray[np.int64], start: int, end: int, feature: int, threshold: float
) -> int:
    """Move the samples of a node that go left to its front, and return their end.

    The order of the others is scikit-learn's.
    """
    while start < end:
        if features[samples[start], feature] <= threshold:
            start += 1
        else:
            end -= 1
            samples[start], samples[end] = samples[end], samples[start]
    return end


@compiled
def _sums(
    targets: NDArray[np.float64],
    samples: NDArray[np.int64],
    start: int,
    cut: int,
    end: int,
    total: NDArray[np.float64],
    left: NDArray[np.float64],
) -> None:
    """Sum the targets left of `cut`, from the nearer end, because the order determines the rounding."""
    outputs = len(left)
    if cut - start <= end - cut:
        for k in range(outputs):
            left[k] = 0.0
        for p in range(start, cut):
            for k in range(outputs):
                left[k] += targets[samples[p], k]
    else:
        for k in range(outputs):
            left[k] = total[k]
        for p in range(end - 1, cut - 1, -1):
            for k in range(outputs):
                left[k] -= targets[samples[p], k]


@compiled
def _grown(
    features: NDArray[np.float32],
    targets: NDArray[np.float64],
    leaf: int,
    tried: int,
    state: int,
    node_feature: NDArray[np.int64],
    node_threshold: NDArray[np.float64],
    node_left: NDArray[np.int64],
    node_right: NDArray[np.int64],
    leaf_of: NDArray[np.int64],
) -> int:
    """Grow one tree depth first into the arrays of nodes, and return the number of its nodes."""
    count, width = features.shape
    outputs = targets.shape[1]
    samples = np.arange(count)
    order = np.arange(width)  # of the features; those known to be constant in a node come first
    constant = np.empty(width, dtype=np.int64)
    total, left = np.empty(outputs), np.empty(outputs)
    # Waiting nodes: the range of their samples, the parent of a right one, and their constant features.
    stack = np.empty((len(node_feature) + 1, 4), dtype=np.int64)
    variances = np.empty(len(stack))
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, count, -1, 0
    waiting, nodes = 1, 0
    state = state or 1
    while waiting:
        waiting -= 1
        start, end, parent, known = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2], stack[waiting, 3]
        variance = variances[waiting]
        size = end - start
        squares = 0.0
        for k in range(outputs):
            total[k] = 0.0
        for p in range(start, end):
            for k in range(outputs):
                value = targets[samples[p], k]
                total[k] += value
                squares += value * value
        if nodes == 0:
            variance = squares / size
            for k in range(outputs):
                mean = total[k] / size
                variance -= mean * mean
            variance /= outputs
        best_cut, best_feature, best_threshold, best = end, 0, 0.0, -np.inf
        last_feature = -1
        found = drawn_constants = 0
        if size >= 2 * leaf and variance > _PURE:
            remaining, visited = width, 0
            # Features are drawn without replacement; constant ones count only after a varying one was drawn.
            while remaining > known + found and (visited < tried or visited <= found + drawn_constants):
                visited += 1
                state = _drawn(state)
                at = drawn_constants + (state & _LARGEST) % (remaining - found - drawn_constants)
                if at < known:
                    order[drawn_constants], order[at] = order[at], order[drawn_constants]
                    drawn_constants += 1
                    continue
                at += found
                last_feature = order[at]
                lowest = highest = features[samples[start], last_feature]
                for p in range(start + 1, end):
                    here = features[samples[p], last_feature]
                    lowest, highest = min(lowest, here), max(highest, here)
                if highest <= np.float32(lowest + _CONSTANT):
                    order[at], order[known + found] = order[known + found], last_feature
                    found += 1
                    continue
                remaining -= 1
                order[remaining], order[at] = order[at], order[remaining]
                state = _drawn(state)
                low, high = np.float64(lowest), np.float64(highest)
                threshold = (high - low) * np.float64(state & _LARGEST) / np.float64(_LARGEST) + low
                if threshold == high:
                    threshold = low
                cut = _split_samples(features, samples, start, end, last_feature, threshold)
                if cut - start < leaf or end - cut < leaf:
                    continue
                _sums(targets, samples, start, cut, end, total, left)
                of_left = of_right = 0.0
                for k in range(outputs):
                    of_left += left[k] * left[k]
                    right_sum = total[k] - left[k]
                    of_right += right_sum * right_sum
                gain = of_left / (cut - start) + of_right / (end - cut)
                if gain > best:
                    best_cut, best_feature, best_threshold, best = cut, last_feature, threshold, gain
            # Later nodes beside and below this one rely on the order of the known constant features.
            for at in range(known):
                order[at] = constant[at]
            for at in range(known, known + found):
                constant[at] = order[at]
        node = nodes
        nodes += 1
        if parent >= 0:
            node_right[parent] = node
        if best_cut < end:
            if last_feature != best_feature:
                _split_samples(features, samples, start, end, best_feature, best_threshold)
            _sums(targets, samples, start, best_cut, end, total, left)
            squares_left = 0.0
            for p in range(start, best_cut):
                for k in range(outputs):
                    value = targets[samples[p], k]
                    squares_left += value * value
            at_left, at_right = np.float64(best_cut - start), np.float64(end - best_cut)
            variance_left, variance_right = squares_left / at_left, (squares - squares_left) / at_right
            for k in range(outputs):
                mean_left, mean_right = left[k] / at_left, (total[k] - left[k]) / at_right
                variance_left -= mean_left * mean_left
                variance_right -= mean_right * mean_right
            variance_left /= outputs
            variance_right /= outputs
            gained = (size / count) * (variance - at_right / size * variance_right - at_left / size * variance_left)
            if gained + _PURE >= 0.0:
                node_feature[node], node_threshold[node], node_left[node] = best_feature, best_threshold, node + 1
                stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = best_cut, end, node
                stack[waiting + 1, 0], stack[waiting + 1, 1], stack[waiting + 1, 2] = start, best_cut, -1
                stack[waiting, 3] = stack[waiting + 1, 3] = known + found
                variances[waiting], variances[waiting + 1] = variance_right, variance_left
                waiting += 2
                continue
        for p in range(start, end):
            leaf_of[samples[p]] = node
    return nodes
