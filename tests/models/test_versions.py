"""Versions side by side."""

from __future__ import annotations

from collections import Counter

import pytest

from mark.domain.errors import BadInput
from mark.models.versions import Versions


def test_shares_are_kept_and_retries_stay() -> None:
    """Each version gets its weight of 20,000 ids to within five standard errors; an id always gets the same version."""
    versions = Versions({"1": ("a:A", 0.85), "2": ("a:B", 0.15), "3": ("a:C", 0.0)})
    ids = [f"request-{i}" for i in range(20_000)]
    chosen = [versions.choose(each) for each in ids]
    assert chosen == [versions.choose(each) for each in ids]
    shares = Counter(chosen)
    assert shares.keys() == {"1", "2"}
    assert abs(shares["2"] / len(ids) - 0.15) < 5 * (0.15 * 0.85 / len(ids)) ** 0.5
    assert versions.references == {"1": "a:A", "2": "a:B", "3": "a:C"}


def test_a_growing_version_keeps_its_requests() -> None:
    """From 5 % to 20 % no request goes back to the old version."""
    before, after = (Versions({"old": ("a:A", 1 - new), "new": ("a:B", new)}) for new in (0.05, 0.2))
    ids = [str(i) for i in range(2_000)]
    assert all(after.choose(each) == "new" for each in ids if before.choose(each) == "new")
    assert sum(after.choose(each) == "new" for each in ids) > sum(before.choose(each) == "new" for each in ids)


def test_one_version_answers_all() -> None:
    """An empty id is answered too."""
    assert Versions({"1": ("a:A", 1.0)}).choose("") == "1"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "at least one"),
        ({"1": 0.5}, "add up to 1"),
        ({"1": 0.5, "2": 0.6}, "add up to 1"),
        ({"1": -0.5, "2": 1.5}, "0 to 1"),
        ({"1": float("nan")}, "0 to 1"),
        ({"a/b": 1.0}, "slash"),
    ],
)
def test_weights_are_checked(weights: dict[str, float], message: str) -> None:
    """They are shares of all requests."""
    with pytest.raises(BadInput, match=message):
        Versions({version: ("a:A", weight) for version, weight in weights.items()})
