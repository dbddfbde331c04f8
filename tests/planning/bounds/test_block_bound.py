"""Blocks: never above the cheapest schedule of whole instances, and close to it if blocks are long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.planning.bounds.block_bound import _WIDTHS, Blocks, block_bound, prove_blocks
from tests.planning.bounds.schedules import SmallCase, random_case

ROOM = 1.0 + 1e-9


def share_proven(case: SmallCase, proven_usd: float) -> float:
    """Return the proven share of the cheapest schedule; never above one."""
    least = case.cheapest_usd()
    assert proven_usd <= least * ROOM + 1e-9
    return proven_usd / least if least > 0.0 else 1.0


def best_shares(cases: int, seed: int, steps: int, *, halves: bool = False, late: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    made = [random_case(rng, steps, halves=halves, late=late) for _ in range(cases)]
    return [share_proven(case, block_bound(case.problem(), case.late).usd) for case in made]


def any_shares(cases: int, seed: int, steps: int, *, halves: bool = False, late: int = 0) -> list[float]:
    """Return the same for any three widths and prices of a late request."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(cases):
        case = random_case(rng, steps, halves=halves, late=late)
        widths = rng.choice(np.array([w for w in _WIDTHS if w <= steps // 3]), 3)
        prices = rng.choice([0.1, 0.5, 1.0], 3) * case.function_usd
        problem = case.problem()
        proofs = [
            prove_blocks(problem, case.late, int(width), float(price)).usd
            for width, price in zip(widths, prices, strict=True)
        ]
        found.append(share_proven(case, max(proofs)))
    return found


def test_blocks_never_exceed_the_cheapest_schedule() -> None:
    assert np.median(best_shares(40, 1, 300)) >= 0.6
    any_shares(120, 2, 200)


def test_blocks_never_exceed_schedules_with_events_within_a_second() -> None:
    any_shares(60, 3, 240, halves=True)


def test_blocks_never_exceed_schedules_with_late_requests() -> None:
    best_shares(10, 4, 100, late=4)
    any_shares(40, 5, 100, late=4)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [15, pytest.param(1_000, marks=pytest.mark.acceptance)])
def test_blocks_never_exceed_schedules_in_many_cases(cases: int) -> None:
    found = any_shares(8 * cases, 6, 240) + any_shares(cases, 7, 100, late=3) + any_shares(cases, 8, 400, halves=True)
    assert len(found) == 10 * cases


def steady(**changes: object) -> SmallCase:
    case = SmallCase(np.full(3600, 4), (1.0, 3.0), (5, 20), (40.0, 100.0), 1e6)
    return replace(case, **changes)  # type: ignore[arg-type]


def test_steady_demand_costs_whole_instances() -> None:
    """Four requests a second fit in one small instance, of which a fluid fleet needs 0.8."""
    assert block_bound(steady().problem(), 0.0).usd == pytest.approx(3600.0, rel=0.07)
    assert block_bound(steady(warm_start=False).problem(), 0.0).usd == pytest.approx(3600.0 + 20.0, rel=0.01)


def test_a_life_over_the_border_of_two_blocks_pays_its_boot_once() -> None:
    """Each of the two blocks charges half of the boot."""
    counts = np.zeros(300, dtype=np.int64)
    counts[115:125] = 5
    case = steady(counts=counts, warm_start=False)
    found = prove_blocks(case.problem(), 0.0, 60, case.function_usd).usd
    assert 40.0 <= found <= case.cheapest_usd() * ROOM


def test_a_short_block_moves_the_first_fleet_by_half_a_boot() -> None:
    """A first fleet pays for no boot. Blocks of 5 s leave out ten of them, which is half of the longest boot."""
    problem = steady().problem()
    assert (Blocks(problem, 5).skipped, Blocks(problem, 60).skipped) == (10, 1)
    case = replace(steady(), counts=np.concatenate((np.full(12, 4), np.zeros(300, dtype=np.int64))))
    assert prove_blocks(case.problem(), 0.0, 2, case.function_usd).usd <= case.cheapest_usd()


def test_committed_capacity_serves_for_nothing() -> None:
    problem = replace(steady(counts=np.full(3600, 9)).problem(), free_rps=5.0)
    assert block_bound(problem, 0.0).usd == pytest.approx(3600.0, rel=0.07)
    assert block_bound(replace(problem, free_rps=10.0), 0.0).usd == 0.0


def test_a_type_serves_only_where_it_is_available() -> None:
    """The cheap type is not available in the second half, where only the dear one is left."""
    problem = steady().problem()
    by_bin = np.tile(problem.usd_per_s, (3600, 1))
    by_bin[1800:, 0] = np.inf
    found = block_bound(replace(problem, by_bin=by_bin), 0.0).usd
    assert found == pytest.approx(1800.0 + 3.0 * 1800.0, rel=0.07)
    # Half of the price in the second half.
    by_bin[1800:, 0] = 0.5
    cheaper = replace(problem, by_bin=by_bin, usd_per_s=np.array([0.5, 3.0]))
    assert block_bound(cheaper, 0.0).usd == pytest.approx(1800.0 + 900.0, rel=0.07)


def test_many_different_prices_only_lower_the_bound() -> None:
    rng = np.random.default_rng(7)
    problem = steady().problem()
    by_bin = np.stack([rng.uniform(0.5, 1.0, 3600), rng.uniform(2.0, 3.0, 3600)], axis=1)
    found = block_bound(replace(problem, by_bin=by_bin, usd_per_s=by_bin.min(axis=0)), 0.0).usd
    assert 0.4 * 3600.0 < found <= 0.8 * 3600.0
