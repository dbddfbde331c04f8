"""A graph of stages drawn for a page: boxes in layers from left to right, and a line for each answer."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from mark.domain.pipeline import Pipeline
from mark.planning.graphs.graph_layout import END_HEIGHT, END_WIDTH, graph_layout

BOX_WIDTH, LINE_HEIGHT, HEAD_HEIGHT, PADDING = 196, 18, 24, 10


@dataclass(frozen=True, slots=True)
class StageBox:
    """The content of a stage's box: plain text lines."""

    name: str
    lines: tuple[str, ...]
    marked: str = ""  # a word on its edge, such as "bottleneck", whose colour the whole box gets


def graph_svg(pipeline: Pipeline, boxes: Sequence[StageBox]) -> str:
    """Return an SVG element of the graph's width (`mark.planning.graphs.graph_layout`); `boxes` are in stage order."""
    height = HEAD_HEIGHT + LINE_HEIGHT * max(len(box.lines) for box in boxes) + PADDING
    layout = graph_layout(pipeline, BOX_WIDTH, height)
    size = f'viewBox="0 0 {layout.width:g} {layout.height:g}" width="{layout.width:g}"'
    drawn = [
        f'<svg class="graph" {size} role="img" aria-label="{_said(pipeline)}">',
        '<g class="edges">',
        *(f'<path d="{line}"/>' for line in layout.lines),
        "</g>",
        _end(*layout.query, "query"),
        _end(*layout.answer, "answer"),
        *(_box(x, y, height, box) for (x, y), box in zip(layout.boxes, boxes, strict=True)),
        "</svg>",
    ]
    return "".join(drawn)


def _end(x: float, y: float, word: str) -> str:
    return (
        f'<rect class="end" x="{x:g}" y="{y:g}" width="{END_WIDTH}" height="{END_HEIGHT}" rx="15"/>'
        f'<text x="{x + END_WIDTH / 2.0:g}" y="{y + 20:g}" text-anchor="middle">{word}</text>'
    )


def _box(x: float, y: float, height: float, box: StageBox) -> str:
    """Return the SVG of a box. A long name is cut to fit; a title has all of it."""
    kind = "box marked" if box.marked else "box"
    texts = [f'<text class="name" x="{x + PADDING:g}" y="{y + 18:g}">{html.escape(_cut(box.name, 22))}</text>']
    for n, line in enumerate(box.lines):
        at_y = y + HEAD_HEIGHT + LINE_HEIGHT * n + 13
        texts.append(f'<text x="{x + PADDING:g}" y="{at_y:g}">{html.escape(_cut(line, 30))}</text>')
    if box.marked:
        pill, right = 7.0 * len(box.marked) + 14.0, x + BOX_WIDTH - PADDING
        texts.append(
            f'<rect class="mark" x="{right - pill:g}" y="{y - 9:g}" width="{pill:g}" height="18" rx="9"/>'
            f'<text class="mark" x="{right - pill / 2:g}" y="{y + 4:g}" text-anchor="middle">'
            f"{html.escape(box.marked)}</text>"
        )
    title = html.escape(" · ".join([box.name, *box.lines]))
    return (
        f'<g class="{kind}"><title>{title}</title>'
        f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{height:g}" rx="8"/>{"".join(texts)}</g>'
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _said(pipeline: Pipeline) -> str:
    """Return the graph in words, for readers that do not see it."""
    return html.escape("; ".join(f"{one.name} after {', '.join(one.after) or 'the query'}" for one in pipeline.stages))
