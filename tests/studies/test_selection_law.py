"""The calls of a selection without known answers, and the report of a simulated policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage
from mark.studies.selection_law import selection_law

FILE = """
[service]
name = "two"
slo_ms = 100
slo_attainment = 0.95
[stage.small]
model = "small"
[stage.large]
model = "large"
[feedback]
log = "f"
[selection]
"""


def law(folder: Path, selection: str) -> Lineage:
    (folder / "p.toml").write_text(FILE + selection)
    config = load_pipeline(str(folder / "p.toml"))
    pipeline, found, notes, selected = selection_law(config, {}, None, None, 0)
    assert (pipeline.names, notes, selected) == (("small", "large"), [], None)
    return found


def test_a_split_asks_one_candidate_by_its_weights(tmp_path: Path) -> None:
    found = law(tmp_path, 'policy = "split"\nweights = { small = 0.9, large = 0.1 }\n')
    assert found.calls_per_query.tolist() == pytest.approx([0.9, 0.1])
    assert found.calls.sum(axis=1).tolist() == [1, 1]
    alone = law(tmp_path, 'policy = "split"\nweights = { small = 1.0, large = 0.0 }\n')
    assert alone.calls.tolist() == [[1, 0]]


def test_a_vote_asks_everybody(tmp_path: Path) -> None:
    assert law(tmp_path, 'policy = "exp4"\n').calls.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "policy",
    ['"thompson"', '"exp3"', '"cascade"\nscore = "s"\nthreshold = 0.5', '"own:Policy"'],
)
def test_other_policies_need_answers_or_a_lineage(tmp_path: Path, policy: str) -> None:
    with pytest.raises(
        BadInput, match=r"\[selection\] policy: asks by what candidates answer: give --answers FILE, or"
    ):
        law(tmp_path, f"policy = {policy}\n")
