"""M/D/c against closed forms, against the stationary law by matrices, and at its limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mark_papers.queueing import (
    mean_wait_s,
    rate_of_mean_wait,
    rate_of_wait_within,
    share_waiting_at_most,
)

from mark.domain.errors import BadInput
from tests.kernel.test_queueing import SERVICE_S, md_c_wait_at_most, number_in_system, workload_sum

LOADS = st.floats(0.01, 0.995)


@pytest.mark.parametrize("load", [1e-9, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0 - 1e-9])
def test_one_server_is_pollaczek_khinchine(load: float) -> None:
    assert mean_wait_s(load / 3.0, 3.0, 1) == pytest.approx(3.0 * load / (2.0 * (1.0 - load)), rel=1e-7)


@pytest.mark.parametrize(
    ("servers", "load"), [(1, 0.3), (2, 0.5), (5, 0.8), (5, 0.95), (16, 0.9), (36, 0.8), (36, 0.95)]
)
def test_waits_are_those_of_the_stationary_law(servers: int, load: float) -> None:
    """tests/kernel finds that law by linear equations, without roots, series or transforms."""
    law = number_in_system(servers, load)
    rate = load * servers / SERVICE_S
    queue = float(np.maximum(np.arange(len(law)) - servers, 0) @ law)
    assert mean_wait_s(rate, SERVICE_S, servers) == pytest.approx(queue / rate, rel=1e-7)
    for services in (0.0, 0.4, 1.0, 1.3):
        expected = md_c_wait_at_most(services * SERVICE_S, servers, load, law)
        found = share_waiting_at_most(services * SERVICE_S, rate, SERVICE_S, servers)
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("load", [0.2, 0.7, 0.9])
def test_one_servers_law_is_erlangs(load: float) -> None:
    for time_s in (0.05, 0.25, 0.5):
        expected = (1.0 - load) * workload_sum(time_s, load / SERVICE_S)
        assert share_waiting_at_most(time_s, load / SERVICE_S, SERVICE_S, 1) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("servers", [1, 4, 36])
def test_the_mean_is_the_integral_of_the_tail(servers: int) -> None:
    """The two computations share no step after the roots."""
    load = 0.9
    rate = load * servers / SERVICE_S
    edges = np.linspace(0.0, 12.0 * SERVICE_S, 2401)
    late = [1.0 - share_waiting_at_most(t, rate, SERVICE_S, servers) for t in (0.5 * (edges[1:] + edges[:-1])).tolist()]
    rest = late[-1] / (1.0 - late[-1] / late[-201]) * SERVICE_S if servers == 1 else 0.0
    assert sum(late) * (edges[1] - edges[0]) == pytest.approx(mean_wait_s(rate, SERVICE_S, servers), rel=2e-3, abs=rest)


@settings(max_examples=40)
@given(load=LOADS, servers=st.integers(1, 36), services=st.floats(0.0, 5.0))
def test_waits_grow_with_load_and_fall_with_servers(load: float, servers: int, services: float) -> None:
    more = load + 0.5 * (1.0 - load)
    assert mean_wait_s(load * servers, 1.0, servers) < mean_wait_s(more * servers, 1.0, servers)
    assert mean_wait_s(load * (servers + 1), 1.0, servers + 1) < mean_wait_s(load * servers, 1.0, servers)
    share = share_waiting_at_most(services, load * servers, 1.0, servers)
    assert 0.0 <= share_waiting_at_most(services, more * servers, 1.0, servers) <= share + 1e-9 <= 1.0 + 1e-9
    assert share_waiting_at_most(services + 0.3, load * servers, 1.0, servers) >= share - 1e-9


@settings(max_examples=40)
@given(wait=st.floats(0.01, 50.0), servers=st.integers(1, 36), service_s=st.sampled_from([1e-9, 1e-3, 1.0, 1e6]))
def test_rates_are_where_the_wait_reaches_its_limit(wait: float, servers: int, service_s: float) -> None:
    rate = rate_of_mean_wait(wait * service_s, service_s, servers)
    assert mean_wait_s(rate, service_s, servers) == pytest.approx(wait * service_s, rel=1e-6)
    rate = rate_of_wait_within(wait * service_s, 0.98, service_s, servers)
    assert share_waiting_at_most(wait * service_s, rate, service_s, servers) == pytest.approx(0.98, abs=1e-6)


@pytest.mark.parametrize("servers", [1, 36])
def test_close_to_saturation_waits_are_those_of_heavy_traffic(servers: int) -> None:
    """W -> D / (2 c (1 - rho)), exponential: Kingman's limit, from 1e-4 to 1e-9 of saturation."""
    for left in (1e-4, 1e-7, 1e-9):
        mean = mean_wait_s((1.0 - left) * servers, 1.0, servers)
        assert mean == pytest.approx(1.0 / (2.0 * servers * left), rel=1e-2)
        late = 1.0 - share_waiting_at_most(3.0 * mean, (1.0 - left) * servers, 1.0, servers)
        assert late == pytest.approx(math.exp(-3.0), rel=1e-2)


@pytest.mark.parametrize("servers", [1, 7, 1024])
def test_light_loads_and_saturation_are_the_ends(servers: int) -> None:
    assert mean_wait_s(0.0, 1.0, servers) == 0.0
    assert share_waiting_at_most(0.0, 0.0, 1.0, servers) == 1.0
    assert 0.0 <= mean_wait_s(0.1 * servers, 1.0, servers) < 0.1
    assert share_waiting_at_most(0.0, 0.1 * servers, 1.0, servers) == pytest.approx(1.0, abs=0.1)
    for rate in (servers, 2.0 * servers):
        assert mean_wait_s(rate, 1.0, servers) == math.inf
        assert share_waiting_at_most(9.0, rate, 1.0, servers) == 0.0


def test_without_wait_the_mean_allows_no_rate_a_share_some() -> None:
    """P(wait = 0) is 1 - rho with one server."""
    assert rate_of_mean_wait(0.0, 0.5, 4) == pytest.approx(0.0, abs=1e-6)
    assert rate_of_wait_within(0.0, 0.98, 0.5, 1) == pytest.approx(0.04)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mean_wait_s(1.0, 0.0, 1),
        lambda: mean_wait_s(1.0, 1.0, 0),
        lambda: mean_wait_s(-1.0, 1.0, 1),
        lambda: share_waiting_at_most(math.nan, 1.0, 1.0, 1),
        lambda: rate_of_mean_wait(math.inf, 1.0, 1),
        lambda: rate_of_wait_within(1.0, 1.0, 1.0, 1),
    ],
)
def test_what_is_out_of_range_is_bad_input(call: Callable[[], float]) -> None:
    with pytest.raises(BadInput):
        call()
