"""Let another program finish in order before an interrupt ends this process."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

# From the keyboard, from a supervisor (CI, systemd), and from a closed terminal.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAITED_FOR = "interrupted: waiting until Terraform has finished the resources under way and written its state"
LOST = (
    "interrupted again: Terraform ends at once, and the resources under way are in no state. They stay and cost money: "
    "mark deploy --destroy ends those that it finds by the site's tag and names the rest"
)


class Interrupts:
    """A context in which ending signals go to a program as SIGINT; they reach this process when the context ends.

    `say` gets `WAITED_FOR` at the first signal and `LOST` at further ones. Ignored signals stay ignored. Outside of the
    main thread signals do not arrive, so they are not passed on.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._came: list[int] = []
        self._sent = 0
        self._before: dict[int, Any] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _ENDING}
            for number, handler in self._before.items():
                if handler not in (signal.SIG_IGN, None):
                    signal.signal(number, self._pass_on)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)
        if self._came:
            signal.raise_signal(self._came[0])

    def pass_on_to(self, process: subprocess.Popen[str]) -> None:
        """Set the process to send signals to, including signals that arrived before it started."""
        self._process = process
        self._send()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        self._send()
        self._say(WAITED_FOR if len(self._came) == 1 else LOST)

    def _send(self) -> None:
        """Send each signal once."""
        while self._process is not None and self._sent < len(self._came):
            self._sent += 1
            self._process.send_signal(signal.SIGINT)
