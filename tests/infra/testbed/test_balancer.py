"""Target groups as gateways: one suite over fake and real ones, and the answers of DescribeTargetHealth."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from mark_infra.testbed.balancer import Gateways, GatewaySupervisor
from mark_infra.testbed.gateways import ProcessGateways

from tests.infra.testbed.cloud_fakes import FakeGateways
from tests.infra.testbed.conftest import Aws
from tests.infra.testbed.test_emulated_cloud import launched

ARN = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/test/0"


class Bouncer(BaseHTTPRequestHandler):
    """A bouncer that is ready and answers."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *what: Any) -> None: ...


@pytest.fixture
def bouncer() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bouncer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["fake", "real"])
def gateways(request: pytest.FixtureRequest, tmp_path: Path, bouncer: str) -> Gateways:
    return (
        FakeGateways({bouncer}) if request.param == "fake" else ProcessGateways(tmp_path, options=["--probe-s", "0.1"])
    )


def until(said: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not said():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_group_is_a_gateway_to_its_targets(gateways: Gateways, bouncer: str) -> None:
    """Ready targets are healthy, others not yet. A gateway that dies is started again, and ends with its group."""
    groups: dict[str, dict[str, str | None]] = {ARN: {}}
    balancer = GatewaySupervisor(gateways, lambda: groups)
    try:
        balancer.sync()
        url = balancer.url(ARN)
        assert url is not None
        groups[ARN] = {"i-1": bouncer, "i-2": "http://127.0.0.1:9", "i-3": None}

        def ready() -> bool:
            balancer.sync()
            return balancer.health(ARN, "i-1")[0] == "healthy"

        until(ready)
        assert balancer.health(ARN, "i-2") == ("initial", "Elb.RegistrationInProgress")
        assert balancer.health(ARN, "i-3") == ("unused", "Target.InvalidState")
        gateway = balancer._groups[ARN].gateway
        gateway.end()
        until(ready)
        assert balancer._groups[ARN].gateway is not gateway
        assert balancer.url(ARN) == url
        groups.clear()
        gateway = balancer._groups[ARN].gateway
        balancer.sync()
        assert not gateway.alive()
        assert balancer.url(ARN) is None
    finally:
        balancer.stop()


def test_a_replica_that_was_ready_once_is_unhealthy() -> None:
    """It can come back; a gateway that does not answer leaves the others alone."""
    fakes = FakeGateways({"http://a", "http://b"})
    groups: dict[str, dict[str, str | None]] = {"one": {"i-1": "http://a"}, "two": {"i-2": "http://b"}}
    balancer = GatewaySupervisor(fakes, lambda: groups)
    balancer.sync()
    assert balancer.health("one", "i-1") == ("healthy", None)
    fakes.answering.discard("http://a")
    balancer.sync()
    assert balancer.health("one", "i-1") == ("unhealthy", "Target.FailedHealthChecks")
    fakes.answering.add("http://a")
    fakes.started["one"][0].reachable = False
    fakes.answering.discard("http://b")
    balancer.sync()
    assert balancer.health("one", "i-1")[0] == balancer.health("two", "i-2")[0] == "unhealthy"
    fakes.started["one"][0].reachable = True
    balancer.sync()
    assert balancer.health("one", "i-1")[0] == "healthy"
    fakes.started["one"][0].replicas = {"http://elsewhere": 1.0}
    balancer.sync()
    balancer.sync()
    assert fakes.started["one"][0].replicas == {"http://a": 1.0}
    balancer.stop()
    assert not any(gateway.running for started in fakes.started.values() for gateway in started)


def test_groups_of_one_rule_share_a_gateway() -> None:
    """The gateway knows their weights; the health of a group without weight is checked, too."""
    fakes = FakeGateways({"http://a", "http://b"})
    targets: dict[str, dict[str, str | None]] = {"small": {"i-1": "http://a"}, "large": {"i-2": "http://b"}, "own": {}}
    weights = {"small": 5.0, "large": 0.0}
    balancer = GatewaySupervisor(fakes, lambda: targets, lambda: {"small": dict(weights)})
    balancer.sync()
    assert fakes.started.keys() == {"small", "own"}
    (gateway,) = fakes.started["small"]
    assert (gateway.replicas, gateway.groups) == (
        {"http://a": 5.0, "http://b": 0.0},
        {"http://a": "small", "http://b": "large"},
    )
    assert balancer.url("large") == balancer.url("small") == gateway.url
    assert balancer.health("large", "i-2") == ("healthy", None)
    targets["small"]["i-2"] = "http://b"  # on its way to the other group
    weights["large"] = 3.0
    balancer.sync()
    assert gateway.groups["http://b"] == "small"
    weights["small"] = 1.0
    balancer.sync()
    assert (gateway.groups["http://b"], gateway.replicas["http://b"]) == ("large", 3.0)
    del targets["small"]
    balancer.sync()
    assert not gateway.running
    assert fakes.started["large"][0].replicas == {"http://b": 1.0}
    balancer.stop()


def test_registered_targets_are_replicas_and_their_health_is_asked_for(make_aws: Callable[..., Aws]) -> None:
    """ELBv2's API registers them, shows their health, stops and deregisters them, by instance and by address."""
    gateways = FakeGateways()
    aws = make_aws(gateways=gateways)
    elbv2, balancer = aws.client("elbv2"), aws.cloud.balancer
    assert balancer is not None
    vpc = aws.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    made = elbv2.create_target_group(Name="test", Protocol="HTTP", Port=8080, VpcId=vpc, TargetType="instance")
    arn = made["TargetGroups"][0]["TargetGroupArn"]

    def health() -> dict[str, str]:
        balancer.sync()
        found = elbv2.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        return {one["Target"]["Id"]: one["TargetHealth"]["State"] for one in found}

    (i,) = launched(aws)
    aws.pass_s(20.0)
    elbv2.register_targets(TargetGroupArn=arn, Targets=[{"Id": i}])
    url = f"http://{aws.instance(i)['PrivateIpAddress']}:8080"
    until(lambda: arn in gateways.started and gateways.started[arn][0].replicas == {url: 1.0})  # without a call of sync
    assert health() == {i: "initial"}
    gateways.answering.add(url)
    assert health() == {i: "healthy"}
    aws.client("ec2").stop_instances(InstanceIds=[i])
    assert health() == {i: "unused"}
    assert gateways.started[arn][0].replicas == {}
    elbv2.deregister_targets(TargetGroupArn=arn, Targets=[{"Id": i}])
    elbv2.register_targets(TargetGroupArn=arn, Targets=[{"Id": "127.9.9.9", "Port": 81}])
    gateways.answering.add("http://127.9.9.9:81")
    assert health() == {"127.9.9.9": "healthy"}
    elbv2.delete_target_group(TargetGroupArn=arn)
    balancer.sync()
    assert not gateways.started[arn][0].running


def test_a_gateway_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The error has the last lines of its output."""
    from mark.domain.errors import MarkError

    with pytest.raises(MarkError, match="--nonsense"):
        ProcessGateways(tmp_path, options=["--nonsense"]).start(ARN)


def test_a_real_gateway_answers_for_its_replicas(tmp_path: Path, bouncer: str) -> None:
    """The test asks as a client does."""
    balancer = GatewaySupervisor(
        ProcessGateways(tmp_path, options=["--probe-s", "0.1"]), lambda: {ARN: {"i-1": bouncer}}
    )
    try:

        def ready() -> bool:
            balancer.sync()
            return balancer.health(ARN, "i-1")[0] == "healthy"

        until(ready)
        with urllib.request.urlopen(f"{balancer.url(ARN)}/v2/health/ready", timeout=60.0) as answer:
            assert answer.status == 200
    finally:
        balancer.stop()
