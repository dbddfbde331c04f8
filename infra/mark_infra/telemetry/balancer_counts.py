"""Requests that no bouncer saw, as the load balancers of a site count them: CloudWatch's minutes, read once a minute.

A balancer answers 5xx itself where no instance is ready or a connection breaks, rejects connections at its limit, and
hands requests to a function's target group while no instance is ready. All three are arrivals that no bouncer counts.
What a function fails at counts twice there: among its group's requests, and as a 5xx of the balancer, which answers for
it. It is told once, as lost.

CloudWatch has a minute one to three minutes after it ended. What is news of it is told evenly over the minute that
follows, so that it is neither a burst nor lost. A balancer's own counts name no service: `blamed` says whose they are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mark.domain.errors import CloudError

_LOG = logging.getLogger(__name__)

PERIOD_S = 60.0
_NAMESPACE = "AWS/ApplicationELB"
_LOST = ("HTTPCode_ELB_5XX_Count", "RejectedConnectionCount")  # of a balancer; a rejected connection has one request
_REQUESTS = "RequestCount"  # of a target group
_FAILED = ("LambdaUserError", "LambdaInternalError")  # of a function's target group: the balancer answers 502
_BACK = 5  # minutes that are asked for: the newest come late, and grow

_Metric = tuple[str, str, tuple[tuple[str, str], ...]]  # namespace, name, dimensions
# What CloudWatch counted of metrics from one Unix second to another: metric, begin of the minute, sum. Minutes without
# a datapoint lack. Raises CloudError.
MinuteSums = Callable[[Sequence[_Metric], float, float], Iterable[tuple[_Metric, float, float]]]


class UnseenRequests(NamedTuple):
    """Counted since the process began."""

    lost: float = 0.0  # answered by the balancer with an error, or not at all
    by_function: float = 0.0  # answered by the function

    def plus(self, more: UnseenRequests, share: float = 1.0) -> UnseenRequests:
        return UnseenRequests(self.lost + share * more.lost, self.by_function + share * more.by_function)


@dataclass(frozen=True, slots=True)
class BehindBalancer:
    """A service as CloudWatch names what it is behind: `app/NAME/ID`, and `targetgroup/NAME/ID` of its function."""

    balancer: str
    function_group: str | None = None


@dataclass(frozen=True, slots=True)
class ServingNow:
    """Whether an instance of a service is ready, and the last rate of it that is known."""

    ready: bool
    rps: float | None = None


def behind_balancer(rules: Sequence[str], function_group: str | None) -> BehindBalancer | None:
    """By ARNs: of the service's listener rules, all on one balancer, and of its function's target group.

    None for a service that no rule leads to.
    """
    if not rules:
        return None
    # ...:listener-rule/app/NAME/BALANCER/LISTENER/RULE and ...:targetgroup/NAME/ID
    balancer = "/".join(rules[0].rpartition(":")[2].split("/")[1:4])
    return BehindBalancer(balancer, None if function_group is None else function_group.rpartition(":")[2])


def blamed(serving: Mapping[str, ServingNow]) -> dict[str, float]:
    """The share of each service in what its balancer lost: of those without a ready instance, where there is one.

    In proportion to their rates, and evenly where none is known.
    """
    absent = {name: now for name, now in serving.items() if not now.ready} or dict(serving)
    rates = {name: now.rps or 0.0 for name, now in absent.items()}
    total = sum(rates.values())
    return {name: rate / total if total > 0.0 else 1.0 / len(rates) for name, rate in rates.items()}


@dataclass(slots=True)
class _Told:
    """What is told of one service: all that is over, and what is told in the course of a minute."""

    over: UnseenRequests = field(default_factory=UnseenRequests)
    coming: list[tuple[float, UnseenRequests]] = field(default_factory=list)  # since when

    def so_far(self, now_unix_s: float) -> UnseenRequests:
        while self.coming and now_unix_s - self.coming[0][0] >= PERIOD_S:
            self.over = self.over.plus(self.coming.pop(0)[1])
        found = self.over
        for since_s, more in self.coming:
            found = found.plus(more, min(1.0, max(0.0, (now_unix_s - since_s) / PERIOD_S)))
        return found


class BalancerCounts:
    """Asks CloudWatch by `sums` in a thread of its own; `so_far` never waits for it. Thread-safe.

    `services` by name; `serving` says of all of them how they are now. Minutes that began before this process were
    another's to count.
    """

    def __init__(
        self,
        sums: MinuteSums,
        services: Mapping[str, BehindBalancer],
        serving: Callable[[], Mapping[str, ServingNow]],
        *,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        self._sums, self._services, self._serving, self._unix_s = sums, dict(services), serving, unix_s
        self._first_s = -(-unix_s() // PERIOD_S) * PERIOD_S
        self._seen: dict[tuple[_Metric, float], float] = {}  # by metric and minute
        self._told = {name: _Told() for name in services}
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balancer-counts", daemon=True)

    def start(self) -> None:
        """Ask once a minute; not at all where no service is behind a balancer."""
        if self._services:
            self._thread.start()

    def close(self) -> None:
        """Returns when nothing is asked any more."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def services(self) -> tuple[str, ...]:
        """Those behind a balancer."""
        return tuple(self._services)

    def so_far(self, service: str) -> UnseenRequests:
        """All that was told by now; never less than before. Nothing for a service behind no balancer."""
        with self._lock:
            told = self._told.get(service)
            return UnseenRequests() if told is None else told.so_far(self._unix_s())

    def step(self) -> None:
        """Ask for the last minutes. Raises CloudError; what was not heard then is heard the next time."""
        now_s = self._unix_s()
        end_s = now_s // PERIOD_S * PERIOD_S
        start_s = max(self._first_s, end_s - _BACK * PERIOD_S)
        if start_s >= end_s:
            return
        found = list(self._sums(list(self._metrics()), start_s, end_s))
        # Each metric that is asked for costs: of functions that had nothing to do there is nothing to know.
        busy = {metric for metric, _, value in found if value > 0.0}
        asked = [_of_function(name, there) for there in self._answering(busy) for name in _FAILED]
        found += list(self._sums(asked, start_s, end_s)) if asked else []
        news: dict[_Metric, float] = {}
        for metric, at_s, value in found:
            if (more := value - self._seen.get((metric, at_s), 0.0)) > 0.0:
                news[metric] = news.get(metric, 0.0) + more
                self._seen[metric, at_s] = value
        self._seen = {key: value for key, value in self._seen.items() if key[1] >= start_s - PERIOD_S}
        if not news:
            return
        serving = self._serving()
        with self._lock:
            for name, news_of in self._of_services(news, serving).items():
                self._told[name].coming.append((now_s, news_of))

    def _metrics(self) -> dict[_Metric, None]:
        lost = [_lost(name, there.balancer) for there in self._services.values() for name in _LOST]
        by_function = [_of_function(_REQUESTS, one) for one in self._services.values() if one.function_group]
        return dict.fromkeys([*lost, *by_function])

    def _answering(self, busy: Collection[_Metric]) -> list[BehindBalancer]:
        """Services whose function's group had requests."""
        return [one for one in self._services.values() if one.function_group and _of_function(_REQUESTS, one) in busy]

    def _of_services(
        self, news: Mapping[_Metric, float], serving: Mapping[str, ServingNow]
    ) -> dict[str, UnseenRequests]:
        of_functions = {name: _of_one_function(news, there) for name, there in self._services.items()}
        found = {name: one for name, one in of_functions.items() if any(one)}
        for balancer in {there.balancer for there in self._services.values()}:
            here = [name for name, there in self._services.items() if there.balancer == balancer]
            # Whose function failed is known. Some failures are no 5xx (413): so it may be more than there were.
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
