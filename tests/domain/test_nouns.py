"""The nouns check themselves and do their sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.bill import Bill
from mark.domain.errors import BadInput
from mark.domain.function_offer import FunctionOffer
from mark.domain.load import Forecast, Load
from mark.domain.offer import BurstCredits, Catalog, Delay, Market, Offer
from mark.domain.profile import Profile, ProfileRow
from mark.domain.slo import Slo


@given(mean_s=st.floats(1.0, 1000.0), ratio=st.floats(1.0, 3.8))
def test_a_delay_has_the_mean_and_p95_it_was_given(mean_s: float, ratio: float) -> None:
    """p95 exactly; the mean of the lognormal, before the cut, by its formula; never below half the mean."""
    delay = Delay(mean_s, mean_s * ratio)
    assert delay.at(1.6448536269514722) == pytest.approx(mean_s * ratio, rel=1e-9)
    median = delay.at(0.0)
    assert median * np.exp(delay.sigma**2 / 2.0) == pytest.approx(mean_s, rel=1e-9) or median == delay.shortest_s
    assert delay.shortest_s <= delay.at(-9.0) <= median
    assert Delay(100.0, 300.0).at(-9.0) == 50.0
    assert delay.shortest_s == (mean_s if ratio == 1.0 else 0.5 * mean_s)


@pytest.mark.parametrize("p95", [99.0, 381.0, float("nan"), float("inf")])
def test_a_delay_that_no_lognormal_has_is_bad_input(p95: float) -> None:
    with pytest.raises(BadInput, match="p95"):
        Delay(100.0, p95)


def test_a_function_bills_started_steps() -> None:
    """300 ms are three steps of 100 ms, not four through binary rounding; 301 ms are four."""
    function = FUNCTION
    fee = 0.2 / 1e6
    assert function.usd_per_request(0.3) == pytest.approx(0.3e-5 + fee)
    assert function.usd_per_request(0.1 + 0.2) == pytest.approx(0.3e-5 + fee)
    assert function.usd_per_request(0.301) == pytest.approx(0.4e-5 + fee)


def test_a_profile_is_linear_between_rows_and_ends_above() -> None:
    profile = Profile("m", "i", (ProfileRow(2, 100.0), ProfileRow(6, 300.0)))
    assert [profile.latency_s(b) for b in (1, 2, 4, 6)] == pytest.approx([0.1, 0.1, 0.2, 0.3])
    with pytest.raises(BadInput, match="largest"):
        profile.latency_s(7)


def test_a_forecast_on_long_steps_repeats_them_by_the_minute() -> None:
    """Three steps of five minutes, the k-th holding k, are fifteen minutes of 0 0 0 0 0 1 1 1 1 1 2 2 2 2 2."""
    rates = np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    by_minute = Forecast(0.0, 300.0, np.array([0.25, 0.75]), rates, rates, "k").by_minute()
    assert (by_minute.step_s, by_minute.steps) == (60.0, 15)
    assert by_minute.mean_at(0.25).tolist() == [0.0] * 5 + [1.0] * 5 + [2.0] * 5
    assert by_minute.mean_at(0.5).tolist() == [0.5] * 5 + [1.5] * 5 + [2.5] * 5
    assert by_minute.mean_at(0.99).tolist() == by_minute.mean_at(0.75).tolist()


@pytest.mark.parametrize("rates", [[[2.0], [1.0]], [[-1.0], [1.0]], [[float("nan")], [1.0]]])
def test_quantiles_that_cross_or_are_no_rates_are_refused(rates: list[list[float]]) -> None:
    table = np.array(rates)
    with pytest.raises(BadInput, match="quantiles"):
        Forecast(0.0, 60.0, np.array([0.1, 0.9]), table, table, "bad")


def test_a_bill_is_the_sum_of_its_parts() -> None:
    bill = Bill(1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    assert bill.total == 63.0
    assert bill.as_json()["total"] == 63.0
    for attainment in (0.0, 1.0, 98.0):
        with pytest.raises(BadInput, match="SL_min"):
            Slo(0.6, attainment)


FUNCTION = FunctionOffer(1024, 1e-5, 0.2, 100.0, 1000, 1000.0, 300.0)
BOOT, CREDITS = Delay(180.0, 300.0), BurstCredits(0.2, 24.0, 576.0, 60.0)
RATES = np.ones(2)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Delay(-1.0, 1.0), "boot_mean_s"),
    (lambda: BurstCredits(0.0, 24.0, 576.0, 60.0), "baseline"),
    (lambda: BurstCredits(0.2, -1.0, 576.0, 60.0), "credits must not be negative"),
    (lambda: Offer("c5.large", Market.ON_DEMAND, 0.0, BOOT), "price"),
    (lambda: Offer("t2.medium", Market.BURSTABLE, 0.1, BOOT), "credit columns"),
    (lambda: Offer("lambda:1024", Market.FUNCTION, 0.1, BOOT), "no instance offer"),
    (lambda: Offer("c5.large", Market.SPOT, 0.1, BOOT, interruptions_per_hour=-1.0), "rate must not be negative"),
    (lambda: Catalog("c", (Offer("c5.large", Market.SPOT, 0.1, BOOT),) * 2, ()), "twice"),
    (lambda: Catalog("c", (), ()).function("lambda:1024"), "no such function"),
    (lambda: Catalog("c", (), (), any_function=FUNCTION).function("lambda:127"), "128 to 1024 MB"),
    (lambda: ProfileRow(0, 1.0), "batch"),
    (lambda: ProfileRow(1, 0.0), "above zero"),
    (lambda: ProfileRow(1, 1e10), "between"),
    (lambda: ProfileRow(1, 2.0, p99_ms=1.0), "p99"),
    (lambda: ProfileRow(1, 1.0, workers=0), "workers"),
    (lambda: ProfileRow(1, 1.0, overhead_ms=-1.0), "overhead"),
    (lambda: Profile("m", "i", ()), "ascend"),
    (lambda: Profile("m", "i", (ProfileRow(1, 1.0), ProfileRow(2, 1.0, workers=2))), "share one number"),
    (lambda: Slo(0.0, 0.98), "RT_max"),
    (lambda: Load(0.0, 60.0, RATES, np.ones(3)), "differ in length"),
    (lambda: Forecast(0.0, 60.0, np.array([0.5]), np.ones((1, 2)), np.ones((1, 3)), "bad"), "shapes differ"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_values_that_cannot_be_are_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_offers_and_functions_are_named_and_priced_by_the_second() -> None:
    """An offer with a zone has it in its name; any memory size of a plain `lambda` is priced by its size."""
    offer = Offer("t2.medium", Market.BURSTABLE, 3.6, BOOT, zone="a", credits=CREDITS)
    assert (offer.name, offer.usd_per_s) == ("t2.medium/burstable/a", pytest.approx(0.001))
    catalog = Catalog("c", (offer,), (), any_function=FUNCTION)
    half = catalog.function("lambda:512")
    assert (half.name, half.usd_per_s) == ("lambda:512", pytest.approx(FUNCTION.usd_per_s / 2.0))
    assert catalog.spot_zones == ()
