"""A reproduced figure as a value: panels with rows and curves, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Row = Mapping[str, str | float]
"""A value by column."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a plot."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FigurePanel:
    """One plot and its table. Columns of `rows` that end in `_ms` or `_us` are times, other numbers shares of 1.

    `axes` are the titles of x and y. A y axis named after a column has the same kind of numbers.
    """

    title: str
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...] = ()
    axes: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class PanelFigure:
    """A figure with its name, such as `clipper-fig3-8`; `paper` is its source."""

    figure: str
    paper: str
    headline: str
    panels: tuple[FigurePanel, ...]
    takeaways: tuple[str, ...]
    notes: tuple[str, ...]
