"""The laws of every pause: it grows, by doubling, up to its longest, and no clock makes it longer."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mark.domain import backoff
from mark.domain.backoff import Backoff

TABLE = {name: one for name, one in vars(backoff).items() if isinstance(one, Backoff)}


def test_the_table_has_every_thing_that_is_held_back() -> None:
    assert TABLE.keys() == {
        *("OFFER", "BOOTS", "RELEASE", "ROLLOUT", "LAUNCH", "THROTTLED", "RESUME", "STANDBY", "RESCUE", "START"),
        "FUNCTION",
    }


@pytest.mark.parametrize("one", TABLE.values(), ids=list(TABLE))
@given(refusals=st.integers(1, 10_000))
def test_pauses_double_from_the_first_to_the_longest(one: Backoff, refusals: int) -> None:
    assert one.pause_s(1) == one.first_s
    assert one.first_s <= one.pause_s(refusals) <= one.longest_s
    assert one.pause_s(refusals + 1) == one.doubled_s(one.pause_s(refusals))


@pytest.mark.parametrize("one", TABLE.values(), ids=list(TABLE))
@given(now_s=st.floats(0.0, 1e9), ahead_s=st.floats(0.0, 1e9))
def test_a_clock_that_was_ahead_prolongs_no_pause(one: Backoff, now_s: float, ahead_s: float) -> None:
    kept_s = now_s + ahead_s + one.pause_s(1)
    assert one.not_ahead(kept_s, now_s) <= now_s + one.longest_s
    assert one.not_ahead(now_s + one.first_s, now_s) == now_s + one.first_s
