"""Which baked images are used again, kept, or deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.machine_images import CONTENT, MachineImage, own_images
from mark_infra.aws.site import Site, SiteService, TemplateVersion
from mark_infra.deploy.bake import ImageWanted
from mark_infra.deploy.baked_images import content_of, newest_image, spare, tidy, usable
from mark_infra.deploy.releases import SiteReleases
from mark_infra.store.sqlite import SqliteTable
from mark_infra.store.store import ServiceStore

from mark.control.rollout import Rollout, RolloutStage
from mark.control.state import ControllerState
from tests.infra.conftest import REGION, MotoServer
from tests.infra.deploy.stubbed import StubbedSession


def image(id: str, content: str = "c", state: str = "available", service: str = "echo") -> MachineImage:
    return MachineImage(id, service, content, state, (f"snap-{id}",))


def test_content_is_what_is_installed_and_no_code(tmp_path: Path) -> None:
    packages, script = tmp_path / "wheels.tar", tmp_path / "boot.sh"
    packages.write_bytes(b"packages")
    script.write_bytes(b"script")
    first = content_of("ami-1", packages, script, 8)
    assert first == content_of("ami-1", packages, script, 8)
    others = {content_of("ami-2", packages, script, 8), content_of("ami-1", packages, script, 9)}
    for file in (packages, script):
        file.write_bytes(b"other")
        others.add(content_of("ami-1", packages, script, 8))
    assert len(others - {first}) == 4


def test_the_newest_usable_image_of_a_content_is_used() -> None:
    there = [
        image("old"),
        image("new"),
        image("begun", state="pending"),
        image("other", "d"),
        image("another", service="words"),
    ]
    echo, other, words = (
        ImageWanted(service, content, ("c5.large",), platform)
        for service, content, platform in (("echo", "c", "x86_64"), ("echo", "d", "arm64"), ("words", "d", "arm64"))
    )
    assert usable(there, [echo, other, words]) == {echo: "new", other: "other"}
    assert usable(there, [replace(echo, content="e")]) == {}


def test_what_is_needed_or_still_being_made_stays() -> None:
    there = [image("needed"), image("spare"), image("broken", state="failed"), image("begun", state="pending")]
    assert [one.id for one in spare(there, {"needed"})] == ["spare", "broken"]


def test_the_newest_image_is_looked_up() -> None:
    session = StubbedSession()
    asked = {"Name": "/aws/service/x"}
    session.answers("ssm", "get_parameter", {"Parameter": {"Value": "ami-9"}}, asked)
    assert newest_image(session.gate(), "/aws/service/x") == "ami-9"


class Baked:
    """A site with the service echo, whose launch template has a version for each of its baked images."""

    def __init__(self, moto: MotoServer, table: SqliteTable) -> None:
        moto.reset()
        self._ec2 = moto.client("ec2")
        self.gate = Gate(Site("mark", REGION, "sqlite:none"), options=moto.options)
        self.ids = [self.image(content) for content in ("0", "1", "2", "3")]
        template = self.template = self.made("echo", self.ids[0])
        for id in self.ids[1:]:
            self.version(template, id)
        self._table, self._store = table, ServiceStore(table, "echo")
        self.become({})

    def become(self, platforms: dict[str, TemplateVersion]) -> None:
        """Make these versions the newest release's."""
        there = SiteService(
            self.template, {"z": "subnet-1"}, release="r3", launch_template_version="4", platforms=platforms
        )
        self.site = Site("mark", REGION, "sqlite:none", services={"echo": there})
        self.releases = SiteReleases(self.site, self._table)

    def version(self, template: str, image: str) -> None:
        """Add a version of the launch template."""
        self._ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData={"ImageId": image})

    def keep(self, release: str, platforms: dict[str, dict[str, str]]) -> None:
        """Store the controller's record of a release."""
        self._store.put("platforms", {**(self._store.get("platforms") or {}), release: platforms})

    def made(self, name: str, image: str) -> str:
        """Make a launch template and return its id."""
        data = {"ImageId": image}
        made = self._ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def image(self, content: str) -> str:
        image: str = self._ec2.register_image(Name=content, RootDeviceName="/dev/xvda")["ImageId"]
        tags = {"mark:site": "mark", "mark:service": "echo", CONTENT: content}
        self._ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        return image

    def has(self, rollout: Rollout) -> None:
        self._store.put("state", ControllerState(rollout=rollout))
        self._store.put("templates", {f"r{n}": str(n + 1) for n in range(len(self.ids))})

    def left(self) -> set[int]:
        return {self.ids.index(image.id) for image in own_images(self.gate, "mark")}

    def release_of(self, image: str) -> str:
        tags = self._ec2.describe_images(ImageIds=[image])["Images"][0]["Tags"]
        return next((str(tag["Value"]) for tag in tags if tag["Key"] == "mark:release"), "")


@pytest.fixture
def baked(moto: MotoServer, tmp_path: Path) -> Iterator[Baked]:
    table = SqliteTable(tmp_path / "t.sqlite")
    yield Baked(moto, table)
    table.close()


@pytest.mark.parametrize(
    ("rollout", "left"),
    [
        (Rollout("r2", before="r1"), {1, 2, 3}),
        (Rollout("r1", RolloutStage.CANARY, candidate="r2"), {1, 2, 3}),
        (Rollout("r3", before="r1", refused=("r2",)), {1, 3}),  # no roll-back goes to a refused release
        (Rollout("r3", before="unknown"), {3}),
    ],
)
def test_images_of_the_releases_before_stay(baked: Baked, rollout: Rollout, left: set[int]) -> None:
    baked.has(rollout)
    gone = tidy(baked.gate, baked.site, baked.releases)
    assert baked.left() == left
    assert {baked.ids.index(id) for id in gone} == {0, 1, 2, 3} - left
    assert tidy(baked.gate, baked.site, baked.releases) == []


def test_an_image_says_which_release_boots_from_it(baked: Baked) -> None:
    baked.has(Rollout("r2", before="r1"))
    tidy(baked.gate, baked.site, baked.releases)
    assert [baked.release_of(baked.ids[number]) for number in (2, 3)] == ["", "r3"]


def test_without_a_controllers_state_the_newest_stays(baked: Baked) -> None:
    tidy(baked.gate, baked.site, baked.releases)
    assert baked.left() == {3}


def test_each_platform_of_a_release_keeps_its_image(baked: Baked) -> None:
    """Images of a template that is gone are deleted, because nothing can be launched from it."""
    gpu, old_gpu, arm = (baked.image(content) for content in ("gpu", "old gpu", "arm"))
    template = baked.made("gpu", old_gpu)
    baked.version(template, gpu)
    baked.has(Rollout("r2", before="r1"))
    gone = {"launch_template": "lt-00000000000000000", "version": "1"}
    baked.keep("r1", {"x86_64": {"launch_template": baked.template, "version": "2"}, "arm64": gone})
    baked.keep("r2", {"x86_64-gpu": {"launch_template": template, "version": "1"}})
    baked.become({"x86_64": TemplateVersion(baked.template, "4"), "x86_64-gpu": TemplateVersion(template, "2")})
    assert set(tidy(baked.gate, baked.site, baked.releases)) == {baked.ids[0], baked.ids[2], arm}
    assert [baked.release_of(image) for image in (gpu, old_gpu, baked.ids[3])] == ["r3", "", "r3"]
