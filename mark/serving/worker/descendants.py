"""End the processes that a worker started outside its process group: a child with its own session, a daemon.

Such a process keeps the environment that it was started with. So each worker's environment has its own mark (`MARK`),
which identifies the worker's processes whatever their current parent is. A process with another environment is not
found; a cgroup, of systemd or of a container, ends that one.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

MARK = "MARK_WORKER"


def end_marked(token: str) -> None:
    """Kill all processes with this mark except this one.

    The search is repeated until it finds no new one, because one may start when another ends. Without a free descriptor
    it finds none, and the worker itself is replaced all the same.
    """
    wanted, ended = f"{MARK}={token}".encode(), set[int]()
    while True:
        try:
            names = os.listdir("/proc")
        except OSError:
            return
        there = {int(name) for name in names if name.isdigit()} - ended
        found = {pid for pid in there if _ended(pid, wanted)}
        if not found:
            return
        ended |= found


def _ended(pid: int, wanted: bytes) -> bool:
    if pid == os.getpid():
        return False
    with suppress(OSError):  # the process has ended, or belongs to another user
        held = os.pidfd_open(pid)
        try:
            # Read while the process is held: its number may be reused, but the held process stays the same.
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(held, signal.SIGKILL)
                return True
        finally:
            os.close(held)
    return False
