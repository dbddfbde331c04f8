"""The batches of a bouncer in their order, and the times at which workers are free."""

from __future__ import annotations

import pytest

from mark.domain.rules.admission import NEVER_S
from mark.models.call import Call
from mark.serving.backend.lineup import _DEEP, IllegalTransition, Lineup
from mark.serving.backend.request import Batch, Request

SERVICE_S = (0.0, 1.0, 1.5)  # of a batch of so many items


def batch(items: int = 1) -> Batch:
    request = Request(Call("oip", "application/json", b""), items, 0.0, NEVER_S, print, "", 0)  # type: ignore[arg-type]
    found = Batch(request, items, 0, 0.0, NEVER_S, NEVER_S)
    found.service_s = SERVICE_S[items]
    return found


def closed(lineup: Lineup, batches: int) -> None:
    for _ in range(batches):
        lineup.open = batch()
        lineup.close_open(SERVICE_S)


def test_worker_is_free_behind_running_and_closed_batches() -> None:
    lineup = Lineup(workers=2)
    lineup.start(batch(2), 0.0)
    assert lineup.play_through(0.25) == 0.25
    lineup.start(batch(1), 0.25)
    closed(lineup, 1)
    assert (lineup.idle, lineup.play_through(0.5)) == (0, 1.5)  # the closed batch follows the one that ends at 1.25 s
    lineup.open = batch(2)
    assert lineup.behind_all_s(0.5, SERVICE_S) == 2.25


def test_worker_that_is_down_counts_from_its_return() -> None:
    lineup = Lineup(workers=0)
    assert lineup.play_through(0.0) == NEVER_S
    lineup.back_s.append(3.0)
    assert lineup.play_through(0.0) == 3.0
    assert lineup.play_through(4.0) == 5.0  # late by one second


def test_long_line_is_divided_evenly_among_workers() -> None:
    lineup = Lineup(workers=2)
    closed(lineup, _DEEP + 2)
    assert lineup.play_through(0.0) == pytest.approx((_DEEP + 2) / 2)
    lineup.first_closed()
    lineup.first_closed()
    assert lineup.play_through(0.0) == pytest.approx(_DEEP / 2)


def test_batch_that_does_not_run_cannot_leave() -> None:
    lineup = Lineup(workers=1)
    running = batch()
    lineup.start(running, 0.0)
    with pytest.raises(IllegalTransition):
        lineup.leave(batch())
    assert lineup.running == [running]


def test_emptied_line_returns_requests_in_order() -> None:
    lineup = Lineup(workers=0)
    first, second = batch(), batch()
    lineup.open = first
    lineup.close_open(SERVICE_S)
    lineup.open = second
    assert lineup.empty() == [*first.requests, *second.requests]
    assert (lineup.empty(), lineup.open, len(lineup.closed)) == ([], None, 0)


def test_squares_of_service_times_are_shared_by_workers() -> None:
    lineup = Lineup(workers=2)
    lineup.start(batch(2), 0.0)
    lineup.open = batch(1)
    assert lineup.squares_s2(SERVICE_S, 1, False, 2) == (pytest.approx(1.5**2 / 2 + 1.0), False)
    assert lineup.squares_s2(SERVICE_S, 1, True, 2) == (pytest.approx((1.5**2 + 1.0) / 2 + 1.0), False)
