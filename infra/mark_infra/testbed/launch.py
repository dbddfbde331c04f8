"""Become another program that does not outlive its parent: `python launch.py PARENT PROGRAM ARGUMENT...`.

PARENT is a process id; when that process ends, however it ends, this one is killed.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def command(*program: str) -> list[str]:
    """The command by which this process, whose thread must live as long, starts the program."""
    # -I -S: nothing is imported that the three lines below do not need.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *program]


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("its parent is gone")
    os.execv(sys.argv[2], sys.argv[2:])
