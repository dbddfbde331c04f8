"""Copies equal those of `dataclasses`, also for classes without slots or with `__post_init__`."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mark.control.state import ControllerState
from mark.domain.command import Launch
from mark.domain.copying import replace, unchecked
from mark.domain.plan import Plan


@dataclasses.dataclass(frozen=True)
class _WithoutSlots:
    a: int = 1
    b: int = 2


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    a: int = 1
    b: int = 2

    def __post_init__(self) -> None:
        if self.b < 0:
            raise ValueError("b")


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (ControllerState(), {"unfit": (1, 2), "leaving": True}),
        (ControllerState(switched="r1"), {}),
        (Launch("of need", 0.1, "c5.large/spot/a", 2), {"count": 3}),
        (Plan(0.0, ()), {"at_s": 60.0}),
        (_WithoutSlots(), {"b": 3}),
        (_Checked(), {"b": 3}),
    ],
)
def test_a_copy_is_that_of_dataclasses(value: Any, changes: dict[str, Any]) -> None:
    before = repr(value)
    assert replace(value, **changes) == dataclasses.replace(value, **changes)
    assert repr(value) == before


def test_checks_are_made_again() -> None:
    with pytest.raises(ValueError, match="b"):
        replace(_Checked(), b=-1)


def test_an_unchecked_copy_is_not_checked() -> None:
    assert unchecked(_Checked(), b=-1).b == -1
    assert unchecked(_Checked(a=3), b=4) == _Checked(3, 4)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="nothing"):
        replace(ControllerState(), nothing=1)  # type: ignore[call-arg]
