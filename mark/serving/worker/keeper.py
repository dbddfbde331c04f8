"""A keeper: starts one worker for a bouncer of another user, tells when it has ended, ends it when the bouncer says so.

    python -m mark.serving.worker.keeper

Its standard input is a connection (AF_UNIX, SOCK_SEQPACKET) to the bouncer, `mark.serving.worker.child` its other end.
The first message says what to start, and brings what the worker shares with the bouncer. What the worker inherits is
the keeper's: user, groups, limits, folder; of the environment what the keeper has comes before what the bouncer has.
When the bouncer goes the worker goes; and where the keeper runs in a group of its own (systemd's, say) what started
it ends whatever is left when it ends.
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
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, how a child has ended is lost
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
    """Until the bouncer has gone, or knows that the worker has ended and wants nothing more."""
    ended, polled = os.pidfd_open(pid), select.poll()
    polled.register(ended, select.POLLIN)
    polled.register(door, select.POLLIN)
    while True:
        ready = {fd for fd, _ in polled.poll()}
        if ended in ready:
            polled.unregister(ended)
            # Not reaped yet: no other process may have its id, and with it get what is meant for its group.
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
    with suppress(OSError):  # the bouncer has gone, which shows at once
        door.send(NUMBER.pack(kind, number))


if __name__ == "__main__":
    main()
