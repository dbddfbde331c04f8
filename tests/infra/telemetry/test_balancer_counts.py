"""Requests that a balancer counts and no bouncer does: which service they belong to, and when. CloudWatch is moto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.gate import Gate
from mark_infra.aws.minute_sums import MinuteMetric, minute_sums
from mark_infra.aws.site import Site
from mark_infra.telemetry.balancer_counts import (
    BalancerCounts,
    BehindBalancer,
    ServingNow,
    UnseenRequests,
    behind_balancer,
    blamed,
)

from mark.domain.errors import CloudError
from tests.infra.conftest import REGION, MotoServer

BEGAN_UNIX_S = 1_800_000_000.0  # a whole minute
ONE, OTHER = "app/mark/50dc6c495c0c9188", "app/mark-1/60dc6c495c0c9188"
GROUP = "targetgroup/mark-echo/73e2d6bc24d8a067"
LOST = "HTTPCode_ELB_5XX_Count"


class Bench:
    """Services `echo` (with a function) and `words` on one balancer, `far` on another; a clock that a test sets."""

    def __init__(self, moto: MotoServer) -> None:
        moto.reset()
        self.cloudwatch = moto.client("cloudwatch")
        self.now_unix_s, self.down = BEGAN_UNIX_S, False
        self.asked: list[MinuteMetric] = []
        self.serving: Mapping[str, ServingNow] = {
            "echo": ServingNow(True, 30.0),
            "words": ServingNow(True, 10.0),
            "far": ServingNow(True, 10.0),
        }
        services = {"echo": BehindBalancer(ONE, GROUP), "words": BehindBalancer(ONE), "far": BehindBalancer(OTHER)}
        self.gate = Gate(Site("mark", REGION, "sqlite:state"), options=moto.options)
        self.fleet_unknown = False
        self.counts = BalancerCounts(self.sums, services, self.serving_now, unix_s=lambda: self.now_unix_s)

    def serving_now(self) -> Mapping[str, ServingNow]:
        if self.fleet_unknown:
            raise CloudError("EC2 has not listed the instances for 61 s")
        return self.serving

    def sums(self, metrics: Sequence[MinuteMetric], start_unix_s: float, end_unix_s: float) -> Iterator[Any]:
        self.asked += metrics
        if self.down:
            raise CloudError("CloudWatch does not answer")
        return minute_sums(self.gate, metrics, start_unix_s, end_unix_s)

    def put(self, metric: str, minute: int, value: float, balancer: str = ONE, group: str | None = None) -> None:
        dimensions = {"LoadBalancer": balancer, **({} if group is None else {"TargetGroup": group})}
        data = {
            "MetricName": metric,
            "Dimensions": [{"Name": key, "Value": one} for key, one in dimensions.items()],
            "Timestamp": datetime.fromtimestamp(BEGAN_UNIX_S + 60.0 * minute + 1.0, UTC),
            "Value": value,
        }
        self.cloudwatch.put_metric_data(Namespace="AWS/ApplicationELB", MetricData=[data])

    def at(self, s: float) -> dict[str, UnseenRequests]:
        self.now_unix_s = BEGAN_UNIX_S + s
        return {name: self.counts.so_far(name) for name in self.serving}

    def ask(self, s: float) -> None:
        self.at(s)
        self.counts.step()


@pytest.fixture
def bench(moto: MotoServer) -> Bench:
    return Bench(moto)


def test_names_are_those_of_cloudwatch() -> None:
    elb = f"arn:aws:elasticloadbalancing:{REGION}:123456789012"
    rule = f"{elb}:listener-rule/{ONE}/f2f7dc8efc522ab2/9683b2d02a6cabee"
    assert behind_balancer([rule, rule], f"{elb}:{GROUP}") == BehindBalancer(ONE, GROUP)
    assert behind_balancer([rule], None) == BehindBalancer(ONE)
    assert behind_balancer([], None) is None


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ({"a": ServingNow(True, 30.0), "b": ServingNow(True, 10.0)}, {"a": 0.75, "b": 0.25}),
        ({"a": ServingNow(False, 30.0), "b": ServingNow(True, 10.0)}, {"a": 1.0}),
        ({"a": ServingNow(False), "b": ServingNow(False), "c": ServingNow(True, 9.0)}, {"a": 0.5, "b": 0.5}),
        ({"a": ServingNow(True, 0.0)}, {"a": 1.0}),
    ],
)
def test_services_with_no_instance_ready_are_blamed(serving: dict[str, ServingNow], expected: dict[str, float]) -> None:
    assert blamed(serving) == expected


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.builds(ServingNow, st.booleans(), st.none() | st.floats(0.0, 1e6)),
        min_size=1,
    )
)
def test_blame_is_shared_out_whole(serving: dict[str, ServingNow]) -> None:
    assert sum(blamed(serving).values()) == pytest.approx(1.0)


def test_lost_requests_are_told_over_a_minute(bench: Bench) -> None:
    """CloudWatch has a minute late: its requests are reported over the minute after, half of them after 30 s."""
    bench.put(LOST, 0, 30.0)
    bench.put("RejectedConnectionCount", 0, 10.0)
    bench.put(LOST, 0, 5.0, balancer=OTHER)
    bench.ask(130.0)
    assert set(bench.at(130.0).values()) == {UnseenRequests()}
    assert bench.at(160.0)["echo"].lost == pytest.approx(15.0)
    over = bench.at(190.0)
    assert {name: one.lost for name, one in over.items()} == {"echo": 30.0, "words": 10.0, "far": 5.0}
    assert bench.at(900.0) == over


def test_a_minute_is_counted_once_and_may_grow(bench: Bench) -> None:
    bench.serving = {"echo": ServingNow(False), "words": ServingNow(True), "far": ServingNow(True)}
    bench.put(LOST, 0, 30.0)
    bench.ask(65.0)
    bench.ask(125.0)
    bench.put(LOST, 0, 12.0)
    bench.ask(185.0)
    bench.ask(245.0)
    assert bench.at(1000.0)["echo"] == UnseenRequests(42.0)


def test_what_the_function_answered_is_not_lost(bench: Bench) -> None:
    bench.put("RequestCount", 1, 60.0, group=GROUP)
    bench.put("RequestCount", 1, 900.0)  # of the whole balancer
    bench.ask(185.0)
    assert bench.at(1000.0)["echo"] == UnseenRequests(0.0, 60.0)
    assert bench.at(1000.0)["words"] == UnseenRequests()


@pytest.mark.parametrize("error", ["LambdaUserError", "LambdaInternalError"])
def test_what_a_function_fails_at_is_told_once(bench: Bench, error: str) -> None:
    """The balancer counts it among the group's requests and as a 5xx of its own, but the service is known."""
    bench.put("RequestCount", 1, 60.0, group=GROUP)
    bench.put(error, 1, 20.0, group=GROUP)
    bench.put(LOST, 1, 30.0)
    bench.ask(185.0)
    bench.ask(245.0)
    assert bench.at(1000.0)["echo"] == UnseenRequests(20.0 + 7.5, 40.0)
    assert bench.at(1000.0)["words"] == UnseenRequests(2.5)


def test_a_failure_that_is_no_5xx_takes_nothing_away(bench: Bench) -> None:
    """A function's answer to a body that is too large is a 413."""
    bench.put("RequestCount", 1, 10.0, group=GROUP)
    bench.put("LambdaUserError", 1, 4.0, group=GROUP)
    bench.ask(185.0)
    assert bench.at(1000.0)["echo"] == UnseenRequests(4.0, 6.0)
    assert bench.at(1000.0)["words"] == UnseenRequests()


def test_failures_of_an_idle_function_are_not_asked_for(bench: Bench) -> None:
    """CloudWatch bills every metric of a request."""
    bench.put(LOST, 0, 8.0)
    bench.ask(65.0)
    assert not any(name.startswith("Lambda") for _, name, _ in bench.asked)
    bench.put("RequestCount", 0, 1.0, group=GROUP)
    bench.ask(125.0)
    assert {name for _, name, _ in bench.asked} >= {"LambdaUserError", "LambdaInternalError"}


def test_minutes_before_this_process_are_not_counted(bench: Bench) -> None:
    """The minute of its start is not counted either, and an unfinished one is not asked for yet."""
    for minute in (-3, -1):
        bench.put(LOST, minute, 7.0)
    bench.put(LOST, 2, 1.0)
    bench.ask(1.0)
    bench.ask(125.0)
    assert bench.at(1000.0)["echo"] == UnseenRequests()
    bench.ask(181.0)
    assert bench.at(1000.0)["echo"].lost == pytest.approx(0.75)


def test_a_service_behind_no_balancer_has_nothing_unseen(bench: Bench) -> None:
    assert bench.counts.so_far("another") == UnseenRequests()


def test_what_could_not_be_read_is_read_later(bench: Bench) -> None:
    bench.put(LOST, 0, 8.0, balancer=OTHER)
    bench.down = True
    with pytest.raises(CloudError):
        bench.ask(65.0)
    bench.down = False
    bench.ask(125.0)
    assert bench.at(1000.0)["far"] == UnseenRequests(8.0)


def test_counts_are_kept_while_the_fleet_is_unknown(bench: Bench) -> None:
    bench.put(LOST, 0, 8.0, balancer=OTHER)
    bench.fleet_unknown = True
    with pytest.raises(CloudError):
        bench.ask(65.0)
    bench.fleet_unknown = False
    bench.ask(125.0)
    assert bench.at(1000.0)["far"] == UnseenRequests(8.0)
