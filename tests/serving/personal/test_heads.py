"""Heads of a process: which feedback teaches, that ids count once, that snapshots hold everything."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray, IntArray
from mark.personal.settings import Exploration, PersonalSettings
from mark.personal.table import ItemTable
from mark.serving.personal.heads import BY_HEAD, BY_PRIOR, WITHOUT_KEY, PersonalHeads, note_of
from mark.serving.personal.notes import HeadFact, Scored, Vector, key_name
from mark.serving.personal.rows import SqliteRows
from tests.serving.personal.made import heads, observation

U1 = key_name("u1")


def vector(*numbers: float) -> Vector:
    return np.array(numbers, dtype=np.float32)


def learn(into: PersonalHeads, said: dict[str, Any], **more: Any) -> bytes | None:
    fact = into.fact(observation(said, **more))
    if fact is not None:
        into.apply(fact)
    return fact


def test_reward_teaches_the_head_of_its_key_only() -> None:
    found = heads()
    assert learn(found, {"reward": 4.0})
    assert found.observations == 1
    own = found.score(U1, Scored(None, vector(1, 2, 4)))
    other = found.score(key_name("u2"), Scored(None, vector(1, 2, 4)))
    assert (own.prior, other.prior) == (False, True)
    found.score("", Scored(None, vector(1, 2, 4)))
    assert found.answers == {BY_HEAD: 1, BY_PRIOR: 1, WITHOUT_KEY: 1}


def test_number_as_label_is_a_reward() -> None:
    found = heads()
    assert learn(found, {"label": 1}) is not None


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ({"reward": 4.0}, {"key": ""}),
        ({"label": "good"}, {}),
        ({"label": True}, {}),
        ({"reward": 4.0}, {"version": "another"}),
        ({"reward": 1e12}, {}),
        ({"reward": 4.0}, {"scored": Scored("s1")}),
    ],
    ids=["no key", "a text", "a flag", "vectors of another version", "too large", "no vector"],
)
def test_feedback_that_cannot_be_learned_makes_no_fact(said: dict[str, Any], more: dict[str, Any]) -> None:
    found = heads()
    learn(found, {"reward": 1.0})
    assert found.fact(observation(said, **more)) is None


def test_reward_outside_0_to_1_makes_no_fact_of_logistic_heads() -> None:
    assert heads(loss="logistic").fact(observation({"reward": 1.5})) is None
    assert heads(loss="logistic").fact(observation({"reward": 0.5})) is not None


def test_item_that_the_table_lacks_makes_no_fact() -> None:
    found = heads(table=True)
    assert found.fact(observation({"reward": 1.0}, scored=Scored("nothing"))) is None
    assert found.fact(observation({"reward": 1.0}, scored=Scored("s1"))) is not None


def test_feedback_on_several_items_names_one() -> None:
    found = heads(table=True)
    top = found.top(U1, 3, None)
    note = note_of(U1, "v", top, None).to_json()
    assert found.learnable(note, {"reward": 1.0}, 1.0) is None
    fact = found.learnable(note, {"reward": 1.0, "item": top.items[1]}, 1.0)
    assert fact is not None
    assert fact.item == top.items[1]
    assert found.learnable(note, {"reward": 1.0, "item": "s49x"}, 1.0) is None


def test_own_id_counts_once_whatever_process_has_it() -> None:
    one, other, both = heads(), heads(), heads()
    facts = [
        one.fact(observation({"reward": 4.0}, own="c-1", at_s=1.0)),
        other.fact(observation({"reward": 4.0}, own="c-1", at_s=1.5)),
    ]
    for fact in facts:
        assert fact is not None
        both.apply(fact)
    assert (both.observations, both.repeated) == (1, 1)
    assert both.has_seen("c-1")
    assert not both.has_seen("c-2")


@pytest.mark.parametrize("ahead", ["observed", "deleted"])
def test_deletion_holds_between_servers_whose_clocks_differ(ahead: str) -> None:
    """One is a minute ahead: the observations before it are deleted, and those after it are learned."""
    one, other = heads(), heads()
    observed_s, deleted_s = (1060.0, 1001.0) if ahead == "observed" else (1000.0, 1061.0)

    def tell(at: PersonalHeads, said: dict[str, Any], at_s: float) -> None:
        fact = at.fact(observation(said, at_s=at_s))
        assert fact is not None
        one.apply(fact)
        other.apply(fact)

    tell(one, {"reward": 4.0}, observed_s)
    tell(other, {"forget": U1, "newest_s": other.newest_s(U1)}, deleted_s)
    assert (one.observations, other.observations) == (0, 0)
    tell(one, {"reward": 4.0}, observed_s + 2.0)
    assert (one.observations, other.observations) == (1, 1)


def test_own_id_counts_again_after_the_horizon() -> None:
    found = heads()
    learn(found, {"reward": 4.0}, own="c-1", at_s=1.0)
    learn(found, {"reward": 4.0}, own="c-2", at_s=90_000.0)
    learn(found, {"reward": 4.0}, own="c-1", at_s=90_001.0)
    assert found.observations == 3


def test_facts_in_any_order_give_the_same_state() -> None:
    maker = heads()
    facts: list[bytes] = []
    for at, (reward, x) in enumerate([(1.0, 0.5), (3.0, 1.5), (2.0, -1.0), (5.0, 0.1)]):
        scored = Scored(f"s{at % 2}", vector(1, x, x * x))
        fact = maker.fact(observation({"reward": reward}, scored=scored, at_s=float(at), own=f"c-{at}"))
        assert fact is not None
        facts.append(fact)
    answers = []
    for order in itertools.permutations(facts):
        found = heads()
        for fact in order:
            found.apply(fact)
        # A copy builds its heads from the rows, as every head is now and then.
        copy = heads()
        copy.restore(found.freeze()())
        answers.append(copy.score(U1, Scored("s1", vector(1, 0.7, 0.49))).values[0])
    assert np.ptp(answers) < 1e-6


def test_vector_of_another_length_is_refused() -> None:
    found = heads()
    learn(found, {"reward": 4.0})
    with pytest.raises(ValueError, match="3 numbers"):
        found.score(U1, Scored(None, vector(1, 2)))
    fact = HeadFact(U1, 1.0, "v", 1.0, None, vector(1, 2)).to_json()
    found.apply(fact)
    assert (found.observations, found.unusable) == (1, 1)


@pytest.mark.parametrize("fact", [b"7", b"{}", b"\xff"])
def test_malformed_fact_is_left_out(fact: bytes) -> None:
    found = heads()
    found.apply(fact)
    assert found.observations == 0


def test_deleted_key_is_forgotten_and_older_facts_stay_out() -> None:
    found = heads()
    late = found.fact(observation({"reward": 2.0}, at_s=5.0))
    learn(found, {"reward": 4.0}, at_s=6.0)
    erased: list[tuple[str, float]] = []
    found.erase = lambda key, at_s: erased.append((key, at_s))
    learn(found, {"forget": U1}, key="", at_s=7.0)
    assert erased == [(U1, 7.0)]
    assert found.show(U1) is None
    assert late is not None
    found.apply(late)
    assert found.observations == 0
    learn(found, {"reward": 4.0}, at_s=8.0)
    assert found.observations == 1


def test_deletion_before_the_first_vector_holds() -> None:
    found = heads()
    learn(found, {"forget": U1}, key="", at_s=7.0)
    copy = heads()
    copy.restore(found.freeze()())
    for one in (found, copy):
        later = one.fact(observation({"reward": 4.0}, at_s=6.0))  # at a server whose clock is behind
        assert later is not None
        one.apply(HeadFact(U1, 6.0, "v", 4.0, None, vector(1, 2, 4)).to_json())
        assert one.observations == 0
        one.apply(later)
        assert one.observations == 1


@pytest.mark.parametrize("table", [False, True])
def test_snapshot_holds_the_heads_and_the_ids(table: bool) -> None:
    scored = Scored("s3") if table else Scored("s3", vector(1, 2, 4))
    found, copy = heads(table=table), heads(table=table)
    learn(found, {"reward": 4.0}, scored=scored, own="c-1")
    copy.restore(found.freeze()())
    assert copy.has_seen("c-1")
    assert copy.score(U1, scored).values[0] == pytest.approx(found.score(U1, scored).values[0], abs=1e-6)
    copy.restore(heads(table=table).freeze()())
    assert (copy.observations, copy.has_seen("c-1")) == (0, False)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (b"", "unexpected end|empty"),
        (b"7\n", "no snapshot of heads"),
        (b"{}\n", "no snapshot of heads"),
        (b'{"ids": [], "early": {}}\n{"schema": 0}', "schema 0"),
    ],
)
def test_what_is_no_snapshot_raises_value_error(state: bytes, what: str) -> None:
    found = heads()
    learn(found, {"reward": 4.0})
    with pytest.raises(ValueError, match=what):
        found.restore(state)
    assert found.observations == 1


def test_snapshot_of_vectors_of_another_length_is_refused() -> None:
    found, other = heads(), heads()
    learn(found, {"reward": 4.0})
    learn(other, {"reward": 4.0}, scored=Scored(None, vector(1, 2)))
    with pytest.raises(ValueError, match="2 numbers"):
        found.restore(other.freeze()())


def test_keys_beyond_the_memory_lie_in_the_file_and_answer_alike(tmp_path: Path) -> None:
    small, large = heads(memory_mb=1), heads(memory_mb=256)
    rows = SqliteRows(tmp_path / "rows.sqlite")
    small.keep_rows_in(rows)
    draw = np.random.default_rng(3)
    keys = [f"u{number}" for number in range(3000)]
    for number, key in enumerate(keys):
        scored = Scored(None, vector(*draw.normal(size=20)))
        for found in (small, large):
            learn(found, {"reward": float(number % 5)}, key=key, scored=scored, at_s=float(number))
    assert small.said()["keys_in_memory"] < 2500
    assert large.said()["keys_in_memory"] == 3000
    assert small.said()["used_bytes"] < 1_200_000
    asked = Scored(None, vector(*draw.normal(size=20)))
    for key in keys[::300]:
        name = key_name(key)
        large_copy, small_value = heads(memory_mb=256), small.score(name, asked).values[0]
        large_copy.restore(large.freeze()())
        assert small_value == pytest.approx(large_copy.score(name, asked).values[0], abs=1e-4)
    rows.close()


class Nearest:
    """An index that finds the greatest inner products by scoring all."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows, self.asked = rows, 0

    def near(self, query: FloatArray, count: int) -> IntArray:
        self.asked += 1
        return np.argsort(-(self.rows @ query))[:count]


def large_table(items: int = 10_001) -> ItemTable:
    vectors = np.random.default_rng(1).normal(size=(items, 3)).astype(np.float32)
    return ItemTable([f"s{number}" for number in range(items)], vectors, "t")


def test_large_table_is_ranked_by_an_index_that_is_built_again_as_observations_come() -> None:
    table = large_table()
    one = PersonalHeads(PersonalSettings(table="t"), "v", now=lambda: 0.0, table=table)

    def tell(count: int, first: int) -> None:
        for number in range(first, first + count):
            one.apply(HeadFact("u", 1.0, "v", float(number % 3), f"s{number}").to_json())

    tell(10, 0)
    exact = one.top("u", 5, None)
    rows = one.to_index()
    assert rows is not None
    assert one.to_index() is None, "one is being built"
    index = Nearest(rows)
    one.use_index(index)
    asked = index.asked
    assert (one.top("u", 5, None).items, index.asked) == (exact.items, asked + 1)
    tell(2, 10)
    assert one.to_index() is None
    tell(1, 12)
    assert one.to_index() is not None, "a fifth more observations have moved the means"


def test_index_that_misses_the_best_items_is_not_used() -> None:
    one = PersonalHeads(PersonalSettings(table="t"), "v", now=lambda: 0.0, table=large_table())
    one.apply(HeadFact("u", 1.0, "v", 3.0, "s1").to_json())
    exact = one.top("u", 5, None).items
    rows = one.to_index()
    assert rows is not None
    one.use_index(Nearest(-rows))

    assert one.top("u", 5, None).items == exact
    assert one.to_index() is None, "it is not built again for the same observations"


def test_small_table_and_exploring_policy_need_no_index() -> None:
    explore = PersonalSettings(table="t", explore=Exploration("item", 0.6))

    assert heads(table=True).to_index() is None
    assert heads().to_index() is None
    assert PersonalHeads(explore, "v", now=lambda: 0.0, table=large_table()).to_index() is None


def test_deletion_reaches_observations_after_an_earlier_one_by_a_clock_that_is_ahead() -> None:
    ahead, behind = heads(), heads()
    for one in (ahead, behind):
        learn(one, {"reward": 4.0})
        one.apply(HeadFact(U1, 1000.0).to_json())
    again = ahead.fact(observation({"reward": 4.0}, at_s=990.0))
    learn(behind, {"forget": U1, "newest_s": behind.newest_s(U1)}, at_s=995.0)
    assert again is not None
    behind.apply(again)
    assert behind.observations == 0


def test_key_is_erased_from_the_files_though_the_file_of_rows_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = heads()
    learn(found, {"reward": 4.0})
    erased: list[str] = []
    found.erase = lambda key, at_s: erased.append(key)

    def fails(*_: object) -> None:
        raise OSError("disk I/O error")

    assert found._learner is not None
    monkeypatch.setattr(found._learner, "forget", fails)
    with pytest.raises(OSError, match="disk"):
        found.apply(HeadFact(U1, 50.0).to_json())
    assert erased == [U1]
