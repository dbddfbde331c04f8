"""Functions are warmed and switched only while their controller leads."""

from __future__ import annotations

import pytest

from mark.control.led_ports import LedFunctions
from mark.domain.errors import LostLease
from mark.testing.fakes import FakeFunctions


def test_after_the_term_nothing_is_sent_to_functions() -> None:
    functions, leads = FakeFunctions(), [True]
    led = LedFunctions(functions, lambda: leads[0])
    assert (led.warm(3), led.switch("a")) == (3, True)
    leads[0] = False
    with pytest.raises(LostLease):
        led.warm(4)
    with pytest.raises(LostLease):
        led.switch("b")
    assert (functions.warmed, functions.switched) == ([3], ["a"])
