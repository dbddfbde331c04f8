"""Run a manager as a process: its loop in a thread, its HTTP server in the main thread, and an orderly end."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import uvicorn
from starlette.types import ASGIApp

from mark.domain.errors import BadInput
from mark.serving.frontend.tls import TlsFiles
from mark.serving.observe import logs
from mark_infra.controller.door import BoundedListener, PromptRequests

_LOG = logging.getLogger("mark.control")
_CLOSE_S = 5.0  # for answers in progress at the end
_HANGS_S = 60.0  # a step of the loop that takes longer counts as hanging
C = TypeVar("C", bound="Stepped")


class Stepped(Protocol):
    """An object whose steps the loop runs until the process ends."""

    def step(self, now_unix_s: float) -> None:
        """Run one step, at the wall clock's time."""

    def close(self) -> None:
        """Stop everything in order."""


def host(
    opened: Callable[[Callable[[float], bool]], C | None],
    door_of: Callable[[C, Callable[[], bool]], ASGIApp],
    address: tuple[str, int],
    *,
    period_s: float,
    tls: TlsFiles | None,
    started: Callable[[int], None],
) -> int:
    """Run until SIGTERM or SIGINT; return the exit code.

    `opened` builds the object that is stepped every `period_s`. It may wait with the given function, which returns
    whether to give up; then `opened` returns None. `door_of` makes the HTTP application, which may ask whether the loop
    still runs. `started` gets the port when the server listens. Raises BadInput for an address that cannot be used.
    """
    logs.to_stderr()
    _allow_many_sockets()
    door = _listen(address, tls=tls is not None)
    ends = threading.Event()
    with _ended_by_signals(ends.set), door:
        alive = watchdog(os.environ.get("NOTIFY_SOCKET", ""))

        def wait(seconds: float) -> bool:
            alive()
            return ends.wait(seconds)

        control = opened(wait)
        if control is None:
            return 0
        pulse = Pulse(alive)
        looking = threading.Thread(target=look, args=(control, ends, period_s, pulse.beat), name="manager")
        looking.start()
        try:
            server = _Server(
                uvicorn.Config(
                    door_of(control, pulse.is_felt),
                    http=PromptRequests,
                    loop="asyncio",  # other loops would accept connections without asking the listener
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=round(_CLOSE_S),
                    ssl_certfile=None if tls is None else tls.certificate,
                    ssl_keyfile=None if tls is None else tls.key,
                    ssl_ca_certs=None if tls is None or tls.client_ca is None else str(tls.client_ca),
                    ssl_cert_reqs=ssl.CERT_NONE if tls is None or tls.client_ca is None else ssl.CERT_REQUIRED,
                )
            )
            with _ended_by_signals(server.end):
                if ends.is_set():
                    server.end()
                started(door.getsockname()[1])
                server.run(sockets=[door])
        finally:
            ends.set()
            looking.join()
            control.close()
    return 0


def watchdog(address: str) -> Callable[[], None]:
    """Return a function that tells systemd that the service is alive: one datagram to $NOTIFY_SOCKET.

    Without an address it does nothing. It never blocks; if a datagram cannot be sent, the next call sends another.
    """
    if not address:
        return lambda: None
    place = f"\0{address[1:]}" if address.startswith("@") else address

    def alive() -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            telling.setblocking(False)
            telling.sendto(b"WATCHDOG=1", place)

    return alive


class Pulse:
    """The heartbeat of the manager's loop; `alive` is called at each beat.

    A step may wait for the lease's store; if it takes longer than that, the loop hangs.
    """

    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self.beat()

    def beat(self) -> None:
        self._beat_s = time.monotonic()
        self._alive()

    def is_felt(self) -> bool:
        return time.monotonic() - self._beat_s < _HANGS_S


def look(control: Stepped, ends: threading.Event, period_s: float, beat: Callable[[], None] = lambda: None) -> None:
    """Step every `period_s` until the end."""
    while not ends.wait(period_s):
        try:
            control.step(time.time())
        except Exception:  # the loop must go on
            _LOG.exception("a step of the controller failed")
        beat()


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers: uvicorn would raise the signals again when it has ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        self.should_exit = True


@contextlib.contextmanager
def _ended_by_signals(end: Callable[[], None]) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: end()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(address: tuple[str, int], *, tls: bool) -> BoundedListener:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        listening = socket.create_server(address, family=family)
    except OSError as error:
        raise BadInput(
            f"cannot listen there ({error.strerror})", "host and port", f"{address[0]}:{address[1]}"
        ) from None
    return BoundedListener(family, listening.detach(), tls=tls)


def _allow_many_sockets() -> None:
    """Raise the limit of open files, because a connection to each bouncer stays open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
