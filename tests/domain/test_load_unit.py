"""The unit of a load."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import lognorm

from mark.domain.errors import BadInput
from mark.domain.load_unit import REQUESTS, LoadUnit, UnitSizes, checked_unit


def with_cv(cv: float) -> UnitSizes:
    """Return sizes with mean 400: one request in 1 + cv^2 has all of them."""
    others = 1_000_000
    large = round(others / (1.0 + cv**2))
    return UnitSizes(np.repeat([400.0 * others / large, 0.0], [large, others - large]))


@pytest.mark.parametrize("cv", [0.1, 0.7, 1.3, 5.0])
def test_tail_of_sizes_is_the_p99_over_the_mean_of_a_lognormal(cv: float) -> None:
    sigma = math.sqrt(math.log1p(cv**2))
    law = lognorm(sigma, scale=math.exp(-(sigma**2) / 2.0))
    assert law.std() == pytest.approx(cv)
    assert (with_cv(cv).mean, with_cv(cv).cv) == (pytest.approx(400.0), pytest.approx(cv, rel=1e-3))
    assert with_cv(cv).tail == pytest.approx(law.ppf(0.99), rel=1e-3)


def test_tail_of_sizes_never_exceeds_what_a_lognormal_can_have() -> None:
    assert with_cv(1e3).tail == pytest.approx(14.968, abs=1e-3)


def test_rate_is_printed_in_the_unit() -> None:
    assert REQUESTS.per_s(22.4, ".0f") == "22 requests/s"
    assert LoadUnit("tokens", 500.0).per_s(2.5, ".1f") == "1250.0 tokens/s"
    assert (REQUESTS.named, LoadUnit("tokens", 500.0).named) == ("", "tokens")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("tokens/s", 1.0, "unit: must be a word of at most 31 letters, digits, - and _: tokens/s"),
        ("a" * 32, 1.0, "unit: must be a word"),
        ("tokens", 0.0, "unit_size: must be above zero and at most 1e"),
        ("tokens", math.nan, "unit_size: must be above zero"),
        ("tokens", 1e13, "unit_size: must be above zero"),
    ],
)
def test_unit_that_cannot_be_is_refused(name: str, size: float, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        checked_unit(name, size, "")
