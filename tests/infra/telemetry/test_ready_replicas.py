"""Replicas of another autoscaler as a fleet that mark may not change."""

from __future__ import annotations

import pytest
from mark_infra.telemetry.ready_replicas import MOST, ReadyReplicas

from mark.domain.errors import DeniedError
from mark.domain.fleet import Phase
from mark.testing.fakes import ManualClock

OFFER = "g6.xlarge/on-demand"


def test_youngest_replicas_go_first() -> None:
    clock = ManualClock()
    replicas = ReadyReplicas(OFFER, clock)
    assert replicas.fleet().instances == ()
    replicas.see(2)
    clock.t_s = 60.0
    replicas.see(3)
    assert [(i.number, i.launched_s, i.phase) for i in replicas.fleet().instances] == [
        (1, 0.0, Phase.READY), (2, 0.0, Phase.READY), (3, 60.0, Phase.READY),
    ]  # fmt: skip
    replicas.see(1)
    assert [i.number for i in replicas.fleet().instances] == [1]


@pytest.mark.parametrize("replicas", [None, -1, MOST + 1])
def test_count_that_cannot_be_changes_nothing(replicas: int | None) -> None:
    there = ReadyReplicas(OFFER, ManualClock())
    there.see(2)
    there.see(replicas)
    assert there.fleet().ready() == {OFFER: 2}


def test_nothing_is_ever_changed() -> None:
    replicas = ReadyReplicas(OFFER, ManualClock())
    for action in (replicas.drain, replicas.terminate, replicas.stop, replicas.resume):
        with pytest.raises(DeniedError):
            action(1)
    with pytest.raises(DeniedError):
        replicas.launch(OFFER, 1, "token")
    assert replicas.notices() == ()
