"""Where results go: tables to stdout, JSON and HTML to files, progress to the terminal's stderr."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from mark.domain.errors import BadInput

_LINE_EVERY_S = 10.0


def deliver(data: Mapping[str, Any], json_to: str | None, table: Callable[[], RenderableType]) -> None:
    """The JSON where it was asked for, and the table unless stdout belongs to the JSON."""
    if json_to == "-":
        sys.stdout.write(json_text(data))
        return
    show(table())
    if json_to is not None:
        write_file(json_to, json_text(data), "--json")


def show(page: RenderableType) -> None:
    """To stdout: coloured on a terminal, plain text of at most 80 columns (or $COLUMNS) in a pipe."""
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        console.print(page)
        return
    with console.capture() as captured:
        console.print(page)
    # rich fills lines with blanks to the width; in a file or a pipe they are noise.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def json_text(data: Any) -> str:
    """Indented JSON; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_plain(data), indent=2, allow_nan=False) + "\n"


def write_file(path: str, text: str, option: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", option, path) from None
    print(f"{option.removeprefix('--')}: {path}", file=sys.stderr)


def cores() -> int:
    """Processes to spread runs over: `PYTHON_CPU_COUNT` says how many where not all processors are ours."""
    asked = os.environ.get("PYTHON_CPU_COUNT", "")  # Python's own from 3.13 on
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def progress(label: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, fed with the share done; where stderr is no terminal a line every ten seconds."""
    if not sys.stderr.isatty():
        yield _lines(label, clock)
        return
    parts = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _lines(label: str, clock: Callable[[], float]) -> Callable[[float], None]:
    told_s = clock()

    def tell(share: float) -> None:
        nonlocal told_s
        if (now_s := clock()) - told_s >= _LINE_EVERY_S:
            told_s = now_s
            with suppress(OSError, ValueError):  # a log that is gone must not end the work
                print(f"mark: {label}, {share:.0%} done", file=sys.stderr, flush=True)

    return tell


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
