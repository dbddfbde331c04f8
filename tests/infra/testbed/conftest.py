"""The testbed's cloud, served on loopback, over fakes of its parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import boto3
import pytest
from botocore.config import Config
from mark_infra.testbed.emulated_cloud import AccountRules, EmulatedMarket, EmulatedServices, LocalCloud

from tests.infra.testbed.cloud_fakes import CATALOG, FakeMachines, ManualTime


@dataclass
class Aws:
    """A running cloud, its time, and clients of its APIs, which try once."""

    cloud: LocalCloud
    url: str
    time: ManualTime
    machines: FakeMachines
    clients: dict[str, Any]

    def client(self, service: str) -> Any:
        if service not in self.clients:
            self.clients[service] = boto3.client(
                service, endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="test",
                aws_secret_access_key="test", config=Config(retries={"total_max_attempts": 1}),
            )  # fmt: skip
        return self.clients[service]

    def pass_s(self, seconds: float) -> None:
        """Let time pass, so that due events happen."""
        self.time.s += seconds
        self.cloud.step()

    def instances(self, **filters: list[str]) -> list[dict[str, Any]]:
        asked = [{"Name": name.replace("_", "-"), "Values": values} for name, values in filters.items()]
        found = self.client("ec2").describe_instances(Filters=asked)["Reservations"]
        return [instance for reservation in found for instance in reservation["Instances"]]

    def instance(self, instance_id: str) -> dict[str, Any]:
        return self.instances(instance_id=[instance_id])[0]

    def state(self, instance_id: str) -> str:
        return str(self.instance(instance_id)["State"]["Name"])


@contextmanager
def serving(**options: Any) -> Iterator[Aws]:
    """Run a cloud until the end of the block."""
    time, machines = ManualTime(), options.pop("machines", None) or FakeMachines()
    for name, kind in (("market", EmulatedMarket), ("served", EmulatedServices), ("rules", AccountRules)):
        options[name] = kind(**{one.name: options.pop(one.name) for one in fields(kind) if one.name in options})
    cloud = LocalCloud(**{"catalog": CATALOG, "machines": machines, "now": time, **options})
    aws = Aws(cloud, cloud.start(), time, machines, {})
    try:
        yield aws
    finally:
        for client in aws.clients.values():
            client.close()
        cloud.stop()
        logging.getLogger("waitress.queue").setLevel(logging.NOTSET)


@pytest.fixture
def make_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Aws]]:
    """Yield a function that starts a cloud; stop it at the end.

    Amazon's images are left out, because moto takes a second to read them.
    """
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serving(**options))


@pytest.fixture
def aws(make_aws: Callable[..., Aws]) -> Aws:
    return make_aws()
