"""The evaluation of measured times: intervals, when to stop, the knee, and the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as students_t

from mark.domain.errors import BadInput
from mark.profiling import measure
from mark.profiling.measure import (
    LEAST_FOR_P99,
    WARM_UPS,
    Measured,
    Sampling,
    Size,
    check_sizes,
    mean_and_half_s,
    profile_csv,
    sizes_of,
)
from mark.profiling.table import load_profiles


def size(batch: int, mean_ms: float, half_ms: float = 0.01, p99_ms: float | None = None, count: int = 400) -> Size:
    p99_s = (mean_ms if p99_ms is None else p99_ms) / 1e3
    return Size(batch, count, mean_ms / 1e3, half_ms / 1e3, p99_s, mean_ms / 1e3)


def measured(*sizes: Size, **more: Any) -> Measured:
    return Measured("m", "local", sizes, **more)


def test_the_table_of_quantiles_is_students() -> None:
    expected = students_t.ppf(0.975, np.arange(1, 20))
    np.testing.assert_allclose(measure._T975, expected, atol=5e-4)


def test_p99_is_certain_once_the_largest_exceeds_it() -> None:
    assert 1.0 - 0.99**LEAST_FOR_P99 >= 0.95 > 1.0 - 0.99 ** (LEAST_FOR_P99 - 1)


def test_the_interval_of_few_times_is_the_textbooks() -> None:
    """Up to 20 times every block holds one time: mean +- t s / sqrt(n)."""
    times = [1.0, 2.0, 4.0, 5.0]
    mean, half = mean_and_half_s(times)
    low, high = students_t.interval(0.95, 3, loc=3.0, scale=np.std(times, ddof=1) / 2.0)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=2e-3)
    assert mean_and_half_s([1.0]) == (1.0, math.inf)


@pytest.mark.parametrize(("memory", "least", "most"), [(0.0, 0.93, 0.97), (0.9, 0.85, 0.97)])
def test_the_interval_holds_the_mean_as_often_as_it_says(memory: float, least: float, most: float) -> None:
    """This holds for times that resemble their neighbours, too: an interval of single times would hold the mean in 35
    %."""
    draw = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        noise = draw.normal(size=600)
        times = np.empty(600)
        times[0] = noise[0] / math.sqrt(1.0 - memory**2)
        for i in range(1, 600):
            times[i] = memory * times[i - 1] + noise[i]
        mean, half = mean_and_half_s(times.tolist())
        held += abs(mean) <= half
    assert least <= held / 1000 <= most


def run(sampling: Sampling, time_s: Any) -> list[int]:
    order = []
    while (batch := sampling.next()) is not None:
        order.append(batch)
        sampling.record(batch, [time_s(batch)])
    return order


def test_the_order_of_sizes_follows_from_the_seed() -> None:
    def order(seed: int) -> list[int]:
        return run(Sampling((1, 2, 4), precision=0.02, seconds=1e9, seed=seed), lambda batch: 1e-3 * batch)

    one = order(1)
    assert one == order(1) != order(2)
    rounds = [one[i : i + 3] for i in range(0, len(one), 3)]
    assert all(sorted(each) == [1, 2, 4] for each in rounds)
    assert len({tuple(each) for each in rounds}) == 6


def test_a_size_stops_when_its_p99_is_known() -> None:
    sampling = Sampling((1,), precision=0.02, seconds=1e9)
    assert len(run(sampling, lambda batch: 1e-3)) == WARM_UPS + 300
    assert sampling.times_s == {1: [1e-3] * 300}
    assert sampling.share_done() == 1.0


@given(seconds=st.floats(0.1, 5.0), time_s=st.floats(0.01, 2.0))
def test_an_imprecise_size_stops_when_its_seconds_are_over(seconds: float, time_s: float) -> None:
    """It never stops before it has a mean and an interval."""
    sampling = Sampling((1,), precision=1e-12, seconds=seconds)
    run(sampling, lambda batch: time_s * (1.0 + len(sampling.times_s[1]) / 1000))
    times = sampling.times_s[1]
    assert len(times) >= 3
    assert sum(times) >= seconds
    assert len(times) == 3 or sum(times[:-1]) < seconds


def test_workers_at_the_same_time_count_their_seconds_once() -> None:
    sampling = Sampling((2,), precision=1e-12, seconds=1.0)
    for _ in range(WARM_UPS):
        sampling.next()
        sampling.record(2, [9.0, 9.0])
    assert sampling.share_done() == 0.0
    sampling.next()
    sampling.record(2, [0.2, 0.5], [0.1, 0.4])
    assert sampling.share_done() == 0.5
    assert (sampling.times_s[2], sampling.service_s[2]) == ([0.2, 0.5], [0.1, 0.4])


def test_a_size_that_fails_is_asked_for_no_more() -> None:
    sampling = Sampling((1, 64), precision=0.5, seconds=0.1)
    asked = []
    while (batch := sampling.next()) is not None:
        asked.append(batch)
        if batch == 64:
            sampling.fail(64, "out of memory")
        else:
            sampling.record(1, [0.05])
    assert asked.count(64) == 1
    assert [one.batch for one in sizes_of(sampling)] == [1]
    assert sampling.failed == {64: "out of memory"}


def test_summaries_are_those_of_numpy() -> None:
    times = list(np.random.default_rng(0).lognormal(size=500))
    sampling = Sampling((3,), precision=1e-12, seconds=1e9)
    for _ in range(WARM_UPS):
        sampling.next()
        sampling.record(3, [1.0])
    sampling.next()
    sampling.record(3, times, [0.5, 1.5])
    (found,) = sizes_of(sampling)
    assert (found.batch, found.count, found.service_s) == (3, 500, 1.0)
    assert found.mean_s == pytest.approx(np.mean(times))
    assert sum(time > found.p99_s for time in times) == 4  # 1 % of 500, less the quantile itself
    assert found.p99_is_certain


def test_the_knee_is_the_smallest_batch_near_the_best_throughput() -> None:
    """5 ms + 0.2 ms an item levels off late; a model that computes item by item levels off at the first size."""
    linear = measured(*(size(b, 5.0 + 0.2 * b) for b in (1, 32, 256, 1024)))
    assert linear.knee.batch == 1024  # 3,904 against 4,880 items/s
    assert measured(*(size(b, 10.0 * b) for b in (1, 2, 4))).knee.batch == 1
    assert measured(size(1, 10.0), size(2, 10.4), size(4, 20.0), size(8, 50.0)).knee.batch == 2  # 192 of 200
    assert measured(size(8, 4.0), workers=3).throughput_rps(size(8, 4.0)) == pytest.approx(6000.0)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((size(1, 10.0, half_ms=0.3),), "the mean of a batch of 1 is less precise than +-2.0 %"),
        ((size(1, 10.0, count=20), size(2, 12.0, count=298)), "p99 is uncertain for batches of 1, 2"),
        ((size(1, 10.0), size(2, 9.0)), "a batch of 2 takes less than one of 1"),
        ((size(1, 10.0, p99_ms=200.0),), "p99 of a batch of 1 is that of no lognormal"),
        ((size(1, 10.0, p99_ms=9.0),), "p99 of a batch of 1 is that of no lognormal"),
    ],
)
def test_an_unreliable_measurement_warns(sizes: tuple[Size, ...], said: str) -> None:
    (warning,) = measured(*sizes).warnings()
    assert warning.startswith(said)


def test_a_quiet_measurement_has_no_warning_and_others_say_theirs() -> None:
    quiet = (size(1, 10.0), size(2, 9.99))  # within the intervals
    assert measured(*quiet).warnings() == []
    assert measured(*quiet, failed={64: "killed"}, notes=("a note",)).warnings() == ["no batch of 64: killed", "a note"]


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.1, 1e3)), min_size=1, max_size=6))
def test_whatever_was_measured_is_a_profile_that_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, times: list[tuple[float, float]]
) -> None:
    """Some of the p99s fit no lognormal."""
    file = tmp_path_factory.mktemp("profile") / "p.csv"
    found = measured(
        *(size(b, mean_ms, p99_ms=mean_ms * ratio) for b, (mean_ms, ratio) in enumerate(times, 1)),
        overhead_s=0.0004,
        cold_s=1.5,
        workers=2,
    )
    file.write_text(profile_csv([found], file))
    assert load_profiles(str(file))["m"]["local"] == found.profile()


def test_the_file_keeps_what_it_has_of_others(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text(
        "model,instance,batch,latency_ms,basis,source\n"
        "m,local,1,99,assumed,\n"
        'm,c5.large,1,30.5,measured,"here, there"\n'
    )
    text = profile_csv([measured(size(1, 10.0), size(4, 20.0, count=9))], file)
    file.write_text(text)
    found = load_profiles(str(file))["m"]
    assert found["c5.large"].rows[0].latency_ms == 30.5
    assert [(row.batch, row.latency_ms) for row in found["local"].rows] == [(1, 10.0), (4, 20.0)]
    assert '"here, there"' in text
    assert '"mark profile: 9 times, +-0.1 %, p99 uncertain"' in text


def test_a_file_that_is_no_profile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.csv"
    file.write_text("dear diary\n")
    with pytest.raises(BadInput, match="unknown column: dear diary"):
        profile_csv([measured(size(1, 1.0))], file)


def test_json_says_intervals_in_milliseconds() -> None:
    said = measured(size(2, 10.0, half_ms=0.5), cold_s=2.0).as_json()
    assert said["sizes"][0]["ci95_ms"] == pytest.approx([9.5, 10.5])
    assert (said["knee_batch"], said["overhead_ms"], said["cold_ms"]) == (2, None, 2000.0)
    assert said["sizes"][0]["throughput_rps"] == pytest.approx(200.0)


@pytest.mark.parametrize("sizes", [(), (1, 1), (0, 1), (1, 10_001)])
def test_sizes_that_are_none(sizes: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="--batch"):
        check_sizes(sizes, "--batch")


def test_sizes_ascend() -> None:
    assert check_sizes((8, 1, 4), "--batch") == (1, 4, 8)
