"""Listens as systemd does for a bouncer: every connection gets a keeper, as another user if USER_ID is given.

    python -P listening.py SOCKET [USER_ID]

It is a separate process, so that keepers are no children of a test. It prints a line on standard output when it
listens.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def python_of(user: int) -> list[str] | None:
    """Return this Python, or the system's of the same version, if the user may run it; and the path of modules."""
    version = f"/usr/bin/python3.{sys.version_info.minor}"
    for program in (sys.executable, version):
        try:
            subprocess.run([program, "-c", ""], user=user, group=user, extra_groups=[], check=True, env={})
        except (OSError, subprocess.CalledProcessError):
            continue
        others = [path for path in sys.path if path and not path.startswith(sys.base_prefix)]
        return [program, "" if program == sys.executable else os.pathsep.join(others)]
    return None


@contextmanager
def keepers(path: Path, user: int | None = None) -> Iterator[Path]:
    """Yield the socket at which keepers answer. Afterwards no keeper or worker is left."""
    command = [sys.executable, "-P", __file__, str(path), *([] if user is None else [str(user)])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as listening:
        try:
            assert listening.stdout is not None
            assert listening.stdout.readline() == b"listens\n"
            yield path
        finally:
            listening.kill()
    path.unlink()


def main() -> None:
    path, *users = sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    # As in the unit: the keeper starts with only its own variables, and the bouncer sends the others.
    options: dict[str, Any] = {"env": {"KEPT": "1", "PATH": os.environ["PATH"]}, "stdin": subprocess.DEVNULL}
    program = sys.executable
    if users:
        program, modules = python_of(int(users[0])) or ("", "")
        options["env"] |= {"PYTHONPATH": modules} if modules else {}
        options |= {"user": int(users[0]), "group": int(users[0]), "extra_groups": []}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path)
        door.listen(64)
        print("listens", flush=True)
        while True:
            connection, _ = door.accept()
            with connection:
                command = [program, "-P", "-m", "mark.serving.worker.keeper"]
                subprocess.Popen(command, **(options | {"stdin": connection}))


if __name__ == "__main__":
    main()
