"""End what a worker has started outside its process group: a child with a session of its own, a daemon.

Such a process keeps the environment that it was started with. So the environment of each worker has a mark of its own
(`MARK`), by which its processes are known, whatever their parent is by now. A process that was given another
environment is not found; a cgroup, of systemd or of a container, ends that one.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

MARK = "MARK_WORKER"


def end_marked(token: str) -> None:
    """Kill all processes with this mark, but this one. Look again until none is new: one may start as another ends.

    With no descriptor left to look with, none is found: the worker itself is to be replaced all the same.
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
    with suppress(OSError):  # it has ended, or is another user's
        held = os.pidfd_open(pid)
        try:
            # Read while it is held: another process may get its number, but not what is held.
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(held, signal.SIGKILL)
                return True
        finally:
            os.close(held)
    return False
