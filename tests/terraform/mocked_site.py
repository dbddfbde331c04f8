"""A whole site in Terraform's own test command on a mocked provider: no account, no emulator, no waiting for either.

The results are the output of `terraform show -json` after each step: resources with their values, or a plan's changes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mark_infra.aws.platforms import PLATFORMS
from mark_infra.deploy.boots import image_parameter

if TYPE_CHECKING:
    from tests.terraform.conftest import Terraform  # which imports this file

ACCOUNT, REGION = "123456789012", "eu-west-1"
LONG = "a-service-with-a-name-that-is-much_longer.than-what-most-take-{:03}"
# The services of the fixture `applied`: one has the controller's name, `echo` has types of two platforms, two have
# names that differ at the end, and the function of the last one is an image.
APPLIED = ("controller", "echo", LONG.format(1), LONG.format(3))
IMAGE_URI = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/mark/mark/image@sha256:{'0' * 64}"
_WHERE = f"{REGION}:{ACCOUNT}"
_ELB = f"arn:aws:elasticloadbalancing:{_WHERE}"
# The provider checks that its inputs look like ARNs. These are as long as real ones, because lengths are tested.
_RESOURCES: dict[str, dict[str, Any]] = {
    "aws_iam_role": {"arn": f"arn:aws:iam::{ACCOUNT}:role/role"},
    "aws_cloudwatch_log_group": {"arn": f"arn:aws:logs:{_WHERE}:log-group:/mark/mark/services/service"},
    "aws_lb": {"arn": f"{_ELB}:loadbalancer/app/mark/50dc6c495c0c9188"},
    "aws_lb_listener": {"arn": f"{_ELB}:listener/app/mark/50dc6c495c0c9188/f2f7dc8efc522ab2"},
    "aws_lb_target_group": {"arn": f"{_ELB}:targetgroup/mark-0123456789abcdef0-01234567/73e2d6bc24d8a067"},
    "aws_ssm_parameter": {"arn": f"arn:aws:ssm:{_WHERE}:parameter/mark/mark/keys/controller"},
    "aws_sqs_queue": {"arn": f"arn:aws:sqs:{_WHERE}:mark-notices"},
    "aws_cloudwatch_event_rule": {"arn": f"arn:aws:events:{_WHERE}:rule/mark-instances"},
    "aws_lambda_function": {"arn": f"arn:aws:lambda:{_WHERE}:function:function"},
    "aws_s3_bucket": {"arn": "arn:aws:s3:::mark-artifacts-1", "id": "mark-artifacts-20261124100811135362000001"},
    "aws_dynamodb_table": {"arn": f"arn:aws:dynamodb:{_WHERE}:table/mark-state"},
    "aws_launch_template": {"id": "lt-0123456789abcdef0", "latest_version": 1},
}
# All of the provider's, in each step: 14 MB that take longer to parse than the step took.
_SCHEMAS = re.compile(rb',"provider_schemas":.*(?=},"type":)')
_DATA: dict[str, dict[str, Any]] = {
    "aws_availability_zones": {"names": [f"{REGION}{letter}" for letter in "abc"]},
    "aws_ssm_parameter": {"value": "ami-0123456789abcdef0"},
    "aws_caller_identity": {"account_id": ACCOUNT},
    "aws_partition": {"partition": "aws"},
}


@dataclass(frozen=True)
class Step:
    """One `run` of the test: the site's variables, and whether they are applied or only planned."""

    services: dict[str, dict[str, Any]]
    apply: bool = True
    default: str | None = None
    site: str = "mark"
    refused: str | None = None  # the variable that Terraform must refuse
    grpc_port: int | None = None
    zones: tuple[str, ...] = ()
    zone_numbers: dict[str, int] = field(default_factory=dict)
    pipelines: dict[str, dict[str, Any]] = field(default_factory=dict)


class MockedSite:
    def __init__(self, terraform: Terraform, files: Path) -> None:
        self._terraform, self._files = terraform, files
        self._folder = terraform.home / "examples" / "complete"
        terraform.init(self._folder)

    def services(self, names: Collection[str], places: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        return {
            name: {
                "slo_ms": 600,
                "archive": self._file(f"{name}.tar.gz"),
                "wheels": self._file(f"{name}.tar"),
                "function": {"zip": self._file(f"{name}.zip"), "memory_mb": 1024, "environment": {"MARK_NAME": name}},
                **(places or {}).get(name, {}),
            }
            for name in names
        }

    def more(self, platform: str, disk_gb: int) -> dict[str, Any]:
        """Return the variables of a further platform: packages, image parameter and disk."""
        parameter = image_parameter(PLATFORMS[platform])
        wheels = self._file(f"{platform}.tar")
        return {platform: {"wheels": wheels, "image_parameter": parameter, "disk_gb": disk_gb}}

    def applied(self) -> dict[str, dict[str, Any]]:
        """Return the services `APPLIED`."""
        gpu = self.more("x86_64-gpu", 91)
        gpu["x86_64-gpu"] |= {"boot_timeout_s": 900, "image_id": "ami-0000000000000gpu0"}
        services = self.services(APPLIED, {"echo": {"platform": "x86_64", "more_platforms": gpu}})
        services[APPLIED[-1]]["function"] |= {"zip": None, "image_uri": IMAGE_URI, "architecture": "arm64"}
        return services

    def pipelines(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return pipelines for the stages that are among the services."""
        return {
            name: {"slo_ms": 600, "archive": self._file(f"{name}.tar.gz"), "wheels": self._file(f"{name}.tar")}
            for name in names
        }

    def run(self, *steps: Step) -> list[dict[str, Any]]:
        """Return the state or plan after each step that is not refused. Each step starts where the last one ended."""
        runs = []
        for number, step in enumerate(steps):
            described: dict[str, Any] = {
                "command": "apply" if step.apply else "plan",
                "variables": {
                    "site": step.site,
                    "services": step.services,
                    "pipelines": step.pipelines,
                    "default_service": step.default,
                    "grpc_port": step.grpc_port,
                    "zones": list(step.zones) or None,
                    "zone_numbers": step.zone_numbers,
                },
            }
            if step.refused:
                described["expect_failures"] = [step.refused]
            runs.append({f"step_{number}": described})
        file = self._folder / "tests" / "mocked.tftest.json"
        file.parent.mkdir(exist_ok=True)
        mocked = {"mock_resource": _defaults(_RESOURCES), "mock_data": _defaults(_DATA)}
        common = {
            "region": REGION,
            "controller_wheels": self._file("controller-wheels.tar"),
            "keys": "controller:0123456789abcdef:admin\nconductor:0123456789abcdef:infer",
            "certificate_arn": f"arn:aws:acm:{_WHERE}:certificate/1",
        }
        file.write_text(json.dumps({"variables": common, "mock_provider": {"aws": mocked}, "run": runs}))
        return list(self._answers(len(steps)))

    def _answers(self, count: int) -> Iterator[dict[str, Any]]:
        command = [self._terraform.program, "test", "-json", "-verbose", "-filter=tests/mocked.tftest.json"]
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._terraform.environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            try:
                found: dict[str, dict[str, Any]] = {}
                done: set[str] = set()
                for line in process.stdout:
                    event = json.loads(_SCHEMAS.sub(b"", line))
                    assert event.get("diagnostic", {}).get("severity") != "error", event["diagnostic"]
                    name = event.get("@testrun", "")
                    if event["type"] in ("test_state", "test_plan"):
                        found[name] = event[event["type"]]
                    elif event["type"] == "test_run" and event["test_run"]["progress"] == "complete":
                        assert event["test_run"]["status"] == "pass", event
                        done.add(name)
                    if len(done) == count and (event["type"] == "test_file" or found.keys() >= done):
                        break
                assert len(done) == count
                yield from (found.get(f"step_{number}", {}) for number in range(count))
            finally:
                # Kill it: otherwise it would spend minutes on destroying resources that were never made.
                os.killpg(process.pid, signal.SIGKILL)

    def _file(self, name: str) -> str:
        path = self._files / name
        path.write_text(name)
        return str(path)


def resources(state: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return values by address, of a state or of the state that a plan will lead to."""
    if "root_module" in state:
        return {one["address"]: one["values"] for one in _resources(state["root_module"]) if one["type"] == kind}
    planned = {one["address"]: one["change"]["after"] for one in state["resource_changes"] if one["type"] == kind}
    return {address: after for address, after in planned.items() if after is not None}


def changes(plan: dict[str, Any]) -> dict[str, list[str]]:
    """Return a plan's actions by address, without resources that stay as they are."""
    done = {one["address"]: one["change"]["actions"] for one in plan["resource_changes"]}
    return {address: actions for address, actions in done.items() if actions not in (["no-op"], ["read"])}


def _resources(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from module.get("resources", [])
    for child in module.get("child_modules", []):
        yield from _resources(child)


def _defaults(values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {kind: {"defaults": value} for kind, value in values.items()}
