"""Dollars against the promise: the promises, their relations, and the cost of the next 10 ms and nine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.bill import Bill
from mark.domain.errors import BadInput, Infeasible
from mark.domain.slo import Slo
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import simulate
from mark.studies.executor import HereExecutor, Share
from mark.studies.frontier import (
    Frontier,
    FrontierPoint,
    frontier,
    implies,
    nines,
    promises_around,
    with_bounds,
    with_nines,
)
from tests.studies.report.results import result

T = TypeVar("T")
R = TypeVar("R")
OWN = Slo(0.6, 0.98)
SHARES = (0.8, 0.98, 0.998)
LIMITS_S = (0.3, 0.45, 0.6, 0.9, 1.2)
REQUEST = RunRequest(
    trace="synthetic:poisson?rate=20", service="inception-v3", duration_s=600.0, predictor="seasonal-naive"
)
slos = st.builds(Slo, st.sampled_from(LIMITS_S), st.sampled_from(SHARES))


class CountingExecutor:
    """Runs tasks here and remembers them: another place for runs is one class."""

    workers = 2

    def __init__(self) -> None:
        self.tasks: list[object] = []

    def map(self, work: Callable[[T, Share | None], R], tasks: Sequence[T], progress: Share | None = None) -> list[R]:
        self.tasks += tasks
        return HereExecutor().map(work, tasks, progress)


def run(slo: Slo, usd: float, attained: float | None = 0.999, bound_usd: float | None = 1.0) -> SimulationResult:
    return result(
        usd=usd, attainment=attained, slo=slo, bound_usd=bound_usd, bill=Bill(on_demand=usd), regret=usd / 1.0
    )


def found(*outcomes: SimulationResult | FrontierPoint) -> Frontier:
    points = [one if isinstance(one, FrontierPoint) else FrontierPoint(one.slo, one) for one in outcomes]
    return Frontier("shop", "mark", 0, OWN, tuple(points))


def test_promises_lie_around_the_services_own() -> None:
    assert promises_around(OWN) == tuple(Slo(limit_s, share) for share in SHARES for limit_s in LIMITS_S)
    assert OWN in promises_around(OWN)


def test_promises_that_are_named_come_with_the_services_own() -> None:
    assert promises_around(OWN, [0.9, 0.3], [0.9]) == (Slo(0.3, 0.9), Slo(0.9, 0.9), OWN)
    assert promises_around(OWN, [0.6], [0.98]) == (OWN,)
    assert {slo.attainment for slo in promises_around(OWN, [0.3])} == set(SHARES)
    with pytest.raises(BadInput, match="RT_max"):
        promises_around(OWN, [3600.0])


def test_confidences_are_a_third_number_of_the_promise() -> None:
    own = Slo(0.6, 0.98, 0.8, 7200.0)
    assert {(slo.confidence, slo.window_s) for slo in promises_around(own)} == {(0.8, 7200.0)}
    asked = promises_around(own, [0.6], [0.98], [0.95, 0.5])
    assert asked == (Slo(0.6, 0.98, 0.5, 7200.0), own, Slo(0.6, 0.98, 0.95, 7200.0))


def test_steps_lead_along_one_number_with_the_confidence_held() -> None:
    unsure = replace(OWN, confidence=0.8)
    of = found(run(OWN, 2.0), run(unsure, 1.0), run(Slo(0.3, 0.98, 0.8), 3.0), run(Slo(0.6, 0.998, 0.8), 4.0))
    assert of.next_10_ms(of.own_point) is None
    assert of.next_nine(of.own_point) is None
    assert not implies(unsure, OWN)
    assert of.beaten_by(of.own_point) is None


def test_bound_of_a_promise_holds_for_every_confidence() -> None:
    sure, unsure = with_bounds(
        {OWN: run(OWN, 2.0, bound_usd=1.0), replace(OWN, confidence=0.5): run(OWN, 2.0, bound_usd=1.5)}
    )
    assert (sure.bound_usd, unsure.bound_usd) == (1.5, 1.5)


def test_only_promises_that_can_be_made_are_proposed() -> None:
    """No nine can be lost below 0.9, and RT_max never reaches an hour."""
    assert {slo.attainment for slo in promises_around(Slo(0.6, 0.9))} == {0.9, 0.99}
    assert max(slo.rt_max_s for slo in promises_around(Slo(2000.0, 0.98))) == 3000.0


@pytest.mark.parametrize(("share", "count"), [(0.9, 1.0), (0.99, 2.0), (0.98, 1.69897), (0.5, 0.30103)])
def test_nines(share: float, count: float) -> None:
    assert nines(share) == pytest.approx(count)
    assert nines(with_nines(share, 1)) == pytest.approx(count + 1.0)
    assert with_nines(share, 0) == share


@given(slos, slos)
def test_of_two_promises_the_stricter_implies_the_other(one: Slo, other: Slo) -> None:
    assert implies(one, one)
    assert (implies(one, other) and implies(other, one)) == (one == other)


@given(
    st.dictionaries(
        slos, st.one_of(st.none(), st.floats(0.0, 100.0), st.just(Infeasible("no offer"))), min_size=1, max_size=15
    )
)
def test_the_bound_never_falls_when_the_promise_gets_stricter(
    bounds: dict[Slo, float | Infeasible | None],
) -> None:
    """This holds by construction for any bounds of the runs, and a point's bound is at least its run's."""
    outcomes = {
        slo: one if isinstance(one, Infeasible) else run(slo, 200.0, bound_usd=one) for slo, one in bounds.items()
    }
    points = with_bounds(outcomes)
    assert [point.slo for point in points] == list(outcomes)
    for strict in points:
        if strict.bound_usd is None:
            assert strict.result is None or strict.result.bound_usd is None
            continue
        assert strict.result is not None
        assert strict.result.bound_usd is not None
        assert strict.bound_usd >= strict.result.bound_usd
        for loose in points:
            if implies(strict.slo, loose.slo) and loose.bound_usd is not None:
                assert strict.bound_usd >= loose.bound_usd


@pytest.mark.parametrize("service", ["inception-v3", "lstm-ptb-2026", "opennmt-ende-2026"])
def test_a_strict_promises_offers_may_serve_a_loose_one(service: str) -> None:
    """Offers and functions in time: why a loose promise's bound holds for a strict one."""
    offers: set[str] = set()
    function_usd, feasible = math.inf, False
    for limit_ms in (1.0, 5.0, 12.0, 30.0, 80.0, 200.0, 450.0, 600.0, 1400.0, 3000.0):
        try:
            resolved = open_service(replace(REQUEST, service=service, slo=Slo(limit_ms / 1e3, 0.98)))
        except Infeasible:
            assert not feasible
            continue
        feasible = True
        names = {offer.name for offer in resolved.offers}
        assert offers <= names
        assert resolved.in_time_usd <= function_usd
        offers, function_usd = names, resolved.in_time_usd
    assert feasible


def test_a_bound_over_other_types_is_not_handed_on() -> None:
    """SageMaker's types are chosen for each promise, so a bound for one choice proves nothing about another."""
    strict = replace(run(Slo(0.3, 0.98), 5.0, bound_usd=1.0), bill=Bill(sagemaker=5.0))
    loose = replace(run(OWN, 5.0, bound_usd=2.0), bill=Bill(sagemaker=5.0))
    assert [point.bound_usd for point in with_bounds({strict.slo: strict, OWN: loose})] == [1.0, 2.0]


def test_the_next_10_ms_and_next_nine_are_in_proportion() -> None:
    one = found(run(Slo(0.45, 0.98), 13.0), run(OWN, 10.0), run(Slo(0.6, 0.998), 12.0))
    ten_ms, nine = one.next_10_ms(one.own_point), one.next_nine(one.own_point)
    assert ten_ms is not None
    assert nine is not None
    assert (ten_ms.to, ten_ms.usd) == (Slo(0.45, 0.98), pytest.approx(3.0 / 15.0))
    assert (nine.to, nine.usd) == (Slo(0.6, 0.998), pytest.approx(2.0))
    assert one.next_10_ms(one.points[0]) is None


def test_what_was_not_kept_has_no_price() -> None:
    one = found(FrontierPoint(Slo(0.45, 0.98), None, "too slow"), run(OWN, 10.0), run(Slo(0.6, 0.998), 12.0, 0.99))
    ten_ms, nine = one.next_10_ms(one.own_point), one.next_nine(one.own_point)
    assert ten_ms is not None
    assert nine is not None
    assert (ten_ms.usd, ten_ms.reason) == (None, "no offer can keep it")
    assert (nine.usd, nine.reason) == (None, "the promise was missed")
    quiet = found(run(Slo(0.45, 0.98), 10.0, None), run(OWN, 10.0, None))
    silent = quiet.next_10_ms(quiet.own_point)
    assert silent is not None
    assert silent.reason == "no requests arrived"


def test_a_stricter_run_kept_for_less_beats_a_point() -> None:
    strict, missed = run(Slo(0.45, 0.998), 9.0), run(Slo(0.3, 0.998), 5.0, 0.9)
    one = found(missed, strict, run(OWN, 10.0), run(Slo(0.9, 0.8), 8.0))
    cheapest = one.cheapest_not_worse()
    assert cheapest is not None
    assert cheapest.slo == strict.slo
    beaten = [one.beaten_by(point) for point in one.points]
    assert [by and by.slo for by in beaten] == [None, None, strict.slo, None]


def test_of_equal_bills_the_strictest_promise_is_named() -> None:
    one = found(run(OWN, 10.0), run(Slo(0.6, 0.998), 10.0))
    cheapest = one.cheapest_not_worse()
    assert cheapest is not None
    assert cheapest.slo.attainment == 0.998
    assert one.beaten_by(one.own_point) is None


def test_a_frontier_has_the_services_own_promise() -> None:
    with pytest.raises(ValueError, match="own promise"):
        Frontier("shop", "mark", 0, OWN, (FrontierPoint(Slo(0.3, 0.98), None, "too slow"),))


def test_every_point_is_a_services_run_with_that_promise() -> None:
    """On ten minutes, the service's point equals `mark simulate`; every run goes through the given executor."""
    executor = CountingExecutor()
    one = frontier(REQUEST, [0.6, 0.9], [0.98], executor=executor)
    assert len(executor.tasks) == 2
    own = one.own_point.result
    assert own is not None
    assert own.as_json() | {"speed": None} == simulate(REQUEST).as_json() | {"speed": None}
    looser = one.points[1].result
    assert looser is not None
    assert looser.slo == Slo(0.9, 0.98)
    for point in one.points:
        assert point.usd is not None
        assert point.bound_usd is not None
        assert 0.0 < point.bound_usd <= point.usd


def test_an_infeasible_promise_is_a_point_with_its_reason() -> None:
    one = frontier(replace(REQUEST, service="lstm-ptb"), [0.001], [0.98], executor=HereExecutor())
    point = one.points[0]
    assert (point.usd, point.bound_usd, point.kept) == (None, None, None)
    assert "RT_max 1 ms): closest is" in point.infeasible
    assert one.own_point.kept is not None
