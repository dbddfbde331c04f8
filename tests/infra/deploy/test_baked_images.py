"""Which baked images are used again, which are kept, and which go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.machine_images import CONTENT, MachineImage, own_images
from mark_infra.aws.site import Site, SiteService
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
    assert usable(there, {"echo": "c", "words": "d"}) == {"echo": "new"}
    assert usable(there, {"echo": "e"}) == {}


def test_what_is_needed_or_still_being_made_stays() -> None:
    there = [image("needed"), image("spare"), image("broken", state="failed"), image("begun", state="pending")]
    assert [one.id for one in spare(there, {"needed"})] == ["spare", "broken"]


def test_the_newest_image_is_looked_up() -> None:
    session = StubbedSession()
    asked = {"Name": "/aws/service/x"}
    session.answers("ssm", "get_parameter", {"Parameter": {"Value": "ami-9"}}, asked)
    assert newest_image(session.gate(), "/aws/service/x") == "ami-9"


class Baked:
    """A site with the service echo, whose launch template has a version for each of its images, all baked."""

    def __init__(self, moto: MotoServer, table: SqliteTable) -> None:
        moto.reset()
        self._ec2 = moto.client("ec2")
        self.gate = Gate(Site("mark", REGION, "sqlite:none"), options=moto.options)
        self.ids = [self._image(content) for content in ("0", "1", "2", "3")]
        template = self._ec2.create_launch_template(
            LaunchTemplateName="echo", LaunchTemplateData={"ImageId": self.ids[0]}
        )["LaunchTemplate"]["LaunchTemplateId"]
        for id in self.ids[1:]:
            self._ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData={"ImageId": id})
        there = SiteService(template, {"z": "subnet-1"}, release="r3", launch_template_version="4")
        self.site = Site("mark", REGION, "sqlite:none", services={"echo": there})
        self._store = ServiceStore(table, "echo")
        self.releases = SiteReleases(self.site, table)

    def _image(self, content: str) -> str:
        image: str = self._ec2.register_image(Name=content, RootDeviceName="/dev/xvda")["ImageId"]
        tags = {"mark:site": "mark", "mark:service": "echo", CONTENT: content}
        self._ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        return image

    def has(self, rollout: Rollout) -> None:
        self._store.put("state", ControllerState(rollout=rollout))
        self._store.put("templates", {f"r{n}": str(n + 1) for n in range(len(self.ids))})

    def left(self) -> set[int]:
        return {self.ids.index(image.id) for image in own_images(self.gate, "mark")}

    def release_of(self, number: int) -> str:
        tags = self._ec2.describe_images(ImageIds=[self.ids[number]])["Images"][0]["Tags"]
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
        (Rollout("r3", before="r1", refused=("r2",)), {1, 3}),  # what was taken back is not rolled back to
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
    assert [baked.release_of(number) for number in (2, 3)] == ["", "r3"]


def test_without_a_controllers_state_the_newest_stays(baked: Baked) -> None:
    tidy(baked.gate, baked.site, baked.releases)
    assert baked.left() == {3}
