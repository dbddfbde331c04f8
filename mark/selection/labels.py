"""The answer in a model's result, as a label that can be compared, counted and written as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.selection.settings import ABSOLUTE, ZERO_ONE

# A label is a JSON value; equal labels are one answer.
Label = Any


class NoAnswer(ValueError):
    """A result has no field of that name, or no value there that can be an answer or a score."""


def field_of(result: object, field: str | None) -> object:
    """The field of a result, the whole result for None. Raises NoAnswer."""
    if field is None:
        return result
    if not isinstance(result, Mapping) or field not in result:
        raise NoAnswer(f"the result has no field {field!r}")
    return result[field]


def label_of(value: object) -> Label:
    """A result's answer as a plain value: numbers that are whole become integers. Raises NoAnswer."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoAnswer(f"the answer is {value}")
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        found = [label_of(each) for each in value]
        return found[0] if len(found) == 1 else found
    if isinstance(value, Mapping):
        return {str(name): label_of(each) for name, each in value.items()}
    raise NoAnswer(f"the answer is a {type(value).__name__}")


def score_of(value: object) -> float:
    """A finite number. Raises NoAnswer."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NoAnswer(f"the score is {value!r}, not a number")
    return float(value)


def loss_of(answer: Label, label: Label, loss: str, scale: float) -> float:
    """The loss of an answer where `label` is right: 0 to 1. A numeric loss of a text is 1."""
    if loss == ZERO_ONE:
        return 0.0 if answer == label else 1.0
    difference = _distance(answer, label)
    if difference is None:
        return 1.0
    return min(1.0, (difference if loss == ABSOLUTE else difference * difference) / scale)


def _distance(answer: Label, label: Label) -> float | None:
    """The absolute difference of two numbers, the root mean square of two lists; None: they cannot be compared."""
    try:
        one, other = np.asarray(answer, float), np.asarray(label, float)
    except (TypeError, ValueError):
        return None
    if one.shape != other.shape:
        return None
    distance = float(np.sqrt(np.mean((one - other) ** 2)))
    return distance if math.isfinite(distance) else None
