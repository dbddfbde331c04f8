"""A keeper: starts one worker for a bouncer of another user, reports its end, and ends it on request.

    python -m mark.serving.worker.keeper

Its standard input is a connection (AF_UNIX, SOCK_SEQPACKET) to the bouncer, whose end is `mark.serving.worker.child`.
The first message names the command and brings the descriptors that the worker shares with the bouncer. The worker
inherits the keeper's user, groups, limits and folder; in its environment the keeper's variables override the bouncer's.
When the bouncer ends, the worker is ended. If the keeper runs in its own group (such as systemd's), the program that
started it ends all remaining processes after it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress

from mark.serving.worker.child import ENDED, KEPT_BYTES, KILL, NUMBER, STARTED, TERMINATE, start

_MOST_FDS = 16


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, a child's return code is lost
    with socket.socket(fileno=os.dup(0)) as door:
        message, fds, *_ = socket.recv_fds(door, KEPT_BYTES, _MOST_FDS)
        if not message:
            return
        said = json.loads(message)
        output, lifeline, *shared = fds
        try:
            child = start(shared, lifeline, said["arguments"], {**said["environment"], **os.environ}, output)
        finally:
            for fd in fds:
                os.close(fd)
        try:
            _tell(door, STARTED, child.pid)
            _keep(door, child.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _keep(door: socket.socket, pid: int) -> None:
    """Serve until the bouncer has gone, or has been told of the worker's end and closes."""
    ended, polled = os.pidfd_open(pid), select.poll()
    polled.register(ended, select.POLLIN)
    polled.register(door, select.POLLIN)
    while True:
        ready = {fd for fd, _ in polled.poll()}
        if ended in ready:
            polled.unregister(ended)
            # Not reaped yet: another process could get its id, and with it signals meant for its group.
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert found is not None
            _tell(door, ENDED, found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
        if door.fileno() in ready:
            asked = _heard(door)
            if asked == KILL:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            elif asked == TERMINATE:
                os.kill(pid, signal.SIGTERM)
            else:
                return


def _heard(door: socket.socket) -> bytes:
    try:
        return door.recv(64)
    except ConnectionError:
        return b""


def _tell(door: socket.socket, kind: bytes, number: int) -> None:
    with suppress(OSError):  # the bouncer has gone, which the caller notices next
        door.send(NUMBER.pack(kind, number))


if __name__ == "__main__":
    main()
