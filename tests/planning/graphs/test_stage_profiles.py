"""Measuring a pipeline: each model once, on the inputs of its stages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.models.loading import load
from mark.models.results import decode
from mark.planning.graphs.stage_profiles import MOST_ITEMS, stage_profilings

FILE = """
[service]
name = "two"
slo_ms = 100
slo_attainment = 0.95
pipeline = "stages_of_test:respond"
[fleet]
instances = ["c7i.large"]
[stage.twice]
model = "stages_of_test:double"
[stage.again]
model = "stages_of_test:double"
[stage.never]
model = "stages_of_test:other"
"""
CODE = """
import mark

@mark.pipeline
async def respond(query, models):
    found = await models.twice(query)
    if found == 4:
        found = await models.again({"not": "sent", "with": SENT})
    return found

@mark.model
def double(batch):
    return [2 * one if isinstance(one, int) else 0 for one in batch]

@mark.model(warmup=["x"])
def other(batch):
    return batch
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    before = list(sys.path)
    (tmp_path / "two.toml").write_text(FILE)
    (tmp_path / "stages_of_test.py").write_text(CODE.replace("SENT", "[1.5, None]"))
    (tmp_path / "q.jsonl").write_text("1\n2\n3\n")
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("stages_of_test", None)


def config(place: Path) -> PipelineConfig:
    return load_pipeline(str(place / "two.toml"))


def test_a_model_of_two_stages_is_measured_once_for_both(place: Path) -> None:
    shared, unvisited = stage_profilings(config(place), str(place / "q.jsonl"))
    assert (shared.stages, shared.what.named) == (("twice", "again"), "stages_of_test:double")
    model = load("stages_of_test:double", place)
    items = [item for call in shared.what.calls for item in decode(call, model)[0]]
    assert items == [1, 2, 3, {"not": "sent", "with": [1.5, None]}]
    assert (unvisited.stages, unvisited.what.calls) == (("never",), ())


def test_no_more_items_are_kept_than_a_sample_needs(place: Path) -> None:
    (place / "q.jsonl").write_text("1\n" * (MOST_ITEMS + 5))
    assert len(stage_profilings(config(place), str(place / "q.jsonl"))[0].what.calls) == MOST_ITEMS


def test_what_cannot_be_sent_to_a_worker_names_its_stage(place: Path) -> None:
    (place / "stages_of_test.py").write_text(CODE.replace("SENT", "object"))
    with pytest.raises(
        BadInput, match="stage again: is called with a value that cannot be sent to its worker: a result is a"
    ):
        stage_profilings(config(place), str(place / "q.jsonl"))


def test_queries_go_with_a_driver_and_a_driver_with_queries(place: Path) -> None:
    with pytest.raises(BadInput, match="say on which queries its stages are measured"):
        stage_profilings(config(place), None)
    (place / "two.toml").write_text(FILE.replace('pipeline = "stages_of_test:respond"', ""))
    with pytest.raises(BadInput, match="there is no driver to run on queries"):
        stage_profilings(config(place), str(place / "q.jsonl"))
    assert [one.what.calls for one in stage_profilings(config(place), None)] == [(), ()]


def test_a_model_without_code_cannot_be_measured(place: Path) -> None:
    (place / "two.toml").write_text(FILE.replace("stages_of_test:other", "resnet152"))
    with pytest.raises(BadInput, match=r"\[stage.never\] model: is no code that could be measured.*: resnet152"):
        stage_profilings(config(place), str(place / "q.jsonl"))
