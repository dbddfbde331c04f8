"""The proxy that makes AWS fail: its faults reach the SDK in AWS's form, and as often as planned."""

from __future__ import annotations

import time
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from tests.infra.conftest import MotoServer
from tests.infra.fault_proxy import Fault, FaultProxy, fault_proxy

THROTTLED: dict[str, tuple[str, dict[str, Any], str]] = {
    "ec2": ("describe_instances", {}, "RequestLimitExceeded"),
    "elbv2": ("describe_load_balancers", {}, "Throttling"),
    "cloudwatch": ("list_metrics", {}, "Throttling"),
    "sqs": ("list_queues", {}, "RequestThrottled"),
    "dynamodb": ("list_tables", {}, "ThrottlingException"),
    "events": ("list_rules", {}, "ThrottlingException"),
    "pricing": ("describe_services", {}, "ThrottlingException"),
    "lambda": ("list_functions", {}, "TooManyRequestsException"),
    "s3": ("list_buckets", {}, "SlowDown"),
}


def client(moto: MotoServer, proxy: FaultProxy, service: str, read_timeout_s: float = 20.0) -> Any:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=read_timeout_s)
    return boto3.client(service, **{**moto.options, "endpoint_url": proxy.url}, config=config)


@pytest.mark.parametrize("service", THROTTLED)
def test_each_service_throttles_in_its_own_words(moto: MotoServer, service: str) -> None:
    method, arguments, code = THROTTLED[service]
    with fault_proxy(moto.url, share=0.0) as proxy:
        proxy.script.append(Fault.THROTTLED)
        with pytest.raises(ClientError) as caught:
            getattr(client(moto, proxy, service), method)(**arguments)
    assert caught.value.response["Error"]["Code"] == code


def test_errors_silence_and_lost_answers(moto: MotoServer) -> None:
    """A call with a lost answer was done, the other failed calls were not; afterwards the client goes on."""
    with fault_proxy(moto.url, share=0.0) as proxy:
        sqs = client(moto, proxy, "sqs", 2.0)
        proxy.script.extend([Fault.INTERNAL, Fault.UNAVAILABLE, Fault.SILENT, Fault.LOST])
        for fault, error in (
            *((Fault.INTERNAL, ClientError), (Fault.UNAVAILABLE, ClientError)),
            *((Fault.SILENT, ReadTimeoutError), (Fault.LOST, ConnectionClosedError)),
        ):
            with pytest.raises(error):
                sqs.create_queue(QueueName=fault)
        urls = sqs.list_queues()["QueueUrls"]
        assert [url.rpartition("/")[2] for url in urls] == [Fault.LOST]
        assert [request.fault for request in proxy.requests] == [*list(Fault)[1:], None]
        assert {(request.service, request.action) for request in proxy.requests[:4]} == {("sqs", "CreateQueue")}


@pytest.mark.slow
def test_a_fault_plan_follows_its_seed_and_spares_other_actions(moto: MotoServer) -> None:
    def run(seed: int) -> list[Fault | None]:
        quick = (Fault.THROTTLED, Fault.UNAVAILABLE)
        with fault_proxy(moto.url, seed=seed, share=0.3, faults=quick, actions="ListTables") as proxy:
            dynamodb = client(moto, proxy, "dynamodb")
            for _ in range(60):
                try:
                    dynamodb.list_tables()
                except ClientError:
                    assert proxy.requests[-1].fault is not None
                dynamodb.describe_limits()
            assert all(request.fault is None for request in proxy.requests if request.action != "ListTables")
            return [request.fault for request in proxy.requests if request.action == "ListTables"]

    first = run(1)
    assert first == run(1) != run(2)
    assert 8 <= sum(fault is not None for fault in first) <= 28


def test_closing_the_proxy_releases_waiting_clients(moto: MotoServer) -> None:
    began_s = time.monotonic()
    with fault_proxy(moto.url, share=0.0) as proxy:
        proxy.script.append(Fault.SILENT)
        with pytest.raises(ReadTimeoutError):
            client(moto, proxy, "sqs", 0.5).list_queues()
    assert time.monotonic() - began_s < 20.0
