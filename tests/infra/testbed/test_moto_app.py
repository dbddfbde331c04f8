"""moto's gaps as errors that an SDK understands and does not repeat."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mark_infra.testbed.moto_app import OneAtATime, Patches, WsgiServer

from tests.infra.testbed.conftest import Aws

GAPS: list[tuple[str, Callable[[Any], object]]] = [
    ("ec2", lambda ec2: ec2.get_spot_placement_scores(TargetCapacity=1)),
    ("ec2", lambda ec2: ec2.describe_spot_datafeed_subscription()),
    ("iam", lambda iam: iam.simulate_principal_policy(PolicySourceArn="arn:aws:iam::1:role/r", ActionNames=["a:b"])),
    ("service-quotas", lambda quotas: quotas.list_service_quotas(ServiceCode="ec2")),
    (
        "lambda",
        lambda functions: functions.put_provisioned_concurrency_config(
            FunctionName="f", Qualifier="1", ProvisionedConcurrentExecutions=1
        ),
    ),
]


@pytest.mark.parametrize(("service", "call"), GAPS, ids=[f"{gap[0]}-{n}" for n, gap in enumerate(GAPS)])
def test_a_gap_is_an_error_of_its_service(aws: Aws, service: str, call: Callable[[Any], object]) -> None:
    """It is "not implemented" in the service's protocol, and not a 500, which would be repeated."""
    with pytest.raises(ClientError) as error:
        call(aws.client(service))
    assert error.value.response["Error"]["Code"] == "NotImplemented"
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501


def test_what_moto_stumbles_over_is_no_reason_to_try_again(aws: Aws, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of moto is a 400 with its name, and one line in the log."""
    with caplog.at_level(logging.WARNING), pytest.raises(ClientError) as error:
        aws.client("ec2").create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[{"Overrides": [{"InstanceType": "c5.large"}]}],
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
        )
    assert error.value.response["Error"]["Code"] == "InternalFailure"
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert len(caplog.records) == 1


def test_errors_of_aws_stay_as_they_are(aws: Aws) -> None:
    """This holds in all protocols."""
    cases: list[tuple[str, str, Callable[[Any], object]]] = [
        ("ec2", "InvalidInstanceID.NotFound", lambda c: c.terminate_instances(InstanceIds=["i-00000000000000000"])),
        ("elbv2", "TargetGroupNotFound", lambda c: c.describe_target_health(TargetGroupArn="x")),
        ("sqs", "AWS.SimpleQueueService.NonExistentQueue", lambda c: c.get_queue_url(QueueName="x")),
        ("dynamodb", "ResourceNotFoundException", lambda c: c.describe_table(TableName="x")),
        ("lambda", "ResourceNotFoundException", lambda c: c.get_function(FunctionName="x")),
        ("s3", "NoSuchBucket", lambda c: c.list_objects_v2(Bucket="absent")),
    ]
    for service, code, call in cases:
        with pytest.raises(ClientError) as error:
            call(aws.client(service))
        assert error.value.response["Error"]["Code"] == code


def test_a_bad_request_for_prices_is_refused(aws: Aws) -> None:
    """It gets the same answer as any other malformed request."""
    with pytest.raises(ClientError) as error:
        aws.client("pricing").get_products(ServiceCode="AmazonEC2", NextToken="x")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_nothing_is_written_for_a_request(aws: Aws, capfd: pytest.CaptureFixture[str]) -> None:
    """No request has a line in the log."""
    aws.instances()
    aws.client("sqs").list_queues()
    said = capfd.readouterr()
    assert said.out == said.err == ""


def test_what_is_no_aws_request_is_answered(aws: Aws) -> None:
    """Any bytes get an answer, and the server lives on."""
    host, port = aws.url.removeprefix("http://").split(":")
    for method, path, body in (
        ("GET", "/", b""),
        ("POST", "/", b"\xff\xfe"),
        ("PUT", "/../x?y", b"{}"),
        ("BREW", "/", b""),
    ):
        connection = http.client.HTTPConnection(host, int(port), timeout=60.0)
        connection.request(
            method, path, body, {"authorization": "Credential=a/b", "x-amz-target": "AWSPriceListService.GetProducts"}
        )
        assert connection.getresponse().status in (200, 400, 501)
        connection.close()
    assert aws.instances() == []


def test_a_server_already_awake_at_its_stop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended before the stopping thread has woken it."""
    server = WsgiServer(lambda environ, start: [])  # type: ignore[arg-type]
    trigger = server._server.trigger
    wake = trigger._physical_pull

    def late() -> None:
        wake()
        server._thread.join(60.0)
        wake()

    monkeypatch.setattr(trigger, "_physical_pull", late)
    server.stop()
    assert not server._thread.is_alive()
    assert trigger._closed


@pytest.mark.parametrize(
    ("asked", "at_once"),
    [
        ({"QUERY_STRING": "versions&prefix=a"}, False),
        ({"HTTP_IF_NONE_MATCH": "*"}, False),
        ({"QUERY_STRING": "a=1"}, True),
    ],
)
def test_what_moto_cannot_do_at_once_is_done_in_turn(asked: dict[str, str], at_once: bool) -> None:
    """The second request comes while the first one is pending."""
    entered: list[bool] = []
    second = threading.Thread(target=lambda: app(asked, lambda *_: None))

    def moto(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        entered.append(True)
        if len(entered) == 1:
            second.start()
            second.join(0.2)
            assert (len(entered) == 2) == at_once
        return [b""]

    app = OneAtATime(moto)
    app(asked, lambda *_: None)
    second.join()
    assert len(entered) == 2


def test_an_answer_to_gos_sdk_waits_for_its_request(aws: Aws) -> None:
    """It waits 20 ms, because Go's SDK loses an answer that comes before it has put the request away."""
    line = http.client.HTTPConnection(aws.url.removeprefix("http://"))
    began_s = time.monotonic()
    line.request("GET", "/", headers={"user-agent": "APN/1.0 aws-sdk-go-v2/1.36"})
    line.getresponse().read()
    assert time.monotonic() - began_s >= 0.02
    line.close()


def test_patches_are_undone_in_turn() -> None:
    """Attributes and items are restored; added ones are removed."""

    class Thing:
        x = 1

    table = {"a": 1}
    patches = Patches()
    assert patches.put(Thing, "x", 2) == 1
    patches.put(Thing, "x", 3)
    patches.put(table, "a", 2)
    patches.put(table, "b", 3)
    assert (Thing.x, table) == (3, {"a": 2, "b": 3})
    patches.undo()
    assert (Thing.x, table) == (1, {"a": 1})
