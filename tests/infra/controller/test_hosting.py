"""systemd learns that the controller's loop goes on."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from mark_infra.controller.hosting import Pulse, watchdog


@pytest.mark.parametrize("place", ["{folder}/notify", "\0{folder}"])
def test_each_beat_is_told_to_systemd(tmp_path: Path, place: str) -> None:
    """The socket is a path or in the abstract namespace, which $NOTIFY_SOCKET writes with an @."""
    bound = place.format(folder=tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(bound)
        systemd.settimeout(10.0)
        pulse = Pulse(watchdog(bound.replace("\0", "@")))
        pulse.beat()
        assert [systemd.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_without_systemd_nothing_is_told(address: str) -> None:
    alive: Callable[[], None] = watchdog(address)
    alive()
    assert Pulse(alive).is_felt()
