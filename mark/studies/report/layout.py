"""The few pieces that terminal pages are made of. Text from outside never passes through rich's markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

# Heads of columns that hold words rather than figures; they fold where figures don't.
_WORDY = frozenset({"", "policy", "reason", "offer", "fleet", "model", "on", "function", "comes after"})


def columns(*heads: str) -> Table:
    """An empty table of aligned text without lines: words to the left, figures to the right, 80 columns at most."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=any(heads), header_style="dim")
    for place, head in enumerate(heads):
        figures = place > 0 and head not in _WORDY
        table.add_column(head, justify="right" if figures else "left", overflow="fold", no_wrap=figures)
    return table


def text(words: str, style: str = "") -> Text:
    return Text(words, style=style)


def sentences(lines: Iterable[str]) -> list[RenderableType]:
    """One below the other; the first, which matters most, stands out on a terminal."""
    return [text(line, "" if place else "bold") for place, line in enumerate(lines)]


def what_was_read(words: str) -> list[RenderableType]:
    """The first line of an answer that rests on a trace; nothing where the trace was generated."""
    return [text(words, "dim")] if words else []


def small_print(lines: Iterable[str]) -> list[RenderableType]:
    """Notes, an empty line before them; nothing when there are none."""
    shown = [text(f"note: {line}", "dim") for line in lines]
    return [text(""), *shown] if shown else []


def page(*parts: RenderableType) -> RenderableType:
    """Parts below each other, an empty line around every table."""
    spaced: list[RenderableType] = []
    for before, part in zip((None, *parts), parts, strict=False):
        above = 0 if isinstance(before, Table) else 1
        spaced.append(Padding(part, (above, 0, 1, 0)) if isinstance(part, Table) else part)
    return Group(*spaced)
