"""A graph of stages drawn for a page: boxes in layers from left to right, and a line wherever an answer goes."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from mark.domain.pipeline import Pipeline

BOX_WIDTH, LINE_HEIGHT, HEAD_HEIGHT, PADDING = 196, 18, 24, 10
GAP_X, GAP_Y, BEND_HEIGHT = 64, 22, 12
END_WIDTH = 70  # of "query" and "answer"
_SWEEPS = 4


@dataclass(frozen=True, slots=True)
class StageBox:
    """What stands in the box of a stage; plain text, a line each."""

    name: str
    lines: tuple[str, ...]
    marked: str = ""  # a word on its edge, such as "bottleneck", which the whole box is drawn in the colour of


@dataclass(slots=True)
class _Node:
    """A box, or a bend of a line that passes its layer."""

    layer: int
    box: int | None = None  # the stage's position
    before: list[_Node] = field(default_factory=list)
    after: list[_Node] = field(default_factory=list)
    y: float = 0.0  # of its middle


def graph_svg(pipeline: Pipeline, boxes: Sequence[StageBox]) -> str:
    """An SVG element as wide as the graph; `boxes` are of the pipeline's stages, in order.

    A stage stands one layer behind the last of those that it waits for. Lines that pass a layer have a place of their
    own in it, so that none runs behind a box; the order within a layer follows the mean of the neighbours' (Sugiyama,
    Tagawa and Toda 1981, section 4).
    """
    layers = _layers(pipeline.predecessors)
    lines = max(len(box.lines) for box in boxes)
    height = HEAD_HEIGHT + LINE_HEIGHT * lines + PADDING
    total_height = _place(layers, height)
    step = BOX_WIDTH + GAP_X
    left = END_WIDTH + GAP_X // 2
    width = 2 * left + len(layers) * step - GAP_X
    middle = total_height / 2.0
    nodes = [node for layer in layers for node in layer]

    def x_of(node: _Node) -> float:
        return left + step * node.layer

    paths = [_curve(END_WIDTH, middle, x_of(node), node.y) for node in layers[0]]
    for node in nodes:
        if node.box is None:
            paths.append(f"M{x_of(node):g},{node.y:g}h{BOX_WIDTH}")
        right = x_of(node) + BOX_WIDTH
        paths += [_curve(right, node.y, x_of(other), other.y) for other in node.after]
        if not node.after:
            paths.append(_curve(right, node.y, width - END_WIDTH, middle))
    size = f'viewBox="0 0 {width:g} {total_height:g}" width="{width:g}"'
    drawn = [
        f'<svg class="graph" {size} role="img" aria-label="{_said(pipeline)}">',
        '<g class="edges">',
        *(f'<path d="{path}"/>' for path in paths),
        "</g>",
        _end(0.0, middle, "query"),
        _end(width - END_WIDTH, middle, "answer"),
        *(_box(x_of(node), node.y - height / 2.0, height, boxes[node.box]) for node in nodes if node.box is not None),
        "</svg>",
    ]
    return "".join(drawn)


def _layers(predecessors: Sequence[Sequence[int]]) -> list[list[_Node]]:
    """The nodes by layer, linked; in the order of the stages, bends behind them."""
    depth: list[int] = []
    for before in predecessors:
        depth.append(1 + max((depth[other] for other in before), default=-1))
    layers: list[list[_Node]] = [[] for _ in range(1 + max(depth))]
    of_stage = [_Node(layer, stage) for stage, layer in enumerate(depth)]
    for node in of_stage:
        layers[node.layer].append(node)
    for node, before in zip(of_stage, predecessors, strict=True):
        for other in before:
            last = of_stage[other]
            for layer in range(last.layer + 1, node.layer):
                bend = _Node(layer)
                layers[layer].append(bend)
                _link(last, bend)
                last = bend
            _link(last, node)
    # The answer waits for these, so that their lines pass all layers behind them.
    for node in of_stage:
        last = node
        if not last.after:
            for layer in range(node.layer + 1, len(layers)):
                bend = _Node(layer)
                layers[layer].append(bend)
                _link(last, bend)
                last = bend
    return layers


def _link(source: _Node, target: _Node) -> None:
    source.after.append(target)
    target.before.append(source)


def _place(layers: Sequence[list[_Node]], height: float) -> float:
    """Orders each layer and says where each node's middle is. Returns the height of the whole."""
    for sweep in range(_SWEEPS):
        rightward = sweep % 2 == 0
        order = range(1, len(layers)) if rightward else range(len(layers) - 2, -1, -1)
        for at in order:
            ranks = {id(node): rank for rank, node in enumerate(layers[at - 1 if rightward else at + 1])}
            layers[at].sort(key=lambda node: _mean([ranks[id(n)] for n in (node.before if rightward else node.after)]))

    def tall(node: _Node) -> float:
        return BEND_HEIGHT if node.box is None else height

    heights = [sum(map(tall, layer)) + GAP_Y * (len(layer) - 1) for layer in layers]
    whole = max(heights) + 2.0 * PADDING
    for layer, own in zip(layers, heights, strict=True):
        y = (whole - own) / 2.0
        for node in layer:
            node.y = y + tall(node) / 2.0
            y += tall(node) + GAP_Y
    return whole


def _mean(ranks: Sequence[int]) -> float:
    return sum(ranks) / len(ranks) if ranks else 0.0


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (x + to_x) / 2.0
    return f"M{x:g},{y:g}C{half:g},{y:g} {half:g},{to_y:g} {to_x:g},{to_y:g}"


def _end(x: float, middle: float, word: str) -> str:
    at = x + END_WIDTH / 2.0
    return (
        f'<rect class="end" x="{x:g}" y="{middle - 15:g}" width="{END_WIDTH}" height="30" rx="15"/>'
        f'<text x="{at:g}" y="{middle + 5:g}" text-anchor="middle">{word}</text>'
    )


def _box(x: float, y: float, height: float, box: StageBox) -> str:
    """The name is cut where it would leave the box; a title has it whole."""
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
    """The graph in words, for readers that do not see it."""
    return html.escape("; ".join(f"{one.name} after {', '.join(one.after) or 'the query'}" for one in pipeline.stages))
