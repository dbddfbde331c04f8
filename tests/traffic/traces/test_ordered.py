"""Sorted runs in a file merge to the same as one sort in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.traffic.traces.ordered import BLOCK, Ordered

PARTS = st.lists(st.lists(st.integers(0, 50), max_size=8), max_size=30)


@settings(max_examples=60)
@given(parts=PARTS, run=st.integers(1, 12))
def test_stamps_come_out_in_order_as_often_as_asked(parts: list[list[int]], run: int) -> None:
    ordered = Ordered(run=run)
    for part in parts:
        ordered.add(np.array(part, dtype=np.int64))
    everything = sorted(stamp for part in parts for stamp in part)
    for _ in range(2):
        blocks = list(ordered.blocks())
        assert all(map(len, blocks))
        assert [int(stamp) for block in blocks for stamp in block] == everything
    assert ordered.count == len(everything)


@pytest.mark.parametrize("overlapping", [False, True])
def test_runs_longer_than_a_block_are_merged(overlapping: bool) -> None:
    stamps = np.arange(5 * BLOCK + 3, dtype=np.int64)
    if overlapping:
        stamps = np.random.default_rng(1).permutation(stamps)
    ordered = Ordered(run=2 * BLOCK)
    for begin in range(0, len(stamps), BLOCK // 2):
        ordered.add(stamps[begin : begin + BLOCK // 2])
    np.testing.assert_array_equal(np.concatenate(list(ordered.blocks())), np.sort(stamps))
