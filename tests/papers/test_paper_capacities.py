"""How many requests/s the paper's program plans an instance for."""

from __future__ import annotations

import pytest
from mark_papers.mark_optimal import paper_capacities
from mark_papers.queueing import mean_wait_s, share_waiting_at_most

from tests.planning.build import resolved, sold, usual


def test_capacities_keep_the_wait_to_rt_max_less_a_batch() -> None:
    """small: 100 ms of 600; large: batches of 8 in 40 ms, each request a fortieth of the worker's 200 a second."""
    of = resolved(
        sold("large", 1.5), sold("small", 0.2), latencies_ms={"large": 10.0, "small": 100.0}, batch={"large": (8, 40.0)}
    )
    large, small = paper_capacities(of.candidates, of.slo)
    assert mean_wait_s(small, 0.1, 1) == pytest.approx(0.5)
    assert mean_wait_s(large, 0.005, 1) == pytest.approx(0.56)
    tail = paper_capacities(of.candidates, of.slo, tail=True)
    assert share_waiting_at_most(0.5, tail[1], 0.1, 1) == pytest.approx(0.98)
    assert (tail < [large, small]).all()


def test_a_type_as_slow_as_rt_max_has_no_capacity() -> None:
    of = usual(rt_max_s=0.1)
    assert paper_capacities(of.candidates, of.slo)[1] == pytest.approx(0.0, abs=1e-6)
