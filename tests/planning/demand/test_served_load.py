from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from mark.domain.arrays import FloatArray
from mark.domain.late_shares import LateShares
from mark.domain.load import LEVELS, Forecast
from mark.kernel.accounting import Accounting
from mark.kernel.stage import StageSimulation
from mark.planning.demand.served_load import (
    BelievedLoad,
    Lateness,
    believed_demand,
    cheapest_lasting,
    longest_wait_s,
    overflow_rps,
    overflow_slope,
    served_load,
    unrest_rps,
)
from tests.planning.build import forecast, resolved, sold


@settings(max_examples=25)
@given(rate=st.floats(1.0, 1000.0), spread=st.floats(0.0, 1.0), peak=st.floats(1.0, 3.0))
def test_savings_are_what_capacity_serves_on_average(rate: float, spread: float, peak: float) -> None:
    """They rise with capacity, never exceed it, and reach the expected load."""
    saved = served_load(forecast(rate, spread, peak), Lateness(0.5))
    served = saved.served[:, 1]
    assert np.all(np.diff(served) >= -1e-9)
    assert np.all(served <= saved.spacing_rps * np.arange(len(served)) + 1e-9)
    # The normal within a step is cut at zero, which can only add.
    assert served[-1] >= rate * 0.99
    assert np.allclose(saved.served[:, 5] - saved.served[:, 4], served)


@pytest.mark.parametrize("instances", [1, 3, 8])
@pytest.mark.parametrize("use", [0.8, 0.9, 1.0, 1.1])
def test_the_kernel_confirms_how_much_overflows(instances: int, use: float) -> None:
    """For Poisson arrivals on bouncers, the closed form is within 1 or 2 % of the load of the kernel's count."""
    of = resolved(sold("small", 0.2), latencies_ms={"small": 100.0})
    load_rps = use * 10.0 * instances
    stage = StageSimulation(
        of.candidates, accounts=Accounting(rt_max_s=0.6, end_s=6000.0), function=replace(of.function, cold_s=0.0)
    )
    for number in range(instances):
        stage.add(number, 0, 0.0)
    arrivals_s = np.cumsum(np.random.default_rng(7).exponential(1.0 / load_rps, int(load_rps * 5000.0)))
    stage.advance(arrivals_s, 0, np.inf)
    expected = overflow_rps(np.array(load_rps), np.array(10.0 * instances), 0.5) / load_rps
    assert stage.accounts.by_functions / stage.arrived == pytest.approx(float(expected), abs=0.006 + 0.016 / instances)


def test_more_capacity_and_more_patience_turn_fewer_away() -> None:
    """Overflow falls with both, equals the load without capacity, and never exceeds it."""
    loads, capacities = np.array([1.0, 40.0, 100.0, 300.0])[:, None], np.arange(0.0, 400.0, 7.0)
    turned = overflow_rps(loads, capacities, 0.3)
    assert np.all(np.diff(turned, axis=1) <= 1e-9)
    assert np.all(turned[:, 0] == loads[:, 0])
    assert np.all((turned >= 0.0) & (turned <= loads))
    assert np.all(overflow_rps(loads, capacities, 0.6) <= turned + 1e-9)


def plain_overflow(load: FloatArray, capacity: FloatArray, patience_s: float) -> FloatArray:
    """Return the formula as it is printed, without the series for special cases."""
    spare = np.where(np.abs(capacity - load) < 1e-9, 1e-9, capacity - load)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        turned_away = spare / np.expm1(2.0 * spare * capacity * patience_s / load)
    return np.where(capacity > 0.0, np.minimum(turned_away, load**2 / (capacity + load)), load)


@pytest.mark.parametrize("patience_s", [1e-3, 0.4, 50.0])
def test_the_compiled_formula_is_the_printed_one(patience_s: float) -> None:
    """Capacities range from far too little to far too much."""
    loads, capacities = np.geomspace(1e-3, 1e4, 40)[:, None], np.append(0.0, np.geomspace(1e-3, 1e5, 60))
    turned = overflow_rps(loads, capacities, patience_s)
    assert turned == pytest.approx(plain_overflow(loads, capacities, patience_s), rel=1e-12, abs=1e-12)


@settings(max_examples=25)
@given(rate=st.floats(1.0, 1000.0), spread=st.floats(0.0, 1.0), peak=st.floats(1.0, 1.9))
def test_savings_are_the_expectation_of_the_formula(rate: float, spread: float, peak: float) -> None:
    """Point by point: nine quantiles for a tenth each, four for the highest tenth, and three points within a step."""
    believed = forecast(rate, spread, peak)
    saved = served_load(believed, Lateness(0.4), steps=3)
    middle = float(believed.mean_at(0.5)[0])
    capacity = np.asarray(saved.spacing_rps * np.arange(len(saved.served)), np.float64)
    expected = np.zeros(len(capacity))
    tenths = [(point, 0.1) for point in np.arange(0.05, 0.9, 0.1)]
    for point, likely in (*tenths, (0.925, 0.05), (0.965, 0.03), (0.9875, 0.015), (0.9975, 0.005)):
        mean = told = float(believed.mean_at(point)[0])
        beyond = max(0.0, float(believed.peak_at(point)[0]) - told) / 1.63
        unrest = math.sqrt(max(0.0, beyond**2 - told / 5.0)) / max(told, 0.2)
        mean += (mean - middle) * (max(1.0, math.log(2.0 - 2.0 * point) / math.log(2.0 - 2.0 * 0.95)) - 1.0)
        for deviation, share in ((-(3.0**0.5), 1.0 / 6.0), (0.0, 2.0 / 3.0), (3.0**0.5, 1.0 / 6.0)):
            load = np.array(max(1e-9, mean * (1.0 + deviation * unrest)))
            expected += likely * share * (load - plain_overflow(load, capacity, 0.4))
    assert saved.served[:, 1] == pytest.approx(expected, rel=1e-6, abs=1e-6 * rate)
    assert saved.served[:, 3] == pytest.approx(3.0 * expected, rel=1e-6, abs=1e-6 * rate)


def test_savings_against_plain_sampling() -> None:
    """The same expectation by drawing quantiles and normals one by one, within the error of drawing."""
    believed = forecast(100.0, 0.5, peak=1.4)
    saved = served_load(believed, Lateness(0.5))
    rng = np.random.default_rng(5)
    rates = rng.choice(believed.mean_at(0.5)[0] * (1.0 + 0.5 * (2.0 * np.arange(0.05, 1.0, 0.1) - 1.0)), 50_000)
    unrest = (0.4 * 100.0 / 1.63) ** 2 - 100.0 / 5.0
    demand = np.maximum(1e-9, rng.normal(rates, np.sqrt(unrest) * rates / 100.0))
    for level in (10, 24, 40):
        capacity = np.array(level * saved.spacing_rps)
        expected = (demand - overflow_rps(demand, capacity, 0.5)).mean()
        assert saved.served[level, 1] == pytest.approx(expected, rel=0.01)


def test_peaks_of_single_requests_are_no_unrest() -> None:
    """With a request a minute, forecast as zero, any 5 s with a request are a peak of 0.2/s, whatever the mean."""
    believed = forecast(0.0)
    mean, peak = believed.mean_rps.copy(), believed.peak_rps.copy()
    mean[:] = 0.07 * LEVELS[:, None] ** 8
    peak[:] = 0.2
    rare = Forecast(0.0, 60.0, LEVELS, mean, peak, "test")
    assert served_load(rare, Lateness(0.5)).spacing_rps * 40.0 < 10.0, "the largest capacity that is of any use"


@pytest.mark.parametrize("median", [0.0, 1e-3, 1.0, 40.0])
def test_unrest_beside_a_small_median_is_none_of_the_whole(median: float) -> None:
    """A fall leaves a median near zero below quantiles that are not: no multiple of those is believed for its peaks."""
    mean = np.concatenate([np.full(12, median), np.linspace(median, 400.0, 7)])[:, None]
    peak = np.maximum(mean, median + 13.0)
    demand, _ = believed_demand(Forecast(0.0, 60.0, LEVELS, mean, peak, "test"), 1)
    assert 400.0 <= demand.max() <= 4.0 * 400.0


def test_a_burst_is_believed_in_the_minutes_that_have_one() -> None:
    """One minute of five has 10 s at 100 requests/s on a base of 2; the median has none."""
    mean = np.where(LEVELS > 0.8, 18.0, 2.0)[:, None]
    peak = np.where(LEVELS > 0.8, 100.0, 3.0)[:, None]
    demand, weights = believed_demand(Forecast(0.0, 60.0, LEVELS, mean, peak, "test"), 1)
    assert weights[demand[0] > 80.0].sum() == pytest.approx(0.2 / 6.0, abs=0.02)


@pytest.mark.parametrize(("seconds", "windows"), [(3.0, 0), (5.0, 1), (10.0, 2), (15.0, 2)])
def test_a_burst_comes_in_its_part_of_the_step(seconds: float, windows: int) -> None:
    """Before and after it next to nothing comes, and the step keeps its mean."""
    mean = np.full((len(LEVELS), 1), 100.0 * seconds / 60.0)
    demand, weights = believed_demand(Forecast(0.0, 60.0, LEVELS, mean, np.full_like(mean, 104.0), "test"), 1)
    assert weights @ demand[0] == pytest.approx(mean[0, 0], rel=1e-6)
    assert demand.max() <= 104.0
    assert weights[demand[0] > 90.0].sum() == pytest.approx(windows / 12.0)


@pytest.mark.parametrize("rate", [0.0, 0.2, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("peak", [1.0, 1.9, 2.0, 2.3, 2.6, 3.0, 5.0, 1000.0])
def test_points_within_a_step_keep_its_mean(rate: float, peak: float) -> None:
    """Also where the low point of a normal distribution would be negative."""
    believed = BelievedLoad.of(forecast(rate, 0.3, peak), 2)
    demand, _ = believed.demand(2)
    within = demand.reshape(*believed.mean_rps.T.shape, -1)
    weights = [1.0] if within.shape[2] == 1 else [1.0, 4.0, 1.0] if within.shape[2] == 3 else [2.0] * 5 + [1.0] * 2
    np.testing.assert_allclose(np.average(within, axis=2, weights=weights), believed.mean_rps.T, atol=1e-8)


def test_the_likely_rate_leaves_out_the_chance_of_poisson_arrivals() -> None:
    """A burst belongs to the load. The highest of twelve Poisson counts does not: tables of late shares hold it."""
    rate, by_chance = 6.0, 1.63 * math.sqrt(6.0 / 5.0)
    assert BelievedLoad.of(forecast(rate, 0.0, 1.0 + by_chance / rate), 3).likely_rps() == pytest.approx(rate)
    assert BelievedLoad.of(forecast(rate, 0.0, 5.0), 3).likely_rps() > 20.0


def test_the_load_within_a_step_turns_into_a_burst_without_a_jump() -> None:
    """As its peak rises from normal unrest to a burst, the load above 150 grows evenly."""
    above = []
    for peak in np.arange(180.0, 360.0, 2.0):
        of = Forecast(0.0, 60.0, LEVELS, np.full((len(LEVELS), 1), 100.0), np.full((len(LEVELS), 1), peak), "test")
        demand, weights = believed_demand(of, 1)
        above.append(float(weights @ np.maximum(0.0, demand[0] - 150.0)))
    assert np.abs(np.diff(above)).max() <= 2.0


@pytest.mark.parametrize(("peaks_rps", "most_rps"), [((106.0, 106.0), 115.0), ((100.0, 106.0), 140.0)])
def test_a_load_goes_no_further_than_the_tail_of_its_peaks(peaks_rps: tuple[float, float], most_rps: float) -> None:
    """Bursts of 100 requests/s fill all or a part of a minute, or none comes."""
    mean = np.interp(LEVELS, [0.0, 0.6, 0.8, 0.9, 0.95], [2.0, 2.0, 50.0, 80.0, 90.0])
    peak = np.where(mean > 10.0, np.interp(LEVELS, [0.8, 0.95], peaks_rps), 3.0)
    demand, _ = believed_demand(Forecast(0.0, 60.0, LEVELS, mean[:, None], peak[:, None], "test"), 1)
    assert 100.0 <= demand.max() <= most_rps


def test_believed_demand_has_the_forecasts_mean_in_every_step() -> None:
    """The weights of its points sum to 1; the tail above the highest level adds a little."""
    of = forecast(np.linspace(50.0, 90.0, 60), 0.4, 1.0)
    demand, weights = believed_demand(of, 5)
    assert demand.shape == (5, len(weights))
    assert weights.sum() == pytest.approx(1.0)
    middle = of.mean_at(0.5)[:5]
    assert (middle <= demand @ weights).all()
    assert (demand @ weights <= 1.01 * middle).all()


def test_demand_beyond_the_highest_level_is_exponential() -> None:
    """The excess of rates over 30 is exponential, and quantiles up to the p95 suffice to recover it."""

    def at(level: FloatArray | float) -> FloatArray:
        return np.asarray(30.0 - 10.0 * np.log2(2.0 - 2.0 * level))

    levels = np.append(LEVELS[LEVELS < 0.9], np.linspace(0.9, 0.95, 6))
    mean = np.maximum(30.0, at(levels))[:, None]
    demand, weights = believed_demand(Forecast(0.0, 60.0, levels, mean, mean, "test"), 1)
    for level in (0.95, 0.98, 0.995):
        assert weights[demand[0] > at(level)].sum() == pytest.approx(1.0 - level)
    assert demand[0].max() == pytest.approx(at(0.9975))


@pytest.mark.parametrize("levels", [(0.5,), (0.1, 0.5), (0.2, 0.4), (0.05,)])
def test_load_ends_at_the_highest_level_if_none_lies_above_the_median(levels: tuple[float, ...]) -> None:
    rates = 10.0 * np.repeat(np.array(levels)[:, None], 3, axis=1)
    believed = BelievedLoad.of(Forecast(0.0, 60.0, np.array(levels), rates, 1.5 * rates, "low"), 3)
    assert believed.mean_rps.max() == pytest.approx(10.0 * levels[-1])
    assert believed.burst_rps.max() <= 15.0 * levels[-1]


@pytest.mark.parametrize("without", [0.0, 1.0])
def test_late_load_is_that_of_the_table(without: float) -> None:
    """The table is interpolated in compiled code; `LateShares` does it in numpy."""
    rng = np.random.default_rng(0)
    late = np.sort(rng.random((6, 30)), axis=1)
    sizes, loads_rps = np.array([1, 2, 3, 5, 8, 13]), np.geomspace(0.5, 40.0, 30)
    shares = LateShares(sizes, loads_rps, late, 0.0 * late, 1.0 + late, 0.1, 500, late_without=without)
    lateness = Lateness(0.1, shares, unit_rps=4.0)
    of_rps = np.append(rng.gamma(1.0, 60.0, 40), (0.0, 1e-6, 0.5, 13 * 40.0, 1e6))[:, None]
    instances = np.append(rng.gamma(1.0, 6.0, 40), (0.0, 0.5, *sizes, 1e3))
    expected = of_rps * shares.late_at(of_rps, instances)
    np.testing.assert_array_equal(lateness.late_rps(of_rps, 4.0 * instances), expected)


def counted(late: FloatArray, calls: FloatArray) -> Lateness:
    """Return the lateness of fleets of 1 to 64 instances of 4 requests/s each, beside functions in time."""
    sizes, loads_rps = np.array([1, 2, 4, 8, 16, 32, 64]), np.geomspace(0.04, 6.0, 30)
    late, calls = np.broadcast_to(late, (7, 30)).copy(), np.broadcast_to(calls, (7, 30)).copy()
    shares = LateShares(sizes, loads_rps, late, calls, 1.0 + late, 0.1, 20_000, late_without=0.0, calls_without=1.0)
    return Lateness(0.1, shares, 4.0)


def test_fleets_are_counted_up_to_the_one_that_functions_leave() -> None:
    """Where functions answer in time next to nothing is late on one instance, but nearly everything is a call."""
    calls = np.where(np.geomspace(0.04, 6.0, 30) < 3.0, 0.0, 0.3)
    saved = served_load(forecast(200.0), counted(np.array(0.0), calls))
    assert saved.called is not None
    assert saved.called[-1, 1] == pytest.approx(0.0, abs=1e-6)
    assert (len(saved.served) - 1) * saved.spacing_rps >= 4.0 * 200.0 / 3.0


def test_chance_in_a_counted_share_adds_no_fleets() -> None:
    """Of many sizes one seems to be the best by chance. Fleets up to that one would share the levels of the table."""
    late = 0.02 + np.array([0.0, 2e-4, 3e-4, 1e-4, 2e-4, 1e-4, -9e-4])[:, None]
    saved = served_load(forecast(2.0), counted(late, np.array(0.0)))
    assert saved.spacing_rps == 4.0


@pytest.mark.parametrize(("latency_ms", "reference"), [(18.0, "small"), (10.0, "large")])
def test_a_small_type_that_is_nearly_as_cheap_is_the_reference(latency_ms: float, reference: str) -> None:
    """A request/s on the large one costs 0.9 or 0.5 times as much as on the small one."""
    of = resolved(sold("small", 0.2), sold("large", 1.0), latencies_ms={"small": 100.0, "large": latency_ms})
    assert of.offers[cheapest_lasting(of, range(2))].instance == "large"
    shares = counted(np.array(0.0), np.array(0.0)).shares
    scattered = replace(of, candidates=tuple(replace(one, late_shares=shares) for one in of.candidates))
    assert of.offers[cheapest_lasting(scattered, range(2))].instance == reference


def test_the_slowest_offer_says_how_long_a_request_may_wait() -> None:
    of = resolved(sold("small", 0.2), sold("quick", 0.5), latencies_ms={"small": 100.0, "quick": 20.0})
    assert longest_wait_s(of, range(len(of.offers))) == pytest.approx(0.5)
    assert longest_wait_s(of, [of.index("quick/on-demand")]) == pytest.approx(0.58)
    assert longest_wait_s(of, []) == pytest.approx(0.006)


@given(
    capacity_rps=st.floats(20.0, 5000.0), use=st.floats(0.5, 3.0), patience_s=st.floats(0.5, 5.0),
)  # fmt: skip
def test_the_slope_is_that_of_what_overflows(capacity_rps: float, use: float, patience_s: float) -> None:
    """If capacity holds ten requests or more, one formula holds for all loads: its finite difference."""
    load_rps = use * capacity_rps
    step_rps = 1e-5 * load_rps
    loads_rps = np.array([load_rps - step_rps, load_rps + step_rps])
    low, high = overflow_rps(loads_rps, np.array(capacity_rps), patience_s)
    slope = float(overflow_slope(np.array(load_rps), np.array(capacity_rps), patience_s))
    assert slope == pytest.approx((high - low) / (2.0 * step_rps), abs=1e-4)


@settings(max_examples=15)
@given(holds=st.floats(0.01, 9.0))
def test_the_slope_is_that_of_the_largest_convex_function_below(holds: float) -> None:
    """The reference is the isotonic regression of finite differences: the smallest change that makes them rise."""
    loads_rps = np.linspace(0.0, 30.0, 15_001)
    differences = np.diff(overflow_rps(loads_rps, np.array(1.0), holds)) / np.diff(loads_rps)
    rising = isotonic_regression(differences).x
    middles_rps = 0.5 * (loads_rps[1:] + loads_rps[:-1])
    seen = middles_rps < 10.0  # further on the end of the grid has an effect
    assert overflow_slope(middles_rps, np.array(1.0), holds)[seen] == pytest.approx(rising[seen], abs=0.01)


@given(
    capacity_rps=st.floats(0.0, 1000.0), patience_s=st.floats(0.001, 5.0),
    loads_rps=st.lists(st.floats(0.0, 5000.0), min_size=2, max_size=20),
)  # fmt: skip
def test_one_more_request_overflows_no_less_often_under_more_load(
    capacity_rps: float, patience_s: float, loads_rps: list[float]
) -> None:
    """The slope lies between 0 and 1, and is 1 without capacity."""
    slopes = overflow_slope(np.sort(np.array(loads_rps)), np.array(capacity_rps), patience_s)
    assert np.all(np.diff(slopes) >= -1e-9)
    assert np.all((slopes >= 0.0) & (slopes <= 1.0))
    assert capacity_rps > 0.0 or np.all(slopes == 1.0)


@pytest.mark.parametrize("windows_rps", [[], [np.nan] * 12, [8.0], [8.0] * 12, [0.0] * 12])
def test_steady_windows_are_judged_by_the_mean(windows_rps: list[float]) -> None:
    assert unrest_rps(8.0, np.array(windows_rps)).tolist() == [8.0]


def test_poisson_arrivals_are_no_unrest() -> None:
    """A window of 5 s at 8 requests/s counts 40, give or take 6; the formula for lateness knows of that."""
    chance = np.random.default_rng(1)
    drawn = [unrest_rps(8.0, chance.poisson(40.0, 12) / 5.0) for _ in range(200)]
    assert np.mean([rates.std() for rates in drawn]) < 0.5 * np.sqrt(40.0) / 5.0
    assert [rates.mean() for rates in drawn] == pytest.approx([8.0] * 200)


def test_missing_windows_are_left_out() -> None:
    seconds = np.array([100.0] * 4 + [2.0] * 8)
    some = np.append(seconds, [np.nan])
    np.testing.assert_allclose(unrest_rps(70.0, some), 2.0 * unrest_rps(35.0, seconds))
