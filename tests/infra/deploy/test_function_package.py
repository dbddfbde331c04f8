"""The contents of a function's package, and how it is sent."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from mark_infra.deploy import function_package
from mark_infra.deploy.artifacts import zip_archive
from mark_infra.deploy.function_package import PackageForm, function_contents, package_form, with_bytecode

from mark.domain.errors import BadInput

MIB = 1024**2


def test_it_has_its_service_mark_and_libraries(tmp_path: Path) -> None:
    (tmp_path / "libraries" / "numpy").mkdir(parents=True)
    (tmp_path / "libraries" / "numpy" / "__init__.py").write_text("")
    files: dict[str, Path | bytes] = {"service.toml": b"[service]", "model.py": b"x = 1"}
    made = [
        zip_archive(function_contents(files, tmp_path / "libraries"), tmp_path / f"{number}.zip") for number in (1, 2)
    ]
    assert made[0].read_bytes() == made[1].read_bytes()
    names = set(zipfile.ZipFile(made[0]).namelist())
    assert {"service/model.py", "mark_lambda/overflow.py", "mark/models/loading.py", "numpy/__init__.py"} <= names
    assert not any("__pycache__" in name for name in names)


@pytest.mark.parametrize(
    ("unpacked_bytes", "form"),
    [(250 * MIB, PackageForm.ZIP), (250 * MIB + 1, PackageForm.IMAGE), (9_000_000_000, PackageForm.IMAGE)],
)
def test_what_a_zip_cannot_hold_is_an_image(unpacked_bytes: int, form: PackageForm) -> None:
    assert package_form("words", unpacked_bytes) is form


def test_what_no_image_holds_is_refused() -> None:
    with pytest.raises(BadInput, match=r'words.*images of 10 GB.*function = "none".*9\.9 GB'):
        package_form("words", 9_900_000_000)


def test_bytecode_comes_along_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    contents, bytecode = {"a.py": bytes(60)}, {"__pycache__/a.pyc": bytes(41)}
    assert with_bytecode(contents, bytecode) == contents | bytecode
    monkeypatch.setattr(function_package, "MOST_ZIP_BYTES", 100)
    assert with_bytecode(contents, bytecode) == contents
