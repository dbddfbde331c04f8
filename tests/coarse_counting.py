"""Coarse counts of late shares, in an eighth of the time, for tests that do not depend on their exactness."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mark.planning.demand import late_counting

_COARSE = {"REQUESTS": 5_000, "CLOSE_REQUESTS": 20_000, "LOADS": 49, "INSTANCES": np.array([1, 2, 4, 8, 16, 64])}


def count_coarsely(change: Callable[[object, str, object], None]) -> None:
    """Change the numbers of `late_counting` by `change`: `setattr`, or that of a `pytest.MonkeyPatch`."""
    for name, value in _COARSE.items():
        change(late_counting, name, value)
