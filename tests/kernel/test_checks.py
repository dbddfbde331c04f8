"""Numbers that no stage can use are refused before compiled code uses them as indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.pipeline import ALL
from mark.kernel.accounting import Accounting
from mark.kernel.central_queues import PipelineQueries, PipelineSimulation
from mark.kernel.hedged_stage import HedgedStage
from mark.kernel.stage import Admission, StageSimulation
from tests.kernel.reference import candidate, function

Floats = NDArray[np.float64]

END_S = 60.0
KIND = candidate([0.1, 0.15], sigma=0.3)


def stage_of(**options: Any) -> StageSimulation:
    """Return a stage with one replica, number 0."""
    accounts = Accounting(rt_max_s=1.0, end_s=END_S)
    stage = StageSimulation([KIND], accounts=accounts, function=function(0.1, 1.0), **options)
    stage.add(0, 0, 0.0)
    return stage


def hedged() -> StageSimulation:
    stage = HedgedStage([KIND], hedge_after_s=0.5, accounts=Accounting(rt_max_s=1.0, end_s=END_S))
    stage.add(0, 0, 0.0)
    return stage


@pytest.mark.parametrize("make", [stage_of, hedged])
@pytest.mark.parametrize(
    ("arrivals_s", "says"),
    [
        ([1.0, 4000.0], r"arrivals_s\[1\]: must not be after 60 s, the end: 4000"),
        ([2.0, 1.0], r"arrivals_s\[1\]: must not be before 2 s: 1"),
        ([-1.0], r"arrivals_s\[0\]: must not be before 0 s"),
        ([1.0, math.nan, 2.0], r"arrivals_s\[1\]: must be a time"),
        ([[1.0, 2.0]], r"arrivals_s: must be one row"),
    ],
)
def test_arrivals_that_do_not_ascend_to_the_end_are_refused(
    make: Callable[[], StageSimulation], arrivals_s: list[Any], says: str
) -> None:
    stage = make()
    with pytest.raises(BadInput, match=says):
        stage.advance(np.array(arrivals_s), 0, np.inf)
    assert stage.arrived == 0
    assert stage.advance(np.array([3.0, END_S]), 0, np.inf) == 2
    with pytest.raises(BadInput, match="must not be before 60 s"):  # or from one call to the next
        stage.advance(np.array([3.0]), 0, np.inf)
    stage.finish()
    assert stage.accounts.departed == 2


def test_later_arrivals_are_not_looked_at() -> None:
    assert stage_of().advance(np.array([1.0, 1e9]), 0, 2.0) == 1


@pytest.mark.parametrize(
    ("first", "until_s", "limits", "says"),
    [
        (3, np.inf, 2, "first: must be a position in 2 arrivals: 3"),
        (-1, np.inf, 2, "first"),
        (0, math.nan, 2, "until_s"),
        (0, np.inf, 1, "limit_s: one for each of 2 arrivals"),
        (0, np.inf, 3, "limit_s"),
    ],
)
def test_positions_and_limits_outside_the_arrivals_are_refused(
    first: int, until_s: float, limits: int, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        stage_of().advance(np.array([1.0, 2.0]), first, until_s, np.full(limits, 0.5))


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(BadInput, match="limit_s"):
        stage_of().advance(np.array([1.0, 2.0]), 0, np.inf, np.array([0.5, math.nan]))


def test_calls_after_the_end_count_in_the_last_minute() -> None:
    """Calls of queries have limits, and those to a later stage may come after the evaluated part."""
    stage = stage_of()
    stage.advance(np.array([1.0, 1e6]), 0, np.inf, np.array([0.5, 0.5]))
    stage.finish()
    total, in_time, _ = stage.accounts.minutes()
    assert total.tolist() == [1, 0, 1]
    assert in_time.sum() == stage.accounts.in_time
    assert stage.accounts.fine_counts().sum() == 2
    assert stage.accounts.fine_counts()[-1] == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda stage: stage.drain(7, 0.0),
        lambda stage: stage.remove(-1, 0.0),
        lambda stage: stage.doom(7, 1.0),
        lambda stage: stage.idle_at(7),
        lambda stage: stage.busy_s(-1),
        lambda stage: stage.set_speed(-1, 0.5, 0.0),
        lambda stage: stage.add(-1, 0, 0.0),
    ],
    ids=["drain", "remove", "doom", "idle_at", "busy_s", "set_speed", "add"],
)
def test_numbers_that_were_never_added_are_refused(use: Callable[[StageSimulation], object]) -> None:
    with pytest.raises(BadInput, match="number"):
        use(stage_of())


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda stage: stage.add(1, 1, 0.0), "offer_index: must be one of 1 candidates: 1"),
        (lambda stage: stage.add(1, -1, 0.0), "offer_index"),
        (lambda stage: stage.add(1, 0, math.nan), "at_s"),
        (lambda stage: stage.add(1, 0, -1.0), "at_s"),
        (lambda stage: stage.set_speed(0, 0.0, 0.0), "factor"),
        (lambda stage: stage.warm(math.nan, 1), "at_s"),
        (lambda stage: stage.start_warm(-1), "environments"),
    ],
)
def test_changes_that_no_fleet_can_have_are_refused(use: Callable[[StageSimulation], object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        use(stage_of())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"admission": Admission(horizons_s=[1.0, 1.0])}, "horizons_s: one for each of 1 candidates: 2"),
        ({"classes": []}, "classes"),
        ({"classes": [-1]}, "class of candidate 0"),
    ],
)
def test_options_that_no_stage_can_have_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        stage_of(**options)


@pytest.mark.parametrize(
    "wrong",
    [{"sigma": math.nan}, {"service_s": np.array([0.0, 0.1])}, {"service_s": np.array([0.0, 0.1, math.nan])}],
    ids=["sigma", "too few times", "no time"],
)
def test_candidates_without_usable_times_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="of candidate 0"):
        StageSimulation([replace(KIND, **wrong)], accounts=Accounting(rt_max_s=1.0, end_s=END_S))


def test_a_delay_of_second_copies_below_zero_is_refused() -> None:
    with pytest.raises(BadInput, match="hedge_after_s"):
        HedgedStage([KIND], hedge_after_s=math.nan, accounts=Accounting(rt_max_s=1.0, end_s=END_S))


@pytest.mark.parametrize(
    "wrong", [{"end_s": math.inf}, {"end_s": -1.0}, {"fine_s": 0.0}, {"recent": 0}, {"rt_max_s": math.nan}], ids=str
)
def test_accounts_refuse_what_they_cannot_hold(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Accounting(**{"rt_max_s": 1.0, "end_s": END_S, **wrong})


# -- pipelines ---------------------------------------------------------------------------------------------------------


def pipeline(**options: Any) -> PipelineSimulation:
    """Return a simulation of one query through two stages, with one kind."""
    queries = PipelineQueries.of(np.array([1.0]), np.array([[1, 1]]))
    return PipelineSimulation(
        queries, **{"predecessors": [(), (0,)], "joins": [ALL, ALL], "kinds": [np.array([0.0, 0.1])], **options}
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"predecessors": [(), (2,)]}, r"predecessors\[1\]"),
        ({"predecessors": [(), (-1,)]}, r"predecessors\[1\]"),
        ({"predecessors": [(1,), ()]}, r"predecessors\[0\]"),
        ({"sigmas": []}, "sigmas"),
        ({"sigmas": [math.nan]}, "sigmas"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_pipelines_that_no_query_can_pass_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        pipeline(**options)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda p: p.add(2, 0, 0.0), "stage: must be from 0 to 1: 2"),
        (lambda p: p.add(-1, 0, 0.0), "stage"),
        (lambda p: p.add(0, 1, 0.0), "kind"),
        (lambda p: p.add(0, -1, 0.0), "kind"),
        (lambda p: p.add(0, 0, math.nan), "ready_s"),
        (lambda p: p.add(0, 0, 0.0, math.nan), "leave_s"),
        (lambda p: p.drain(0, 0, 0.0), "number"),
        (lambda p: p.outcome(-1), "stage"),
    ],
)
def test_replicas_that_no_pipeline_can_have_are_refused(use: Callable[[PipelineSimulation], object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        use(pipeline())
