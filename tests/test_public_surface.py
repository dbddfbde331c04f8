"""The names that users import. To drop or to rename one breaks their code: change this file on purpose only."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

import mark
from mark.domain.version import VERSION

ROOT = Path(__file__).parent.parent
MODULES = {
    "mark.testing.cloud_contract": {"CloudContract", "CloudUnderTest"},
    "mark.testing.policy_contract": {"PolicyContract", "first_context", "flat_forecast", "next_context"},
    "mark.testing.predictor_contract": {
        "PredictorContract",
        "PredictorUnderTest",
        "assert_same",
        "assert_sound",
        "constant",
        "diurnal",
        "part",
    },
    "mark.testing.fakes": {
        "FakeCloud",
        "FakeFunctions",
        "FakeLease",
        "FakeObjects",
        "FakeStore",
        "FakeTelemetry",
        "ManualClock",
        "RampPredictor",
        "ScriptedPlanner",
    },
    "mark.models.driver": {"PipelineDriver", "StageFailed", "StageModels", "load_driver", "pipeline"},
    "mark.sdk.personal_client": {"PersonalClient", "RankedItem"},
    "mark.sdk.registry": {"register"},
    "mark.sdk.report": {"report"},
    "mark.sdk.service": {"DeployOptions", "ProfileOptions", "RunOptions", "Service"},
}


def test_mark_exposes_service_models_and_registry() -> None:
    classes = ["Model", "PersonalClient", "Service", "StageModels", "TensorSpec"]
    assert sorted(mark.__all__) == [*classes, "__version__", "model", "open_registry", "pipeline", "register", "report"]
    assert all(getattr(mark, name) is not None for name in mark.__all__)
    assert mark.__version__ == VERSION


def test_completion_offers_what_mark_exposes() -> None:
    """Names imported on first use are included."""
    offered = {name for name in dir(mark) if not name.startswith("_")}
    assert {name for name in mark.__all__ if not name.startswith("_")} <= offered
    assert not offered & {"Any", "TYPE_CHECKING"}


def test_mark_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Servise'"):
        mark.Servise  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_modules_define_these_public_names(name: str) -> None:
    module = importlib.import_module(name)
    defined = {
        key
        for key, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name and key[0] != "_"
    }
    assert defined == MODULES[name]


def test_a_service_has_these_methods() -> None:
    methods = {name for name in vars(mark.Service) if not name.startswith("_")}
    actions = {"compare", "deploy", "insure", "plan", "profile", "running", "serve", "simulate", "write"}
    assert methods == {"name", *actions}


def test_layers_name_every_package() -> None:
    """import-linter checks only packages in its contracts; this test checks that the contracts name all packages."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = {name for row in contracts[0]["layers"] for name in row.split(" | ")}
    packages = {f"mark.{init.parent.name}" for init in (ROOT / "mark").glob("*/__init__.py")}
    assert layers == packages | {"mark_infra", "mark_lambda", "mark_papers", "mark_predictors", "mark_torture"}
