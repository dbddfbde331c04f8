"""Compiled functions that only compiled functions call: no separate machine code, the same answers."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.arrays import FloatArray
from mark.kernel.compiled import compiled


@compiled
def _larger(values: FloatArray, place: int, least: float) -> float:
    return max(values[place], least)


@compiled
def _sum_of_larger(values: FloatArray, least: float) -> float:
    total = 0.0
    for place in range(len(values)):
        total += _larger(values, place, least)
    return total


def test_function_called_by_compiled_code_gets_no_machine_code() -> None:
    values = np.array([1.0, 5.0, 3.0])
    before = len(_larger.signatures)  # type: ignore[attr-defined]
    assert _sum_of_larger(values, 2.0) == 10.0
    assert len(_larger.signatures) == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("least", [2.0, 4])
def test_inlined_function_answers_python_too(least: float) -> None:
    values = np.array([1.0, 5.0, 3.0])
    assert _sum_of_larger(values, least) == sum(_larger(values, place, least) for place in range(3))
