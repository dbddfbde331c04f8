"""Policies on logged answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.selection.policy import CandidateReply
from mark.selection.replay import LoggedQuery, PolicyReplay, replay, wilson
from mark.selection.state import Judge
from tests.selection.selections import selection_of


def logged(label: object, *answers: object, usd: tuple[float, ...] = (1.0, 2.0, 4.0)) -> LoggedQuery:
    return LoggedQuery(label, [None if one is None else CandidateReply(one, one, 0.1) for one in answers], usd)


def replayed(policy: str, queries: list[LoggedQuery], window: int = 1000, **others: Any) -> PolicyReplay:
    selection = selection_of(policy, 3, **others)
    return replay(queries, selection, Judge(selection.state, None), window)


def test_cascade_pays_for_those_that_it_asks() -> None:
    found = replayed("cascade", [logged(7, 3, 7, 7)] * 4, threshold=0.5, explore=0.0)
    assert (found.queries, found.asks, found.usd, found.loss, found.unanswered) == (4, 12, 28.0, 0.0, 0)
    assert dict(found.calls) == {(0, 1, 2): 4}
    found = replayed("cascade", [logged(7, 3, 7, 7)] * 4, threshold=0.05, explore=0.0)
    assert (found.asks, found.usd, found.error) == (4, 4.0, 1.0)
    assert dict(found.windows[0].chosen) == {0: 4}


def test_queries_whose_log_lacks_an_asked_answer_are_left_out() -> None:
    found = replayed("cascade", [logged(7, None, 7, None), logged(7, 7, None, None)], threshold=0.05, explore=0.0)
    assert (found.skipped, found.queries, found.loss) == (1, 1, 0.0)
    assert dict(found.calls) == {(0,): 1}


def test_windows_divide_the_queries() -> None:
    found = replayed("exp4", [logged(7, 7, 7, 7)] * 5 + [logged(7, 3, 3, 3)] * 2, window=3)
    assert [(one.first, one.queries, one.loss) for one in found.windows] == [(0, 3, 0.0), (3, 3, 1.0), (6, 1, 1.0)]
    assert found.error == pytest.approx(2 / 7)


def test_exp4_learns_whom_to_believe() -> None:
    found = replayed("exp4", [logged(n % 10, n % 10, 11, 11) for n in range(200)])
    assert found.loss < 10
    assert found.windows[0].chosen[0] > 190


def test_all_candidates_that_were_asked_are_learned_from_after_an_early_decision() -> None:
    selection = selection_of("exp4", 3)
    replay([logged(7, 7, 7, 3)] * 5, selection, Judge(selection.state, None))
    assert selection.state.answers == [5.0, 5.0, 5.0]
    assert selection.state.errors == [0.0, 0.0, 5.0]


def test_nothing_replayed_has_no_error() -> None:
    found = replayed("exp4", [])
    assert (found.error, found.error_interval()) == (0.0, (0.0, 1.0))


@given(st.integers(1, 10**6), st.floats(0.0, 1.0))
def test_interval_holds_the_share(count: int, share: float) -> None:
    low, high = wilson(share, count)
    assert 0.0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1.0


def test_interval_is_wilsons() -> None:
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(0.0, 10)[1] == pytest.approx(0.2775, abs=1e-4)
