"""The parts of terminal pages. Text from outside never passes through rich's markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

# Heads of columns that hold words; these fold, columns of figures do not.
_WORDY = frozenset({"", "policy", "reason", "offer", "fleet", "model", "on", "function", "comes after"})


def columns(*heads: str) -> Table:
    """Return an empty table of aligned text without lines: words left, figures right, at most 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=any(heads), header_style="dim")
    for place, head in enumerate(heads):
        figures = place > 0 and head not in _WORDY
        table.add_column(head, justify="right" if figures else "left", overflow="fold", no_wrap=figures)
    return table


def text(words: str, style: str = "") -> Text:
    return Text(words, style=style)


def sentences(lines: Iterable[str]) -> list[RenderableType]:
    """Return the lines below each other; the first, most important one stands out on a terminal."""
    return [text(line, "" if place else "bold") for place, line in enumerate(lines)]


def what_was_read(words: str) -> list[RenderableType]:
    """Return the first line of an answer about a trace; empty if the trace was generated."""
    return [text(words, "dim")] if words else []


def small_print(lines: Iterable[str]) -> list[RenderableType]:
    """Return notes after an empty line; empty without notes."""
    shown = [text(f"note: {line}", "dim") for line in lines]
    return [text(""), *shown] if shown else []


def page(*parts: RenderableType) -> RenderableType:
    """Return the parts below each other, with an empty line around every table."""
    spaced: list[RenderableType] = []
    for before, part in zip((None, *parts), parts, strict=False):
        above = 0 if isinstance(before, Table) else 1
        spaced.append(Padding(part, (above, 0, 1, 0)) if isinstance(part, Table) else part)
    return Group(*spaced)
