"""A model in Python gets a reference by which it is found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mark.domain.errors import BadInput
from mark.models.loading import find
from mark.sdk.reference import reference_of
from tests.sdk import models

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("model", "name"),
    [(models.Echo, "Echo"), (models.Plain, "Plain"), (models.shout, "shout"), (models.made, "made")],
)
def test_what_is_found_is_what_was_given(model: Any, name: str) -> None:
    reference, folder = reference_of(model)
    assert (reference, folder) == (f"tests.sdk.models:{name}", ROOT)
    found = find(reference, folder)
    assert found is model or type(found) is model


def test_references_stay_and_files_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = Path.cwd()
    assert reference_of("ranker:Ranker") == ("ranker:Ranker", here)
    assert reference_of("http://a/v2/models/b") == ("http://a/v2/models/b", here)
    assert reference_of("inception-v3") == ("inception-v3", here)
    assert reference_of("onnx:a/b.onnx")[0] == f"onnx:{here}/a/b.onnx"
    assert reference_of("sklearn:b?pickle=trusted")[0] == f"sklearn:{here}/b?pickle=trusted"


def test_a_package_is_imported_from_above_it() -> None:
    import tests.sdk

    class InPackage(models.Echo):
        pass

    InPackage.__module__ = "tests.sdk"
    vars(tests.sdk)["InPackage"] = InPackage
    try:
        assert reference_of(InPackage) == ("tests.sdk:InPackage", ROOT)
    finally:
        del vars(tests.sdk)["InPackage"]


def in_main() -> type:
    made = type("Cell", (models.Echo,), {})
    made.__module__ = "__main__"
    return made


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (in_main(), "Cell of __main__: worker processes cannot import names of the running notebook or script"),
        (models.within(), "has no name at the top of its module"),
        (models.Echo(), "has no name at the top of its module"),
        (models.NoModel, "is no model: derive it from mark.Model"),
        (models.plain_function, "is no model: derive it from mark.Model, or decorate it with @mark.model"),
        (7, "is no model"),
    ],
)
def test_what_a_worker_could_not_import_is_refused(model: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        reference_of(model)
    assert said in str(refused.value)
