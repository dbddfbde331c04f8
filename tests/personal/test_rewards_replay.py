"""The replay of logged rewards: learning helps where keys differ, exploring reaches more, equal seeds are equal."""

from __future__ import annotations

import numpy as np
import pytest

from mark.personal.rewards_replay import LoggedRewards, SplitLog, replay_learning
from tests.personal.logs import low_rank_log

SHARES = (0.5, 0.35, 0.15)


def test_split_gives_each_row_to_one_part_in_order_of_time() -> None:
    log = low_rank_log()
    split = SplitLog.drawn(log, SHARES, 1)
    parts = (split.initial, split.online, split.held_out)

    assert sorted(np.concatenate(parts)) == list(range(len(log)))
    assert [len(part) / len(log) for part in parts] == pytest.approx(SHARES, abs=0.05)
    for part in parts:
        assert (np.diff(log.times_s[part]) >= 0.0).all()


def test_learning_lowers_the_error_where_keys_differ() -> None:
    log = low_rank_log()
    shares: list[float] = []
    found = replay_learning(log, SplitLog.drawn(log, SHARES, 1), ("greedy", "item"), 1, shares.append)

    assert found.online_rmse < 0.95 * found.static_rmse
    assert found.retrained_rmse < found.static_rmse
    assert (found.observations, found.keys, found.items) == (len(log), 40, 60)
    assert found.by_experience["all"].count == len(log) - found.held_out - len(SplitLog.drawn(log, SHARES, 1).initial)
    assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    best = found.policies
    assert best["greedy"].reward > log.rewards.mean() + 0.2, "a random choice earns the mean"
    assert 0.0 < best["greedy"].reach <= 1.0
    assert best["item"].visits == best["greedy"].visits > 100


def test_equal_seeds_give_equal_replays() -> None:
    log = low_rank_log()
    one, other = (replay_learning(log, SplitLog.drawn(log, SHARES, 4), ("thompson",), 4) for _ in range(2))

    assert one == other


def test_item_that_a_key_rated_twice_is_offered_once() -> None:
    log = low_rank_log()
    twice = LoggedRewards(
        np.tile(log.keys, 2),
        np.tile(log.items, 2),
        np.tile(log.rewards, 2),
        np.tile(log.times_s, 2),
        log.key_names,
        log.item_names,
    )
    found = replay_learning(twice, SplitLog.drawn(twice, SHARES, 1), ("greedy",), 1)

    assert found.policies["greedy"].visits > 100
