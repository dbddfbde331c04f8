"""A report on the terminal, by rich. Text from outside never passes through rich's markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mark.studies.report.report import DataTable, Mark, Marked, Prose, Report

_STYLES: dict[Mark, str] = {
    "": "",
    "strong": "bold",
    "faint": "dim",
    "best": "bold green",
    "ok": "green",
    "dips": "yellow",
    "missed": "bold red",
}


def on_terminal(report: Report) -> Group:
    """Return the report without its plots and the tables of pages alone."""
    shown: list[Text | _FittedTable] = []
    if report.is_told_first:
        shown += _lines(report.sentences)
    for part in report.parts:
        if isinstance(part, Marked):
            shown.append(_styled(part))
        elif isinstance(part, Prose):
            shown += _lines(part.lines, is_strong=part.is_strong)
        elif isinstance(part, DataTable):
            shown += [_FittedTable(part), *map(_note, part.notes)]
    if not report.is_told_first:
        shown += _lines(report.sentences)
    for end in ([Text(f"warning: {line}", "yellow") for line in report.warnings], [*map(_note, report.notes)]):
        if end and shown and not isinstance(shown[-1], _FittedTable):
            shown.append(Text())  # a table ends in an empty line
        shown += end
    above = [Text(report.read, "dim")] if report.read else []
    above += [Text(report.headline, "bold")] if report.headline else []
    return _spaced([*above, *shown])


def _spaced(parts: Sequence[Text | _FittedTable]) -> Group:
    """Return the parts below each other, with an empty line around every table."""
    spaced: list[RenderableType] = []
    for before, part in zip((None, *parts), parts, strict=False):
        above = 0 if isinstance(before, _FittedTable) else 1
        spaced.append(Padding(part, (above, 0, 1, 0)) if isinstance(part, _FittedTable) else part)
    return Group(*spaced)


def _lines(lines: Sequence[str], *, is_strong: bool = True) -> list[Text]:
    return [Text(line, "bold" if is_strong and place == 0 else "") for place, line in enumerate(lines)]


def _note(line: str) -> Text:
    return Text(f"note: {line}", "dim")


class _FittedTable:
    """A table for the width at which it is printed."""

    def __init__(self, part: DataTable) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _table(self._part, options.max_width)


def _table(part: DataTable, width: int) -> Table:
    """Return aligned text without lines: words to the left, and folded; names and figures in one line.

    If only one column has words, a name that is too long for it is broken after a hyphen, slash or colon.
    """
    heads = [(head, False) if isinstance(head, str) else (head[0], True) for head in part.heads[: part.printed]]
    has_head = any(head for head, _ in heads)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=has_head, header_style="dim")
    rows = [cells[: part.printed] for cells in part.cells()]
    for place, (head, is_figure) in enumerate(heads):
        names = [line for row in rows for line in row[place].words.split("\n")]
        one_line = is_figure or all(" " not in name and len(name) <= width // 4 for name in names)
        table.add_column(head, justify="right" if is_figure else "left", overflow="fold", no_wrap=one_line)
    figures = [place for place, (_, is_figure) in enumerate(heads) if is_figure]
    room = width - len(heads) + 1 if len(figures) == len(heads) - 1 else 0
    for place in figures:
        lines = [line for text in (heads[place][0], *(row[place].words for row in rows)) for line in text.split("\n")]
        room -= max(map(len, lines))
    for row in rows:
        words = [one if place in figures or room < 1 else _broken(one, room) for place, one in enumerate(row)]
        table.add_row(*map(_styled, words))
    return table


def _broken(one: Marked, room: int) -> Marked:
    """Return the words with line breaks in those that are longer than `room`."""

    def broken(word: re.Match[str]) -> str:
        lines = [""]
        for piece in re.split(r"(?<=[-/:])", word[0]):
            if lines[-1] and len(lines[-1]) + len(piece) > room:
                lines.append("")
            lines[-1] += piece
        return "\n".join(lines)

    return replace(one, words=re.sub(rf"\S{{{room + 1},}}", broken, one.words))


def _styled(one: Marked) -> Text:
    return Text(one.words, style=_STYLES[one.mark])
