"""The services of a site, by their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.site_services import site_pipelines, site_services
from mark.domain.errors import BadInput
from tests.config.test_pipeline_file import GRAPH, HEAD, PARTS, with_parts


def test_stages_of_pipelines_stand_beside_services(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(with_parts(HEAD + GRAPH, PARTS))
    found = site_services(["inception-v3", str(path)])
    assert [(service.name, service.stage) for service in found] == [
        ("inception-v3", ""), ("social-language", "language"), ("social-vision", "vision"),
        ("social-translate", "translate"), ("social-categorise", "categorise"),
    ]  # fmt: skip
    assert [pipeline.name for pipeline in site_pipelines(["inception-v3", str(path)])] == ["social"]


def test_pipeline_without_conductors_is_a_service_of_the_site(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(HEAD + '[stage.one]\nmodel = "m"\n[stage.two]\nmodel = "m"\n[selection]\npolicy = "split"\n')
    (found,) = site_services([str(path)])
    assert (found.name, found.whole) == ("social", ("one", "two"))
    assert site_pipelines([str(path)]) == []


def test_a_name_stands_for_one_service(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="names a service twice"):
        site_services(["nasnet", "nasnet"])
