from __future__ import annotations

import numpy as np
import pytest

from mark.domain.late_shares import LateShares

SIZES = np.array([1, 2, 4, 8, 16])
LOADS_RPS = np.geomspace(1.0, 10.0, 5)


def shares(dispersion: list[float]) -> LateShares:
    """Return a table whose fleets of every size leave 0.1 to 10 % late; misses cluster by size alone."""
    late = np.tile(np.geomspace(0.001, 0.1, 5), (len(SIZES), 1))
    by_size = np.repeat(np.array(dispersion)[:, None], 5, axis=1)
    return LateShares(SIZES, LOADS_RPS, late, np.zeros_like(late), by_size, 0.1, 20_000)


@pytest.mark.parametrize(("instances", "expected"), [(0, 3.0), (1, 3.0), (3, 3.0), (8, 6.0), (10, 6.0), (900, 9.0)])
def test_misses_cluster_more_in_larger_fleets(instances: int, expected: float) -> None:
    """At least as in a fleet of any size, because one size has few counted cells."""
    table = shares([1.0, 2.0, 3.0, 6.0, 9.0])
    assert table.clustering(0.02) == 3.0
    assert table.clustering_of(instances, 0.02) == expected
