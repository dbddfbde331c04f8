"""ParM's clusters: known cases, and laws that hold for any draws."""

from __future__ import annotations

import numpy as np
import pytest
from mark_papers.parm import fleets
from mark_papers.parm.fleets import GPU, Cluster

from mark.domain.faults import NO_FAULTS

QUERIES = 5_000
CALM = Cluster("two instances", 2, (0.010,), 2.6)


def test_idle_instances_answer_within_the_service_time() -> None:
    found = fleets.equal_resources(CALM, 2, 1.0, NO_FAULTS, QUERIES)
    assert found.median_ms == pytest.approx(10.0, rel=0.01)
    assert found.p99_ms == pytest.approx(10.0, rel=0.1), "service times vary by 3 %"


def test_instances_share_one_queue() -> None:
    """Five simultaneous calls on two instances end in three rounds."""
    finish_s = fleets.served(np.zeros(5), 2, (0.010,), NO_FAULTS, seed=0)
    assert np.sort(finish_s) == pytest.approx([0.01, 0.01, 0.02, 0.02, 0.03], rel=0.2)


def test_delayed_answers_leave_the_worker_free() -> None:
    """All answers are delayed by a second, and the throughput stays: two instances of 100 queries/s."""
    faults = fleets.shuffled(1, 1.0, share=0.999)
    calm, late = (fleets.equal_resources(CALM, 2, 150.0, one, QUERIES) for one in (NO_FAULTS, faults))
    assert late.median_ms == pytest.approx(calm.median_ms + 1000.0, rel=0.01)


def test_parity_answers_instead_of_a_delayed_instance() -> None:
    faults = fleets.shuffled(4, 0.2)
    equal = fleets.equal_resources(GPU, 2, 270.0, faults, QUERIES)
    coded = fleets.parity(GPU, 2, 270.0, faults, QUERIES)
    hedged = fleets.hedged(GPU, 2, 0.04, 270.0, faults, QUERIES)
    assert equal.p999_ms > 200.0
    assert coded.p999_ms < 100.0
    assert hedged.p999_ms < 150.0
    assert 0.0 < coded.reconstructed < 0.5
    assert 0.0 < hedged.copies < 0.05


def test_smaller_models_that_get_every_query_are_overloaded() -> None:
    """Half of the instances, 1.15 times as fast, have room for 276 queries/s."""
    slow, fast = (fleets.approximate(GPU, 2, speedup, 340.0, NO_FAULTS, QUERIES) for speedup in (1.15, 4.0))
    assert fast.p999_ms < slow.p999_ms


@pytest.mark.slow
def test_delay_is_calibrated_to_the_gap_of_the_paper() -> None:
    found = fleets.equal_resources(GPU, 2, 270.0, fleets.shuffled(4, fleets.delay_s(GPU)))
    assert found.p999_ms / found.median_ms == pytest.approx(2.6, abs=0.01)
