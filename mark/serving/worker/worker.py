"""A worker process: loads the model, then answers one batch after the other until the channel ends.

    python -m mark.serving.worker.worker CHANNEL,CALLS,REPLIES,... LIFELINE REFERENCE SEARCH NAME VERSION LOADER

The first argument lists file descriptors: a channel, and arenas for calls and replies, used in turns by successive
batches. LIFELINE is the descriptor of a pipe whose other end only the bouncer has. LOADER ("module:function") makes the
function that answers calls from REFERENCE, SEARCH, NAME and VERSION (`mark.serving.worker.loaders`).
"""

from __future__ import annotations

import fcntl
import gc
import os
import pkgutil
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path

from mark.domain.errors import MarkError
from mark.models.call import Reply
from mark.models.loading import home
from mark.serving.worker.shared_memory import FAILED, LOADED, MESSAGE_BYTES, Arena
from mark.serving.worker.worker_loop import Loaded, serve


def main() -> None:
    fds, lifeline, reference, search, name, version, loader = sys.argv[1:]
    channel_fd, *arena_fds = map(int, fds.split(","))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bouncer drains, and its remaining batches must be answered
    _end_with_the_bouncer(int(lifeline))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a model's output survives its crash
    sys.path.insert(0, search)
    channel = socket.socket(fileno=channel_fd)
    with suppress(BrokenPipeError):  # the bouncer has ended, and with it every client
        try:
            # A model opens its files by names relative to its own folder, wherever the server was started.
            os.chdir(home(reference, Path(search)))
            loaded: Loaded = pkgutil.resolve_name(loader)(reference, Path(search), name, version)
        except Exception as error:
            if not isinstance(error, MarkError):  # a MarkError's message is complete
                traceback.print_exc()
            channel.send(FAILED + _in_one_line(error).encode(errors="replace")[: MESSAGE_BYTES - 1])
            sys.exit(1)
        # The model stays, so garbage collections between batches need not examine it.
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGTERM, lambda *_: _hear_no_more(channel))
        # Otherwise a signal to a child that a model has forked would end this channel, and the child would not end.
        os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
        arenas = [Arena(fd) for fd in arena_fds]
        slots = list(zip(arenas[::2], arenas[1::2], strict=True))
        channel.send(LOADED.pack(b"R", slots[0][1].write_replies([Reply(200, "application/json", loaded.said)])))
        serve(channel, slots, loaded)


def _hear_no_more(channel: socket.socket) -> None:
    """Stop receiving: the current batch is finished, then the channel ends."""
    with suppress(OSError):
        channel.shutdown(socket.SHUT_RD)


def _end_with_the_bouncer(lifeline: int) -> None:
    """Let the kernel kill this process and all that it started once no process has the pipe's other end.

    They share its process group. PR_SET_PDEATHSIG would not do: exec'ed children of the worker lose it, and it is sent
    when the thread ends that started the process.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    ended = select.poll()
    ended.register(lifeline, 0)
    if ended.poll(0):  # the other end closed before
        sys.exit(1)


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, MarkError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    main()
