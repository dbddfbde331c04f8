"""What a reproduced figure of Clipper is: panels with rows and curves, and what to know of them."""

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
class ClipperPanel:
    """One plot and its table. Columns of `rows` that end in `_ms` are milliseconds, other numbers shares of 1.

    `axes` are the titles of x and y; the numbers of `y` are as those of the column that it is named after.
    """

    title: str
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...] = ()
    axes: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class ClipperFigure:
    """A figure by its name, as `clipper-fig3-8`."""

    figure: str
    headline: str
    panels: tuple[ClipperPanel, ...]
    takeaways: tuple[str, ...]
    notes: tuple[str, ...]
