"""An empty account on this computer for `mark deploy --emulated`; everything deployed there really runs.

This module does AWS's part: instances boot from the release in their tag, and a controller runs with the rights of the
site's role as soon as the site file exists. Each change of the site gets a new controller.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3  # type: ignore[import-untyped]
from mark_infra.aws.inventory import SITE
from mark_infra.aws.site import Site, dump_site, load_site
from mark_infra.testbed.account import account_of
from mark_infra.testbed.credits import busy_s
from mark_infra.testbed.daemon import BOUNCER_PORT
from mark_infra.testbed.emulated_cloud import AccountRules, EmulatedServices, LocalCloud
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.gateways import ProcessGateways
from mark_infra.testbed.kept import KeptProcess
from mark_infra.testbed.machines import Processes, ServedProgram

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog

_LOOK_S = 0.5

log = logging.getLogger(__name__)


class EmulatedAccount:
    """A context. `state` is the state folder of the site `name`, `folder` has logs and copies of releases."""

    def __init__(
        self, folder: Path, state: Path, service_file: Path, *, name: str, region: str, kind: str, time_scale: float
    ) -> None:
        self._folder, self._site_file, self._service_file, self._name = folder, state / "site.toml", service_file, name
        self.region, self.time_scale, self._account = region, time_scale, account_of(kind)
        self._programs: dict[str, ServedProgram] = {}
        self._ends = threading.Event()
        self._running = ExitStack()
        self._controller: KeptProcess | None = None
        self._followed = ""
        self._thread = threading.Thread(target=self._follow, name="emulated account", daemon=True)
        self.url = ""

    def __enter__(self) -> EmulatedAccount:
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # unused, and loading them takes a second
        with ExitStack() as started:
            logs = self._folder / "logs"
            machines = started.enter_context(Processes(self._programs, logs, region=self.region))
            self.cloud = LocalCloud(
                load_catalog(load_service(str(self._service_file)).catalog),
                machines,
                time_scale=self.time_scale,
                region=self.region,
                served=EmulatedServices(
                    gateways=ProcessGateways(logs, region=self.region),
                    busy_s=lambda address: busy_s(address, BOUNCER_PORT),
                ),
                rules=AccountRules(self._account),
            )
            started.callback(self.cloud.stop)
            self.url = self.cloud.start()
            self._running = started.pop_all()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._running.close()

    def variables(self) -> dict[str, str]:
        """Return the environment of a process that deploys there."""
        return of_aws(os.environ, self.region) | {"AWS_ENDPOINT_URL": self.url}

    def address(self, service: str) -> str | None:
        """Return the clients' address of the service, or None before it exists."""
        balancer = self.cloud.balancer
        if balancer is None or not self._site_file.is_file():
            return None
        return balancer.url(load_site(self._site_file).service(service).target_groups[0])

    def denied(self) -> list[str]:
        """Return the missing rights of callers so far."""
        return list(self.cloud.rules.denied)

    # On its own thread, because the controllers end with the thread that starts them

    def _follow(self) -> None:
        try:
            while not self._ends.wait(_LOOK_S):
                try:
                    said = self._site_file.read_text(encoding="utf-8") if self._site_file.is_file() else ""
                    if said and said != self._followed:
                        self._change(load_site(self._site_file))
                        self._followed = said
                    elif self._controller is not None and not self._wanted():
                        self._end_controller()
                except Exception:
                    log.exception("the emulated account cannot follow its site yet")
        finally:
            self._end_controller()

    def _change(self, site: Site) -> None:
        for name, service in site.services.items():
            there = self._folder / "releases" / f"{name}-{service.release or 'none'}"
            if not there.exists():
                shutil.copytree(self._service_file.parent, there)
            program = ServedProgram(there / self._service_file.name)
            self._programs[f"{name}@{service.release}"] = self._programs[name] = program
        ec2 = self._client("ec2")
        # Terraform does not tag launch templates when it deploys to an emulation.
        templates = sorted(id for service in site.services.values() for id in service.launch_templates)
        ec2.create_tags(Resources=templates, Tags=[{"Key": SITE, "Value": self._name}])
        role = self._client("iam").get_role(RoleName=f"{self._name}-controller")["Role"]["Arn"]
        keys = self._client("sts").assume_role(RoleArn=role, RoleSessionName="controller")["Credentials"]
        variables = self.variables() | {
            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            "AWS_SESSION_TOKEN": keys["SessionToken"],
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        copies = [str(self._programs[name].service_file) for name in site.services]
        described = self._folder / f"site-{time.time_ns()}.toml"
        described.write_text(dump_site(replace(site, time_scale=self.time_scale)), encoding="utf-8")
        new = KeptProcess(
            "controller", self._folder / "logs" / "controller.log", [*copies, "--site", str(described)], 0, variables
        )
        new.__enter__()
        self._end_controller()  # after the new one has started, like the autoscaling group
        self._controller = new

    def _wanted(self) -> bool:
        """Return whether there is a group that keeps a controller."""
        groups = self._client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        return any(one["DesiredCapacity"] > 0 for one in groups)

    def _end_controller(self) -> None:
        if self._controller is not None:
            self._controller.__exit__(None, None, None)
            self._controller = None

    def _client(self, service: str) -> Any:
        return boto3.client(
            service, endpoint_url=self.url, region_name=self.region, aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )  # fmt: skip
