"""The places of stages, to the right and downwards; tests/studies/report/test_graph_svg.py follows the lines."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.planning.graphs.graph_layout import END_HEIGHT, END_WIDTH, graph_layout
from tests.studies.report.test_graph_svg import GRAPHS, graph


@settings(max_examples=40)
@given(GRAPHS)
def test_boxes_keep_apart_within_the_drawing_either_way(before: tuple[set[int], ...]) -> None:
    for down, (width, height) in ((False, (196.0, 90.0)), (True, (140.0, 70.0))):
        found = graph_layout(graph(before), width, height, down=down)
        assert len(found.boxes) == len(before)
        for (x, y), (other_x, other_y) in combinations(found.boxes, 2):
            assert abs(x - other_x) >= width or abs(y - other_y) >= height
        for x, y in found.boxes:
            assert 0.0 <= x <= found.width - width
            assert 0.0 <= y <= found.height - height
        for x, y in (found.query, found.answer):
            assert 0.0 <= x <= found.width - END_WIDTH
            assert 0.0 <= y <= found.height - END_HEIGHT


@settings(max_examples=40)
@given(GRAPHS)
def test_a_stage_stands_behind_those_it_waits_for(before: tuple[set[int], ...]) -> None:
    pipeline = graph(before)
    across, down = graph_layout(pipeline, 196.0, 90.0).boxes, graph_layout(pipeline, 140.0, 70.0, down=True).boxes
    for stage, others in enumerate(pipeline.predecessors):
        for other in others:
            assert across[other][0] + 196.0 < across[stage][0]
            assert down[other][1] + 70.0 < down[stage][1]


def test_one_stage_stands_between_query_and_answer() -> None:
    found = graph_layout(Pipeline((PipelineStage("one", "m"),)), 100.0, 50.0, down=True)
    assert (found.query, found.boxes, found.answer) == ((25.0, 0.0), ((10.0, 50.0),), (25.0, 120.0))
    assert (found.width, found.height) == (120.0, 150.0)
    assert found.lines == ("M60,30C60,40 60,40 60,50", "M60,100C60,110 60,110 60,120")
