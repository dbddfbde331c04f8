"""Count requests that no bouncer saw, from the load balancers' metrics in CloudWatch, read once a minute.

A balancer answers 5xx itself if no instance is ready or a connection breaks, rejects connections at its limit, and
sends requests to a function's target group while no instance is ready. No bouncer counts these arrivals. A failed call
of a function is counted twice there: as a request of the function's group and as the balancer's 5xx. It is reported
once, as lost.

CloudWatch has a minute's counts one to three minutes after the minute ended. New counts are spread evenly over the
following minute, so that they neither look like a burst nor get lost. A balancer's own counts name no service; `blamed`
divides them among the services.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mark.domain.errors import CloudError
from mark_infra.background import Background

_LOG = logging.getLogger(__name__)

PERIOD_S = 60.0
_NAMESPACE = "AWS/ApplicationELB"
_LOST = ("HTTPCode_ELB_5XX_Count", "RejectedConnectionCount")  # per balancer; a rejected connection has one request
_REQUESTS = "RequestCount"  # per target group
_FAILED = ("LambdaUserError", "LambdaInternalError")  # per function's target group; the balancer answers 502
_BACK = 5  # minutes to read again, because the newest counts arrive late and still grow

_Metric = tuple[str, str, tuple[tuple[str, str], ...]]  # namespace, name, dimensions
# Return CloudWatch's counts of metrics between two Unix seconds: metric, start of the minute, sum. Minutes without a
# datapoint are missing. Raises CloudError.
MinuteSums = Callable[[Sequence[_Metric], float, float], Iterable[tuple[_Metric, float, float]]]


class UnseenRequests(NamedTuple):
    """Requests counted since the process began."""

    lost: float = 0.0  # answered by the balancer with an error, or not at all
    by_function: float = 0.0  # answered by the function

    def plus(self, more: UnseenRequests, share: float = 1.0) -> UnseenRequests:
        return UnseenRequests(self.lost + share * more.lost, self.by_function + share * more.by_function)


@dataclass(frozen=True, slots=True)
class BehindBalancer:
    """A service's balancer (`app/NAME/ID`) and its function's `targetgroup/NAME/ID`, as CloudWatch names them."""

    balancer: str
    function_group: str | None = None


@dataclass(frozen=True, slots=True)
class ServingNow:
    """The present state of a service: whether an instance is ready, and its last known rate."""

    ready: bool
    rps: float | None = None


def behind_balancer(rules: Sequence[str], function_group: str | None) -> BehindBalancer | None:
    """Return a service's names in CloudWatch from the ARNs of its listener rules and its function's target group.

    All rules are on one balancer. None for a service without rules.
    """
    if not rules:
        return None
    # ...:listener-rule/app/NAME/BALANCER/LISTENER/RULE and ...:targetgroup/NAME/ID
    balancer = "/".join(rules[0].rpartition(":")[2].split("/")[1:4])
    return BehindBalancer(balancer, None if function_group is None else function_group.rpartition(":")[2])


def blamed(serving: Mapping[str, ServingNow]) -> dict[str, float]:
    """Return each service's share of the requests that its balancer lost.

    The services without a ready instance share them, or all services if each has one. Shares are proportional to the
    rates, or equal if no rate is known.
    """
    absent = {name: now for name, now in serving.items() if not now.ready} or dict(serving)
    rates = {name: now.rps or 0.0 for name, now in absent.items()}
    total = sum(rates.values())
    return {name: rate / total if total > 0.0 else 1.0 / len(rates) for name, rate in rates.items()}


@dataclass(slots=True)
class _Told:
    """The counts reported of one service: the complete ones, and those spread over the present minute."""

    over: UnseenRequests = field(default_factory=UnseenRequests)
    coming: list[tuple[float, UnseenRequests]] = field(default_factory=list)  # with their start times

    def so_far(self, now_unix_s: float) -> UnseenRequests:
        while self.coming and now_unix_s - self.coming[0][0] >= PERIOD_S:
            self.over = self.over.plus(self.coming.pop(0)[1])
        found = self.over
        for since_s, more in self.coming:
            found = found.plus(more, min(1.0, max(0.0, (now_unix_s - since_s) / PERIOD_S)))
        return found


class BalancerCounts(Background):
    """Reads CloudWatch through `sums` in its own thread; `so_far` never waits for it. Thread-safe.

    `services` by name; `serving` returns their present state. Minutes that began before this process are left out,
    because another process counted them.
    """

    def __init__(
        self,
        sums: MinuteSums,
        services: Mapping[str, BehindBalancer],
        serving: Callable[[], Mapping[str, ServingNow]],
        *,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(self._run, "balancer-counts")
        self._sums, self._services, self._serving, self._unix_s = sums, dict(services), serving, unix_s
        self._first_s = -(-unix_s() // PERIOD_S) * PERIOD_S
        self._seen: dict[tuple[_Metric, float], float] = {}  # by metric and minute
        self._told = {name: _Told() for name in services}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Read once a minute, if any service is behind a balancer."""
        if self._services:
            super().start()

    @property
    def services(self) -> tuple[str, ...]:
        """Return the services behind a balancer."""
        return tuple(self._services)

    def so_far(self, service: str) -> UnseenRequests:
        """Return all counts reported until now, which never decrease; zero for a service without a balancer."""
        with self._lock:
            told = self._told.get(service)
            return UnseenRequests() if told is None else told.so_far(self._unix_s())

    def step(self) -> None:
        """Read the last minutes. Raises CloudError; the next call then reads the missed counts."""
        now_s = self._unix_s()
        end_s = now_s // PERIOD_S * PERIOD_S
        start_s = max(self._first_s, end_s - _BACK * PERIOD_S)
        if start_s >= end_s:
            return
        found = list(self._sums(list(self._metrics()), start_s, end_s))
        # Each metric costs money, so read failures only of functions that had requests.
        busy = {metric for metric, _, value in found if value > 0.0}
        asked = [_of_function(name, there) for there in self._answering(busy) for name in _FAILED]
        found += list(self._sums(asked, start_s, end_s)) if asked else []
        serving = self._serving()  # before the counts are noted, because it may fail
        news: dict[_Metric, float] = {}
        for metric, at_s, value in found:
            if (more := value - self._seen.get((metric, at_s), 0.0)) > 0.0:
                news[metric] = news.get(metric, 0.0) + more
                self._seen[metric, at_s] = value
        self._seen = {key: value for key, value in self._seen.items() if key[1] >= start_s - PERIOD_S}
        if not news:
            return
        with self._lock:
            for name, news_of in self._of_services(news, serving).items():
                self._told[name].coming.append((now_s, news_of))

    def _metrics(self) -> dict[_Metric, None]:
        lost = [_lost(name, there.balancer) for there in self._services.values() for name in _LOST]
        by_function = [_of_function(_REQUESTS, one) for one in self._services.values() if one.function_group]
        return dict.fromkeys([*lost, *by_function])

    def _answering(self, busy: Collection[_Metric]) -> list[BehindBalancer]:
        """Return the services whose function's group had requests."""
        return [one for one in self._services.values() if one.function_group and _of_function(_REQUESTS, one) in busy]

    def _of_services(
        self, news: Mapping[_Metric, float], serving: Mapping[str, ServingNow]
    ) -> dict[str, UnseenRequests]:
        of_functions = {name: _of_one_function(news, there) for name, there in self._services.items()}
        found = {name: one for name, one in of_functions.items() if any(one)}
        for balancer in {there.balancer for there in self._services.values()}:
            here = [name for name, there in self._services.items() if there.balancer == balancer]
            # Requests that functions failed are already assigned. Some failures, like 413, are not 5xx, so `known` may
            # exceed the balancer's count.
            known = sum(of_functions[name].lost for name in here)
            lost = sum(news.get(_lost(name, balancer), 0.0) for name in _LOST) - known
            if lost <= 0.0:
                continue
            shares = blamed({name: serving.get(name, ServingNow(ready=False)) for name in here})
            for name, share in shares.items():
                found[name] = found.get(name, UnseenRequests()).plus(UnseenRequests(lost=lost * share))
        return found

    def _run(self) -> None:
        while not self._ends.wait(PERIOD_S):
            try:
                self.step()
            except CloudError as error:
                _LOG.warning("the load balancers' counts cannot be read: %s", error)
            except Exception:
                _LOG.exception("the load balancers' counts cannot be read")


def _lost(metric: str, balancer: str) -> _Metric:
    return _NAMESPACE, metric, (("LoadBalancer", balancer),)


def _of_function(metric: str, there: BehindBalancer) -> _Metric:
    return _NAMESPACE, metric, (("LoadBalancer", there.balancer), ("TargetGroup", there.function_group or ""))


def _of_one_function(news: Mapping[_Metric, float], there: BehindBalancer) -> UnseenRequests:
    if there.function_group is None:
        return UnseenRequests()
    handed, *failed = (news.get(_of_function(name, there), 0.0) for name in (_REQUESTS, *_FAILED))
    return UnseenRequests(lost=sum(failed), by_function=max(0.0, handed - sum(failed)))
