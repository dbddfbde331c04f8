"""Become another program that does not outlive its parent: `python launch.py PARENT PROGRAM ARGUMENT...`.

PARENT is a process id. When that process ends, even by SIGKILL, this one is killed.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def command(*program: str) -> list[str]:
    """Return the command by which this process starts the program; the starting thread must live as long."""
    # -I -S avoid imports that the lines below do not need.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *program]


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("its parent is gone")
    os.execv(sys.argv[2], sys.argv[2:])
