"""How a worker process comes to be: as a child of the bouncer, or by a keeper that runs as another user.

A keeper (`mark.serving.worker.keeper`) is started by what listens on a socket, systemd say, with the user, the
groups and the limits that a model's code is to have. So the bouncer needs no right to change users, and a model has
none of the bouncer's.
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

# To a keeper, after the first message: end it, or ask it to end. From one: the worker's id, its return code.
KILL, TERMINATE = b"K", b"T"
STARTED, ENDED = b"P", b"E"
NUMBER = struct.Struct("<ci")
KEPT_BYTES = 150_000  # of the first message: arguments and environment; the kernel takes 200 kB
_PATIENCE_S = 10.0  # for the last word of a keeper


class ChildProcess(Protocol):
    """A worker process, to the bouncer."""

    @property
    def pid(self) -> int:
        """0: not known yet."""

    @property
    def ended_fd(self) -> int:
        """Readable when `ended` may have become true."""

    def ended(self) -> bool:
        """Has it ended?"""

    def kill(self) -> None:
        """With all that it has started, if there is any left."""

    def give_up(self) -> None:
        """Take it for killed, whether or not its keeper says so: `ended` is true from now on."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self) -> int:
        """Let go of it when it has ended; its return code, as `subprocess` has it."""


# File descriptors that the worker gets: a channel, arenas; the lifeline; its arguments; its environment.
Spawn = Callable[[Sequence[int], int, Sequence[str], Mapping[str, str]], ChildProcess]


def start(
    fds: Sequence[int], lifeline: int, arguments: Sequence[str], environment: Mapping[str, str], output: int = 2
) -> subprocess.Popen[bytes]:
    """The process itself. `output` takes what it prints."""
    # -P: a mark.py where the user stands must not hide ours. A group of its own: what a terminal or a shell sends to
    # the bouncer's group would end the worker before the bouncer has drained.
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
    """A child of this process. Raises OSError where there is none to be had."""

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
        return True  # nothing else makes it readable

    def kill(self) -> None:
        # Until it has been waited for, no other process can have its id.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        end_marked(self._token)

    def give_up(self) -> None:
        """Nothing to do: the kernel itself ends what was killed, and tells."""

    def terminate(self) -> None:
        self._popen.terminate()

    def wait(self) -> int:
        code = self._popen.wait()
        os.close(self.ended_fd)
        return code


class KeptChild:
    """A child of a keeper, which is at the other end of a connection. Raises OSError where none is to be had."""

    def __init__(self, door: socket.socket) -> None:
        self._door, self._code, self.pid = door, 0, 0
        self.ended_fd = door.fileno()
        self._over = False

    @classmethod
    def through(cls, path: Path, output: int = 2) -> Spawn:
        """What listens there starts a keeper for each connection; workers print to `output`."""

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
        # What the keeper has said already is still heard, then the end of the connection. A keeper that goes on hears
        # that end, too, and ends its worker.
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
        if not message:  # its keeper was killed, and with it all that it kept; or is not waited for any longer
            self._code = -signal.SIGKILL
        self._over = True
