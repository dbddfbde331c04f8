"""The fakes fail on request, and are as new after a reset."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mark.control.ports import Result
from mark.domain.command import Terminate
from mark.domain.errors import CloudError, StoreError
from mark.domain.fleet import Fleet
from mark.domain.load import Load
from mark.testing.fakes import (
    FakeCloud,
    FakeFunctions,
    FakeLease,
    FakeStore,
    FakeTelemetry,
    ManualClock,
    RampPredictor,
    ScriptedPlanner,
)


def test_a_reset_cloud_is_empty_and_obeys() -> None:
    cloud = FakeCloud(ManualClock())
    (number,) = cloud.launch("a", 1, "t").numbers
    cloud.interrupt(number)
    cloud.fail["drain"] = CloudError("no")
    with pytest.raises(CloudError, match="no"):
        cloud.drain(number)
    cloud.reset()
    assert cloud.fleet() == Fleet(())
    assert cloud.notices() == ()
    assert cloud.launch("a", 1, "t").numbers == (1,)
    cloud.drain(1)


TELEMETRY: list[Callable[[FakeTelemetry], object]] = [
    FakeTelemetry.load,
    FakeTelemetry.last_minute_rps,
    FakeTelemetry.windows_rps,
    FakeTelemetry.recent,
    FakeTelemetry.answers,
    FakeTelemetry.utilization,
    FakeTelemetry.overflow,
]


@pytest.mark.parametrize("ask", TELEMETRY)
def test_telemetry_fails_until_it_is_reset(ask: Callable[[FakeTelemetry], object]) -> None:
    telemetry = FakeTelemetry()
    telemetry.error = CloudError("no metrics")
    with pytest.raises(CloudError, match="no metrics"):
        ask(telemetry)
    telemetry.reset()
    ask(telemetry)


STORE: list[Callable[[FakeStore], object]] = [
    lambda store: store.get("key"),
    lambda store: store.put("key", 2),
    lambda store: store.record(0.0, Terminate("too many", -0.1, "a", 1), "done", Result.DONE, 0),
    lambda store: store.recorded(None, 10),
]


@pytest.mark.parametrize("ask", STORE)
def test_a_store_fails_until_it_is_reset(ask: Callable[[FakeStore], object]) -> None:
    store = FakeStore()
    store.put("key", 1)
    store.error = StoreError("unreachable")
    with pytest.raises(StoreError, match="unreachable"):
        ask(store)
    store.reset()
    assert store.get("key") is None
    ask(store)


def test_functions_fail_until_they_are_reset() -> None:
    functions = FakeFunctions()
    functions.error = CloudError("throttled")
    with pytest.raises(CloudError, match="throttled"):
        functions.warm(3)
    functions.reset()
    assert functions.warm(3) == 3
    assert functions.warmed == [3]


def test_a_lease_changes_its_number_with_its_holder() -> None:
    lease = FakeLease()
    assert not lease.lasts()
    assert (lease.hold(0.0), lease.hold(1.0)) == (1, 1)
    assert lease.lasts()
    lease.other_leads = True
    assert lease.hold(2.0) is None
    assert not lease.lasts()
    lease.other_leads = False
    assert lease.hold(3.0) == 3  # the other one's was 2
    lease.release()
    assert not lease.lasts()
    lease.reset()
    assert lease.hold(0.0) == 1


def test_a_reset_predictor_and_planner_have_seen_nothing() -> None:
    predictor, planner = RampPredictor(), ScriptedPlanner()
    predictor.update(Load(0.0, 60.0, np.ones(1), np.ones(1)))
    predictor.error = ArithmeticError("no")
    planner.wanted["a"] = 1
    with pytest.raises(ArithmeticError, match="no"):
        predictor.predict(3)
    predictor.reset()
    planner.reset()
    assert predictor.predict(3).mean_rps[0].tolist() == [0.0, 1.0, 2.0]
    assert (predictor.updates, planner.wanted) == ([], {})
