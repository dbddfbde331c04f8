"""A pipeline that a tuner follows: its answers and its cost, computed by hand and by the estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.planning.graphs.estimate import QuerySample, StageChoice, estimate
from mark.planning.graphs.packing import Host
from mark.planning.graphs.tuned_run import FIXED, TunedRun, Tuning, run_tuned
from mark.planning.graphs.tuner import Replicas, Tuner
from tests.kernel.reference import function
from tests.planning.graphs.planned import chain, option, traffic, worker_on


@dataclass(frozen=True)
class Scripted:
    """Asks for the replicas that are written for a time, and keeps them until the next."""

    script: Mapping[float, Replicas]

    def begin(self) -> list[int]:
        return []

    def step(self, state: list[int], arrivals_s: np.ndarray, now_s: float) -> tuple[Replicas, list[int]]:
        assert np.all(arrivals_s < now_s)
        assert np.all(np.diff(arrivals_s) >= 0.0)
        return self.script[max(at for at in self.script if at <= now_s)], [*state, len(arrivals_s)]


_FITS: Tuner = Scripted({})


def second(replicas: int, workers: int = 1) -> tuple[StageChoice, ...]:
    """Return a stage of one second a call, for $3,600 an hour: a dollar a second."""
    return (StageChoice(option("x", 3600.0, 0.0, 1.0, 1, workers), 1, replicas),)


def run(
    arrivals_s: list[float], script: Mapping[float, Replicas] | None, *, activation_s: float = 5.0, workers: int = 1
) -> TunedRun:
    queries = QuerySample(np.array(arrivals_s), np.ones((len(arrivals_s), 1), dtype=np.int64))
    tuner = None if script is None else Scripted(script)
    return run_tuned(
        chain("a"), queries, second(1, workers), Tuning(tuner, activation_s), begin_s=10.0, end_s=30.0, slo_s=1.5
    )


def test_without_a_tuner_a_run_is_the_estimate() -> None:
    sample = traffic(3000, 60.0, 2.0, (1.0, 0.6), seed=3)
    choices = (
        StageChoice(option("cpu", 0.1, 0.0, 0.02, 1), 1, 2),
        StageChoice(replace(option("gpu", 0.7, 0.004, 0.003), sigma=0.3), 4, 1),
    )
    pipeline, end_s = chain("a", "b"), float(sample.arrivals_s[-1]) + 1e-9
    found = run_tuned(pipeline, sample, choices, FIXED, begin_s=0.0, end_s=end_s, slo_s=0.1)
    seen = estimate(pipeline, sample, choices)
    assert found.latency_s.tolist() == pytest.approx(seen.latency_s.tolist())
    assert found.miss_share(0.1) == seen.miss_share(0.1) > 0.0
    assert found.usd == pytest.approx(seen.usd_per_hour * end_s / 3600.0)


def test_a_tuner_that_changes_nothing_changes_nothing() -> None:
    """Steps cut the time into windows, which must not show."""
    sample = traffic(3000, 60.0, 2.0, (1.0, 0.6), seed=4)
    choices = (
        StageChoice(option("cpu", 0.1, 0.0, 0.02, 1), 1, 2),
        StageChoice(option("gpu", 0.7, 0.004, 0.003), 4, 1),
    )
    asked: dict[str, Any] = {"begin_s": 5.0, "end_s": 40.0, "slo_s": 0.1}
    still = run_tuned(chain("a", "b"), sample, choices, FIXED, **asked)
    for step_s in (1.0, 0.3):
        stepped = run_tuned(chain("a", "b"), sample, choices, Tuning(Scripted({0.0: (2, 1)}), 5.0, step_s), **asked)
        assert stepped.latency_s.tolist() == still.latency_s.tolist()
        assert stepped.usd == pytest.approx(still.usd)


def test_a_replica_serves_once_active_and_is_paid_once_asked() -> None:
    """Asked for at 12 s, there at 17 s: until then one call a second, of three that wait since 10 s."""
    found = run([10.0, 10.0, 10.0, 16.5, 16.5, 17.5], {10.0: (1,), 12.0: (2,)})
    assert found.latency_s.tolist() == pytest.approx([1.0, 2.0, 3.0, 1.0, 1.5, 1.0])
    assert found.usd == pytest.approx(20.0 + 18.0)
    asked_at = found.step_s.tolist().index(12.0)
    assert found.paid[asked_at - 1 : asked_at + 1, 0].tolist() == [1, 2]
    assert found.active[asked_at + 4 : asked_at + 6, 0].tolist() == [1, 2]
    assert found.usd_per_hour[[0, -1]].tolist() == [3600.0, 7200.0]


def test_a_leaving_replica_ends_its_batch_paid_until_then() -> None:
    """The newer of two leaves at 20 s, in the middle of a call; the next two calls queue for the other."""
    found = run([19.5, 19.5, 20.5, 20.5], {10.0: (2,), 20.0: (1,)}, activation_s=1.0)
    assert found.latency_s.tolist() == pytest.approx([1.0, 1.0, 1.0, 2.0])
    assert found.usd == pytest.approx(20.0 + 11.0)


def test_one_that_goes_before_it_is_active_never_serves() -> None:
    found = run([20.0, 20.0], {10.0: (1,), 12.0: (2,), 14.0: (1,)})
    assert found.latency_s.tolist() == pytest.approx([1.0, 2.0])
    assert found.usd == pytest.approx(20.0 + 2.0)


def test_all_workers_of_a_replica_come_and_go_with_it() -> None:
    """With two workers each, four simultaneous calls take one service time on two replicas, and two on one replica."""
    found = run([18.0] * 4 + [25.0] * 4, {10.0: (1,), 12.0: (2,), 22.0: (1,)}, workers=2)
    assert found.latency_s.tolist() == pytest.approx([1.0] * 4 + [1.0, 1.0, 2.0, 2.0])


def test_what_each_stage_costs_and_does_is_said() -> None:
    """Two stages of a second a call get a second replica at 12 s, ready at 14 and at 21 s."""
    queries = QuerySample(np.array([10.0, 10.0, 20.0]), np.array([[1, 1], [1, 0], [1, 1]]))
    found = run_tuned(
        chain("a", "b"),
        queries,
        (*second(1), *second(1)),
        Tuning(Scripted({10.0: (1, 1), 12.0: (2, 2)}), lambda stage, asked: (2.0, 9.0)[stage] * asked),
        begin_s=10.0,
        end_s=30.0,
        slo_s=9.0,
    )
    assert found.paid_s.tolist() == [38.0, 38.0]
    assert found.stage_usd.tolist() == pytest.approx([38.0, 38.0])
    assert found.usd == pytest.approx(found.stage_usd.sum())
    assert (found.calls.tolist(), found.busy_s.tolist()) == ([3, 2], [3.0, 2.0])
    assert found.wait_s.tolist() == [1.0, 0.0]  # of the two that came at 10 s one waits for the other
    serve = [found.step_s[np.argmax(found.active[:, stage] == 2)] for stage in (0, 1)]
    assert serve == [14.0, 21.0]


def test_queries_before_the_beginning_are_seen_and_not_served() -> None:
    found = run([3.0, 9.9, 10.0, 29.9, 30.0], None)
    assert found.arrivals_s.tolist() == [10.0, 29.9]
    assert found.latency_s.tolist() == pytest.approx([1.0, 1.0])


def test_windows_have_rates_and_shares() -> None:
    found = run([10.0, 10.0, 10.0, 25.0], None)
    came, late = found.by_window(5.0, 1.5)
    assert came.tolist() == [0.6, 0.0, 0.0, 0.2]
    assert late[[0, 3]].tolist() == pytest.approx([2 / 3, 0.0])
    assert np.isnan(late[1:3]).all()


def test_functions_bridge_until_a_replica_is_active() -> None:
    """The replica can do one call a second; of three simultaneous calls, two must leave 0.5 s before 1.5 s."""
    use = function(0.5, 0.0)
    queries = QuerySample(np.array([10.0, 10.0, 10.0, 20.0, 20.0]), np.ones((5, 1), dtype=np.int64))
    tuning = Tuning(Scripted({10.0: (1,), 12.0: (2,)}), 5.0)
    found = run_tuned(chain("a"), queries, second(1), tuning, begin_s=10.0, end_s=30.0, slo_s=1.5, functions=[use])
    assert found.latency_s.tolist() == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.0])
    assert [called.calls for called in found.by_function] == [2]
    assert found.function_usd == pytest.approx(2 * use.offer.usd_per_request(0.5))
    assert found.stage_function_usd == (found.function_usd,)
    assert found.usd == pytest.approx(20.0 + 18.0)
    assert found.total_usd == pytest.approx(found.usd + found.function_usd)


def test_a_lone_function_answers_until_the_tuner_asks_for_replicas() -> None:
    """Two calls come at 11 s; a replica asked for at 12 s starts at 17 s, and takes calls while it is free."""
    use = function(0.5, 0.0)
    queries = QuerySample(np.array([11.0, 11.0, 16.0, 20.0, 20.0]), np.ones((5, 1), dtype=np.int64))
    asked: dict[str, Any] = {"begin_s": 10.0, "end_s": 30.0, "slo_s": 1.5, "functions": [use]}
    tuning = Tuning(Scripted({10.0: (0,), 12.0: (1,)}), 5.0)
    found = run_tuned(chain("a"), queries, second(1), tuning, **asked, alone=[True])
    assert found.latency_s.tolist() == pytest.approx([0.5, 0.5, 0.5, 1.0, 0.5])
    assert ([called.calls for called in found.by_function], found.calls.tolist()) == ([4], [1])
    assert found.usd == pytest.approx(18.0 + 1.0)  # the first replica ends, and is paid for a batch
    assert found.paid[:3, 0].tolist() == [0, 0, 1]
    still = run_tuned(chain("a"), queries, second(1), FIXED, **asked, alone=[True])
    assert (still.usd, still.latency_s.tolist()) == (0.0, pytest.approx([0.5] * 5))


def test_without_replica_and_environment_a_call_is_never_answered() -> None:
    """Two environments get three simultaneous calls; the third never reaches the stage behind."""
    use = function(0.5, 0.0, concurrency=2)
    queries = QuerySample(np.array([11.0, 11.0, 11.0, 20.0]), np.ones((4, 2), dtype=np.int64))
    found = run_tuned(
        chain("a", "b"), queries, (*second(1), *second(3)), FIXED, begin_s=10.0, end_s=30.0, slo_s=2.5,
        functions=[use, None], alone=[True, False],
    )  # fmt: skip
    assert sorted(found.latency_s.tolist()) == pytest.approx([1.5, 1.5, 1.5, math.inf])
    assert found.missed(2.5).sum() == 1
    assert ([called.calls for called in found.by_function], found.calls.tolist()) == ([3, 0], [0, 3])
    assert found.by_function[0].throttled == 1


def test_functions_that_are_never_needed_change_nothing() -> None:
    sample = traffic(3000, 60.0, 2.0, (1.0, 0.6), seed=4)
    choices = (
        StageChoice(option("cpu", 0.1, 0.0, 0.02, 1), 1, 9),
        StageChoice(option("gpu", 0.7, 0.004, 0.003), 4, 9),
    )
    asked: dict[str, Any] = {"begin_s": 5.0, "end_s": 40.0, "slo_s": 0.5}
    without = run_tuned(chain("a", "b"), sample, choices, FIXED, **asked)
    beside = run_tuned(chain("a", "b"), sample, choices, FIXED, **asked, functions=[function(0.1, 1.0), None])
    assert beside.latency_s.tolist() == without.latency_s.tolist()
    assert (beside.function_usd, without.function_usd, without.by_function) == (0.0, 0.0, ())


@pytest.mark.parametrize(("arrivals_s", "step_s", "told"), [([5.0], 1.0, "no query"), ([11.0], 0.0, "step_s")])
def test_bad_input_is_one_line(arrivals_s: list[float], step_s: float, told: str) -> None:
    queries = QuerySample(np.array(arrivals_s), np.ones((1, 1), dtype=np.int64))
    with pytest.raises(BadInput, match=told):
        run_tuned(chain("a"), queries, second(1), Tuning(None, 5.0, step_s), begin_s=10.0, end_s=30.0, slo_s=1.0)


def test_replicas_that_share_instances_are_not_tuned() -> None:
    queries = QuerySample(np.array([11.0]), np.ones((1, 1), dtype=np.int64))
    shared = worker_on(Host("small", 0.1, 2.0, 0.0), 0.0, 1.0)
    with pytest.raises(BadInput, match="choice of a: shares instances"):
        run_tuned(
            chain("a"),
            queries,
            (StageChoice(shared, 1, 1),),
            FIXED,
            begin_s=10.0,
            end_s=30.0,
            slo_s=1.5,
        )
