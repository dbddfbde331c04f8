"""Samples: `make test` runs a part of a dear test, `make test-slow` all of it.

Examples are drawn in the same order every time, so that those of `make test` are the first of `make test-slow`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])
ALL = "MARK_ALL_EXAMPLES" in os.environ


def sampled(examples: int) -> Callable[[Test], Test]:
    """So many examples in `make test-slow`; a third of them in `make test`. Stands above `@given`."""

    def decorate(test: Test) -> Test:
        marked: Test = pytest.mark.sampled(settings(max_examples=examples if ALL else examples // 3)(test))
        return marked

    return decorate


def first(quick: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test, tuples for several names: the first few for `make test`, the others marked `slow`."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] * (position >= quick))
        for position, value in enumerate(values)
    ]
