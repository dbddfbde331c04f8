"""Conductors rolled back, over an account with the test's answers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from mark_infra.aws.site import Site, SitePipeline, TemplateVersion
from mark_infra.deploy.conductor_releases import ConductorReleases, folder_of

from mark.domain.errors import CloudError
from tests.terraform.booting import BOUNCER, BOUNCER_VALUES, CONDUCTOR, rendered
from tests.terraform.test_conductor_boot import VALUES

ARTIFACTS = {
    f"artifacts.{kind}.{part}": f"{part}-of-{kind}" for kind in ("archive", "wheels") for part in ("key", "version")
} | {"artifacts.archive.bucket": "b", "artifacts.wheels.sha256": "77"}


def boots_from(folder: str, *, conductor: bool) -> str:
    """Return user data as Terraform renders it from the template."""
    template, values = (CONDUCTOR, VALUES | {"scheme": "https"}) if conductor else (BOUNCER, BOUNCER_VALUES)
    return rendered(template, {**values, **ARTIFACTS, "artifacts.archive.sha256": folder})


class Account:
    """Templates by id, each with its versions' folders; the refreshes of the one group, and the calls that it got."""

    def __init__(self, conductors: list[str], now: str, *refreshes: str) -> None:
        self.folders = {"lt-stage": ["a1", "b2"], "lt-conductors": conductors}
        self.now, self.refreshes, self.done = now, list(refreshes), list[Any]()

    def client(self, service: str) -> Account:
        assert service in ("ec2", "autoscaling")
        return self

    def call(self, method: Any, **what: Any) -> Any:
        return method(**what)

    def pages(self, method: Any, **what: Any) -> Iterator[Any]:
        yield method(**what)

    def describe_launch_template_versions(self, LaunchTemplateId: str, Versions: list[str] | None = None) -> Any:
        described = []
        for number, folder in enumerate(self.folders[LaunchTemplateId], 1):
            if Versions is None or str(number) in Versions:
                text = boots_from(folder, conductor=LaunchTemplateId == "lt-conductors")
                data = {"UserData": b64encode(text.encode()).decode()}
                described.append({"VersionNumber": number, "LaunchTemplateData": data})
        return {"LaunchTemplateVersions": described}

    def describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str]) -> Any:
        assert AutoScalingGroupNames == ["mark-two-conductors"]
        template = {"LaunchTemplateId": "lt-conductors", "Version": self.now}
        return {"AutoScalingGroups": [{"LaunchTemplate": template}]}

    def describe_instance_refreshes(self, AutoScalingGroupName: str) -> Any:
        return {"InstanceRefreshes": [{"Status": status} for status in self.refreshes]}

    def cancel_instance_refresh(self, AutoScalingGroupName: str) -> None:
        self.done.append("cancelled")
        self.refreshes[0] = "Cancelling"

    def start_instance_refresh(self, **what: Any) -> None:
        assert self.refreshes[:1] != ["Cancelling"]
        self.done.append((what["AutoScalingGroupName"], what["DesiredConfiguration"]["LaunchTemplate"]["Version"]))


def taken_back(account: Account, *, ends: bool = True) -> str:
    def pause(_: float) -> None:
        if ends:
            account.refreshes[0] = "Cancelled"

    site = Site("mark", "eu-west-1", "sqlite:x", pipelines={"two": SitePipeline("mark-two-conductors")})
    conductors = ConductorReleases(site, account, pause=pause)  # type: ignore[arg-type]
    return conductors.take_back("two", TemplateVersion("lt-stage", "1"))


def test_conductors_go_back_to_the_newest_with_the_folder() -> None:
    """Several versions may have that folder, for example with another image."""
    account = Account(["00", "a1", "a1", "b2"], "4", "Successful")
    assert "are replaced, new ones first" in taken_back(account)
    assert account.done == [("mark-two-conductors", "3")]


def test_a_replacement_under_way_is_given_up_first() -> None:
    account = Account(["a1", "b2"], "2", "InProgress", "Successful")
    taken_back(account)
    assert account.done == ["cancelled", ("mark-two-conductors", "1")]
    with pytest.raises(CloudError, match="mark-two-conductors: the instances that replace it do not end"):
        taken_back(Account(["a1", "b2"], "2", "InProgress"), ends=False)


@pytest.mark.parametrize(
    ("conductors", "now", "why"), [(["b2"], "1", "is none of theirs"), (["a1"], "1", "they have that release's folder")]
)
def test_conductors_that_cannot_or_need_not_change_stay(conductors: list[str], now: str, why: str) -> None:
    account = Account(conductors, now)
    assert why in taken_back(account)
    assert account.done == []


def test_a_site_of_before_keeps_its_conductors() -> None:
    account = Account(["a1", "b2"], "2")
    conductors = ConductorReleases(Site("mark", "eu-west-1", "sqlite:x"), account)  # type: ignore[arg-type]
    assert conductors.take_back("two", TemplateVersion("lt-stage", "1")).startswith("its conductors stay")
    assert folder_of({"LaunchTemplateData": {}}) is None
