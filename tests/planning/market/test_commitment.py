"""How much commitment the use of an offer would have justified."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.planning.market.commitment import advise

RUNNING = {"a/on-demand": np.array([1.0, 1.0, 2.0, 4.0])}  # used 100, 50, 25, 25 % of the time


@pytest.mark.parametrize(("discount", "count", "saved"), [(0.2, 1, 0.2), (0.6, 2, 0.7), (0.8, 4, 1.2), (0.5, 1, 0.5)])
def test_a_commitment_pays_above_its_break_even(discount: float, count: int, saved: float) -> None:
    """At 1 $/h an instance pays if it is used for more than 1 - discount of the time.

    At exactly that use it saves nothing.
    """
    (found,) = advise(RUNNING, {"a/on-demand": 1.0}, {"1-year": discount})
    assert found.used == (1.0, 0.5, 0.25, 0.25)
    assert (found.count, found.saved_usd_per_hour) == (count, pytest.approx(saved))
    assert found.pays_above == pytest.approx(1.0 - discount)


def test_every_priced_offer_has_a_line_per_term() -> None:
    running = {"b": np.ones(3), "a": np.zeros(3), "spot": np.ones(3)}
    found = advise(running, {"a": 1.0, "b": 2.0}, {"1-year": 0.3, "3-year": 0.5})
    assert [(one.offer, one.term, one.count) for one in found] == [
        ("a", "1-year", 0), ("a", "3-year", 0), ("b", "1-year", 1), ("b", "3-year", 1),
    ]  # fmt: skip


@given(st.lists(st.integers(0, 8), min_size=1, max_size=30), st.floats(0.01, 0.99), st.floats(0.1, 5.0))
def test_no_other_count_saves_more(counts: list[int], discount: float, price: float) -> None:
    """The reference is the bill of every count, hour by hour."""
    (found,) = advise({"a": np.array(counts, dtype=float)}, {"a": price}, {"t": discount})

    def bill(committed: int) -> float:
        beyond = sum(max(0, n - committed) for n in counts) * price
        return beyond + committed * price * (1.0 - discount) * len(counts)

    assert bill(found.count) <= min(bill(k) for k in range(10)) + 1e-9
    assert bill(0) - bill(found.count) == pytest.approx(found.saved_usd_per_hour * len(counts))
