"""A study's answer as one value: words, tables and plots for the terminal and HTML pages, and the data for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Mark = Literal["", "strong", "faint", "best", "ok", "dips", "missed"]
Head = str | tuple[str, Callable[[Any], str]]


def formatted(*names: str) -> tuple[Head, ...]:
    """Return heads of columns of numbers whose cells are already text."""
    return tuple((name, str) for name in names)


@dataclass(frozen=True, slots=True)
class Marked:
    """Words with a mark, shown by colour and weight. A page shows the hint as a tooltip."""

    words: str
    mark: Mark = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table. The head of a column of words is its name; that of a column of numbers is a name and a format.

    A cell is a value for its column's format, or a text or `Marked` that is shown as it is. A page shows every column
    of the tables that have a title; a terminal shows every table, but only its first `printed` columns.
    """

    heads: Sequence[Head]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    lead: str = ""
    notes: Sequence[str] = ()
    printed: int | None = None

    def cells(self) -> list[list[Marked]]:
        """Return the formatted cells row by row."""
        formats = [str if isinstance(head, str) else head[1] for head in self.heads]
        return [[_shown(cell, unit) for cell, unit in zip(row, formats, strict=True)] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Prose:
    """Lines of text. A terminal prints the first in bold, if `is_strong`. A page shows them only under a title."""

    lines: Sequence[str]
    title: str = ""
    is_strong: bool = True


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of a page. `drawn` returns plotly's figure, its data or HTML, and is called for pages only.

    A terminal must not need plotly, which is optional.
    """

    title: str
    drawn: Callable[[], Any]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML that only a page shows. The code that makes it must escape every text from outside."""

    html: str


Part = DataTable | Plot | Marked | Prose | Markup


@dataclass(frozen=True, slots=True)
class Report:
    """A study's answer. `data` is the JSON; its keys stay stable (docs/json.md).

    The terminal shows, in this order, the trace that was `read`, the headline, the parts, the sentences, the warnings
    and the notes. A page has the sentences at its top, and `subject` above them. With `is_told_first` the terminal
    shows the sentences before the parts, too.
    """

    data: Mapping[str, Any]
    headline: str = ""
    parts: Sequence[Part] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    read: str = ""
    subject: str = ""
    script: str = ""  # a JavaScript function that the page calls when its figures are drawn
    is_told_first: bool = False


def _shown(cell: Any, unit: Callable[[Any], str]) -> Marked:
    if isinstance(cell, Marked):
        return cell
    return Marked(cell if isinstance(cell, str) else unit(cell))
