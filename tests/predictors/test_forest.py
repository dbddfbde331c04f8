from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
from mark_predictors import forest
from mark_predictors.forest import PATHS, Analogs
from mark_predictors.load_history import ObservedHistory
from mark_predictors.logload import LogLoad
from mark_predictors.trees import Tree
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.load import Load

STEP_S = 120.0
HOUR = 30  # steps
BEGIN = 3  # step of the hour in which surges begin
LONGEST = 12  # steps, so that calm is usual in any two hours
LEVEL_RPS = 50.0
SURGE = 4.0  # times the usual
NAN = float("nan")


def load(rates: FloatArray, step_s: float) -> Load:
    return Load(0.0, step_s, rates, rates)


class Kept(Analogs):
    """Remembers the trees as they were grown."""

    trees: Sequence[Tree]

    def _keep(self, trees: Sequence[Tree]) -> None:
        self.trees = trees
        super()._keep(trees)


def learned(rates: FloatArray, step_s: float, seed: int = 0) -> Kept:
    analogs = Kept(LogLoad(ObservedHistory(load(rates, step_s))), seed)
    analogs.learn()
    return analogs


def extend(analogs: Analogs, rates: FloatArray) -> None:
    log_load = analogs._load
    log_load.history.append(load(rates, log_load.history.step_s))
    log_load.extend()


def wandering(steps: int, seed: int = 3, level_rps: float = 100.0) -> FloatArray:
    """Return a day's wave of 300 s steps with noise that lasts some steps."""
    noise = np.convolve(np.random.default_rng(seed).normal(0.0, 0.05, steps + 9), np.ones(10), "valid")
    return np.asarray(level_rps * np.exp(0.5 * np.sin(2.0 * np.pi * np.arange(steps) / 288) + noise[:steps]))


# -- surges ------------------------------------------------------------------------------------------------------------


def geometric(steps: NDArray[np.int64]) -> FloatArray:
    """Return the share of surges by their least number of steps: each goes on with probability 0.85, to the longest."""
    return np.where(steps <= LONGEST, 0.85 ** (steps - 1.0), 0.0)


def uniform(steps: NDArray[np.int64]) -> FloatArray:
    """Return the law of 4 to 12 steps, all equally likely."""
    return np.clip((LONGEST + 1.0 - steps) / (LONGEST - 3.0), 0.0, 1.0)


Law = Callable[[NDArray[np.int64]], FloatArray]
every_law = pytest.mark.parametrize(("law", "share"), [(geometric, 0.3), (uniform, 0.5)])


def surging(hours: int, share: float, law: Law, seed: int) -> FloatArray:
    """Return a constant rate with a little noise, and a surge in a `share` of the hours, with lengths by `law`.

    Hours with surges are random. The share and the lengths are exact, so that learning from them involves no luck.
    """
    rng = np.random.default_rng(seed)
    rates = LEVEL_RPS * np.exp(rng.normal(0.0, 0.05, hours * HOUR))
    surges = rng.permutation(hours)[: round(share * hours)]
    at_least = law(np.arange(1, LONGEST + 1))
    for k, hour in enumerate(surges.tolist()):
        begin = hour * HOUR + BEGIN
        rates[begin : begin + np.count_nonzero(at_least > (k + 0.5) / len(surges))] *= SURGE
    return rates


def in_surge(rates: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(rates > LEVEL_RPS * SURGE**0.5)


@cache
def _learned_from_surges(law: Law, share: float) -> Kept:
    return learned(surging(240, share, law, seed=1), STEP_S)


def learned_from_surges(law: Law, share: float) -> Kept:
    """Return ten days of surges; each test gets a copy, because learning takes long."""
    return deepcopy(_learned_from_surges(law, share))


@every_law
def test_a_surge_has_the_same_share_of_paths_as_hours(law: Law, share: float) -> None:
    """This holds after a calm hour and after a surge; other paths have no surge, and surges have the right lengths."""
    analogs = learned_from_surges(law, share)
    coming, too_early, lengths = [], [], []
    for hour in range(20):
        extend(analogs, surging(1, hour % 2, law, seed=100 + hour))
        paths = in_surge(analogs.paths(HOUR))
        assert paths.shape == (PATHS, HOUR)
        coming.append(paths[:, BEGIN].mean())
        too_early.append(paths[:, :BEGIN].any(axis=1).mean())
        lengths.extend(paths[paths[:, BEGIN]].sum(axis=1))
    np.testing.assert_allclose(coming, share, atol=0.3)
    assert np.mean(coming) == pytest.approx(share, abs=0.12)
    assert np.mean(too_early) < 0.08
    steps = np.arange(1, LONGEST + 1)
    np.testing.assert_allclose([np.mean(np.array(lengths) >= k) for k in steps], law(steps), atol=0.15)


@pytest.mark.parametrize("age", [2, 6])
@every_law
def test_what_remains_of_a_surge_follows_its_law(law: Law, share: float, age: int) -> None:
    """Inside a surge, the share of paths in which it goes on follows from its age."""
    analogs = learned_from_surges(law, share)
    going_on = []
    for hour in range(20):
        calm = surging(1, 0.0, law, seed=300 + hour)
        inside = calm[: BEGIN + age].copy()
        inside[BEGIN:] *= SURGE
        extend(analogs, inside)
        going_on.append(in_surge(analogs.paths(HOUR)).mean(axis=0))
        extend(analogs, calm[BEGIN + age :])
    ahead = np.arange(1, LONGEST + 1 - age)
    found = np.mean(going_on, axis=0)
    np.testing.assert_allclose(found[: len(ahead)], law(age + ahead) / law(np.array(age)), atol=0.15)
    # Leaves hold surges that are a step or two older or younger.
    assert found[LONGEST - age + 2 : HOUR - age - 3].max() < 0.1


# -- the forest --------------------------------------------------------------------------------------------------------


def leaf_of(tree: Tree, features: NDArray[np.float32]) -> int:
    node = 0
    while tree.feature[node] >= 0:
        left = features[tree.feature[node]] <= tree.threshold[node]
        node = int(tree.left[node] if left else tree.right[node])
    return node


def test_paths_are_drawn_by_the_leaves_of_now() -> None:
    """The reference is a loop over trees: origins in the leaf of now have equal parts of the tree's weight.

    Paths are draws at even distances through the ordered weights.
    """
    rates = wandering(5 * 288)
    analogs = learned(rates[: 4 * 288], 300.0)
    assert analogs._origins is not None
    ahead = analogs._origins[:, None] + np.arange(analogs._horizon)
    followed = analogs._load.logs[ahead] - analogs._base
    ordered = sorted(range(len(followed)), key=lambda k: (followed[k].mean(), k))
    for begin in range(4 * 288, 5 * 288, 24):
        extend(analogs, rates[begin : begin + 24])
        now, base = analogs._features(np.array([begin + 24]))
        weights = np.zeros(len(followed))
        for tree in analogs.trees:
            alike = np.flatnonzero(tree.leaf_of == leaf_of(tree, now[0]))
            assert len(alike) >= forest._LEAF
            weights[alike] += 1.0 / len(alike) / len(analogs.trees)
        assert weights.sum() == pytest.approx(1.0)
        paths = analogs.paths(12)
        reached, k = 0.0, -1
        for path in range(PATHS):
            share = (path + 0.5) / PATHS
            while reached < share - 1e-9:
                k += 1
                reached += weights[ordered[k]]
            # At an exact tie with the share, rounding decides between this path and the next.
            either = ordered[k : k + 1] if reached > share + 1e-9 else ordered[k : k + 2]
            candidates = analogs._load.rates(followed[either] + base[0])
            assert any(np.allclose(paths[path], one) for one in candidates)


def test_compiled_features_are_those_of_plain_arrays() -> None:
    """12 steps an hour: the clock, the last two hours, and the hours around the same time of the days before."""
    analogs, origin = learned(wandering(9 * 288), 300.0), 2500
    logs = analogs._load.logs
    (row,), (base,) = analogs._features(np.array([origin]))
    recent = logs[origin - 24 : origin][::-1] - np.median(logs[origin - 24 : origin])
    expected = [origin % 12, origin % 24, origin % 288 // 12, origin % 288, origin // 288 % 7]
    expected += recent[[0, 1, 2, 3, 5, 8]].tolist()
    for span in (1, 3, 6, 12, 24):
        expected += [recent[:span].mean(), recent[:span].max()]
    expected += [recent[:12].std(), recent[-12:].mean(), 24, 0]  # no surge
    quarters = ((0, 1), (1, 3), (3, 6), (6, 9), (9, 12))
    expected += [recent[at - b : at - a].mean() for at in (12, 24) for a, b in quarters]
    days = []
    for day in range(1, 8):
        around = logs[origin - day * 288 - 24 : origin - day * 288 + 12]
        after = around[24:] - np.median(around[:24])
        days.append([*(after[a:b].mean() for a, b in quarters), after.max(), around[23] - np.median(around[:24])])
    of_days = np.array(days)
    expected += [*of_days[0], *of_days[-1], *of_days[:3].mean(axis=0), *of_days.mean(axis=0)]
    expected += (of_days > 0.4).mean(axis=0).tolist()
    assert base == pytest.approx(np.median(logs[origin - 24 : origin]))
    np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)


def test_what_comes_later_is_not_seen() -> None:
    """The features at an origin are equal before and after later steps come, wherever in a step they lie."""
    rates = wandering(10 * 288)
    analogs = learned(rates[:2400], 300.0)
    live = []
    for origin in range(2400, 2800, 50):
        live.append(analogs._features(np.array([origin])))
        extend(analogs, rates[origin : origin + 50])
    features, base = analogs._features(np.arange(2400, 2800, 50))
    np.testing.assert_array_equal(features, np.concatenate([one[0] for one in live]))
    np.testing.assert_array_equal(base, np.concatenate([one[1] for one in live]))


def test_origins_next_to_gaps_are_not_learned() -> None:
    """Values filled in there are not learned either."""
    rates = wandering(4 * 288)
    whole = learned(rates, 300.0)
    rates[900:910] = NAN
    holed = learned(rates, 300.0)
    # The 10 missing steps, the 11 before from which they are seen, and the one after, whose last step is missing.
    assert len(whole.trees[0].leaf_of) - len(holed.trees[0].leaf_of) == 10 + 11 + 1


@pytest.mark.parametrize(("steps", "ready"), [(1, False), (200, False), (330, True)])
def test_too_little_to_learn_from_is_said(steps: int, ready: bool) -> None:
    """It takes 200 origins with the hours around them."""
    assert learned(wandering(steps), 300.0).ready == ready
    assert not learned(np.full(steps, NAN), 300.0).ready
    assert not learned(np.empty(0), 300.0).ready


def test_once_ready_it_stays_ready() -> None:
    """Weeks of gaps leave too few origins, and so the forest as it was."""
    analogs = learned(wandering(330), 300.0)
    extend(analogs, np.full(22 * 288, NAN))
    before = analogs.paths(12)
    analogs.learn()
    assert analogs.ready
    np.testing.assert_array_equal(analogs.paths(12), before)


def test_the_seed_decides() -> None:
    rates = wandering(600)
    one, same, other = (learned(rates, 300.0, seed).paths(12) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_ten_times_the_load_is_ten_times_every_path() -> None:
    """Learned so, or grown to it since: the paths are relative."""
    rates = wandering(4 * 288)
    paths = learned(rates, 300.0).paths(12)
    np.testing.assert_allclose(learned(10.0 * rates, 300.0).paths(12), 10.0 * paths, rtol=1e-3)
    grown = learned(rates, 300.0)
    extend(grown, 10.0 * wandering(144, seed=4))
    assert np.median(grown.paths(12)) == pytest.approx(1000.0, rel=0.5)


@pytest.mark.parametrize("step_s", [60.0, 300.0, 1800.0])
def test_any_step_and_any_horizon_will_do(step_s: float) -> None:
    """Beyond an hour nothing was learned, so every path stays constant."""
    analogs = learned(wandering(900), step_s)
    hour = max(1, round(3600.0 / step_s))
    paths = analogs.paths(hour + 20)
    assert paths.shape == (PATHS, hour + 20)
    np.testing.assert_array_equal(paths[:, :hour], analogs.paths(hour))
    np.testing.assert_array_equal(paths[:, hour:], np.repeat(paths[:, hour - 1 : hour], 20, axis=1))
    np.testing.assert_array_equal(analogs.paths(1), paths[:, :1])
