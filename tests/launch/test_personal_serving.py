"""The head's place in the graph of its file, and the vectors that it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.launch.personal_serving import personal_serving, with_head
from tests.serving.personal.made import FILE, TABLE_FILE, place

STAGES = """
[stage.before]
model = "tower:Tower"
[stage.beside]
model = "tower:Tower"
"""


def config(folder: Path, text: str) -> PipelineConfig:
    return load_pipeline(str(place(folder, text) / "songs.toml"), heads_alone=True)


def test_head_comes_after_the_features_stage_and_beside_other_ends(tmp_path: Path) -> None:
    text = FILE.replace('model = "tower:Tower"', 'model = "tower:Tower"\nafter = ["before"]') + STAGES
    found = config(tmp_path, text)
    graph = with_head(found)
    assert graph is not None
    assert {one.name: one.after for one in graph.stages}["personal"] == ("tower",)
    assert {graph.names[at] for at in graph.last} == {"personal", "beside"}
    serving = personal_serving(found, dict.fromkeys(found.names, "tower:Tower"))
    assert serving is not None
    assert serving.features is not None
    assert serving.features.names == ("before", "tower")


def test_version_of_the_vectors_changes_with_the_models_before_the_head(tmp_path: Path) -> None:
    found = config(tmp_path, FILE)
    one, other = (personal_serving(found, {"tower": model}) for model in ("tower:Tower", "tower:Other"))
    assert one is not None
    assert other is not None
    assert one.version != other.version


def test_head_of_a_table_alone_is_the_graph(tmp_path: Path) -> None:
    found = config(tmp_path, TABLE_FILE)
    graph = with_head(found)
    assert graph is not None
    assert graph.names == ("personal",)


def test_head_of_a_table_needs_one_last_stage(tmp_path: Path) -> None:
    found = config(tmp_path, TABLE_FILE + STAGES)
    with pytest.raises(BadInput, match="needs one last stage"):
        with_head(found)


def test_table_and_features_begin_apart_from_a_selection(tmp_path: Path) -> None:
    """The file's sections are checked when it is read."""
    with pytest.raises(BadInput, match="selection"):
        config(tmp_path, FILE + STAGES + '[selection]\npolicy = "split"\n')
