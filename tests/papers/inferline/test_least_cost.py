"""The bound of a load that is followed."""

from __future__ import annotations

import numpy as np
import pytest
from mark_papers.inferline.least_cost import following_bound
from mark_papers.inferline.pipelines import PIPELINES, functions_of
from mark_papers.inferline.workloads import ChangingLoad

from mark.domain.slo import Slo
from mark.planning.graphs.estimate import QuerySample

SLO = Slo(0.5, 0.99)  # prices are sought to about a thousandth
PIPELINE, _ = PIPELINES["cascade"]


def steady(spike: float) -> ChangingLoad:
    """Return two minutes at 20 queries/s, with `spike` times the rate for half a minute.

    Plans know the half minute before.
    """
    arrivals_s = np.concatenate([np.arange(0.0, 150.0, 0.05), np.arange(90.0, 120.0, 0.05 / (spike - 1.0 + 1e-9))])
    arrivals_s.sort()
    calls = np.ones((len(arrivals_s), 2), dtype=np.int64)
    return ChangingLoad("steady", QuerySample(arrivals_s, calls), 30.0, 150.0)


def usd(load: ChangingLoad, activation_s: float, *, functions: bool = False) -> float:
    uses = functions_of(PIPELINE, SLO) if functions else [None, None]
    found = following_bound(PIPELINE, load, SLO, uses, activation_s)
    assert found.usd is not None
    return found.usd


def test_launches_are_dearer_the_longer_they_take() -> None:
    """Steady traffic needs no launches. For a spike instances are launched, or run from the start."""
    calm, spiky = steady(1.0), steady(10.0)
    assert usd(calm, 5.0) == pytest.approx(usd(calm, 180.0), rel=1e-3)
    assert usd(calm, 5.0) < usd(spiky, 5.0) < usd(spiky, 90.0)


def test_functions_are_never_to_its_disadvantage() -> None:
    spiky = steady(10.0)
    assert usd(spiky, 180.0, functions=True) <= usd(spiky, 180.0) * (1.0 + 1e-3)
