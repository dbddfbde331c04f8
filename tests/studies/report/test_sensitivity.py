"""The four variations: each is a separate run, compared with the run as believed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mark.domain.bill import Bill
from mark.domain.function_offer import FunctionCalls
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.studies.report.compare_report import sensitivity_table
from mark.studies.report.sensitivity import VARIATIONS, sensitivity, variation
from tests.studies.report.results import result


def test_every_policy_runs_under_each_variation() -> None:
    asked: list[RunRequest] = []

    def run(requests: Sequence[RunRequest]) -> list[SimulationResult]:
        asked.extend(requests)
        return [result(request.policy, usd=20.0) for request in requests]

    requests = {"mark": RunRequest("t", "s"), "mark:arima": RunRequest("t", "s", predictor="arima")}
    base = {name: result(bill=Bill(on_demand=9.0, spot=1.0)) for name in requests}
    rows = sensitivity(requests, base, run)
    assert [row.label for row in rows] == [label for label, _ in VARIATIONS]
    assert {request.sensitivity for request in asked} == {
        Sensitivity(capacity=0.85),
        Sensitivity(boot_add_s=60.0),
        Sensitivity(function_latency=1.5),
        Sensitivity(interruptions=5.0),
    }
    assert len(asked) == 8
    assert not any(request.with_bound for request in asked)
    assert rows[0].outcomes[0].change == 20.5 / 10.0 - 1.0


def test_oracle_runs_under_no_variation() -> None:
    """Nobody can choose it."""
    requests = {name: RunRequest("t", "s", policy=name) for name in ("mark", "oracle", "reactive")}
    base = {"mark": result(usd=9.0), "oracle": result("oracle", usd=8.0), "reactive": result("reactive", usd=12.0)}
    rows = sensitivity(requests, base, lambda changed: [base[request.policy] for request in changed])
    assert [[outcome.policy for outcome in row.outcomes] for row in rows] == [["mark", "reactive"]] * 3
    assert not any(row.overtakes for row in rows)
    assert sensitivity({"oracle": requests["oracle"]}, base, lambda changed: []) == []


@pytest.mark.parametrize(
    ("launched", "calls", "spot_usd", "again"),
    [(0, 0, 0.0, {0}), (1, 0, 0.0, {0, 1}), (0, 1, 0.0, {0, 2}), (0, 0, 1.0, {0, 3}), (1, 1, 1.0, {0, 1, 2, 3})],
)
def test_policy_without_forecasts_runs_again_only_if_the_change_applies(
    launched: int, calls: int, spot_usd: float, again: set[int]
) -> None:
    used = result("reactive", usd=9.0)
    used = replace(
        used,
        fleet=replace(used.fleet, launched=launched),
        functions=FunctionCalls(calls, 0, 0, 0, 0.0),
        bill=Bill(on_demand=9.0, spot=spot_usd),
    )
    mark = result(bill=Bill(on_demand=9.0, spot=1.0), functions=FunctionCalls(1, 0, 0, 0, 0.0))
    asked: list[RunRequest] = []

    def run(changed: Sequence[RunRequest]) -> list[SimulationResult]:
        asked.extend(changed)
        return [result(request.policy, usd=20.0) for request in changed]

    requests = {name: RunRequest("t", "s", policy=name) for name in ("mark", "reactive")}
    rows = sensitivity(requests, {"mark": mark, "reactive": used}, run)
    assert [request.policy for request in asked].count("mark") == 4
    assert [[outcome.policy for outcome in row.outcomes] for row in rows] == [["mark", "reactive"]] * 4
    assert {place for place, row in enumerate(rows) if row.outcomes[1].change != 0.0} == again


def test_interruptions_are_left_out_where_nothing_can_be_interrupted() -> None:
    requests, base = {"mark": RunRequest("t", "s")}, {"mark": result(usd=9.5)}
    rows = sensitivity(requests, base, lambda changed: [result() for _ in changed])
    assert [row.label for row in rows] == [label for label, _ in VARIATIONS if "interruptions" not in label]


def test_functions_are_not_varied_where_none_is_called() -> None:
    requests = {"mark": RunRequest("t", "s")}
    for functions, varies in ((FunctionCalls(0, 0, 0, 0, 0.0), False), (FunctionCalls(0, 0, 3, 0, 0.0), True)):
        base = {"mark": result(usd=9.5, functions=functions)}
        rows = sensitivity(requests, base, lambda changed: [result() for _ in changed])
        assert any("function" in row.label for row in rows) == varies


def test_the_order_breaks_when_a_policy_misses_the_slo() -> None:
    base = {"a": result("a", 10.0), "b": result("b", 20.0)}
    assert variation("", base, {"a": result("a", 15.0), "b": result("b", 16.0)}).overtakes == ()
    dearer = variation("", base, {"a": result("a", 17.0), "b": result("b", 16.0)})
    assert dearer.overtakes == ((("b",), "a"),)
    table = sensitivity_table([dearer])
    assert [table.heads[-1], *(row[-1] for row in table.rows)] == ["order", "b now ahead of a", ""]
    missed = replace(base["a"], slo_result=replace(base["a"].slo_result, attainment=0.9))
    assert variation("", base, base | {"a": missed}).overtakes == ((("b",), "a"),)


def test_all_policies_that_overtake_one_are_named() -> None:
    """Two of equal cost pass a third one; a reader who saw only one of them would doubt the other."""
    base = {
        name: result(name, usd) for name, usd in (("mark", 9.0), ("reactive", 10.0), ("fixed", 11.0), ("peak", 11.0))
    }
    now = variation("", base, base | {"reactive": result("reactive", 12.0)})
    assert now.overtakes == ((("fixed", "peak"), "reactive"),)
    assert sensitivity_table([now]).rows[0][-1] == "fixed and peak now ahead of reactive"
    last = variation("", base, base | {"mark": result("mark", 10.5)})
    assert last.overtakes == ((("reactive",), "mark"),)


def test_a_bill_that_was_zero_has_no_change() -> None:
    free = result(bill=result(usd=0.0).bill.__class__())
    assert variation("", {"a": free}, {"a": result()}).outcomes[0].change is None
