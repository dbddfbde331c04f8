"""Policies of a user's own: found in the folder, built with candidates and settings, and checked at each step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.policy_loading import PolicyFailed, load_policy
from mark.selection.policy import CandidateReply, Query, SelectionPolicy
from mark.selection.settings import SelectionSettings
from mark.selection.state import SelectionState

CODE = """
from mark.selection.policy import answer_of

class First:
    asks = ((0, 1.0),)
    chosen = 0
    def __init__(self, candidates, settings):
        self.candidates, self.settings = candidates, settings
    def ask(self, query):
        return () if query.asked else self.asks
    def combine(self, query):
        return answer_of(query, min(query.replies))
    def settled(self, query):
        return False

class Stranger(First):
    asks = ((7, 1.0),)

class Twice(First):
    asks = ((0, 1.0), (0, 1.0))

class Impossible(First):
    asks = ((0, 1.5),)

class Asks(First):
    def ask(self, query):
        return 1 / 0

class Says(First):
    def combine(self, query):
        return "seven"

class Deaf:
    def __init__(self, candidates, settings): pass
    def ask(self, query): return ()
    def combine(self, query): return None

class Refuses(First):
    def __init__(self, candidates, settings):
        raise RuntimeError("no such table")

def function(candidates, settings): return None
"""
SETTINGS = SelectionSettings("policy_of_test:First")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = list(sys.path)
    (tmp_path / "policy_of_test.py").write_text(CODE)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("policy_of_test", None)


def loaded(name: str, folder: Path) -> SelectionPolicy:
    return load_policy(f"policy_of_test:{name}", folder, ("a", "b"), SETTINGS)


def query() -> Query:
    state = SelectionState(("a", "b"), SETTINGS)
    return Query(state.sums(""), state, [0.0, 0.0], lambda: 0.5, {0, 1})


def test_policy_is_built_with_candidates_and_settings(folder: Path) -> None:
    policy, asked = loaded("First", folder), query()
    assert list(policy.ask(asked)) == [(0, 1.0)]
    asked.replies[1] = CandidateReply("x", "x")
    assert policy.combine(asked).label == "x"
    assert policy.settled(asked) is False
    made = sys.modules["policy_of_test"].First(("a", "b"), SETTINGS)
    assert (made.candidates, made.settings.policy) == (("a", "b"), "policy_of_test:First")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Absent", "policy_of_test has no Absent"),
        ("function", "function is no class"),
        ("Deaf", "Deaf has no method settled: a policy has ask, combine and settled"),
        ("Refuses", "Refuses(candidates, settings) failed: RuntimeError: no such table"),
    ],
)
def test_policy_that_cannot_be_built_is_bad_input(folder: Path, name: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        loaded(name, folder)
    assert str(refused.value).startswith(f"policy_of_test:{name}: {message}")


def test_module_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no module none_of_test in"):
        load_policy("none_of_test:First", tmp_path, ("a", "b"), SETTINGS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Stranger", "ask() returned candidate 7, which is not open: [0, 1] are"),
        ("Twice", "ask() returned candidate 0, which is not open"),
        ("Impossible", "ask() returned the probability 1.5"),
        ("Asks", "ask() ZeroDivisionError"),
        ("Says", "combine() returned a str"),
    ],
)
def test_policy_that_breaks_a_rule_is_told_by_its_name(folder: Path, name: str, message: str) -> None:
    policy, asked = loaded(name, folder), query()
    asked.replies[0] = CandidateReply("x", "x")
    with pytest.raises(PolicyFailed) as failed:
        policy.combine(asked) if message.startswith("combine") else policy.ask(asked)
    assert str(failed.value).startswith(f"policy_of_test:{name}: {message}")
