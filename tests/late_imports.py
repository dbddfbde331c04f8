"""Imports that a test file makes when its first test runs: every worker collects every file, and torch is slow."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def bring(into: dict[str, Any], *names: str) -> None:
    """Put these into a module's globals: "torch", or "sklearn.linear_model:LinearRegression".

    For type checkers the module imports the same under `TYPE_CHECKING`. Call it from an autouse fixture of the module.
    """
    for name in names:
        module, _, attribute = name.partition(":")
        found = import_module(module)
        if attribute and not hasattr(found, attribute):  # a module of the package
            import_module(f"{module}.{attribute}")
        into[attribute or module] = getattr(found, attribute) if attribute else found
