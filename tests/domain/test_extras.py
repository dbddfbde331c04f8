"""A missing optional library is one line that names its extra."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from mark.domain import extras
from mark.domain.errors import BadInput
from mark.domain.extras import check_installed, missing, module_of

ROOT = Path(__file__).parents[2]


def absent(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_refusal_names_library_extra_and_place() -> None:
    refusal = missing(absent("plotly.subplots"), "a page")
    assert str(refusal) == "a page: needs plotly (pip install 'mark-serving[report]')"


@pytest.mark.parametrize("name", ["mark.cli.nothing", "numpy", "something"])
def test_other_modules_are_faults(name: str) -> None:
    assert missing(absent(name), "a page") is None


def test_module_of_an_installed_library_is_imported() -> None:
    assert module_of("plotly.subplots", "a page").make_subplots is not None
    check_installed("plotly", "a page")


def test_library_that_is_not_installed_is_bad_input() -> None:
    known, extras._EXTRAS = extras._EXTRAS, {"no_such_library": "report"}
    try:
        with pytest.raises(
            BadInput, match=r"^--report: needs no_such_library \(pip install 'mark-serving\[report\]'\)$"
        ):
            check_installed("no_such_library", "--report")
        with pytest.raises(BadInput, match=r"^--report: needs no_such_library"):
            module_of("no_such_library.part", "--report")
    finally:
        extras._EXTRAS = known
    with pytest.raises(ModuleNotFoundError):
        module_of("no_such_library", "--report")


def test_extras_are_those_of_the_package_and_bring_the_library() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[\[<>=]", one)[0] for one in asked["dependencies"]}
    named = {"grpc": "grpcio", "jwt": "pyjwt", "prometheus_client": "prometheus-client", "google": "protobuf"}
    named |= {"joblib": "scikit-learn", "sklearn": "scikit-learn", "boto3": "aioboto3", "botocore": "aioboto3"}
    named |= {"starlette": "fastapi"}  # those come with the ones that are named
    for library, extra in extras._EXTRAS.items():
        brings = {re.split(r"[\[<>=]", one)[0] for one in asked["optional-dependencies"][extra]}
        assert named.get(library, library) in brings - base, library
