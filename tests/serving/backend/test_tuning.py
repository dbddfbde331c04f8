"""Service times that are learned, and the largest batch within a p99 target, on models whose law is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from mark.domain.errors import BadInput
from mark.serving.backend.bouncer import INSTANCE, Bouncer, FixedTimes
from mark.serving.backend.tuning import Corrected, SelfTuned
from tests.serving.backend.test_bouncer import request, started

MOST = 64
# Quantile 0.99 of the standard normal distribution.
Z99 = 2.3263478740408408

Law = Callable[[int], float]


def line(b: int) -> float:
    return 0.005 + 0.001 * b


def knee(b: int) -> float:
    return 0.005 + 0.0005 * b + 0.004 * max(0, b - 24)


def p99_s(law: Law, b: int, sigma: float) -> float:
    return law(b) * math.exp(Z99 * sigma - sigma * sigma / 2.0)


def best(law: Law, sigma: float, target_s: float) -> int:
    return max((b for b in range(1, MOST + 1) if p99_s(law, b, sigma) <= target_s), default=1)


class Machine:
    """Serves full batches under load: lognormal around the law, times `slow`."""

    def __init__(self, law: Law, sigma: float, seed: int) -> None:
        self.law, self.sigma, self.slow = law, sigma, 1.0
        self.random = random.Random(seed)

    def serve(self, items: int) -> float:
        noise = math.exp(self.sigma * self.random.gauss(0.0, 1.0) - self.sigma * self.sigma / 2.0)
        return self.slow * self.law(items) * noise

    def load(self, tuned: SelfTuned, batches: int) -> list[int]:
        sizes = []
        for _ in range(batches):
            sizes.append(tuned.n_batch)
            tuned.observe(tuned.n_batch, self.serve(tuned.n_batch))
        return sizes


def mean(sizes: list[int]) -> float:
    return sum(sizes) / len(sizes)


@pytest.mark.untraced
@pytest.mark.parametrize("law", [line, knee])
@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("target_s", [0.02, 0.04])
def test_converges_to_the_largest_batch_with_p99_within_target(law: Law, sigma: float, target_s: float) -> None:
    wanted = best(law, sigma, target_s)
    for seed in range(2):
        tuned = SelfTuned(target_s, most=MOST, first_s=law(1))
        machine = Machine(law, sigma, seed)
        machine.load(tuned, 1000)
        assert 0.8 * wanted <= mean(machine.load(tuned, 4000)) <= 1.2 * wanted


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.1])
def test_is_near_the_best_batch_within_the_first_hundred_batches(sigma: float) -> None:
    tuned = SelfTuned(0.04, most=MOST, first_s=line(1))
    sizes = Machine(line, sigma, 1).load(tuned, 100)
    assert sizes[0] == 1
    assert max(sizes) >= 0.8 * best(line, sigma, 0.04)


@pytest.mark.untraced
def test_few_batches_are_late_once_it_has_converged() -> None:
    tuned = SelfTuned(0.04, most=MOST, first_s=line(1))
    machine = Machine(line, 0.1, 5)
    machine.load(tuned, 500)
    late = 0
    for _ in range(10_000):
        seconds = machine.serve(tuned.n_batch)
        late += seconds > 0.04
        tuned.observe(tuned.n_batch, seconds)
    assert 0.002 < late / 10_000 < 0.015


def test_a_sudden_slow_down_is_followed_and_recovered_from() -> None:
    tuned = SelfTuned(0.04, most=MOST, first_s=line(1))
    machine = Machine(line, 0.1, 3)
    machine.load(tuned, 1000)
    machine.slow = 2.5
    slow_best = best(lambda b: 2.5 * line(b), 0.1, 0.04)
    assert machine.load(tuned, 60)[-1] <= 1.2 * slow_best + 1
    machine.load(tuned, 300)
    assert abs(mean(machine.load(tuned, 1000)) - slow_best) <= max(1.0, 0.2 * slow_best)
    assert tuned.service_s[slow_best] == pytest.approx(2.5 * line(slow_best), rel=0.1)
    machine.slow = 1.0
    machine.load(tuned, 1500)
    assert mean(machine.load(tuned, 1000)) == pytest.approx(best(line, 0.1, 0.04), rel=0.2)


def test_learns_the_line_from_batches_of_all_sizes_whatever_stalls() -> None:
    tuned = SelfTuned(0.04, most=MOST, first_s=line(1))
    machine = Machine(line, 0.1, 7)
    for i in range(600):
        items = machine.random.randint(1, 32)
        tuned.observe(items, machine.serve(items) if i % 100 != 99 else 10.0)
    for items in (1, 8, 32, MOST):
        assert tuned.service_s[items] == pytest.approx(line(items), rel=0.15, abs=0.0015)


def test_the_first_guess_for_larger_batches_is_the_slowest() -> None:
    tuned = SelfTuned(0.04, most=4, first_s=0.006)
    assert list(tuned.service_s) == pytest.approx([0.0, 0.006, 0.012, 0.018, 0.024])
    for _ in range(3):
        tuned.observe(1, 0.012)
    assert tuned.service_s[1] == pytest.approx(0.012, rel=0.03)


def test_small_batches_change_the_batch_size_only_when_late() -> None:
    tuned = SelfTuned(0.04, most=MOST, first_s=line(1))
    Machine(line, 0.0, 0).load(tuned, 40)
    before = tuned.n_batch
    for _ in range(500):
        tuned.observe(3, line(3))
    assert tuned.n_batch == before
    for _ in range(2):
        tuned.observe(3, 0.05)
    assert tuned.n_batch < before


def test_is_never_below_one_or_above_the_most() -> None:
    hopeless = SelfTuned(0.001, most=MOST, first_s=line(1))
    assert set(Machine(line, 0.1, 0).load(hopeless, 300)) == {1}
    easy = SelfTuned(10.0, most=1000, first_s=line(1))
    sizes = Machine(line, 0.1, 0).load(easy, 300)
    assert max(sizes) == 1000
    assert len(easy.service_s) == 1001
    assert min(easy.service_s[1:]) > 0.0


@pytest.mark.parametrize("options", [{"target_s": 0.0}, {"most": 0}, {"first_s": math.nan}], ids=str)
def test_impossible_numbers_are_bad_input(options: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        SelfTuned(**{"target_s": 1.0, "most": 8, "first_s": 0.1, **options})  # type: ignore[arg-type]


def test_a_bouncer_tunes_itself_by_what_its_batches_took() -> None:
    tuned = SelfTuned(0.0405, most=MOST, first_s=line(1))
    bouncer = Bouncer(tuned, rt_max_s=1.0)
    now_s = 0.0
    largest = 0
    for _ in range(300):
        while bouncer.queued < MOST and bouncer.offer(request(now_s), now_s) == INSTANCE:
            pass
        batch = started(bouncer, now_s)
        largest = max(largest, batch.items)
        now_s += line(batch.items)
        bouncer.finished(batch, now_s)
    assert largest == best(line, 0.0, 0.0405) + 1  # the one that showed the limit


def test_persistent_slowness_corrects_the_profile_one_batch_does_not() -> None:
    profiled = FixedTimes([0.0, 1.0, 1.5, 2.0])
    corrected = Corrected(profiled)
    assert (corrected.n_batch, list(corrected.service_s)) == (3, [0.0, 1.0, 1.5, 2.0])
    corrected.observe(3, 200.0)
    assert corrected.service_s[3] < 2.2
    for _ in range(600):
        for size in (1, 2, 3):
            corrected.observe(size, 2.0 * profiled.service_s[size])
    assert list(corrected.service_s) == pytest.approx([0.0, 2.0, 3.0, 4.0], rel=0.03)
    for _ in range(600):
        for size in (1, 2, 3):
            corrected.observe(size, profiled.service_s[size])
    assert list(corrected.service_s) == pytest.approx([0.0, 1.0, 1.5, 2.0], rel=0.03)
    assert list(profiled.service_s) == [0.0, 1.0, 1.5, 2.0]


def test_a_batchs_fixed_overhead_is_added_and_not_multiplied() -> None:
    """A hop of half a second slows batches of one by half, and full ones by a quarter."""
    corrected = Corrected(FixedTimes([0.0, 1.0, 1.5, 2.0]))
    for _ in range(600):
        for size in (1, 3):
            corrected.observe(size, 0.5 + (1.0, 1.5, 2.0)[size - 1])
    assert list(corrected.service_s) == pytest.approx([0.0, 1.5, 2.0, 2.5], rel=0.03)


def test_batches_of_one_size_shift_the_other_sizes_alike() -> None:
    corrected = Corrected(FixedTimes([0.0, 1.0, 1.5, 2.0]))
    for _ in range(1000):
        corrected.observe(3, 2.4)
    assert list(corrected.service_s) == pytest.approx([0.0, 1.4, 1.9, 2.4], rel=0.03)


def test_a_warm_up_is_believed_until_something_was_served() -> None:
    """It is better than a guess, and worse than the first batch."""
    tuned = SelfTuned(1.0, most=4, first_s=0.001)
    tuned.warmed_up(2, 0.4)
    assert list(tuned.service_s) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    tuned.observe(1, 0.1)
    tuned.warmed_up(2, 40.0)
    assert tuned.service_s[1] == pytest.approx(0.1)
