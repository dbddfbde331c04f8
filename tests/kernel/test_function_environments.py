"""The function's environments: warm pool, cold starts, keep-alive, account limit, ramp, bill.

Without replicas every request goes to the function, so the recording shows the pool alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionCalls, FunctionOffer
from mark.domain.service import FunctionUse
from mark.kernel.accounting import Accounting
from mark.kernel.stage import StageSimulation
from tests.kernel.reference import function
from tests.samples import sampled

Floats = NDArray[np.float64]

WARM_S, COLD_S = 0.25, 2.0
REFUSED = -2


def call(
    use: FunctionUse, times_s: list[float], pings: dict[float, int] | None = None
) -> tuple[StageSimulation, Floats]:
    """Return the latencies (s) of calls at these times, infinite if throttled.

    `pings` maps times to wanted environments.
    """
    arrivals = np.array(times_s)
    stage = StageSimulation(
        [], accounts=Accounting(rt_max_s=1.0, end_s=1e5, recent=len(times_s)), function=use, keep=True
    )
    position = 0
    for at_s, environments in sorted((pings or {}).items()):
        position = stage.advance(arrivals, position, at_s)
        stage.warm(at_s, environments)
    stage.advance(arrivals, position, np.inf)
    stage.finish()
    return stage, stage.recording().finish_s - arrivals


def test_the_first_call_starts_cold_and_the_next_is_warm() -> None:
    """A cold start takes its extra seconds; an environment that became idle at this very moment is warm."""
    stage, latencies = call(function(WARM_S, COLD_S), [0.0, WARM_S + COLD_S, 10.0])
    assert latencies.tolist() == [WARM_S + COLD_S, WARM_S, WARM_S]
    assert (stage.accounts.by_functions, stage.function_calls().cold, stage.accounts.late) == (3, 1, 1)


@pytest.mark.parametrize(("idle_s", "warm"), [(59.0, True), (60.0, False), (61.0, False)])
def test_keep_alive_counts_from_the_last_answer(idle_s: float, warm: bool) -> None:
    """An environment is recycled after it was idle for the keep-alive time, and each use restarts that time."""
    use = function(WARM_S, COLD_S, keep_alive_s=60.0)
    first_end = WARM_S + COLD_S
    second_end = first_end + 40.0 + WARM_S
    _, latencies = call(use, [0.0, first_end + 40.0, second_end + idle_s])
    assert latencies[2] == (WARM_S if warm else WARM_S + COLD_S)


def test_calls_take_the_environment_used_last() -> None:
    """AWS does so too: a low load keeps one environment warm and lets the others go."""
    use = function(WARM_S, COLD_S, keep_alive_s=60.0)
    stage, latencies = call(use, [0.0, 0.0, 0.0, 30.0, 60.0, 90.0, 120.0, 120.0])
    assert latencies.tolist() == [2.25] * 3 + [0.25] * 4 + [2.25]
    assert stage.function_calls().cold == 4


def test_the_account_limit_refuses_and_frees_up_again() -> None:
    """Concurrent calls never exceed the limit; other calls are throttled, which counts as refused and as a miss."""
    use = function(WARM_S, COLD_S, concurrency=3)
    stage, latencies = call(use, [0.0] * 5 + [2.25] * 4)
    assert latencies.tolist() == [2.25] * 3 + [np.inf] * 2 + [0.25] * 3 + [np.inf]
    assert (stage.accounts.by_functions, stage.accounts.rejected) == (6, 3)
    assert stage.accounts.recent() == (9, 3)
    assert stage.function_calls().throttled == 3


def test_what_was_called_is_counted_and_billed() -> None:
    """One cold call, three warm ones, two pings and no throttle, in GB-s as the catalogue's year bills them."""
    offer = FunctionOffer(2048, 1e-5, 0.2, 100.0, 10, 1e4, 600.0, bills_init=True)
    stage, _ = call(FunctionUse(offer, WARM_S, COLD_S, "measured"), [0.0, 10.0, 20.0, 50.0], {30.0: 3})
    warm_s, cold_s, ping_s = 0.3, 2.3, 2.1  # 0.25, 2.25 and 2.1 s, rounded up to 0.1 s
    billed_gb_s = 2.0 * (3 * warm_s + cold_s + 2 * ping_s)
    calls = stage.function_calls()
    assert (calls.calls, calls.cold, calls.pings, calls.throttled) == (4, 1, 2, 0)
    assert calls.billed_gb_s == pytest.approx(billed_gb_s)
    assert calls.cold_share == 0.25
    assert stage.function_usd() == pytest.approx(billed_gb_s * 1e-5 + 6 * 0.2e-6)


def test_a_refusal_where_there_is_no_function_is_no_throttle() -> None:
    stage = StageSimulation([], accounts=Accounting(rt_max_s=1.0, end_s=10.0))
    stage.advance(np.array([1.0]), 0, np.inf)
    assert (stage.accounts.rejected, stage.function_calls()) == (1, FunctionCalls())
    assert stage.function_calls().cold_share is None


def test_the_ramp_is_a_bucket_that_begins_full() -> None:
    """A burst starts immediately, then environments at the ramp's pace, whole ones only; warm calls need no new one."""
    use = function(WARM_S, COLD_S, burst=6.0, ramp_per_10s=5.0)
    _, latencies = call(use, [0.0] * 8 + [1.0, 2.0, 2.0] + [100.0] * 16)
    assert np.isfinite(latencies[:8]).sum() == 6
    assert np.isfinite(latencies[8:11]).tolist() == [False, True, False]
    # 7 idle ones are warm, 6 come new from the full bucket, 3 are refused
    assert sorted(latencies[11:].tolist()) == [0.25] * 7 + [2.25] * 6 + [np.inf] * 3


def test_without_a_burst_the_bucket_holds_ten_seconds() -> None:
    """The catalogue's `burst` of zero means the ramp of one 10 s step."""
    _, latencies = call(function(WARM_S, COLD_S, ramp_per_10s=3.0), [0.0] * 5)
    assert np.isfinite(latencies).sum() == 3


def test_pings_make_calls_warm_and_are_repeatable() -> None:
    """Warming adds environments up to the wanted number, within the account limit, and is paid as pings."""
    use = function(WARM_S, COLD_S, concurrency=5)
    stage = StageSimulation([], accounts=Accounting(rt_max_s=1.0, end_s=1e3), function=use, keep=True)
    wanted = [(0.0, 2), (0.0, 2), (0.0, 3), (10.0, 3), (10.0, 9), (20.0, 9)]
    assert [stage.warm(at_s, environments) for at_s, environments in wanted] == [2, 0, 1, 0, 2, 0]
    stage.advance(np.array([30.0, 30.0, 30.0]), 0, np.inf)
    assert stage.function_calls().cold == 0
    assert stage.recording().finish_s.tolist() == [30.25] * 3


def test_warming_keeps_environments_beyond_their_idle_time() -> None:
    """A ping in the second half of the keep-alive restarts it, and costs a billing step without an initialisation."""
    use = function(WARM_S, COLD_S, keep_alive_s=60.0, bills_init=True)
    stage, latencies = call(use, [100.0, 100.0, 100.0], pings={0.0: 2, 20.0: 2, 45.0: 2, 90.0: 2})
    assert latencies.tolist() == [WARM_S, WARM_S, WARM_S + COLD_S]
    assert stage.function_calls().pings == 2 + 0 + 2 + 2
    step_usd = 0.1 * use.offer.usd_per_s
    steps = 2 * 21 + (2 + 2) * 1 + 2 * 3 + 23  # started, kept, warm calls, cold call
    assert stage.function_usd() == pytest.approx(steps * step_usd + 9 * 0.2e-6, rel=1e-12)


def test_warming_keeps_only_wanted_environments() -> None:
    """Of three environments the two used last are kept; the third is recycled."""
    use = function(WARM_S, COLD_S, keep_alive_s=60.0)
    _, latencies = call(use, [0.0, 10.0, 10.0, 20.0, 20.0, 20.0, 100.0, 100.0, 100.0], pings={65.0: 2})
    assert latencies[-3:].tolist() == [WARM_S, WARM_S, WARM_S + COLD_S]


def test_a_stage_without_functions_refuses() -> None:
    """Without functions nothing can be warmed or paid."""
    stage = StageSimulation([], accounts=Accounting(rt_max_s=1.0, end_s=10.0))
    assert stage.warm(0.0, 5) == 0
    stage.advance(np.array([1.0]), 0, np.inf)
    assert (stage.arrived, stage.accounts.rejected, stage.function_usd()) == (1, 1, 0.0)


def test_a_function_without_concurrency_is_bad_input() -> None:
    """It gives a one-line error, and never switches the function off silently."""
    with pytest.raises(BadInput, match="concurrency"):
        StageSimulation([], accounts=Accounting(rt_max_s=1.0, end_s=1.0), function=function(0.1, 0.1, concurrency=0))


@pytest.mark.parametrize("bills_init", [False, True])
def test_the_bill_is_the_sum_of_warm_cold_and_pings(bills_init: bool) -> None:
    """Each call counts in whole billing steps; the catalogue says whether initialisation is billed."""
    use = function(0.25, 2.01, bills_init=bills_init)
    stage, _ = call(use, [10.0, 10.0, 10.0, 20.0], pings={0.0: 2})
    assert stage.function_calls().cold == 1
    step_usd = 0.1 * use.offer.usd_per_s
    warm_steps, cold_steps, ping_steps = 3 * 3, 23 if bills_init else 3, 2 * (22 if bills_init else 1)
    usd = (warm_steps + cold_steps + ping_steps) * step_usd + (3 + 1 + 2) * 0.2e-6
    assert stage.function_usd() == pytest.approx(usd, rel=1e-12)


@sampled(100)
@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=200),
    concurrency=st.integers(1, 12),
    ramp=st.sampled_from([1.0, 8.0, 1000.0]),
    burst=st.sampled_from([0.0, 3.0]),
    keep_alive_s=st.sampled_from([0.5, 5.0, 1000.0]),
)
def test_laws_of_the_pool(gaps: list[int], concurrency: int, ramp: float, burst: float, keep_alive_s: float) -> None:
    """Each call is answered or refused; limits hold at every moment; no call is refused without a reason."""
    times = np.cumsum(gaps) / 16.0
    use = function(WARM_S, COLD_S, concurrency=concurrency, ramp_per_10s=ramp, burst=burst, keep_alive_s=keep_alive_s)
    stage, latencies = call(use, times.tolist())
    answered = np.isfinite(latencies)
    cold = latencies == WARM_S + COLD_S
    assert stage.accounts.by_functions == answered.sum()
    assert stage.accounts.rejected == (~answered).sum() == (stage.recording().slot == REFUSED).sum()
    assert stage.function_calls().cold == cold.sum()
    assert (answered == (cold | (latencies == WARM_S))).all()
    most = tokens = max(burst, ramp, 1.0)
    before = 0.0
    for i, now in enumerate(times):
        tokens, before = min(most, tokens + (now - before) * ramp / 10.0), now
        busy = (answered[:i] & (times[:i] + latencies[:i] > now)).sum()
        assert busy + answered[i] <= concurrency
        if cold[i]:
            assert tokens >= 1.0 - 1e-9
            tokens -= 1.0
        if not answered[i]:
            assert busy == concurrency or tokens < 1.0 + 1e-9


def test_environments_warm_at_the_start_cost_nothing() -> None:
    """Three calls meet two warm environments: the third starts cold, and so does a call after keep-alive."""
    use = function(WARM_S, COLD_S, keep_alive_s=60.0)
    stage = StageSimulation([], accounts=Accounting(rt_max_s=1.0, end_s=1e5), function=use, keep=True)
    stage.start_warm(2)
    assert stage.function_usd() == 0.0
    arrivals = np.array([0.0, 0.0, 0.0, 500.0])
    stage.advance(arrivals, 0, np.inf)
    latencies = stage.recording().finish_s - arrivals
    assert latencies.tolist() == [WARM_S, WARM_S, WARM_S + COLD_S, WARM_S + COLD_S]
