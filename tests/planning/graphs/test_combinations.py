"""Every combination once, the cheapest first."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mark.planning.graphs.combinations import by_cost
from mark.planning.graphs.estimate import StageChoice, least_usd_per_hour
from tests.planning.graphs.planned import option

PRICES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4).map(sorted), min_size=1, max_size=4)


@given(PRICES)
def test_each_combination_comes_once_the_cheapest_first(prices: list[list[int]]) -> None:
    needs = [[StageChoice(option("x", float(usd), 0.0, 0.01), 1, 1) for usd in of_stage] for of_stage in prices]
    found = list(by_cost(needs))
    assert set(found) == set(itertools.product(*needs))
    assert len(found) == len(set(found))
    assert [least_usd_per_hour(one) for one in found] == sorted(map(least_usd_per_hour, found))
