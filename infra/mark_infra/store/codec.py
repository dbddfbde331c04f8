"""Convert values to JSON and back exactly. Decoding imports and calls only the types registered here.

None, bool, int, finite float, str, list, and dict with string keys are stored as plain JSON; all other values as an
object `{"$": kind, "v": ...}`. A dataclass is stored as its field values in order. Beside the value stands the *shape*
of each of its classes: a version and a checksum of the fields and their types. So data of another version of mark are
never misread: decoding fails and the controller starts with fresh state.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import Field, fields
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from mark.control.agenda import AgendaItem
from mark.control.boots import Boots
from mark.control.comparison import Comparison, Contrast, Stratum
from mark.control.headroom import Limit
from mark.control.held_releases import HeldRelease
from mark.control.history import HalfHour, Minute
from mark.control.launcher import Intent
from mark.control.monitor import MonitorState
from mark.control.ports import ReleaseCounts
from mark.control.rollout import Rollout, RolloutStage
from mark.control.state import ControllerState, Replanning
from mark.control.views import Limits
from mark.domain.bill import Bill
from mark.domain.command import Drain, Launch, Resume, Stop, Switch, Terminate, Warm
from mark.domain.errors import RefusalScope
from mark.domain.fleet import EndedAtLaunch, Fleet, Instance, Notice, Phase, ScheduledEvent
from mark.domain.load import Forecast, Load
from mark.domain.offer import Market
from mark.domain.plan import Plan, Target
from mark.planning.demand.promise_price import Hour, Law
from mark.planning.demand.slo_budget import Window
from mark.planning.market.own_boots import OwnBoots
from mark.planning.market.spot import Belief
from mark.planning.policies.burstable import Seen
from mark.planning.policies.expected_cost import ExpectedCostMemory
from mark.planning.policies.hindsight import PastCosts
from mark.planning.policies.target_tracking import TrackerState

# The types that may be stored, with a version. Raise it when a class keeps its fields but changes their meaning.
DATACLASSES: dict[type, int] = dict.fromkeys(
    (
        *(Plan, Target, Intent, Belief, Window, MonitorState, Seen, PastCosts, ExpectedCostMemory, TrackerState),
        *(Law, Hour, OwnBoots),
        *(Limits, Minute, HalfHour, Fleet, Instance, Notice, ScheduledEvent, Load, Forecast, Bill),
        *(Boots, ControllerState, Replanning, Rollout, ReleaseCounts, Launch, Drain, Terminate, Resume, Stop, Warm),
        *(Switch, Comparison, Stratum, Contrast, EndedAtLaunch, HeldRelease, Limit),
    ),
    1,
)
ENUMS: tuple[type[Enum], ...] = (Phase, Market, AgendaItem, RolloutStage, RefusalScope)

_BY_NAME: dict[str, type] = {c.__name__: c for c in DATACLASSES}
_ENUM_BY_NAME: dict[str, type[Enum]] = {c.__name__: c for c in ENUMS}
_KINDS_OF_NUMBERS = "biufc"  # numpy's booleans, integers, floats and complex numbers; never objects


class Unreadable(Exception):
    """The text is damaged or was written by another version of mark."""


def encode(value: Any) -> str:
    """Encode a value as one line of ASCII. Raises TypeError for a value of an unregistered type."""
    shapes: dict[str, str] = {}
    plain = _plain(value, shapes)
    return json.dumps({"shapes": shapes, "value": plain}, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> Any:
    """Return the encoded value, equal in value and type. Raises Unreadable."""
    try:
        document = json.loads(text)
        for name, shape in document["shapes"].items():
            if name not in _BY_NAME or _shape(_BY_NAME[name]) != shape:
                raise Unreadable(f"{name} has changed")
        return _value(document["value"])
    except Unreadable:
        raise
    # The classes check their own values and may raise any exception.
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def _stored(cls: type) -> list[Field[Any]]:
    return [field for field in fields(cls) if field.init]


@cache
def _shape(cls: Any) -> str:
    described = ",".join(f"{field.name}:{field.type}" for field in _stored(cls))
    return f"{DATACLASSES[cls]}/{zlib.crc32(described.encode()):08x}"


def _plain(value: Any, shapes: dict[str, str]) -> Any:
    kind: Any = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [_plain(one, shapes) for one in value]
    if kind is dict and "$" not in value and all(type(key) is str for key in value):
        return {key: _plain(one, shapes) for key, one in value.items()}
    if kind in DATACLASSES:
        shapes[kind.__name__] = _shape(kind)
        return _tagged(kind.__name__, [_plain(getattr(value, field.name), shapes) for field in _stored(kind)])
    if kind in ENUMS:
        return _tagged(kind.__name__, value.name)
    if kind is float:
        return _tagged("float", repr(value))
    if kind is tuple:
        return _tagged("tuple", [_plain(one, shapes) for one in value])
    if kind in (dict, Counter):
        return _tagged(kind.__name__, [[_plain(key, shapes), _plain(one, shapes)] for key, one in value.items()])
    if kind is deque:
        return _tagged("deque", [value.maxlen, [_plain(one, shapes) for one in value]])
    if (kind is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind in _KINDS_OF_NUMBERS:
        data = base64.b64encode(value.tobytes()).decode()
        return _tagged("array" if kind is np.ndarray else "scalar", [value.dtype.str, list(value.shape), data])
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be stored: it is not registered")


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {"$": kind, "v": value}


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(one) for one in plain]
    if not isinstance(plain, dict):
        return plain
    if "$" not in plain:
        return {key: _value(one) for key, one in plain.items()}
    kind, inner = plain["$"], plain["v"]
    if kind in _BY_NAME:
        cls = _BY_NAME[kind]
        return cls(**{field.name: _value(one) for field, one in zip(_stored(cls), inner, strict=True)})
    if kind in _ENUM_BY_NAME:
        return _ENUM_BY_NAME[kind][inner]
    return _READERS[kind](inner)


def _pairs(inner: list[list[Any]]) -> list[tuple[Any, Any]]:
    return [(_value(key), _value(one)) for key, one in inner]


def _array(inner: tuple[str, list[int], str]) -> Any:
    dtype, shape, data = inner
    # Copy, because an array over bytes is read-only.
    return np.frombuffer(base64.b64decode(data, validate=True), dtype=np.dtype(dtype)).reshape(shape).copy()


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "tuple": lambda inner: tuple(_value(one) for one in inner),
    "dict": lambda inner: dict(_pairs(inner)),
    "Counter": lambda inner: Counter(dict(_pairs(inner))),
    "deque": lambda inner: deque((_value(one) for one in inner[1]), inner[0]),
    "array": _array,
    "scalar": lambda inner: _array(inner)[()],
}
