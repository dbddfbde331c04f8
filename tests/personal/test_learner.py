"""The learned state of a process: the same for every order, deleted without a trace, bounded, and read as written."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.settings import Exploration
from mark.personal.table import ItemTable
from mark.personal.top import INDEXED_FROM
from tests.personal.learners import (
    DIMENSION,
    ITEMS,
    KEYS,
    RowsInMemory,
    all_weights,
    by_table,
    by_vectors,
    learn,
    observations,
    table,
    weights,
)

NAMES = [f"i{at}" for at in range(ITEMS)]
# The kinds of learners, each with the kind of observations that it takes.
KINDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"loss": "logistic"}, {"logistic": True}),
    ({"bias": False}, {}),
    ({"prior": "mean"}, {}),
    ({"prior": "mean", "loss": "logistic"}, {"logistic": True}),
    ({"features": "tower"}, {"vectors": True}),
    ({"features": "tower"}, {"vectors": True, "named": False, "step_s": 600.0}),
    ({"features": "tower", "prior": "mean"}, {"vectors": True, "named": False, "step_s": 600.0}),
    ({"features": "tower", "bias": False}, {"vectors": True, "named": False, "step_s": 600.0}),
    ({"features": "tower", "loss": "logistic"}, {"vectors": True, "logistic": True}),
]


def _learner(said: dict[str, Any], store: RowsInMemory | None = None) -> PersonalLearner:
    if "features" in said:
        return by_vectors(store, **{key: one for key, one in said.items() if key != "features"})
    return by_table(store, **said)


def _rewards(count: int, of: dict[str, Any], seed: int = 1) -> list[PersonalObservation]:
    return observations(count, seed=seed, **of)


def _same(one: dict[str, FloatArray], other: dict[str, FloatArray]) -> bool:
    return one.keys() == other.keys() and all(np.abs(one[key] - other[key]).max() <= 1e-6 for key in one)


@pytest.mark.parametrize(("said", "of"), KINDS)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_order_of_observations_does_not_matter(said: dict[str, Any], of: dict[str, Any], seed: int) -> None:
    rewards = _rewards(300, of, seed)
    shuffled = [rewards[at] for at in np.random.default_rng(seed).permutation(len(rewards))]
    one, other = learn(_learner(said), rewards), learn(_learner(said), shuffled, judged=False)

    assert _same(all_weights(one), all_weights(other))
    assert len(all_weights(one)) == KEYS


def test_head_is_closed_form_ridge_on_the_final_means() -> None:
    rewards = [one for one in observations(200) if one.key == "u1"]
    learner = learn(by_table(), rewards)
    items = table()
    y = np.array([one.reward for one in rewards])
    numbers = np.array([items.numbers[str(one.item)] for one in rewards])
    above = np.array(
        [(y[numbers == at].sum() - (numbers == at).sum() * y.mean()) / ((numbers == at).sum() + 5.0) for at in numbers]
    )
    vectors = np.column_stack((np.ones(len(y)), above, items.vectors[numbers]))
    precision, prior = np.diag([0.5, 0.5, 1, 1, 1, 1]), np.array([0.0, 1, 0, 0, 0, 0])
    expected = np.linalg.solve(precision + vectors.T @ vectors, precision @ prior + vectors.T @ (y - y.mean()))

    assert weights(learner, "u1") == pytest.approx(expected, abs=1e-9)
    fresh = by_table()
    fresh.load(learner.freeze()())
    found = fresh.score("u1", None, ["i3"])
    rows = np.concatenate(([1.0, above[numbers == 3][0]], items.vectors[3]))
    assert found.values[0] == pytest.approx(y.mean() + rows @ expected)
    assert not found.prior


@pytest.mark.parametrize(("said", "of"), KINDS)
def test_learning_lowers_the_error(said: dict[str, Any], of: dict[str, Any]) -> None:
    learner = learn(_learner(said), _rewards(1500, of))
    judged = {segment: tally for _, segment, tally in learner.judge.rows()}

    assert judged["all"].count == 1500
    rewards = np.array([one.reward for one in _rewards(1500, of)])
    blind = (rewards - rewards.mean() if said.get("bias", True) else rewards) ** 2
    assert judged["100 or more"].mean < 0.9 * blind.mean()


def test_new_key_gets_the_mean_of_the_item() -> None:
    learner = by_table()
    for at in range(15):
        learner.observe(PersonalObservation("u0", "i1", None, 5.0, float(at)))
        learner.observe(PersonalObservation("u0", "i2", None, 1.0, float(at)))
    for key in (None, "new"):
        found = learner.score(key, None, ["i1", "i2", "i3"])
        assert found.prior
        assert found.values == pytest.approx([3 + 2 * 15 / 20, 3 - 2 * 15 / 20, 3.0])
    assert not learner.score("u0", None, ["i1"]).prior


def test_prior_mean_serves_a_new_key_from_all_others() -> None:
    """All keys like the first number of a vector; of an item without rewards only this helps."""
    draw, items = np.random.default_rng(0), table()
    rewards = [
        PersonalObservation(f"u{draw.integers(50)}", f"i{at}", None, float(items.vectors[at][0]), 0.0)
        for at in draw.integers(0, ITEMS - 1, 600)
    ]
    unseen = f"i{ITEMS - 1}"
    errors = {
        prior: abs(
            learn(by_table(prior=prior, bias=False), rewards).score("new", None, [unseen]).values[0]
            - items.vectors[-1][0]
        )
        for prior in ("item", "mean")
    }

    assert errors["item"] == pytest.approx(abs(items.vectors[-1][0]))
    assert errors["mean"] < 0.1 * errors["item"]


def test_uncertainty_falls_with_observations() -> None:
    learner = by_table()
    before = learner.score("u0", None, NAMES).uncertainty
    learn(learner, [one for one in observations(500) if one.key == "u0"])
    after = learner.score("u0", None, NAMES).uncertainty

    assert (after < 0.5 * before).all()
    assert (after > 0.0).all()


@pytest.mark.parametrize(("said", "of"), KINDS)
def test_deleted_key_leaves_no_trace(said: dict[str, Any], of: dict[str, Any]) -> None:
    store = RowsInMemory()
    rewards = _rewards(400, of)
    learner = learn(_learner(said, store), rewards)
    learner.flush()
    learner.forget("u2", 1e9)
    without = learn(_learner(said), [one for one in rewards if one.key != "u2"])

    assert learner.show("u2") is None
    assert not learner.holds("u2")
    assert "u2" not in store.rows
    assert "u2" not in orjson.loads(learner.freeze()())["keys"]
    assert learner.observations == without.observations
    assert _same(all_weights(learner), all_weights(without)), "also the means of items are as if it had never been"
    assert learner.score("u2", table().vectors[:1], ["i0"]).values == pytest.approx(
        without.score("u2", table().vectors[:1], ["i0"]).values, abs=1e-6
    )


@pytest.mark.parametrize("forget_first", [True, False])
def test_observations_before_the_deletion_are_refused_and_later_ones_are_learned(forget_first: bool) -> None:
    old, new = (PersonalObservation("u0", "i1", None, 5.0, at_s) for at_s in (10.0, 11.0))
    learner = by_table()
    if forget_first:
        learner.forget("u0", 10.0)
        assert not learner.observe(old)
        assert learner.observe(new)
    else:
        assert learner.observe(old)
        assert learner.observe(new)
        learner.forget("u0", 10.0)
    learner.forget("u0", 4.0)  # an older deletion changes nothing

    assert (learner.show("u0") or {})["observations"] == 1
    assert learner.observations == 1


def test_keys_without_an_observation_for_long_expire() -> None:
    learner = by_table(RowsInMemory(), keep_days=2.0)
    for day, key in enumerate(("old", "young")):
        learner.observe(PersonalObservation(key, "i1", None, 5.0, day * 86_400.0))
    learner.flush()

    assert learner.expire(2.5 * 86_400.0) == ["old"]
    assert not learner.holds("old")
    assert learner.holds("young")
    assert learner.observations == 1


def test_tombstone_expires_after_every_fact_it_refuses() -> None:
    learner, old = by_table(), PersonalObservation("u0", "i1", None, 5.0, 0.0)
    learner.forget("u0", 0.0)
    learner.expire(30.5 * 86_400.0)
    assert not learner.observe(old)
    learner.expire(31.5 * 86_400.0)
    assert learner.observe(old)


@pytest.mark.parametrize(("said", "of"), KINDS)
def test_snapshot_is_read_as_it_was_written(said: dict[str, Any], of: dict[str, Any]) -> None:
    learner = learn(_learner(said, RowsInMemory()), _rewards(400, of))
    learner.forget("u4", 100.0)
    found = _learner(said, RowsInMemory())
    found.load(learner.freeze()())

    assert _same(all_weights(found), all_weights(learner))
    assert found.observations == learner.observations
    assert list(found.judge.rows()) == list(learner.judge.rows())
    late = replace(_rewards(1, of)[0], key="u4", at_s=100.0)
    assert not found.observe(late)
    assert found.freeze()() == learner.freeze()()


@pytest.mark.parametrize(("said", "of"), KINDS)
def test_frozen_state_does_not_change_with_later_rewards(said: dict[str, Any], of: dict[str, Any]) -> None:
    rewards = _rewards(600, of)
    learner = learn(_learner(said, RowsInMemory()), rewards[:300])
    expected, frozen = learner.freeze()(), learner.freeze()
    learn(learner, [replace(one, at_s=one.at_s + 1e5) for one in rewards])
    learner.forget("u4", 100.0)
    learner.forget("u3", 1e6)

    assert frozen() == expected
    assert learner.freeze()() != expected


def test_new_table_learns_from_the_rows_of_the_old_one() -> None:
    old, new = table(), table(seed=5)
    larger = ItemTable([*new.ids, "new"], np.concatenate((new.vectors, new.vectors[:1])), "items.npz")
    rewards = observations(300)
    rewards.append(PersonalObservation("u0", "new", None, 4.0, 1e3))
    before = by_table(items=old)
    learn(before, rewards[:-1])
    assert before.problem(rewards[-1]) == "item 'new' is not in the table"
    assert before.observe(rewards[-1]), "a process with the new table had learned it"
    found = by_table(items=larger)
    found.load(before.freeze()())

    assert _same(all_weights(found), all_weights(learn(by_table(items=larger), rewards)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema"),
        ({"loss": "logistic"}, "loss"),
        ({"dimension": 5}, "5 numbers"),
        ({"version": "0"}, "version '0'"),
        ({"keys": {"u0": "AAAA"}}, "unexpected|expected|JSON|str"),
        ({"keys": {"u0": "e30="}}, "no rows of a key"),
        ({"keys": 3}, "no snapshot"),
        ({"errors": 3}, "no tallies"),
        ({"tombstones": {"u0": None}}, "no snapshot"),
    ],
)
def test_other_snapshot_is_refused_and_the_state_kept(change: dict[str, Any], words: str) -> None:
    learner = learn(by_vectors(), _rewards(50, {"vectors": True}))
    before = all_weights(learner)
    with pytest.raises(ValueError, match=words):
        learner.load(orjson.dumps(orjson.loads(learner.freeze()()) | change))

    assert _same(all_weights(learner), before)


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{}"])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        by_table().load(data)


def test_memory_stays_within_the_budget_and_heads_the_same() -> None:
    draw, store = np.random.default_rng(0), RowsInMemory()
    items = table(items=50, dimension=32)
    small, large = by_table(store, items, memory_mb=1), by_table(None, items, memory_mb=1000)
    rewards = [
        PersonalObservation(f"u{draw.integers(2600)}", f"i{draw.integers(50)}", None, float(draw.normal()), float(at))
        for at in range(4000)
    ]
    for one in rewards:
        small.observe(one)
        large.observe(one, judged=False)
        assert small.used_bytes <= 1_000_000 + items.memory_bytes + 20_000
    keys = sorted({one.key for one in rewards})

    assert small.keys_in_memory < len(keys)
    assert len(store.rows) > 100
    for key in keys[::20]:
        assert weights(small, key) == pytest.approx(weights(large, key), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key": ""}, "a key has 1 to 256 characters"),
        ({"key": "k" * 257}, "a key has 1 to 256 characters"),
        ({"item": "i" * 257}, "an item has 1 to 256"),
        ({"reward": math.nan}, "a reward must be finite"),
        ({"reward": math.inf}, "a reward must be finite"),
        ({"reward": -1e10}, "1e+09 at most"),
        ({"at_s": math.nan}, "a time must be finite"),
        ({"vector": None}, "the vector of the item is needed"),
        ({"vector": np.ones(3)}, "a vector has 4 numbers, and not the shape (3,)"),
        ({"vector": np.ones((1, 4))}, "not the shape (1, 4)"),
        ({"vector": np.array([1.0, math.nan, 0.0, 0.0])}, "must be finite"),
        ({"vector": np.full(4, 1e7)}, "must be finite"),
    ],
)
def test_observation_that_cannot_be_is_named_and_changes_nothing(change: dict[str, Any], words: str) -> None:
    learner = by_vectors()
    bad = replace(_rewards(1, {"vectors": True})[0], **change)

    assert words in str(learner.problem(bad))
    assert not learner.observe(bad)
    assert learner.observations == 0


def test_table_needs_an_item_and_the_logistic_loss_a_share() -> None:
    rewarded = PersonalObservation("u0", "i1", None, 1.5, 0.0)

    assert by_table().problem(rewarded) is None
    assert by_table().problem(replace(rewarded, item=None)) == "an item of the table is needed"
    assert "between 0 and 1" in str(by_table(loss="logistic").problem(rewarded))


@pytest.mark.parametrize(
    ("learner", "vectors", "items", "words"),
    [
        (by_table(), None, None, "items of the table are needed"),
        (by_table(), None, ["i1", "x"], "item 'x' is not in the table"),
        (by_vectors(), None, ["i1"], "the vectors of the items are needed"),
        (by_vectors(), np.ones((2, 3)), None, "a vector has 4 numbers"),
        (by_vectors(), np.ones(4), None, "a vector has 4 numbers"),
        (by_vectors(), np.ones((2, 4)), ["i1"], "1 items have 2 vectors"),
        (by_vectors(), np.full((1, 4), np.inf), None, "must be finite"),
    ],
)
def test_question_that_cannot_be_is_named(learner: PersonalLearner, vectors: Any, items: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        learner.score("u0", vectors, items)


def test_learner_has_a_table_or_a_dimension() -> None:
    for dimension in (0, 1025):
        with pytest.raises(ValueError, match=r"."):
            by_vectors(dimension=dimension)


@pytest.mark.parametrize("policy", ["greedy", "linucb", "item", "thompson"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_top_of_a_table_is_that_of_all_its_items(policy: str, loss: str) -> None:
    items = table(items=900, dimension=8)
    # Large, because the head has 400 rewards and is rather certain: with 0.7 `item` ranks these ten as greedy does.
    learner = by_table(items=items, loss=loss, explore=Exploration(policy, 2.0))
    draw = np.random.default_rng(2)
    for at in range(400):
        learner.observe(PersonalObservation("u0", f"i{draw.integers(900)}", None, float(draw.integers(2)), float(at)))
    greedy, given = learner.top("u0", 10), learner.top("u0", 10, items.ids)
    scores = learner.score("u0", None, items.ids)

    assert greedy.items == given.items == [items.ids[at] for at in np.argsort(-scores.values, kind="stable")[:10]]
    assert greedy.values == pytest.approx(np.sort(scores.values)[::-1][:10])
    assert greedy.propensities.tolist() == [1.0] * 10
    if policy in ("linucb", "item"):
        explored = [learner.top("u0", 10, one, np.random.default_rng(1)).items for one in (None, items.ids)]
        assert explored[0] == explored[1]
        assert explored[0] != greedy.items
    if (policy, loss) == ("linucb", "squared"):
        bounds = scores.values + 2.0 * scores.uncertainty
        assert explored[0] == [items.ids[at] for at in np.argsort(-bounds)[:10]]


def test_top_leaves_out_excluded_items() -> None:
    learner = learn(by_table(), observations(200))
    first = learner.top("u0", 3).items

    assert learner.top("u0", 3, exclude=first[:1]).items[:2] == first[1:]
    assert learner.top("u0", 3, NAMES, exclude=first[:1]).items[:2] == first[1:]
    assert len(learner.top("u0", 100, exclude=[*first, "unknown"]).items) == ITEMS - 3
    assert learner.top("u0", 5, exclude=NAMES).items == []
    assert learner.top("u0", 5, [], exclude=NAMES).items == []


@pytest.mark.parametrize("policy", ["greedy", "item", "thompson"])
def test_excluded_items_are_not_drawn_either(policy: str) -> None:
    learner = learn(by_table(explore=Exploration(policy, 1.0 if policy != "greedy" else 0.0, 0.9)), observations(200))
    draw = np.random.default_rng(0)
    shown = {item for _ in range(100) for item in learner.top("u0", 4, None, draw, exclude=NAMES[:6]).items}

    assert shown == set(NAMES[6:])


def test_top_of_vectors_takes_them_with_their_items() -> None:
    learner = learn(by_vectors(), _rewards(200, {"vectors": True}))
    found = learner.top("u0", 2, NAMES, vectors=table().vectors)
    values = learner.score("u0", table().vectors, NAMES).values

    assert found.items == [NAMES[at] for at in np.argsort(-values)[:2]]
    with pytest.raises(ValueError, match="items are needed"):
        learner.top("u0", 2)
    with pytest.raises(ValueError, match="names an item twice"):
        learner.top("u0", 2, ["i1", "i1"], vectors=np.ones((2, 4)))


def test_large_table_is_searched_by_its_index() -> None:
    items = table(items=INDEXED_FROM + 1)
    learner = by_table(items=items)
    for at in range(50):
        learner.observe(PersonalObservation("u0", f"i{at}", None, float(items.vectors[at][0]), float(at)))
    exact = learner.top("u0", 10)

    class Exact:
        """An index that finds all of them."""

        asked = 0

        def near(self, query: FloatArray, count: int) -> IntArray:
            self.asked = count
            return np.argsort(-(learner.indexed() @ query))[:count]

    index = learner.near = Exact()
    found = learner.top("u0", 10)
    assert (found.items, index.asked) == (exact.items, 300)
    assert found.values == pytest.approx(exact.values)
    assert learner.top("u0", 10, exclude=exact.items[:2]).items[:8] == exact.items[2:]


def test_show_tells_the_rows_the_error_and_the_weights() -> None:
    learner = learn(by_table(), observations(300))
    shown = learner.show("u0")

    assert shown is not None
    assert shown["observations"] == sum(one.key == "u0" for one in observations(300))
    assert 0.1 < shown["error"] < 2.0
    assert len(shown["weights"]) == DIMENSION + 2
    assert shown["biases"] == ["constant", "item mean"]
    assert orjson.dumps(shown)
    assert by_table().show("u0") is None


def test_heads_of_a_busy_key_are_built_again_though_rarely() -> None:
    learner = by_table()
    builds, features = [], learner._features
    original = features.head
    features.head = lambda *given: builds.append(1) or original(*given)  # type: ignore[method-assign]
    for at in range(5000):
        learner.observe(PersonalObservation("u0", f"i{at % ITEMS}", None, float(at % 3), float(at)))

    assert 20 < len(builds) < 60
