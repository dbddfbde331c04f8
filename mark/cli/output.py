"""Output: tables to stdout, JSON and HTML to files, progress to the terminal's stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from mark.domain.errors import BadInput
from mark.domain.percent import percent
from mark.planning.demand.counting_watch import counting_watched
from mark.studies.report.htmlpage import html_of
from mark.studies.report.report import Report
from mark.studies.report.terminal import on_terminal


def deliver(report: Report, json_to: str | None, page_to: str | None = None) -> None:
    """Print the report, unless its JSON goes to stdout, and write JSON and page to the requested places."""
    if json_to == "-":
        sys.stdout.write(json_text(report.data))
    else:
        show(report)
        if json_to is not None:
            write_file(json_to, json_text(report.data), "--json")
    if page_to:
        write_file(page_to, html_of(report), "--report")


def show(report: Report) -> None:
    """Print to stdout: coloured on a terminal, plain text of at most 80 columns (or $COLUMNS) in a pipe."""
    page = on_terminal(report)
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        console.print(page)
        return
    with console.capture() as captured:
        console.print(page)
    # rich pads lines with blanks to the full width; remove them from files and pipes.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def json_text(data: Any) -> str:
    """Return indented JSON; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_plain(data), indent=2, allow_nan=False) + "\n"


def write_file(path: str, text: str, option: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", option, path) from None
    print(f"{option.removeprefix('--')}: {path}", file=sys.stderr)


def cores() -> int:
    """Return the number of processes for runs: `PYTHON_CPU_COUNT` if it is set, otherwise our processors."""
    asked = os.environ.get("PYTHON_CPU_COUNT", "")  # read by Python itself from 3.13 on
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


progress_clock: ContextVar[Callable[[], float]] = ContextVar("progress_clock", default=time.monotonic)
"""The clock by which progress is shown. On one that stands still it never is."""


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """Show the finished share on stderr: a bar on a terminal, otherwise a line after one second and every ten."""
    if sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(label, total=1.0)
            yield lambda share: bar.update(task, completed=share)
        return
    lines, ended, told = _Lines(), threading.Event(), label

    def tell(share: float) -> None:
        nonlocal told
        told = f"{label}: {percent(share, 0)}"
        lines.say(told)

    def repeat() -> None:  # because the first share may take minutes: imports, compilation
        while not ended.wait(_TICK_S):
            lines.say(f"{told}, {lines.spent_s:.0f} s")

    ticking = threading.Thread(target=repeat, daemon=True)
    ticking.start()
    try:
        yield tell
    finally:
        ended.set()
        ticking.join()


class ReadingShown:
    """Shows the progress of reading a trace, in bytes and bytes a second; a short reading is not shown."""

    def __init__(self) -> None:
        self._clock = progress_clock.get()
        self._lines = _Lines()
        self._done, self._began_s = 0, self._clock()
        self._shown: ExitStack | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __call__(self, done: int, total: int) -> None:
        """Show the progress. `total` is 0 if the size is not known."""
        now_s = self._clock()
        if done < self._done:  # another file
            self._end()
            self._began_s = now_s
            self._lines = _Lines()
        self._done = done
        rate = done / 1e6 / max(now_s - self._began_s, 1e-3)
        of = f" of {total / 1e6:,.0f}" if total else ""
        text = f"reading {done / 1e6:,.0f}{of} MB, {rate:,.0f} MB/s"
        if not sys.stderr.isatty():
            self._lines.say(text)
            return
        if self._bar is None and now_s - self._began_s > _SHORT_S:
            self._shown = ExitStack()
            self._bar = _open_bars[-1] if _open_bars else self._shown.enter_context(_bar())
            self._task = self._bar.add_task(text, total=total or None)
            self._shown.callback(self._bar.remove_task, self._task)
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done)
        if total and done >= total:
            self._end()

    def _end(self) -> None:
        if self._shown is not None:
            self._shown.close()
        self._shown = self._bar = None


class CountingShown:
    """Shows how late shares are counted for types that were not counted before.

    Without a terminal one line names the types, and later ones say how many are done.
    """

    def __init__(self) -> None:
        self._lines = _Lines()
        self._named: set[str] = set()
        self._shown: ExitStack | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __call__(self, done: int, types: Sequence[str]) -> None:
        of = len(types)
        if not sys.stderr.isatty():
            self._say(done, types)
            return
        text = f"counting late shares of {of} {'type' if of == 1 else 'types'}: {done} of {of}"
        if self._shown is None or self._bar is None:
            self._shown = ExitStack()
            self._bar = _open_bars[-1] if _open_bars else self._shown.enter_context(_bar())
            self._task = self._bar.add_task(text, total=of)
            self._shown.callback(self._bar.remove_task, self._task)
        self._bar.update(self._task, description=text, completed=done)
        if done >= of:
            self._shown.close()
            self._shown = self._bar = None

    def _say(self, done: int, types: Sequence[str]) -> None:
        if done == len(types):
            return
        if not self._named.issuperset(types):
            if self._lines.say(f"counting late shares of {', '.join(types)}"):
                self._named.update(types)
        elif done:
            self._lines.say(f"late shares: {done} of {len(types)} types counted")


def show_counting() -> None:
    """Show from now on how late shares are counted."""
    counting_watched.set(CountingShown())


class _Lines:
    """Lines on stderr: at most one every ten seconds, the first after one. Threads may share it."""

    def __init__(self) -> None:
        self._clock, self._lock = progress_clock.get(), threading.Lock()
        self._began_s = self._clock()
        self._next_s = self._began_s + _FIRST_S

    @property
    def spent_s(self) -> float:
        return self._clock() - self._began_s

    def say(self, text: str) -> bool:
        """Print the line if it is time for one; return whether it was."""
        with self._lock:
            now_s = self._clock()
            if now_s < self._next_s:
                return False
            self._next_s = now_s + _EVERY_S
        with suppress(OSError, ValueError):  # losing the log must not end the work
            print(text, file=sys.stderr, flush=True)
        return True


_FIRST_S, _EVERY_S, _TICK_S = 1.0, 10.0, 0.25
_SHORT_S = 1.0
_open_bars: list[Progress] = []  # bars of one terminal, which can draw only one at a time


@contextmanager
def _bar() -> Iterator[Progress]:
    parts = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        _open_bars.append(bar)
        try:
            yield bar
        finally:
            _open_bars.remove(bar)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
