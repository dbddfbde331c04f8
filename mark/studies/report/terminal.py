"""A report on the terminal, by rich. Text from outside never passes through rich's markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
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
    shown: list[Text | Table] = []
    if report.is_told_first:
        shown += _lines(report.sentences)
    for part in report.parts:
        if isinstance(part, Marked):
            shown.append(_styled(part))
        elif isinstance(part, Prose):
            shown += _lines(part.lines, is_strong=part.is_strong)
        elif isinstance(part, DataTable):
            shown += [_table(part), *map(_note, part.notes)]
    if not report.is_told_first:
        shown += _lines(report.sentences)
    for end in ([Text(f"warning: {line}", "yellow") for line in report.warnings], [*map(_note, report.notes)]):
        if end and shown and not isinstance(shown[-1], Table):
            shown.append(Text())  # a table ends in an empty line
        shown += end
    above = [Text(report.read, "dim")] if report.read else []
    above += [Text(report.headline, "bold")] if report.headline else []
    return _spaced([*above, *shown])


def _spaced(parts: Sequence[Text | Table]) -> Group:
    """Return the parts below each other, with an empty line around every table."""
    spaced: list[RenderableType] = []
    for before, part in zip((None, *parts), parts, strict=False):
        above = 0 if isinstance(before, Table) else 1
        spaced.append(Padding(part, (above, 0, 1, 0)) if isinstance(part, Table) else part)
    return Group(*spaced)


def _lines(lines: Sequence[str], *, is_strong: bool = True) -> list[Text]:
    return [Text(line, "bold" if is_strong and place == 0 else "") for place, line in enumerate(lines)]


def _note(line: str) -> Text:
    return Text(f"note: {line}", "dim")


def _table(part: DataTable) -> Table:
    """Return aligned text without lines: words to the left, and folded; figures to the right, in one line."""
    heads = [(head, False) if isinstance(head, str) else (head[0], True) for head in part.heads[: part.printed]]
    has_head = any(head for head, _ in heads)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=has_head, header_style="dim")
    for head, is_figure in heads:
        table.add_column(head, justify="right" if is_figure else "left", overflow="fold", no_wrap=is_figure)
    for cells in part.cells():
        table.add_row(*map(_styled, cells[: part.printed]))
    return table


def _styled(one: Marked) -> Text:
    return Text(one.words, style=_STYLES[one.mark])
