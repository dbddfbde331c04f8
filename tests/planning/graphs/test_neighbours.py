"""Configurations close to a known one."""

from __future__ import annotations

import pytest

from mark.planning.graphs.estimate import StageChoice, usd_per_hour
from mark.planning.graphs.neighbours import neighbours, with_free, with_less
from mark.planning.graphs.packing import Host
from tests.planning.graphs.planned import option, worker_on

CPU, GPU = option("cpu", 0.1, 0.0, 0.02), option("gpu", 0.7, 0.0, 0.005)
HOST, OTHER = Host("c7i.large", 0.1, 2.0, 0.0), Host("c7i.xlarge", 0.2, 4.0, 0.0)
WORKER, BESIDE = worker_on(HOST, 0.0, 0.02), worker_on(OTHER, 0.0, 0.02)


def test_moves_take_one_replica_change_an_option_or_do_both() -> None:
    best = StageChoice(CPU, 2, 3), StageChoice(GPU, 1, 2)
    needs = [[StageChoice(CPU, 1, 5), StageChoice(CPU, 2, 3), StageChoice(GPU, 4, 1)], [StageChoice(GPU, 1, 2)]]
    moved = list(neighbours(best, needs, [[CPU, GPU], [GPU]]))
    assert moved == [
        (StageChoice(CPU, 2, 2), best[1]),
        (best[0], StageChoice(GPU, 1, 1)),
        (StageChoice(CPU, 1, 5), best[1]),
        (StageChoice(GPU, 4, 1), best[1]),
        (StageChoice(GPU, 4, 1), StageChoice(GPU, 1, 1)),
    ]


def test_the_last_replica_stays() -> None:
    assert with_less((StageChoice(CPU, 1, 1),), 0) is None
    assert with_less((StageChoice(WORKER, 1, 1),), 0) is None


def test_of_workers_as_many_go_as_an_instance_has() -> None:
    """Five on instances of two: one alone is on the third, of four it takes two to save one."""
    five, four = (StageChoice(WORKER, 1, 5),), (StageChoice(WORKER, 1, 4),)
    assert with_less(five, 0) == four
    assert with_less(four, 0) == (StageChoice(WORKER, 1, 2),)
    assert with_free((StageChoice(WORKER, 1, 3),), 0) == four
    assert with_free((StageChoice(CPU, 1, 3),), 0) == (StageChoice(CPU, 1, 3),)


def test_into_the_room_that_another_stage_s_instances_have_left() -> None:
    """The second stage's two workers leave two vCPUs free: workers of the first stage there save an instance."""
    best = StageChoice(WORKER, 1, 3), StageChoice(BESIDE, 1, 2)
    moved = list(neighbours(best, [[best[0]], [best[1]]], [[WORKER, BESIDE], [BESIDE]]))
    spread = StageChoice(WORKER, 1, 2, ((BESIDE, 2),)), best[1]
    assert spread in moved
    assert usd_per_hour(spread) == pytest.approx(usd_per_hour(best) - 0.1)
