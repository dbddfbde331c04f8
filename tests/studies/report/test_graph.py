"""Graphs drawn with plain characters: every line leads from a stage to those that wait for it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.studies.report.graph import drawn


def pipeline(**after: str) -> Pipeline:
    return Pipeline.ordered(PipelineStage(name, "m", tuple(before)) for name, before in after.items())


def picture(found: Pipeline) -> str:
    return "\n".join(f"{left} {name}" for left, name in zip(drawn(found), found.names, strict=True))


def test_a_cascade() -> None:
    assert picture(pipeline(a="", b="a", c="b")) == "╭──── a\n╰─┬─> b\n  ╰─> c"


def test_fan_out_and_a_join() -> None:
    found = pipeline(a="", b="a", c="a", d="bc")
    assert picture(found) == "╭────── a\n├─┬───> b\n╰─│─┬─> c\n  ╰─┴─> d"


def test_stages_without_edges_have_no_lines() -> None:
    assert picture(pipeline(a="", b="")).split() == ["a", "b"]


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(*(st.sets(st.integers(0, max(0, k - 1))) for k in range(n)))))
def test_a_reader_finds_every_edge(before: tuple[set[int], ...]) -> None:
    """Lines are followed down their columns, from where they begin to each place where they are joined to a row."""
    stages = [
        PipelineStage(f"s{k}", "m", tuple(f"s{b}" for b in sorted(below) if b < k)) for k, below in enumerate(before)
    ]
    found = Pipeline(tuple(stages))
    rows = drawn(found)
    assert len({len(row) for row in rows}) == 1
    edges = set()
    begun: dict[int, int] = {}
    for k, row in enumerate(rows):
        assert row.endswith(">") == bool(stages[k].after)
        for place in re.finditer(r"[├┼╰┴]", row):
            edges.add((begun[place.start()], k))
        for place in re.finditer(r"[╰┴]", row):
            del begun[place.start()]
        for place in re.finditer(r"[╭┬]", row):
            assert place.start() not in begun
            begun[place.start()] = k
        assert {place.start() for place in re.finditer("[│├┼╭┬]", row)} == set(begun)
    assert begun == {}
    assert edges == {(int(name[1:]), k) for k, stage in enumerate(stages) for name in stage.after}
