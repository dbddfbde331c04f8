"""Values as JSON and back: equal in value and type, or an error."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_infra.store.codec import DATACLASSES, ENUMS, Unreadable, decode, encode

from mark.control.history import Minute
from mark.domain.fleet import Phase
from mark.domain.load import Forecast, Load
from mark.domain.plan import Plan, Target
from mark.planning.market.spot import Belief

NUMBERS = st.floats() | st.integers() | st.booleans()
ARRAYS = st.builds(
    lambda shape, dtype, seed: np.random.default_rng(seed).normal(0.0, 100.0, shape).astype(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["<f8", ">f8", "<f4", "<i8", "|b1", "<c16"]),
    st.integers(0, 9),
) | st.just(np.array([math.nan, math.inf, -math.inf, -0.0]))
SCALARS = ARRAYS.filter(lambda array: array.size > 0).map(lambda array: array.ravel()[0])
LEAVES = st.none() | NUMBERS | st.text() | st.sampled_from(Phase) | ARRAYS | SCALARS
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.sampled_from(Phase)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(KEYS, inner),
        st.dictionaries(st.sampled_from(["$", "v", "shapes", "value"]), inner),
        st.dictionaries(KEYS, st.integers()).map(Counter),
        st.builds(deque, st.lists(inner), st.none() | st.integers(0, 5)),
    ),
    max_leaves=12,
)


def registered(cls: type) -> st.SearchStrategy[Any]:
    """Draw values of a registered class that its annotations allow."""
    if cls in (Load, Forecast):  # they check that their arrays fit
        return st.builds(_rates, st.just(cls), st.integers(0, 4), st.none() | st.integers(1, 3))
    if cls is Minute:  # its annotation is Mapping, which has many types
        counts = st.integers()
        return st.builds(
            Minute, NUMBERS, NUMBERS, NUMBERS, counts, counts, counts, st.dictionaries(st.text(), st.integers())
        )
    return st.builds(cls)


def _rates(cls: type, steps: int, paths: int | None) -> Load | Forecast:
    rates = np.sort(np.random.default_rng(steps).uniform(0.0, 9.0, (2, steps)), axis=0)
    if cls is Load:
        return Load(60.0, 60.0, rates[0], rates[1], fine=paths is None)
    levels = np.array([0.1, 0.9])
    return Forecast(60.0, 60.0, levels, rates, rates, "ramp", None if paths is None else np.ones((paths, steps)))


def same(one: Any, other: Any) -> bool:
    """Compare value and type at every level: NaN equals NaN, and -0.0 differs from 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype.str == other.dtype.str and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, list | tuple | deque):
        alike = len(one) == len(other) and all(map(same, one, other))
        return alike and getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
    if isinstance(one, dict):
        return same(list(one.keys()), list(other.keys())) and same(list(one.values()), list(other.values()))
    if type(one) in DATACLASSES:
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


@given(VALUES)
def test_every_value_comes_back(value: Any) -> None:
    """Types are kept: tuples stay tuples, the keys of a dict integers, infinity infinity."""
    text = encode(value)
    assert text.isascii()
    json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are not JSON
    assert same(decode(text), value)


@pytest.mark.parametrize("cls", DATACLASSES, ids=lambda cls: cls.__name__)
def test_every_registered_class_comes_back(cls: type) -> None:
    """Its fields may hold any allowed value."""

    @settings(max_examples=30)
    @given(registered(cls))
    def check(value: Any) -> None:
        assert same(decode(encode({1: (value,)})), {1: (value,)})

    check()


def test_every_registered_enum_comes_back() -> None:
    """It comes back by name, as the same member."""
    for cls in ENUMS:
        assert decode(encode(list(cls))) == list(cls)


def test_names_are_unique() -> None:
    """A name identifies one class."""
    names = [cls.__name__ for cls in (*DATACLASSES, *ENUMS)]
    assert len(set(names)) == len(names)


def test_what_comes_back_is_new_and_may_be_changed() -> None:
    """The store shares no object with its callers."""
    array = decode(encode(np.zeros(3)))
    array[0] = 1.0
    assert decode(encode(np.zeros(3)))[0] == 0.0


@dataclass
class Unknown:
    a: int = 0


class Counted(dict[str, int]):
    """A kind of dict that is not registered."""


@pytest.mark.parametrize("value", [Unknown(), {1: Unknown()}, {1, 2}, b"x", Counted(), np.array([None]), Plan, len])
def test_what_is_not_registered_cannot_be_stored(value: Any) -> None:
    """It is a mistake in the program, so the error is loud and names the type."""
    with pytest.raises(TypeError, match="cannot be stored: it is not registered"):
        encode(value)


def test_a_changed_shape_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of a class at any depth, or other fields, make the whole value unreadable."""
    text = encode({"spot": Belief()})
    assert decode(text) == {"spot": Belief()}
    document = json.loads(text)
    version, _, checksum = document["shapes"]["Belief"].partition("/")
    for shape in (f"{int(version) + 1}/{checksum}", f"{version}/00000000"):
        with pytest.raises(Unreadable, match="Belief has changed"):
            decode(json.dumps({**document, "shapes": {"Belief": shape}}))
    with pytest.raises(Unreadable, match="Believed has changed"):
        decode(text.replace("Belief", "Believed"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "{}", '{"shapes":{},"value":{"$":"os.system","v":"true"}}'),
        *('{"shapes":{},"value":{"$":"tuple"}}', '{"shapes":{},"value":{"$":"array","v":["|O8",[1],"AAAAAAAAAAA="]}}'),
        *('{"shapes":{},"value":{"$":"array","v":["<f8",[9],"AAAA"]}}', '{"shapes":{},"value":{"$":"Phase","v":"X"}}'),
        *('{"shapes":{},"value":{"$":["tuple"],"v":1}}', '{"shapes":{},"value":' + "[" * 100_000 + "]" * 100_000 + "}"),
    ],
)
def test_damage_is_unreadable_and_nothing_else(text: str) -> None:
    """Every damage gives the same error, and no code runs."""
    with pytest.raises(Unreadable):
        decode(text)


@given(st.data())
def test_a_broken_text_is_unreadable_or_a_value(data: st.DataObject) -> None:
    """The text may be cut or changed anywhere."""
    plan = Plan(60.0, (Target("c5.large", 3, "because"),), notes=("a",), leaving=(4,))
    text = encode((plan, {1: math.inf}, np.arange(3.0)))
    place = data.draw(st.integers(0, len(text) - 1))
    broken = text[:place] + data.draw(st.sampled_from(["", '"', "9", "[", "}", "$"])) + text[place + 1 :]
    with suppress(Unreadable):
        decode(broken)
