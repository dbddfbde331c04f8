"""The start of a worker process: as a child of the bouncer, or by a keeper that runs as another user.

A program that listens on a socket, such as systemd, starts a keeper (`mark.serving.worker.keeper`) with the user,
groups and limits for the model's code. So the bouncer needs no right to change users, and a model has none of the
bouncer's rights.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mark.serving.worker.descendants import MARK, end_marked

# Messages to a keeper after the first one: kill the worker, or ask it to end. Messages from a keeper: the worker's id,
# its return code.
KILL, TERMINATE = b"K", b"T"
STARTED, ENDED = b"P", b"E"
NUMBER = struct.Struct("<ci")
KEPT_BYTES = 150_000  # of the first message: arguments and environment; the kernel takes 200 kB
_PATIENCE_S = 10.0  # for the last message of a keeper


class ChildProcess(Protocol):
    """A worker process as the bouncer sees it."""

    @property
    def pid(self) -> int:
        """Return the process id, or 0 while it is unknown."""

    @property
    def ended_fd(self) -> int:
        """Return a descriptor that is readable when `ended` may have become true."""

    def ended(self) -> bool:
        """Return whether the process has ended."""

    def kill(self) -> None:
        """Kill the process and all processes that it started, if any are left."""

    def give_up(self) -> None:
        """Count the process as killed even if its keeper does not report it; `ended` is true from now on."""

    def terminate(self) -> None:
        """Ask the process to end."""

    def wait(self) -> int:
        """Release the process after its end; return its return code, as in `subprocess`."""


# Takes the worker's file descriptors (a channel, arenas), the lifeline, its arguments and its environment.
Spawn = Callable[[Sequence[int], int, Sequence[str], Mapping[str, str]], ChildProcess]


def start(
    fds: Sequence[int], lifeline: int, arguments: Sequence[str], environment: Mapping[str, str], output: int = 2
) -> subprocess.Popen[bytes]:
    """Start the process. `output` gets its output."""
    # -P: a mark.py in the user's folder must not hide ours. The process has its own group, because a signal that a
    # terminal or a shell sends to the bouncer's group would otherwise end the worker before the bouncer has drained.
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", "mark.serving.worker.worker"]
    return subprocess.Popen(
        [*command, ",".join(map(str, fds)), str(lifeline), *arguments],
        pass_fds=[*fds, lifeline],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=dict(environment),
        process_group=0,
    )


class OwnChild:
    """A child of this process. Raises OSError if it cannot be started."""

    def __init__(
        self,
        fds: Sequence[int],
        lifeline: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: int = 2,
    ) -> None:
        self._token = uuid.uuid4().hex
        self._popen = start(fds, lifeline, arguments, {**environment, MARK: self._token}, output)
        self.pid = self._popen.pid
        try:
            self.ended_fd = os.pidfd_open(self.pid)
        except OSError:
            self.kill()
            self._popen.wait()
            raise

    def ended(self) -> bool:
        return True  # the descriptor is readable only after the end

    def kill(self) -> None:
        # Before it is waited for, no other process can have its id.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        end_marked(self._token)

    def give_up(self) -> None:
        """Do nothing, because the kernel itself ends killed processes and reports it."""

    def terminate(self) -> None:
        self._popen.terminate()

    def wait(self) -> int:
        code = self._popen.wait()
        os.close(self.ended_fd)
        return code


class KeptChild:
    """A child of a keeper, which is at the other end of a connection. Raises OSError if it cannot be started."""

    def __init__(self, door: socket.socket) -> None:
        self._door, self._code, self.pid = door, 0, 0
        self.ended_fd = door.fileno()
        self._over = False

    @classmethod
    def through(cls, path: Path, output: int = 2) -> Spawn:
        """Return a `Spawn` that starts workers by keepers. Workers print to `output`.

        The listener at `path` starts a keeper for each connection.
        """

        def spawn(
            fds: Sequence[int], lifeline: int, arguments: Sequence[str], environment: Mapping[str, str]
        ) -> KeptChild:
            said = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
            if len(said) > KEPT_BYTES:
                raise OSError(f"the environment and the arguments of a worker have {len(said)} bytes")
            door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                door.setblocking(False)
                door.connect(str(path))
                socket.send_fds(door, [said], [output, lifeline, *fds])
            except OSError as error:
                door.close()
                raise OSError(f"{path}: {error.strerror or error}") from None
            return cls(door)

        return spawn

    def ended(self) -> bool:
        while not self._over:
            try:
                self._hear(self._door.recv(64))
            except BlockingIOError:
                return False
            except ConnectionError:
                self._hear(b"")
        return True

    def kill(self) -> None:
        with suppress(OSError):
            self._door.send(KILL)

    def give_up(self) -> None:
        # Messages that the keeper has sent are still read, followed by the end of the connection. A keeper that is
        # alive sees that end too, and ends its worker.
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)

    def terminate(self) -> None:
        with suppress(OSError):
            self._door.send(TERMINATE)

    def wait(self) -> int:
        with suppress(TimeoutError, ConnectionError):
            self._door.settimeout(_PATIENCE_S)
            while not self._over:
                self._hear(self._door.recv(64))
        self._door.close()
        return self._code

    def _hear(self, message: bytes) -> None:
        if len(message) == NUMBER.size:
            kind, number = NUMBER.unpack(message)
            if kind == STARTED:
                self.pid = number
                return
            if kind == ENDED:
                self._code = number
        if not message:  # the keeper was killed with its processes, or is given up
            self._code = -signal.SIGKILL
        self._over = True
