"""A bouncer's knowledge if service times vary, by cases that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mark.kernel.accounting import Accounting
from mark.kernel.random import factor_of
from mark.kernel.stage import Admission, StageSimulation
from tests.kernel.reference import candidate

SIGMA, SEED = 0.5, 8  # the first batch takes 1.43 s
FACTORS = [factor_of(SEED, 0, nth, 0, SIGMA) for nth in range(1, 200)]  # of the replica's batches, in order


def stage_of(rt_max_s: float, *, bouncers: bool = True) -> StageSimulation:
    """Return a stage with one replica that takes 1 s on average, one request at a time."""
    stage = StageSimulation(
        [candidate([1.0], sigma=SIGMA)],
        accounts=Accounting(rt_max_s=rt_max_s, end_s=1e4),
        admission=Admission(bouncers=bouncers),
        seed=SEED,
        keep=True,
    )
    stage.add(0, 0, 0.0)
    return stage


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_request_behind_a_batch_is_judged_by_its_mean(share: float) -> None:
    """The drawn end decides only when it is answered; a batch that overruns is expected to end now."""
    first_s = FACTORS[0]
    for offset_s in (share * min(first_s, 1.0), first_s - 1e-3):
        expected_s = max(1.0 - offset_s, 0.0) + 1.0  # from the arrival of the second
        for spare_s, admitted in ((1e-4, True), (-1e-4, False)):
            stage = stage_of(max(1.0, expected_s + spare_s))
            stage.advance(np.array([0.0, offset_s]), 0, np.inf)
            stage.finish()
            seen = stage.recording()
            assert (seen.slot[1] == 0) == (admitted or expected_s <= 1.0)
            if seen.slot[1] == 0:
                assert seen.start_s[1] == first_s
                assert seen.finish_s[1] == first_s + FACTORS[1]


def test_long_queues_are_answered_in_order() -> None:
    """Without bouncers a queue has no bound; the rings grow, wherever time is cut."""
    arrivals_s = np.repeat([0.0, 1.0, 30.0], 50)
    whole, cut = stage_of(1.0, bouncers=False), stage_of(1.0, bouncers=False)
    whole.advance(arrivals_s, 0, np.inf)
    position = 0
    for until_s in (0.5, 1.0, 2.0, 30.0, np.inf):
        position = cut.advance(arrivals_s, position, until_s)
    for stage in (whole, cut):
        stage.finish()
        assert stage.recording().finish_s == pytest.approx(np.cumsum(FACTORS[:150]))
