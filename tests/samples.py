"""Samples of expensive tests: `make test` runs a part of their cases, `make test-slow` runs all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])
ALL = "MARK_ALL_EXAMPLES" in os.environ


def sampled(examples: int) -> Callable[[Test], Test]:
    """Draw this many random examples in `make test-slow`, and the first third of them in `make test` and `.ci/run`.

    Write it above `@given`.
    """

    def decorate(test: Test) -> Test:
        marked: Test = pytest.mark.sampled(settings(max_examples=examples if ALL else examples // 3)(test))
        return marked

    return decorate


def first(quick: int, values: Iterable[Any], *, slow: int | None = None) -> list[Any]:
    """Return parameters of a test; all but the first `quick` are marked `slow`.

    `slow` of those run in CI, and the others only in `make acceptance`; None: all run in CI. A tuple is one value for
    each of several names.
    """
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=_marks(position - quick, slow))
        for position, value in enumerate(values)
    ]


def _marks(beyond: int, slow: int | None) -> list[pytest.MarkDecorator]:
    if beyond < 0:
        return []
    return [pytest.mark.acceptance if slow is not None and beyond >= slow else pytest.mark.slow]
