"""A process that has imported the simulator and becomes each command of a page, because imports took most of a page.

Every command is still a process of its own, with its own arguments, folder, environment and exit code: a fork of this
process, which imports the modules of `mark simulate`, runs it once to load the kernel, and then only waits.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

_FIRST = ["mark", "simulate", "synthetic:diurnal", "--service", "inception-v3", "--duration", "60", "--json", "-"]
# Imports that every Python has, so that it starts in a few milliseconds.
_ASK = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(request)
    sys.exit(int(server.recv(8) or b"1"))
"""


@contextlib.contextmanager
def warm() -> Iterator[list[str]]:
    """Yield the start of a command line, to which `mark ARGUMENTS` or `python FILE.py ARGUMENTS` is added."""
    # Not in pytest's folder, because a socket's address has at most 104 characters on some systems.
    with tempfile.TemporaryDirectory(prefix="mark-") as folder:
        yield from _serve(Path(folder))


def _serve(folder: Path) -> Iterator[list[str]]:
    address, ask = folder / "warm", folder / "ask.py"
    ask.write_text(_ASK)
    command = [sys.executable, "-P", __file__, str(address)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as `mark` sets it: threads would not survive a fork
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.read(1) == b"."
        yield [sys.executable, "-I", "-S", str(ask), str(address)]
    finally:
        server.stdin.close()  # this ends the process
        server.stdout.close()
        server.wait(30)


def _main(address: str) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.suppress(SystemExit):
        _become(_FIRST)
    from tests.coarse_counting import count_coarsely  # here, because it imports numba

    count_coarsely(setattr)  # no page is compared with numbers of its own run
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b".")
        asked = _asked(listener)
    if asked is not None:
        _end(_code(asked))


def _asked(listener: socket.socket) -> list[str] | None:
    """Return its command in a new process; in this one None, once the test has closed standard input."""
    begun: set[int] = set()
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            if (waiting := os.fork()) > 0:
                begun.add(waiting)
                begun = {process for process in begun if os.waitpid(process, os.WNOHANG) == (0, 0)}
                continue
            size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
            with connection.makefile("rb") as request:
                words, folder, environment = json.loads(request.read(int.from_bytes(size, "big")))
            if (command := os.fork()) > 0:
                _, status = os.waitpid(command, 0)
                connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                os._exit(0)
        for wanted, got in enumerate(descriptors):
            os.dup2(got, wanted)
            os.close(got)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        # Other tests use the other cores, and a process for each core would import all modules again.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
        return list(words)
    for process in begun:
        os.waitpid(process, 0)
    return None


def _code(words: list[str]) -> int:
    """Run the command and return its exit code."""
    try:
        _become(words)
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
            return 1
        return ending.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """End as the interpreter does, but without freeing the imported modules, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become(words: list[str]) -> None:
    if words[0] == "mark":
        sys.argv = words
        runpy.run_module("mark.cli.main", run_name="__main__", alter_sys=True)
    else:
        sys.argv = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_path(words[1], run_name="__main__")


if __name__ == "__main__":
    _main(sys.argv[1])
