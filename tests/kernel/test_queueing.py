"""The kernel against queueing theory: closed forms within 2 %, from fixed seeds.

Loads and lengths are such that the error of chance is well below that: at most 0.8 % was seen.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from mark.kernel.accounting import Accounting
from mark.kernel.stage import Admission, StageSimulation
from tests.kernel.reference import candidate

Floats = NDArray[np.float64]

SERVICE_S = 0.1
REQUESTS = 3_000_000
WITHIN = 0.02


def simulate(
    load: float, *, replicas: int = 1, workers: int = 1, sigma: float = 0.0, rt_max_s: float | None = None
) -> tuple[Floats, StageSimulation]:
    """Return the latencies (s) of all requests, infinite if refused; with `rt_max_s` there are bouncers."""
    rate = load * replicas * workers / SERVICE_S
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, REQUESTS))
    stage = StageSimulation(
        [candidate([SERVICE_S], workers=workers, sigma=sigma)],
        accounts=Accounting(rt_max_s=10.0 if rt_max_s is None else rt_max_s, end_s=float(arrivals[-1]) + 1.0),
        admission=Admission(bouncers=rt_max_s is not None),
        seed=1,
        keep=True,
    )
    for number in range(replicas):
        stage.add(number, 0, 0.0)
    assert stage.advance(arrivals, 0, np.inf) == REQUESTS
    stage.finish()
    return stage.recording().finish_s - arrivals, stage


def waits(load: float, *, replicas: int = 1, workers: int = 1, sigma: float = 0.0) -> Floats:
    """Return the waiting times (s) if everything is accepted."""
    latencies, stage = simulate(load, replicas=replicas, workers=workers, sigma=sigma)
    if sigma == 0.0:
        return latencies - SERVICE_S
    recording = stage.recording()
    return recording.start_s - (recording.finish_s - latencies)


def erlang_b(servers: int, offered: float) -> float:
    """Return the share lost with `servers` servers and no queue (Erlang 1917), by the usual recursion."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """Return the share that has to wait in M/M/c."""
    blocked = erlang_b(servers, offered)
    return servers * blocked / (servers - offered * (1.0 - blocked))


def workload_sum(time_s: float, rate: float) -> float:
    """Return the sum over j of (-rate (t - jD))^j / j! exp(rate (t - jD)) for jD <= t.

    (1 - load) times this is the law of M/D/1's wait (Erlang 1909). It also solves the balance of level crossings below
    a limit on the wait, for any load.
    """
    total = 0.0
    for j in range(int(time_s / SERVICE_S + 1e-9) + 1):
        x = rate * (time_s - j * SERVICE_S)
        total += (-x) ** j / math.factorial(j) * math.exp(x)
    return total


def number_in_system(servers: int, load: float) -> Floats:
    """Return the stationary law of the number of requests in M/D/c.

    Requests in service leave within one service time (Crommelin 1932): N' = max(N - c, 0) + Poisson(rate x D).
    """
    size = servers + math.ceil(30.0 / (1.0 - load))
    mean = load * servers
    arriving = np.exp(np.cumsum(np.log(np.concatenate([[1.0], mean / np.arange(1, 2 * size)]))) - mean)
    step = np.zeros((size, size))
    for n in range(size):
        left = max(n - servers, 0)
        step[n, left:] = arriving[: size - left]
        step[n, -1] += 1.0 - step[n].sum()
    balance = np.vstack([step.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(balance, np.concatenate([np.zeros(size), [1.0]]), rcond=None)[0]


def md_c_wait_at_most(time_s: float, servers: int, load: float, law: Floats) -> float:
    """Return P(wait <= t) in M/D/c (Franx 2001).

    With t = kD - u, 0 < u <= D: the requests queued u before an arrival and those that came since must fit into the kc
    starts of the k service times that end at t.
    """
    k = int(time_s / SERVICE_S) + 1
    arriving = load * servers / SERVICE_S * (k * SERVICE_S - time_s)
    queued_at_most = np.cumsum(np.concatenate([[law[: servers + 1].sum()], law[servers + 1 :]]))
    return math.exp(-arriving) * sum(
        arriving**j / math.factorial(j) * queued_at_most[k * servers - 1 - j] for j in range(k * servers)
    )


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_md1_waits(load: float) -> None:
    """One worker, constant service: mean by Pollaczek-Khinchine, the law of the wait by Erlang's formula."""
    observed = waits(load)
    assert observed.mean() == pytest.approx(load * SERVICE_S / (2.0 * (1.0 - load)), rel=WITHIN)
    rate = load / SERVICE_S
    for share in (0.9, 0.98, 0.99):
        quantile = float(np.quantile(observed, share))
        # the time at which the formula reaches the share, by bisection
        low, high = 0.0, 3.0
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if (1.0 - load) * workload_sum(middle, rate) > share else (middle, high)
        assert quantile == pytest.approx(high, rel=WITHIN)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (10, 0.7)])
def test_mmc_waits(servers: int, load: float) -> None:
    """One replica with c workers is one queue with c servers: share that waits, mean and quantiles by Erlang C."""
    observed = waits(load, workers=servers, sigma=-1.0)
    waiting = erlang_c(servers, servers * load)
    drain_rate = servers * (1.0 - load) / SERVICE_S
    assert (observed > 1e-9).mean() == pytest.approx(waiting, rel=WITHIN)
    assert observed.mean() == pytest.approx(waiting / drain_rate, rel=WITHIN)
    # P(wait > t) = P(wait) exp(-drain_rate t)
    assert np.quantile(observed, 0.98) == pytest.approx(math.log(waiting / 0.02) / drain_rate, rel=WITHIN)


@pytest.mark.parametrize(("replicas", "workers"), [(5, 1), (1, 5), (3, 2)])
def test_mdc_waits(replicas: int, workers: int) -> None:
    """With constant service least expected completion is one central queue, however workers are spread."""
    load, servers = 0.8, replicas * workers
    observed = waits(load, replicas=replicas, workers=workers)
    law = number_in_system(servers, load)
    queue = float(np.maximum(np.arange(len(law)) - servers, 0) @ law)
    assert observed.mean() == pytest.approx(queue * SERVICE_S / (load * servers), rel=WITHIN)
    for time_s in (0.25 * SERVICE_S, 0.7 * SERVICE_S, 1.3 * SERVICE_S):
        late = 1.0 - md_c_wait_at_most(time_s, servers, load, law)
        assert (observed > time_s).mean() == pytest.approx(late, rel=WITHIN)


def test_mg1_lognormal_waits() -> None:
    """Lognormal service has the mean of the profile and the variance of its sigma (Pollaczek-Khinchine)."""
    load, sigma = 0.6, 0.5
    second_moment = SERVICE_S**2 * math.exp(sigma**2)
    expected = load / SERVICE_S * second_moment / (2.0 * (1.0 - load))
    observed = waits(load, sigma=sigma)
    _, stage = simulate(load, sigma=sigma)
    assert observed.mean() == pytest.approx(expected, rel=WITHIN)
    assert stage.busy_s(0) / REQUESTS == pytest.approx(SERVICE_S, rel=0.005)


def test_without_room_to_wait_the_loss_is_erlang_b() -> None:
    """RT_max = service time: no request may queue."""
    replicas, load = 6, 0.9
    _, stage = simulate(load, replicas=replicas, rt_max_s=SERVICE_S)
    assert stage.accounts.rejected / REQUESTS == pytest.approx(erlang_b(replicas, replicas * load), rel=WITHIN)


@pytest.mark.parametrize("sigma", [0.7, -1.0])
def test_a_request_behind_an_overrunning_batch_is_expected_in_time(sigma: float) -> None:
    """RT_max = service time: the loss is below Erlang's, because a batch that overruns is expected to end now."""
    replicas, load = 6, 0.9
    latencies, stage = simulate(load, replicas=replicas, sigma=sigma, rt_max_s=SERVICE_S)
    assert 0.5 < stage.accounts.rejected / REQUESTS / erlang_b(replicas, replicas * load) < 0.9
    assert stage.accounts.late > 0.1 * REQUESTS
    assert np.isfinite(latencies).sum() == REQUESTS - stage.accounts.rejected


@pytest.mark.parametrize(("load", "services"), [(0.8, 1.5), (0.95, 2.0), (1.5, 3.25)])
def test_a_bouncers_loss_is_md1_with_a_bounded_wait(load: float, services: float) -> None:
    """A bouncer on one worker takes requests that would wait at most K = RT_max - D, also when overloaded.

    Below K the level crossings balance as without a limit, so P(work <= x) = P(0) S(x), S as in `workload_sum`.
    Accepted requests keep the worker busy: load x P(0) S(K) = 1 - P(0). So the accepted share is S(K) / (1 + load x
    S(K)).
    """
    limit_s = services * SERVICE_S - SERVICE_S
    latencies, stage = simulate(load, rt_max_s=services * SERVICE_S)
    below = workload_sum(limit_s, load / SERVICE_S)
    assert stage.accounts.rejected / REQUESTS == pytest.approx(1.0 - below / (1.0 + load * below), rel=WITHIN)
    assert latencies[np.isfinite(latencies)].max() <= services * SERVICE_S + 1e-6
