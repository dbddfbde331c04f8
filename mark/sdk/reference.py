"""References by which a worker process finds a model that was defined in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.models.driver import PipelineDriver
from mark.models.model import Model

_FILES = ("onnx:", "torch:", "sklearn:")


def reference_of(model: str | type | Model | Callable[..., Any]) -> tuple[str, Path]:
    """Return a reference as in a service file, and the folder from which its module is imported.

    `model` is a reference already (files and modules are relative to the current folder), a class, a decorated
    function, or an instance with a name in the module of its class. Raises BadInput for a model that another process
    cannot import: one defined in a notebook, in the script that runs, or within a function.
    """
    if isinstance(model, str):
        kind, colon, rest = model.partition(":")
        if f"{kind}{colon}" not in _FILES:
            return model, Path.cwd()
        file, question, query = rest.partition("?")
        return f"{kind}:{Path(file).resolve()}{question}{query}", Path.cwd()
    if not isinstance(model, Model) and not (isinstance(model, type) and issubclass(model, Model)):
        shown = getattr(model, "__qualname__", model)
        raise BadInput("is no model: derive it from mark.Model, or decorate it with @mark.model", "model", shown)
    return _named(model, f"model {getattr(model, '__qualname__', model.name)} of {model.__module__}")


def driver_reference(driver: object) -> tuple[str, Path]:
    """Return a driver's reference, `module:function`, and its folder; it may be decorated with @mark.pipeline.

    Raises BadInput.
    """
    if isinstance(driver, str):
        return driver, Path.cwd()
    if not isinstance(driver, PipelineDriver):
        shown = getattr(driver, "__qualname__", driver)
        raise BadInput("is no pipeline: decorate it with @mark.pipeline", "pipeline", shown)
    return _named(driver, f"pipeline {driver.name} of {driver.__module__}")


def _named(thing: type | Model | PipelineDriver, where: str) -> tuple[str, Path]:
    """Return `module:NAME` and the module's folder."""
    module = thing.__module__
    if module == "__main__":
        raise BadInput(
            "worker processes cannot import names of the running notebook or script: put them into a file of their "
            "own, and import it from there",
            where,
        )
    names = [key for key, value in vars(sys.modules[module]).items() if value is thing]
    if not names:
        raise BadInput("has no name at the top of its module, where worker processes could find it", where)
    return f"{module}:{names[0]}", _folder(module)


def _folder(module: str) -> Path:
    """Return the folder that a path must hold so that the module is imported by its name."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        raise BadInput("was not imported from a file", f"module {module}")
    path = Path(file).resolve()
    levels = module.count(".") + (path.name == "__init__.py")
    return path.parents[levels]
