"""The horizons of many calls equal those that the rule gives one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.rules.stage_horizon import stage_horizon_s
from mark.kernel.horizons import horizons_s

SECONDS = st.floats(0.0, 1.0)


@given(st.lists(st.floats(-1.0, 1.0), max_size=5), SECONDS, SECONDS, SECONDS)
def test_they_are_those_of_the_rule(left_s: list[float], own_s: float, behind_s: float, least_behind_s: float) -> None:
    found = horizons_s(np.array(left_s), own_s, behind_s, least_behind_s)
    assert found.tolist() == [stage_horizon_s(one, own_s, behind_s, least_behind_s) for one in left_s]
