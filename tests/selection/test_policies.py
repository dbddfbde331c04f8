"""Policies by name."""

from __future__ import annotations

import numpy as np
import pytest

from mark.selection.cascade import Cascade
from mark.selection.exp4 import Exp4
from mark.selection.one_asked import Exp3, FixedSplit, Thompson
from mark.selection.policies import policy_of
from mark.selection.settings import POLICIES, SelectionSettings
from tests.selection.selections import query_of

GENERATOR = np.random.default_rng(1)


def test_every_name_has_its_policy() -> None:
    kinds = {
        "split": FixedSplit,
        "exp3": Exp3,
        "exp4": Exp4,
        "exp4:thesis": Exp4,
        "thompson": Thompson,
        "cascade": Cascade,
    }
    assert set(kinds) == set(POLICIES)
    for name, kind in kinds.items():
        settings = SelectionSettings(name, threshold=0.5)
        assert type(policy_of(settings, 2, GENERATOR)) is kind


def test_split_without_weights_asks_all_alike() -> None:
    query = query_of([0.0] * 4)
    policy_of(SelectionSettings("split"), 4, GENERATOR).ask(query)
    assert query.shares == [0.25] * 4


def test_split_takes_the_weights_of_the_settings() -> None:
    query = query_of([0.0] * 2)
    policy_of(SelectionSettings("split", weights=(0.9, 0.1)), 2, GENERATOR).ask(query)
    assert query.shares == pytest.approx([0.9, 0.1])


def test_policy_of_the_user_has_no_name_here() -> None:
    with pytest.raises(ValueError, match="own:Policy"):
        policy_of(SelectionSettings("own:Policy"), 2, GENERATOR)
