"""The metadata service of a machine, as a table of questions, and as AWS's own client reads it."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

import pytest
from botocore.utils import InstanceMetadataFetcher, InstanceMetadataRegionFetcher
from mark_infra.testbed.machines_port import Machine
from mark_infra.testbed.metadata import ROLE, Metadata, serve

from mark.serving.interruption_watch import MetadataService

MACHINE = Machine("i-1", "c7i.large", "127.0.0.1", "words", 1.0, zone="us-east-1b", spot=True)
BEGAN_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z
TTL = b"x-aws-ec2-metadata-token-ttl-seconds"
TOKEN = b"x-aws-ec2-metadata-token"
OF = "/latest/meta-data/"


@pytest.fixture
def metadata() -> Metadata:
    numbers = count(1)
    return Metadata(MACHINE, "us-east-1", BEGAN_S, new_token=lambda: f"token-{next(numbers)}")


def get(metadata: Metadata, path: str, now_s: float = BEGAN_S) -> tuple[int, str]:
    """Ask with a fresh token."""
    _, token, *_ = metadata.answer(b"PUT", "/latest/api/token", {TTL: b"60"}, now_s)
    status, body, *_ = metadata.answer(b"GET", path, {TOKEN: token}, now_s)
    return status, body.decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *(({TTL: b"1"}, 200), ({TTL: b"21600"}, 200), ({TTL: b"60", b"x-forwarded-for": b"10.0.0.1"}, 403)),
        *(({TTL: ttl}, 400) for ttl in (b"0", b"21601", b"", b"-1", b"1.5", b"soon")),
        ({}, 400),
    ],
)
def test_a_token_needs_a_ttl_and_no_proxy_gets_one(
    metadata: Metadata, headers: dict[bytes, bytes], status: int
) -> None:
    answered, body, _, said = metadata.answer(b"PUT", "/latest/api/token", headers, BEGAN_S)
    assert (answered, bool(body)) == (status, status == 200)
    assert (TTL + b": " + headers.get(TTL, b"") in said) == (status == 200)


def test_without_a_token_that_lives_nothing_is_told(metadata: Metadata) -> None:
    _, token, *_ = metadata.answer(b"PUT", "/latest/api/token", {TTL: b"10"}, BEGAN_S)
    for headers, now_s, status in (
        ({}, BEGAN_S, 401),
        ({TOKEN: b"token-7"}, BEGAN_S, 401),
        ({TOKEN: token}, BEGAN_S + 9.9, 200),
        ({TOKEN: token}, BEGAN_S + 10.0, 401),
    ):
        assert metadata.answer(b"GET", OF + "instance-id", headers, now_s)[0] == status
    for method, path in ((b"POST", "/latest/api/token"), (b"GET", "/latest/api/token"), (b"PUT", OF + "instance-id")):
        assert metadata.answer(method, path, {TOKEN: token, TTL: b"10"}, BEGAN_S)[0] == 405


@pytest.mark.parametrize(
    ("path", "said"),
    [
        *(("instance-id", "i-1"), ("instance-type", "c7i.large"), ("local-ipv4", "127.0.0.1")),
        *(("placement/availability-zone", "us-east-1b"), ("placement/region", "us-east-1")),
        *(("instance-life-cycle", "spot"), ("iam/security-credentials/", ROLE)),
    ],
)
def test_metadata_paths_work_with_and_without_a_trailing_slash(metadata: Metadata, path: str, said: str) -> None:
    assert get(metadata, OF + path) == get(metadata, OF + path.rstrip("/")) == get(metadata, f"{OF}{path}/")
    assert get(metadata, OF + path) == (200, said)


@pytest.mark.parametrize("path", ["/", "/latest/user-data", OF + "nothing", "instance-id", "/latest/instance-id", OF])
def test_what_there_is_not_is_not_found(metadata: Metadata, path: str) -> None:
    assert get(metadata, path) == (404, "")


def test_the_identity_document(metadata: Metadata) -> None:
    document = json.loads(get(metadata, "/latest/dynamic/instance-identity/document")[1])
    assert (document["instanceId"], document["instanceType"], document["region"], document["availabilityZone"]) == (
        *("i-1", "c7i.large", "us-east-1", "us-east-1b"),
    )
    assert document["pendingTime"] == "2027-01-15T08:00:00Z"


def test_an_interruption_is_found_once_it_is_announced(metadata: Metadata) -> None:
    action, end, rebalance = (
        OF + path for path in ("spot/instance-action", "spot/termination-time", "events/recommendations/rebalance")
    )
    assert [get(metadata, path)[0] for path in (action, end, rebalance)] == [404] * 3
    metadata.announce("rebalance", BEGAN_S)
    assert [get(metadata, path)[0] for path in (action, end, rebalance)] == [404, 404, 200]
    assert json.loads(get(metadata, rebalance)[1]) == {"noticeTime": "2027-01-15T08:00:00Z"}
    metadata.announce("terminate", BEGAN_S + 120.0)
    assert json.loads(get(metadata, action)[1]) == {"action": "terminate", "time": "2027-01-15T08:02:00Z"}
    assert get(metadata, end) == (200, "2027-01-15T08:02:00Z")
    with pytest.raises(ValueError, match="explode"):
        metadata.announce("explode", BEGAN_S)


def test_aws_s_own_client_and_ours_read_it() -> None:
    """botocore's fetchers read role, region and zone; our watch reads the notice."""
    metadata = Metadata(MACHINE, "us-east-1", BEGAN_S)

    async def main() -> None:
        server = await serve(metadata, "127.0.0.1", 0)
        (listener,) = server._listeners
        assert isinstance(listener, asyncio.Server)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        config: dict[str, Any] = {"ec2_metadata_service_endpoint": url}
        options: dict[str, Any] = {"timeout": 5, "num_attempts": 1, "env": {}, "config": config}
        role = await asyncio.to_thread(InstanceMetadataFetcher(**options).retrieve_iam_role_credentials)
        assert (role["role_name"], role["access_key"]) == (ROLE, "testing")
        assert await asyncio.to_thread(InstanceMetadataRegionFetcher(**options).retrieve_region) == "us-east-1"
        ours = MetadataService(url)
        assert await asyncio.to_thread(ours.gone_at_unix_s) is None
        metadata.announce("terminate", BEGAN_S + 120.0)
        assert await asyncio.to_thread(ours.gone_at_unix_s) == BEGAN_S + 120.0
        await server.close(1.0)

    asyncio.run(main())
