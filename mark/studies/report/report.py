"""A study's answer as one value: words, tables and plots, which the terminal, JSON and pages show alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Mark = Literal["", "strong", "faint", "best", "ok", "dips", "missed"]
Head = str | tuple[str, Callable[[Any], str]]


def figures(*names: str) -> tuple[Head, ...]:
    """Return heads over figures that are texts already."""
    return tuple((name, str) for name in names)


@dataclass(frozen=True, slots=True)
class Marked:
    """Words with a mark, shown by colour and weight. A page shows the hint under the pointer."""

    words: str
    mark: Mark = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table. A head alone is over words; a head with the format of its unit is over figures.

    Cells are values for their column's format; texts and `Marked` are shown as they are. Pages show tables with a
    title, with all columns; a terminal has room for the first `printed` ones. The notes stand below the table.
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
    """Lines of text. The first stands out on a terminal if it `is_strong`. A page shows them if they have a title."""

    lines: Sequence[str]
    title: str = ""
    is_strong: bool = True


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of a page. `drawn` returns it in plotly's words, or HTML; for pages only, because plotly is optional."""

    title: str
    drawn: Callable[[], Any]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Markup:
    """A section of a page alone, as HTML."""

    html: str


Part = DataTable | Plot | Marked | Prose | Markup


@dataclass(frozen=True, slots=True)
class Report:
    """A study's answer. `data` is the JSON; its keys are a promise (docs/json.md).

    The terminal shows, in this order, the trace that was `read`, the headline, the parts, the sentences, the warnings
    and the notes. A page has the sentences at its top, and `subject` above them. `is_told_first` moves the sentences
    before the parts on the terminal, too.
    """

    data: Mapping[str, Any]
    headline: str = ""
    parts: Sequence[Part] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    read: str = ""
    subject: str = ""
    script: str = ""  # of the page, a function's text
    is_told_first: bool = False


def _shown(cell: Any, unit: Callable[[Any], str]) -> Marked:
    if isinstance(cell, Marked):
        return cell
    return Marked(cell if isinstance(cell, str) else unit(cell))
