"""Code that no instance could import is found before any instance runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from mark_infra.deploy.imports import absent_imports

HAS = {"numpy", "mark"}


def absent(module: str, folder: str = "", **files: str) -> list[tuple[str, str]]:
    named: dict[str, Path | bytes] = {f"{name.replace('__', '/')}.py": text.encode() for name, text in files.items()}
    return absent_imports(module, named, HAS, folder)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import json, numpy as np\nfrom mark import Model\nfrom __future__ import annotations", []),
        ("import pandas\nimport scipy.stats", ["pandas", "scipy"]),
        ("from sklearn.svm import SVC", ["sklearn"]),
        ("try:\n    import orjson\nexcept ImportError:\n    orjson = None", []),
        ("def plot():\n    import matplotlib", []),
        ("import pkg_resources", []),
        ("this is no Python", []),
    ],
)
def test_what_runs_at_import_must_be_there(text: str, names: list[str]) -> None:
    assert absent("model", model=text) == [("model.py", name) for name in names]


def test_imports_are_followed_within_the_folder() -> None:
    assert absent("model", model="import helper", helper="import pandas", train="import torch") == [
        ("helper.py", "pandas")
    ]
    assert absent("pack.model", pack__model="from . import deep", pack__deep="import pandas") == [
        ("pack/deep.py", "pandas")
    ]
    assert absent("pack.model", pack__model="from .deep import x", pack__deep="from pack.other import y") == []


def test_a_registrys_version_is_looked_up_in_its_folder() -> None:
    files = {"versions__1__files__m": "import helper", "versions__1__files__helper": "import pandas"}
    assert absent("m", "versions/1/files", **files) == [("versions/1/files/helper.py", "pandas")]
    assert absent("m", **files) == []


def test_a_model_that_is_no_code_imports_nothing() -> None:
    assert absent("onnx", model="import pandas") == []
