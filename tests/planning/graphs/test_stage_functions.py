"""The times at which calls must go to functions, given the stages behind."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionOffer
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.domain.profile import Profile, ProfileRow
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.graphs.estimate import StageChoice
from mark.planning.graphs.stage_functions import functions_in_time, stage_functions
from tests.kernel.reference import function
from tests.planning.bounds.staged import stage_of
from tests.planning.graphs.planned import chain, option

# A single call takes 0.05 s, a full batch 0.11 s.
CHOICE = StageChoice(option("gpu", 1.0, 0.03, 0.02), 4, 2)


def test_what_follows_is_a_call_or_function_and_full_batch() -> None:
    slow, quick = function(0.2, 3.0), function(0.1, 3.0)
    found = stage_functions(chain("a", "b", "c"), (CHOICE,) * 3, (slow, quick, None))
    assert sorted(found) == [0, 1]
    assert (found[1].behind_s, found[1].needed_s) == pytest.approx((0.05, 0.05 + 0.11))
    assert (found[0].behind_s, found[0].needed_s) == pytest.approx((0.16, 0.16 + 0.2))


def test_of_what_follows_at_the_same_time_the_longest_counts() -> None:
    stages = [PipelineStage(name, name, after) for name, after in (("a", ()), ("b", ("a",)), ("c", ("a",)))]
    pipeline = Pipeline((*stages, PipelineStage("d", "d", ("b", "c"))))
    found = stage_functions(pipeline, (CHOICE,) * 4, (function(0.1, 0.0), function(0.3, 0.0), None, None))
    assert found[0].behind_s == pytest.approx(0.3 + 0.05)
    assert found[1].behind_s == pytest.approx(0.05)


def test_functions_of_other_stages_are_refused() -> None:
    with pytest.raises(BadInput, match="one for each of 2 stages"):
        stage_functions(chain("a", "b"), (CHOICE,) * 2, (None,))


SLO = Slo(0.3, 0.99)
LEAST_S = 0.05  # of a call on an instance


def with_functions(**call_ms: float) -> ResolvedService:
    """Return a stage with functions of these sizes (`m1024=250`), whose calls cost as much as their MB."""
    stage = stage_of([option("x", 1.0, 0.0, LEAST_S, 1)], SLO)
    sizes = {int(name[1:]): ms for name, ms in call_ms.items()}
    sold = tuple(FunctionOffer(mb, 0.0, float(mb), 1.0, 1000, 1000.0, 300.0) for mb in sizes)
    profiles = {one.name: Profile("m", one.name, (ProfileRow(1, sizes[one.memory_mb]),)) for one in sold}
    return replace(
        stage,
        service=replace(stage.service, functions=tuple(profiles)),
        catalog=replace(stage.catalog, functions=sold),
        profiles={**stage.profiles, **profiles},
    )


NONE = with_functions()


def in_time(pipeline: Pipeline, *stages: ResolvedService) -> tuple[list[str | None], dict[str, str]]:
    found, why = functions_in_time(pipeline, stages, [LEAST_S] * len(stages))
    return [None if use is None else use.offer.name for use in found], why


def test_of_sizes_in_time_the_cheapest_call_is_taken() -> None:
    """The other stage takes at least 50 of 300 ms."""
    found, why = in_time(chain("a", "b"), with_functions(m1024=251, m2048=250, m4096=100), NONE)
    assert (found, why) == (["lambda:2048", None], {})


def test_a_function_without_enough_time_is_none_and_is_named() -> None:
    found, why = in_time(chain("a", "b", "c"), NONE, with_functions(m1024=400, m2048=201), NONE)
    assert (found, why) == ([None] * 3, {"b": "lambda:2048 takes 201 ms of 200 that others leave"})


def test_what_runs_beside_a_stage_leaves_it_all_the_time() -> None:
    stages = PipelineStage("a", "m"), PipelineStage("b", "m"), PipelineStage("c", "m", ("a", "b"))
    found, _ = in_time(Pipeline(stages), with_functions(m1024=250), with_functions(m1024=250), NONE)
    assert found == ["lambda:1024", "lambda:1024", None]


def test_nothing_is_in_time_where_whole_queries_are_not() -> None:
    names = "abcdefg"
    _, why = in_time(chain(*names), with_functions(m1024=1), *[NONE] * 6)
    assert why == {"a": "lambda:1024 takes 1 ms of 0 that others leave"}


def test_a_function_without_profile_differs_from_a_slow_one() -> None:
    unprofiled = replace(NONE, service=replace(NONE.service, functions=("lambda:*",)))
    assert in_time(chain("a"), unprofiled) == ([None], {"a": "lambda:*: no profile of m"})
    unsold = replace(NONE, service=replace(NONE.service, functions=("lambda:99",)))
    with pytest.raises(BadInput, match="no such function"):
        in_time(chain("a"), unsold)


def test_calls_of_a_lone_function_wait_for_no_replica() -> None:
    """The stages before it leave it only the time that the function takes, however long a batch would take."""
    slow, quick = function(0.2, 3.0), function(0.1, 3.0)
    found = stage_functions(chain("a", "b"), (CHOICE,) * 2, (slow, quick), (False, True))
    assert (found[1].behind_s, found[1].needed_s) == (0.0, math.inf)
    assert (found[0].behind_s, found[0].needed_s) == pytest.approx((0.1, 0.3))
    with pytest.raises(BadInput, match="alone of b: has neither"):
        stage_functions(chain("a", "b"), (CHOICE,) * 2, (slow, None), (False, True))
