"""M/D/c: how long requests wait for c servers with a constant service time, and which rates keep the wait short.

Arrivals are Poisson, at rate lambda; a service takes D; a = lambda D is the offered load, rho = a / c. The mean wait is
Crommelin's (1932), the law of the wait Franx's (2001, "A simple solution for the M/D/c waiting time distribution"). The
queue L seen every D seconds follows L' = max(L - c, 0) + Poisson(a) - Crommelin's starting point - and has the
generating function

    L(z) = (c - a) (z - 1) / (z^c - exp(a (z - 1))) prod over k = 1..c-1 of (z - z_k) / (1 - z_k),

with z_k the roots of z^c = exp(a (z - 1)) inside the unit circle: z_k = -W(-rho exp(-rho + 2 pi i k / c)) / rho, W
being Lambert's function, so no search is needed. The one real root tau > 1 is the pole that is nearest: beyond some
services the queue is geometric, P(L > j) ~ tau^-j, and the difference dies out so quickly that a short Fourier
transform covers it, however close to saturation.

All values are scalar: seconds, requests/s, shares from 0 to 1. Every function raises BadInput for a number of servers
below one, a service time or a share out of range, and a negative or infinite rate or wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput

_MOST_TERMS = 1_000  # of Crommelin's series; beyond it, the wait is long and the roots are exact enough
_HALVINGS = 48  # rates are exact to 4e-15 of saturation
_NODES = tuple(0.5 * (side + 1.0 - k) for k, side in enumerate(np.polynomial.legendre.leggauss(48)))  # of 0 to 1


def mean_wait_s(arrivals_rps: float, service_s: float, servers: int) -> float:
    """Return the mean time that a request waits before its service; infinite from saturation on.

    Crommelin's series, W / D = sum over i >= 1 of P(X_i >= ic) - P(X_i > ic) / rho with X_i ~ Poisson(ia), is used
    while it converges quickly: it is exact to many digits where waits are rare. Near saturation, from the roots z_k,
    E[L] = a / (2 (c - a)) - a / 2 - (c - 1) / 2 + sum of 1 / (1 - z_k), and W = E[L] / lambda.
    """
    _check(servers, service_s, rate=arrivals_rps)
    return service_s * _mean_wait(arrivals_rps * service_s / servers, servers)


def share_waiting_at_most(wait_s: float, arrivals_rps: float, service_s: float, servers: int) -> float:
    """Return P(wait <= `wait_s`): the share of requests whose service begins so soon; 0 from saturation on."""
    _check(servers, service_s, rate=arrivals_rps, wait=wait_s)
    return _share_waiting_at_most(wait_s / service_s, arrivals_rps * service_s / servers, servers)


@lru_cache(maxsize=1024)
def rate_of_mean_wait(wait_s: float, service_s: float, servers: int) -> float:
    """Return sup { lambda : mean wait <= `wait_s` } in requests/s; 0 if no wait is allowed."""
    _check(servers, service_s, wait=wait_s)
    if wait_s == 0.0:
        return 0.0
    services = wait_s / service_s
    return servers / service_s * _highest_load(lambda load: _mean_wait(load, servers) <= services)


@lru_cache(maxsize=1024)
def rate_of_wait_within(wait_s: float, share: float, service_s: float, servers: int) -> float:
    """Return sup { lambda : P(wait <= `wait_s`) >= `share` } in requests/s; `share` lies between 0 and 1."""
    _check(servers, service_s, wait=wait_s)
    if not 0.0 < share < 1.0:
        raise BadInput("must lie between 0 and 1", "share", share)
    services = wait_s / service_s
    return servers / service_s * _highest_load(lambda load: _share_waiting_at_most(services, load, servers) >= share)


def _highest_load(kept: Callable[[float], bool]) -> float:
    """Return the highest load of [0, 1) at which `kept` holds, given that it holds at every lower load."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def _mean_wait(load: float, servers: int) -> float:
    """Return the mean wait in services."""
    if load <= 0.0:
        return 0.0
    if load >= 1.0:
        return math.inf
    # The terms shrink by exp(-c (rho - 1 - ln rho)) each.
    terms = math.ceil(40.0 / (servers * (load - 1.0 - math.log(load))))
    if terms <= _MOST_TERMS:
        starts = servers * np.arange(1, terms + 1, dtype=np.float64)
        return float(_poisson(starts, load * starts) @ (_delay(load, starts) / starts))
    offered = servers * load
    queue = offered / (2.0 * (servers - offered)) - 0.5 * offered - 0.5 * (servers - 1)
    queue += float((1.0 / (1.0 - _inner_roots(load, servers))).sum().real)
    return queue / offered


def _share_waiting_at_most(services: float, load: float, servers: int) -> float:
    """Return the share of requests that wait at most so many services.

    Franx: with t = kD - u, 0 < u <= D, the requests queued u before an arrival and those that came since must fit into
    the kc starts of the k services that end at t.
    """
    if load <= 0.0:
        return 1.0
    if load >= 1.0:
        return 0.0
    k = math.floor(services) + 1
    since = load * servers * (k - services)
    came = np.arange(min(k * servers, math.ceil(since + 12.0 * math.sqrt(since) + 60.0)), dtype=np.float64)
    chance = _poisson(came, since)
    fits = 1.0 - _queue_law(load, servers).longer_than(k * servers - 1 - came)
    return min(1.0, float(chance @ fits))


@dataclass(frozen=True, slots=True)
class _QueueLaw:
    """P(L > j) = scale exp(-decay j), plus `rest[j]` for the first j."""

    scale: float
    decay: float
    rest: FloatArray

    def longer_than(self, queued: FloatArray) -> FloatArray:
        short = queued < len(self.rest)
        rest = self.rest[np.where(short, queued, 0.0).astype(np.int64)]
        return np.asarray(self.scale * np.exp(-self.decay * queued) + np.where(short, rest, 0.0))


@lru_cache(maxsize=64)
def _queue_law(load: float, servers: int) -> _QueueLaw:
    """Return the law of the queue from the generating function without its pole at tau, by a Fourier transform.

    The next poles lie at least 1 + sqrt(2 pi / c) from 0, so that the coefficients end after some 15 sqrt(c).
    """
    above = _tau_less_one(load)  # tau - 1
    inner = _inner_roots(load, servers)
    offered = servers * load
    # With tau^c = exp(a (tau - 1)) the denominator's slope at tau is tau^c (c / tau - a); tau^c may overflow.
    product = math.exp(float(np.log((1.0 + above - inner) / (1.0 - inner)).sum().real) - offered * above)
    residue = (servers - offered) * above * product / (servers / (1.0 + above) - offered)
    points = 2 ** math.ceil(math.log2(64.0 + 32.0 * math.sqrt(servers)))
    z = np.exp(2j * np.pi * np.arange(1, points) / points)
    whole = np.ones(points, dtype=np.complex128)  # at z = 1
    ratio = np.prod((z[:, None] - inner) / (1.0 - inner), axis=1)
    whole[1:] = (servers - offered) * (z - 1.0) / (z**servers - np.exp(offered * (z - 1.0))) * ratio
    z = np.concatenate([[1.0], z])
    rest = np.fft.fft(whole - residue / (z - 1.0 - above)).real / points
    decay = math.log1p(above)
    # The share at every j is -residue tau^-(j+1): the shares beyond j add up to the first of them over tau - 1.
    return _QueueLaw(-residue / (above * (1.0 + above)), decay, np.cumsum(rest[::-1])[::-1] - rest)


def _inner_roots(load: float, servers: int) -> NDArray[np.complex128]:
    """Return the roots of z^c = exp(a (z - 1)) inside the unit circle, without z = 1; shape (c - 1,)."""
    turns = np.exp(2j * np.pi * np.arange(1, servers) / servers)
    return -_lambert(-load * math.exp(-load) * turns) / load


def _lambert(z: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the principal branch of Lambert's function, w exp(w) = z, for |z| <= 1/e.

    By Halley's method, from the series about z = -1/e.
    """
    p = np.sqrt(2.0 * (math.e * z + 1.0))
    w = np.asarray(p * (1.0 + p * (-1.0 / 3.0 + p * (11.0 / 72.0))) - 1.0, dtype=np.complex128)
    for _ in range(20):
        off = w - z * np.exp(-w)
        step = off / (w + 1.0 - (w + 2.0) * off / (2.0 * w + 2.0))
        w = np.asarray(w - step, dtype=np.complex128)
        if not (np.abs(step) > 1e-15 * np.abs(w)).any():
            break
    return w


def _poisson(number: FloatArray, mean: FloatArray | float) -> FloatArray:
    """Return P(X = `number`) with X ~ Poisson(`mean`)."""
    log_factorial = np.array([math.lgamma(n + 1.0) for n in number.tolist()])
    log_mean = np.log(np.maximum(mean, 1e-300))  # with a mean of 0 only X = 0 has a chance
    return np.asarray(np.exp(number * log_mean - mean - log_factorial))


def _delay(load: float, starts: FloatArray) -> FloatArray:
    """Return the integral of y (1 - y / n)^(n - 1) exp(rho y) from 0 to n, for each n of `starts`.

    P(X >= n) - P(X > n) / rho is P(X = n) / n times as much for X ~ Poisson(rho n). No nearly equal numbers are
    subtracted.
    """
    free = 1.0 - load
    # Beyond `last` the integrand has fallen below exp(-40) of its scale: ln(1 - u) <= -u - u^2 / 2.
    last = np.minimum(starts, starts * (np.sqrt(free * free + 80.0 / starts) - free))
    at, weight = _NODES
    y = last[:, None] * at
    n = starts[:, None]
    return np.asarray(last * ((y * np.exp((n - 1.0) * np.log1p(-y / n) + load * y)) @ weight))


def _tau_less_one(load: float) -> float:
    """Return x > 0 with ln(1 + x) = rho x, by Newton from 1 / rho^2 - 1, which lies above it: the steps only go
    down.
    """
    x = (1.0 - load) * (1.0 + load) / load**2
    for _ in range(100):
        step = (math.log1p(x) - load * x) / (1.0 / (1.0 + x) - load)
        if not step > 1e-15 * x:
            break
        x -= step
    return x


def _check(servers: int, service_s: float, rate: float = 0.0, wait: float = 0.0) -> None:
    if servers < 1:
        raise BadInput("must be at least one", "servers", servers)
    if not 0.0 < service_s < math.inf:
        raise BadInput("must be a number above zero", "service_s", service_s)
    for where, value in (("arrivals_rps", rate), ("wait_s", wait)):
        if not 0.0 <= value < math.inf:
            raise BadInput("must be a number of at least zero", where, value)
