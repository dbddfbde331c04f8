"""The answer in a model's result, as a label that can be compared, counted and written as JSON.

Votes, losses and rewards treat equal labels as one answer. Equality is Python's: 7 and 7.0 are equal, and so are true
and 1, because one candidate's class may be a boolean of numpy and another's an integer. "7" is a text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.selection.settings import ABSOLUTE, ZERO_ONE

# A label is a JSON value: None, a boolean, a number, a text, a list or a dictionary of labels.
Label = Any

_EXACT = 2.0**53  # whole floats below it become integers; JSON ends at 64 bits
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**64 - 1  # JSON's
_DEEPEST = 64  # lists in lists; an array of numpy has no more dimensions


class NoAnswer(ValueError):
    """A result has no field of that name, or no value there that can be an answer or a score."""


def field_of(result: object, field: str | None) -> object:
    """Return a field of a result, or the whole result if `field` is None.

    Raises NoAnswer for a missing field, and for a whole result of several fields: with scores, no two would be equal.
    """
    if field is None:
        if isinstance(result, Mapping) and len(result) > 1:
            what = "say in [selection] answer which one is the answer"
            raise NoAnswer(f"the result has several fields, {_names(result)}: {what}")
        return result
    if not isinstance(result, Mapping):
        raise NoAnswer(f"the result has no field {field!r}, it is a {type(result).__name__}")
    if field not in result:
        raise NoAnswer(f"the result has no field {field!r}, only {_names(result)}")
    return result[field]


def _names(result: Mapping[Any, Any]) -> str:
    names = [str(name)[:40] for name in result]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def same_kind(answer: Label, label: Label) -> bool:
    """Return whether the two can be equal. A text never equals a number, nor a list a text."""
    return _kind(answer) == _kind(label)


def _kind(label: Label) -> type:
    return float if isinstance(label, bool | int | float) else type(label)


def written_alike(answer: Label, label: Label) -> bool:
    """Return whether two plain values differ only in capitals, in text or number, or by the rounding of a number."""
    return answer != label and _written(answer) == _written(label) is not None


def _written(label: Label) -> str | None:
    if isinstance(label, str):
        text = label.strip().casefold()
        if text in ("true", "false"):
            return str(int(text == "true"))
        try:
            return f"{float(text):.6g}"
        except ValueError:
            return text
    return f"{float(label):.6g}" if isinstance(label, int | float) else None


def label_of(value: object) -> Label:
    """Return a result's answer as a plain value. Raises NoAnswer.

    Whole numbers become integers, and a list of one value becomes that value.
    """
    return _label(value, 0)


def _label(value: object, depth: int) -> Label:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoAnswer(f"the answer is {value}")
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not _LEAST_INTEGER <= value <= _MOST_INTEGER:
            raise NoAnswer("the answer is an integer of more than 64 bits")
        return value
    if depth >= _DEEPEST:
        raise NoAnswer(f"the answer is nested deeper than {_DEEPEST}")
    if isinstance(value, list | tuple):
        found = [_label(each, depth + 1) for each in value]
        return found[0] if len(found) == 1 else found
    if isinstance(value, Mapping):
        return {_text(str(name)): _label(each, depth + 1) for name, each in value.items()}
    raise NoAnswer(f"the answer is a {type(value).__name__}")


def _text(value: str) -> str:
    """Return the text with "?" for each half of a surrogate pair, because JSON cannot carry halves."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def label_key(label: Label) -> Any:
    """Return a hashable key of the label. Keys are equal exactly if their labels are."""
    if isinstance(label, list):
        return tuple([label_key(one) for one in label])
    if isinstance(label, dict):
        return frozenset([(name, label_key(one)) for name, one in label.items()])
    return label


def score_of(value: object) -> float:
    """Return the value as a finite number. Raises NoAnswer."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.size == 1 else value.tolist()
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            score = float(value)
        except OverflowError:
            score = math.inf
        if math.isfinite(score):
            return score
    raise NoAnswer(f"the score is {str(value)[:40]!r}, not a finite number")


def loss_of(answer: Label, label: Label, loss: str, scale: float) -> float:
    """Return the loss, 0 to 1, of an answer if `label` is right. A numeric loss is 1 if the two cannot be compared."""
    if loss == ZERO_ONE:
        return 0.0 if answer == label else 1.0
    if answer == label:
        return 0.0
    difference = _distance(answer, label)
    if difference is None:
        return 1.0
    return min(1.0, (difference if loss == ABSOLUTE else difference * difference) / scale)


def _distance(answer: Label, label: Label) -> float | None:
    """Return the difference of two numbers, or its root mean square over two lists; None if they cannot be compared."""
    if isinstance(answer, int | float) and isinstance(label, int | float):
        return abs(float(answer) - float(label))
    try:
        one, other = np.asarray(answer), np.asarray(label)
    except ValueError:  # lists of unequal lengths
        return None
    if one.shape != other.shape or not one.size or one.dtype.kind not in "biuf" or other.dtype.kind not in "biuf":
        return None
    with np.errstate(over="ignore"):
        differences = np.abs(one.astype(float) - other.astype(float))
    most = float(differences.max())
    # Scaled by the largest difference, because its square may be beyond the largest float.
    return most * float(np.sqrt(np.mean((differences / most) ** 2))) if 0.0 < most < math.inf else most
