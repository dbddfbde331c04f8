"""Positions of a graph's stages in a drawing, in layers, and the lines from each stage to the next.

Two pages draw it, each with its own boxes: the report of a plan, and the controller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mark.domain.pipeline import Pipeline

# Gaps between layers and between boxes of a layer, for drawings from left to right and from top to bottom
_GAPS = {False: (64, 22), True: (40, 12)}
BEND = 12
PADDING = 10
END_WIDTH, END_HEIGHT = 70, 30  # of the boxes "query" and "answer"
_SWEEPS = 4

Corner = tuple[float, float]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """A drawing, in pixels: x to the right, y down. Corners are the left upper ones."""

    width: float
    height: float
    query: Corner  # of the ends, which are END_WIDTH x END_HEIGHT
    answer: Corner
    boxes: tuple[Corner, ...]  # of the stages, in order
    lines: tuple[str, ...]  # each the `d` of an SVG path


@dataclass(slots=True)
class _Node:
    """A box, or the point where a line passes a layer."""

    layer: int
    box: int | None = None  # the stage's position
    before: list[_Node] = field(default_factory=list)
    after: list[_Node] = field(default_factory=list)
    middle: float = 0.0  # of the node, within its layer


def graph_layout(pipeline: Pipeline, box_width: float, box_height: float, *, down: bool = False) -> GraphLayout:
    """Lay out boxes of this size (pixels) in layers from left to right, or from top to bottom (`down`).

    A stage stands one layer behind the last of the stages that it waits for. A line that passes a layer has its own
    place in it, so that it does not run behind a box. The order within a layer follows the mean of the neighbours'
    order (Sugiyama, Tagawa and Toda 1981, section 4).
    """
    layers = _layers(pipeline.predecessors)
    # Sizes along the layers, and within a layer
    deep, broad = (box_height, box_width) if down else (box_width, box_height)
    end = END_HEIGHT if down else END_WIDTH
    gap, beside = _GAPS[down]
    breadth = _place(layers, broad, beside)
    step = deep + gap
    first = end + gap // 2
    depth = 2 * first + len(layers) * step - gap
    middle = breadth / 2.0
    nodes = [node for layer in layers for node in layer]

    def corner(along: float, within: float) -> Corner:
        return (within, along) if down else (along, within)

    def line(along: float, within: float, to_along: float, to_within: float) -> str:
        half = (along + to_along) / 2.0
        points = [corner(along, within), corner(half, within), corner(half, to_within), corner(to_along, to_within)]
        begin, *rest = (f"{x:g},{y:g}" for x, y in points)
        return f"M{begin}C{' '.join(rest)}"

    lines = [line(end, middle, first, node.middle) for node in layers[0]]
    for node in nodes:
        at = first + step * node.layer
        if node.box is None:
            x, y = corner(at, node.middle)
            lines.append(f"M{x:g},{y:g}{'v' if down else 'h'}{deep:g}")
        lines += [line(at + deep, node.middle, at + step, other.middle) for other in node.after]
        if not node.after:
            lines.append(line(at + deep, node.middle, depth - end, middle))
    boxes = {node.box: corner(first + step * node.layer, node.middle - broad / 2.0) for node in nodes}
    across_end = (END_WIDTH if down else END_HEIGHT) / 2.0
    width, height = corner(depth, breadth)
    return GraphLayout(
        width=width,
        height=height,
        query=corner(0.0, middle - across_end),
        answer=corner(depth - end, middle - across_end),
        boxes=tuple(boxes[stage] for stage in range(len(pipeline.stages))),
        lines=tuple(lines),
    )


def _layers(predecessors: Sequence[Sequence[int]]) -> list[list[_Node]]:
    """Return the linked nodes by layer: the stages in their order, then the bends."""
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
    # The answer waits for the last stages, so their lines pass all layers behind them.
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


def _place(layers: Sequence[list[_Node]], broad: float, gap: float) -> float:
    """Order each layer and set each node's middle. Returns the breadth of the drawing."""
    for sweep in range(_SWEEPS):
        onward = sweep % 2 == 0
        order = range(1, len(layers)) if onward else range(len(layers) - 2, -1, -1)
        for at in order:
            ranks = {id(node): rank for rank, node in enumerate(layers[at - 1 if onward else at + 1])}
            layers[at].sort(key=lambda node: _mean([ranks[id(n)] for n in (node.before if onward else node.after)]))

    def needed(node: _Node) -> float:
        return BEND if node.box is None else broad

    breadths = [sum(map(needed, layer)) + gap * (len(layer) - 1) for layer in layers]
    whole = max(breadths) + 2.0 * PADDING
    for layer, own in zip(layers, breadths, strict=True):
        within = (whole - own) / 2.0
        for node in layer:
            node.middle = within + needed(node) / 2.0
            within += needed(node) + gap
    return whole


def _mean(ranks: Sequence[int]) -> float:
    return sum(ranks) / len(ranks) if ranks else 0.0
