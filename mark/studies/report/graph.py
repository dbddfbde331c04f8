"""A graph of stages drawn with plain characters, one stage a line."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.pipeline import Pipeline

# Line pieces by their other ends: (up, down, left). To the right each leads to the stage's name.
_PIECES = {
    (False, True, False): "╭",
    (False, True, True): "┬",
    (True, True, False): "├",
    (True, True, True): "┼",
    (True, False, False): "╰",
    (True, False, True): "┴",
}


def drawn(pipeline: Pipeline) -> list[str]:
    """Return the drawing to the left of each stage's name, all of one width: its outgoing and incoming answers.

    A line begins at a stage (a corner or tee that goes down) and has an arrow at each stage that waits for it. Lines
    that only cross are not joined.
    """
    names = pipeline.names
    ends: list[list[int]] = [[] for _ in names]  # by stage, the stages that wait for it
    for target, before in enumerate(pipeline.predecessors):
        for source in before:
            ends[source].append(target)
    lanes = _lanes(ends)
    width = 1 + max(lanes.values(), default=-1)
    return [_row(row, ends, lanes, width) for row in range(len(names))]


def _lanes(ends: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the place of each source's line from the left; two lines that share a row never share a place."""
    lanes: dict[int, int] = {}
    for source, targets in enumerate(ends):
        if targets:
            # A line that ends in this row keeps its place, otherwise the two would look like one.
            taken = {lane for other, lane in lanes.items() if max(ends[other]) >= source}
            lanes[source] = next(lane for lane in range(len(ends)) if lane not in taken)
    return lanes


def _row(row: int, ends: Sequence[Sequence[int]], lanes: dict[int, int], width: int) -> str:
    by_lane = {lane: source for source, lane in lanes.items() if source <= row <= max(ends[source])}
    text, joined = "", False
    for lane in range(width):
        source = by_lane.get(lane)
        if source is None:
            text += "──" if joined else "  "
        elif row != source and row not in ends[source]:
            text += "│─" if joined else "│ "
        else:
            text += _PIECES[row > source, row < max(ends[source]), joined] + "─"
            joined = True
    arrives = any(row in targets for targets in ends)
    return text + (">" if arrives else "─" if joined else " ")
