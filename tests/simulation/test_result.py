"""The outputs of a result for notebooks and scripts."""

from __future__ import annotations

import numpy as np
import pytest

from mark.domain.bill import Bill
from mark.simulation.result import Requests, TraceInfo
from tests.studies.report.results import result


def test_a_month_is_the_bill_at_its_pace() -> None:
    assert result(bill=Bill(on_demand=2.4), trace=TraceInfo("x", 10, 86400.0)).month_usd == pytest.approx(73.0)
    assert result(trace=TraceInfo("x", 0, 0.0)).month_usd is None


@pytest.mark.parametrize(("attainment", "kept"), [(0.98, True), (0.979, False), (None, None)])
def test_kept_says_whether_the_promise_was(attainment: float | None, kept: bool | None) -> None:
    assert result(attainment=attainment, requests=Requests(1, 0, 0)).kept is kept


def test_the_timeline_is_a_table_with_one_row_a_minute() -> None:
    one = result()
    frame = one.frame()
    assert list(frame.columns) == [
        "arrivals", "capacity", "overflow", "in_time", "instances c5.large/on-demand", "usd on_demand", "usd functions",
    ]  # fmt: skip
    assert frame.index.name == "t_s"
    assert np.array_equal(frame.index, one.timeline.t_s)
    assert np.array_equal(frame["capacity"], one.timeline.capacity_rps)
    assert frame["usd on_demand"].iloc[-1] == 1.0
