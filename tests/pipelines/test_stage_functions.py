"""When calls of stages with functions have to leave, by what comes behind them."""

from __future__ import annotations

import pytest

from mark.domain.errors import BadInput
from mark.domain.pipeline import Pipeline, PipelineStage
from mark.pipelines.estimate import StageChoice
from mark.pipelines.stage_functions import stage_functions
from tests.kernel.reference import function
from tests.pipelines.planned import chain, option

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
