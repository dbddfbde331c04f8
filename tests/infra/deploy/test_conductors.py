"""The artifacts that conductors boot from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mark_infra.deploy.conductors import pack_conductors
from mark_infra.deploy.wheelhouse import PackagesWanted, Wheelhouse

from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.service import FeedbackSettings
from mark.personal.settings import PersonalSettings
from mark.studies.report.monthly import ConductorsCost

FILE = """
[service]
name = "two"
slo_ms = 600
slo_attainment = 0.98
pipeline = "driver:run"
[conductors]
count = 4
[stage.first]
model = "sklearn:first.joblib"
"""


def test_conductors_have_what_their_driver_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need no library of a model, because they run none."""
    asked: list[PackagesWanted] = []

    def wheels(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
        asked.append(wanted)
        return Wheelhouse(tmp_path / "wheels.tar", 2**30, 2**31, frozenset({"mark"}))

    monkeypatch.setattr("mark_infra.deploy.conductors.wheelhouse", wheels)
    (tmp_path / "two.toml").write_text(FILE)
    (tmp_path / "two.tar.gz").write_bytes(b"packed")
    config, nowhere = load_pipeline(str(tmp_path / "two.toml")), Path("nowhere")
    files: dict[str, Path | bytes] = {"driver.py": b"import mark"}
    packed = pack_conductors(config, files, tmp_path / "two.tar.gz", nowhere, nowhere, tmp_path)
    (wanted,) = asked
    assert (wanted.machine, wanted.kinds, wanted.gpus) == ("aarch64", (), False)
    assert packed.described(lambda path: path.name) == {
        "slo_ms": 600.0,
        "slo_attainment": 0.98,
        "archive": "two.tar.gz",
        "wheels": "wheels.tar",
        "conductors": 4,
        "learns": False,
        "disk_gb": 9,  # 1.7 for the image, 2 + 3 for packages, 2 spare
    }
    assert packed.cost() == ConductorsCost("two", 4, 9.0)
    with pytest.raises(BadInput, match="a conductor of two needs a disk of 9 GiB"):
        pack_conductors(config, files, tmp_path / "two.tar.gz", nowhere, nowhere, tmp_path, max_disk_gib=8)
    personal = replace(config, personal=PersonalSettings(features="first"), feedback=FeedbackSettings("log"))
    assert pack_conductors(personal, files, tmp_path / "two.tar.gz", nowhere, nowhere, tmp_path).config.learns
    assert asked[-1].kinds == ("scipy",), "heads are computed in the conductor"
    files["driver.py"] = b"import mark, pandas"
    with pytest.raises(BadInput, match=r"^driver\.py: imports a package that conductors will not have.*: pandas$"):
        pack_conductors(config, files, tmp_path / "two.tar.gz", nowhere, nowhere, tmp_path)
