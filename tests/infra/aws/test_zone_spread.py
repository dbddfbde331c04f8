"""Parts of a launch, and the order of zones in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.zone_spread import emptiest, rotated, shares


@given(st.integers(1, 500), st.integers(0, 6))
def test_parts_add_up_and_none_is_above_its_share(count: int, zones: int) -> None:
    found = shares(count, zones)
    assert sum(found) == count
    assert min(found) >= 1
    assert max(found) == -(-count // max(1, min(count, zones)))


def test_zones_take_turns() -> None:
    assert [rotated("abc", k) for k in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated([], 5) == []


def test_the_emptiest_zone_has_the_fewest_instances() -> None:
    assert emptiest(["a", "b", "c"], {"a": 1, "z": 0}) == 1
    assert emptiest(["a", "b"], {}) == 0
    assert emptiest([], {"a": 3}) == 0
