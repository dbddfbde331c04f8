"""The graph of a page: every line leads from a stage to those that wait for it, and nothing overlaps."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.planning.graphs.graph_layout import END_WIDTH
from mark.studies.report.graph_svg import StageBox, graph_svg
from tests.studies.report.test_compare_report import EVIL

Corner = tuple[float, float]
GRAPHS = st.integers(1, 9).flatmap(
    lambda n: st.tuples(*(st.sets(st.integers(0, max(0, stage - 1))) for stage in range(n)))
)


def graph(before: tuple[set[int], ...]) -> Pipeline:
    return Pipeline(
        tuple(
            PipelineStage(f"s{n}", "m", tuple(f"s{other}" for other in sorted(below) if other < n))
            for n, below in enumerate(before)
        )
    )


def drawn(pipeline: Pipeline) -> ElementTree.Element:
    return ElementTree.fromstring(graph_svg(pipeline, [StageBox(name, ("one", "two")) for name in pipeline.names]))


def boxes(svg: ElementTree.Element) -> dict[str, tuple[float, float, float, float]]:
    """Return left, top, right and bottom by the stage's name."""
    found = {}
    for group in svg.iter("g"):
        if group.get("class") == "box":
            x, y, width, height = (float(group[1].get(name, "")) for name in ("x", "y", "width", "height"))
            found[(group[2].text or "")] = (x, y, x + width, y + height)
    return found


def pieces(svg: ElementTree.Element) -> list[tuple[Corner, Corner]]:
    """Return the ends of each piece of a line."""
    found = []
    for path in svg.iter("path"):
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.get("d", ""))]
        begin = (numbers[0], numbers[1])
        found.append(
            (begin, (numbers[0] + numbers[2], numbers[1]) if len(numbers) == 3 else (numbers[-2], numbers[-1]))
        )
    return found


@settings(max_examples=40)
@given(GRAPHS)
def test_a_reader_finds_every_edge(before: tuple[set[int], ...]) -> None:
    """Lines are followed from the edge of a box, through their bends, to the edges of others."""
    pipeline = graph(before)
    svg = drawn(pipeline)
    places, leads = boxes(svg), defaultdict(list)
    for begin, end in pieces(svg):
        leads[begin].append(end)
    arrives = {(left, (top + bottom) / 2.0): name for name, (left, top, _, bottom) in places.items()}

    def reached(corner: Corner) -> set[str]:
        if corner in arrives:
            return {arrives[corner]}
        return set().union(*(reached(end) for end in leads[corner])) if leads[corner] else {"answer"}

    found = {
        name: set().union(*(reached(end) for end in leads[right, (top + bottom) / 2.0]))
        for name, (_, top, right, bottom) in places.items()
    }
    waits = {
        stage.name: {other.name for other in pipeline.stages if stage.name in other.after} for stage in pipeline.stages
    }
    assert found == {name: after or {"answer"} for name, after in waits.items()}
    begins = [end for begin, end in pieces(svg) if begin[0] == END_WIDTH]
    assert {arrives[end] for end in begins} == {stage.name for stage in pipeline.stages if not stage.after}


@settings(max_examples=40)
@given(GRAPHS)
def test_boxes_and_lines_do_not_hide_each_other(before: tuple[set[int], ...]) -> None:
    svg = drawn(graph(before))
    places = boxes(svg)
    for (left, top, right, bottom), (left_2, top_2, right_2, bottom_2) in combinations(places.values(), 2):
        assert right <= left_2 or right_2 <= left or bottom <= top_2 or bottom_2 <= top
    for (x, y), (to_x, to_y) in pieces(svg):
        if y == to_y:
            for left, top, right, bottom in places.values():
                assert not (top < y < bottom and x < right and left < to_x)
    width, height = (float(one) for one in svg.get("viewBox", "").split()[2:])
    assert all(
        0.0 <= left < right <= width and 0.0 <= top < bottom <= height for left, top, right, bottom in places.values()
    )


def test_a_marked_stage_says_so_and_long_names_are_cut() -> None:
    name = "a-name-that-is-far-too-long-for-its-box"
    text = graph_svg(Pipeline((PipelineStage(name, "m"),)), [StageBox(name, ("x",), "bottleneck")])
    svg = ElementTree.fromstring(text)
    texts = [one.text for one in svg.iter("text")]
    assert "a-name-that-is-far-to…" in texts
    assert "bottleneck" in texts
    assert f"<title>{name} · x</title>" in text
    assert svg.get("aria-label") == f"{name} after the query"


def test_no_text_becomes_markup() -> None:
    pipeline = Pipeline((PipelineStage(EVIL, "m"),))
    tags = [one.tag for one in ElementTree.fromstring(graph_svg(pipeline, [StageBox(EVIL, (EVIL,), EVIL)])).iter()]
    assert set(tags) == {"svg", "g", "path", "rect", "text", "title"}
