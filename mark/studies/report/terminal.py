"""A report on the terminal, by rich. Text from outside never passes through rich's markup."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mark.studies.report.layout import page, sentences, text, what_was_read
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


def on_terminal(report: Report) -> RenderableType:
    """Return the report without its plots and the tables of pages alone."""
    shown: list[RenderableType] = []
    for part in report.parts:
        if isinstance(part, Marked):
            shown.append(_styled(part))
        elif isinstance(part, Prose):
            shown += sentences(part.lines) if part.is_strong else [Text(line) for line in part.lines]
        elif isinstance(part, DataTable):
            shown += [_table(part), *map(_note, part.notes)]
    end = [text(f"warning: {warning}", "yellow") for warning in report.warnings]
    if report.notes:
        end += [*([text("")] if end else []), *map(_note, report.notes)]
    told = sentences(report.sentences)
    if report.is_told_first:
        shown = [*told, *shown]
    else:
        shown += told
    if end and shown and not isinstance(shown[-1], Table):
        shown.append(text(""))  # a table ends in an empty line
    return page(
        *what_was_read(report.read),
        *([text(report.headline, "bold")] if report.headline else []),
        *shown,
        *end,
    )


def _note(line: str) -> Text:
    return text(f"note: {line}", "dim")


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
