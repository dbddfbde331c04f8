"""The files beside Terraform's state with which any machine can end a site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy.remembered import VARIABLES, recall, remember, standing_in

from tests.infra.conftest import REGION, MotoServer


@pytest.fixture
def gate(moto: MotoServer) -> Gate:
    moto.reset()
    moto.client("s3").create_bucket(Bucket="states")
    return Gate(Site("mark", REGION, "dynamodb:none"), options=moto.options)


def deployed(folder: Path, wheels: str = "../../../artifacts/controller/c.tar") -> None:
    (folder / VARIABLES).parent.mkdir(parents=True)
    service = {"archive": "../../../artifacts/a.tar.gz", "wheels": "../../../artifacts/wheels/a.tar", "slo_ms": 1.0}
    function = {"function": {"zip": "../../../artifacts/a.zip"}}
    services = {"a": service | function, "b": service | {"archive": "../../../artifacts/b.tar.gz", "function": None}}
    (folder / VARIABLES).write_text(json.dumps({"controller_wheels": wheels, "services": services}))
    (folder / "site.toml").write_text("[site]")


def test_another_machine_has_what_is_needed(gate: Gate, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    deployed(here)
    remember(gate, "states", "mark", here)
    recall(gate, "states", "mark", there)
    for name in (VARIABLES, Path("site.toml")):
        assert (there / name).read_bytes() == (here / name).read_bytes()
    (there / "site.toml").write_text("mine")
    recall(gate, "states", "mark", there)
    assert (there / "site.toml").read_text() == "mine", "what is there stays"


def test_one_site_does_not_get_anothers(gate: Gate, tmp_path: Path) -> None:
    deployed(tmp_path / "here")
    remember(gate, "states", "mark-2", tmp_path / "here")
    recall(gate, "states", "mark", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_files_of_another_machine_have_stand_ins(tmp_path: Path) -> None:
    deployed(tmp_path)
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    (artifacts / "controller").mkdir()
    (artifacts / "controller/c.tar").write_text("wheels")
    with standing_in(tmp_path):
        found = sorted(path.relative_to(artifacts).as_posix() for path in artifacts.rglob("*") if path.is_file())
    assert found == ["a.tar.gz", "a.zip", "b.tar.gz", "controller/c.tar", "wheels/a.tar"]
    assert [path.name for path in artifacts.rglob("*") if path.is_file()] == ["c.tar"]
    assert (artifacts / "controller/c.tar").read_text() == "wheels"
