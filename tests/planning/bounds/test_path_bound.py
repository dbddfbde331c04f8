"""Paths: never above the cheapest schedule of whole instances, and nearly equal to it for small services."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.planning.bounds import path_bound as module
from mark.planning.bounds.path_bound import PathProof, Paths, path_bound, small_paths
from tests.planning.bounds.schedules import SmallCase, random_case

ROOM = 1.0 + 1e-9


def share_proven(case: SmallCase) -> float:
    """Return the proven share of the optimum."""
    least, problem = case.cheapest_usd(), case.problem()
    found = path_bound(problem, case.late, 0.0, None).usd
    assert found <= least * ROOM + 1e-9
    for most in ((1, 1), (2, 1)):  # fewer fleets prove less, but nothing wrong
        for share in (0.3, 1.0):
            late_usd = share * case.function_usd
            assert Paths(problem, most).value(late_usd)[0] - case.late * late_usd <= least * ROOM + 1e-9
    return found / least if least > 0.0 else 1.0


def shares(cases: int, seed: int, steps: int, *, halves: bool = False, late: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    return [share_proven(random_case(rng, steps, halves=halves, late=late)) for _ in range(cases)]


def test_paths_are_close_below_the_cheapest_schedule() -> None:
    """This holds in parts of fifteen minutes, if starts are billed for ten seconds or more."""
    rng = np.random.default_rng(1)
    found = [share_proven(random_case(rng, 900, shortest_boot_s=10.0)) for _ in range(40)]
    assert np.median(found) >= 0.985
    assert np.quantile(found, 0.05) >= 0.94


def test_paths_never_exceed_the_cheapest_schedule() -> None:
    shares(80, 4, 200)


def test_paths_never_exceed_schedules_with_events_within_a_second() -> None:
    shares(40, 2, 240, halves=True)


def test_paths_never_exceed_schedules_with_late_requests() -> None:
    shares(30, 3, 100, late=4)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [30, pytest.param(1_000, marks=pytest.mark.acceptance)])
def test_paths_never_exceed_schedules_in_thousands_of_cases(cases: int) -> None:
    found = shares(8 * cases, 5, 200) + shares(cases, 6, 100, late=3) + shares(cases, 7, 300, halves=True)
    assert len(found) == 10 * cases


def lonely(gap_s: int) -> SmallCase:
    """Return a case of one request each `gap_s` for ten thousand seconds.

    An instance costs a dollar a second and 40 to start.
    """
    counts = np.zeros(10_000, dtype=np.int64)
    counts[::gap_s] = 1
    return SmallCase(counts, (1.0, 2.0), (5, 20), (40.0, 40.0), 1e6)


def test_dense_requests_keep_an_instance_for_all_of_their_time() -> None:
    assert path_bound(lonely(1).problem(), 0.0, 0.0, None).usd == pytest.approx(10_000, rel=0.001)
    assert path_bound(lonely(20).problem(), 0.0, 0.0, None).usd == pytest.approx(10_000, rel=0.01)


def test_sparse_requests_let_an_instance_be_off_between_them() -> None:
    assert path_bound(lonely(1000).problem(), 0.0, 0.0, None).usd == pytest.approx(9 * 40.0, rel=0.05)


def test_functions_take_too_few_requests_for_an_instance() -> None:
    problem = replace(lonely(10).problem(), function_usd=0.5)
    found = path_bound(problem, 0.0, 0.0, None)
    assert (found.usd, found.left) == (pytest.approx(500.0, rel=0.01), pytest.approx(1000.0, rel=0.01))


def test_too_many_fleets_leave_one_instance_that_serves_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORK", 1)
    problem = lonely(1).problem()
    assert small_paths(problem) is None
    assert path_bound(problem, 0.0, 0.0, None).usd == pytest.approx(10_000, rel=0.001)
    # It cannot cost more than all of the time.
    assert path_bound(problem, 0.0, 10_100.0, None) == PathProof()


def test_starts_shorter_than_two_bins_prove_nothing() -> None:
    assert path_bound(replace(lonely(1), boot_s=(1.9, 40.0)).problem(), 0.0, 0.0, None) == PathProof()


def test_more_pairs_than_are_kept_only_lower_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(np.random.default_rng(8), 200)
    full = path_bound(case.problem(), 0.0, 0.0, None).usd
    monkeypatch.setattr(module, "_PAIRS", 2)
    assert path_bound(case.problem(), 0.0, 0.0, None).usd <= full
