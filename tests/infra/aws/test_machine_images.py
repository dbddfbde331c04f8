"""A site's own images: found by their tags and deleted, against moto."""

from __future__ import annotations

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.machine_images import CONTENT, own_images, own_snapshots, remove_image, remove_images
from mark_infra.aws.site import Site
from mark_infra.aws.teardown import leftovers

from tests.infra.conftest import REGION, MotoServer


@pytest.fixture
def gate(moto: MotoServer) -> Gate:
    moto.reset()
    return Gate(Site("mark", REGION, "dynamodb:mark-state"), options=moto.options)


def bake(moto: MotoServer, site: str, content: str) -> str:
    """Make an image with a snapshot, both of the site."""
    ec2 = moto.client("ec2")
    instance = ec2.run_instances(ImageId="ami-1", MinCount=1, MaxCount=1, InstanceType="c5.large")["Instances"][0]
    image: str = ec2.create_image(InstanceId=instance["InstanceId"], Name=f"{site}-{content}")["ImageId"]
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    (disk,) = ec2.describe_images(ImageIds=[image])["Images"][0]["BlockDeviceMappings"]
    tags = {"mark:site": site, "mark:service": "echo", CONTENT: content}
    described = [{"Key": key, "Value": value} for key, value in tags.items()]
    ec2.create_tags(Resources=[image, disk["Ebs"]["SnapshotId"]], Tags=described)
    return image


def test_images_are_read_by_their_tags(gate: Gate, moto: MotoServer) -> None:
    mine = bake(moto, "mark", "c1")
    bake(moto, "mark-2", "c2")
    (image,) = own_images(gate, "mark")
    assert (image.id, image.service, image.content, image.usable) == (mine, "echo", "c1", True)
    assert list(image.snapshots) == own_snapshots(gate, "mark")


def test_an_image_goes_with_its_snapshots(gate: Gate, moto: MotoServer) -> None:
    bake(moto, "mark", "c1")
    (image,) = own_images(gate, "mark")
    remove_image(gate, image)
    assert own_images(gate, "mark") == []
    assert own_snapshots(gate, "mark") == []
    remove_image(gate, image)


def test_the_end_leaves_other_sites_their_images(gate: Gate, moto: MotoServer) -> None:
    bake(moto, "mark", "c1")
    other = bake(moto, "mark-2", "c2")
    moto.client("ec2").deregister_image(ImageId=own_images(gate, "mark")[0].id)  # a removal was interrupted
    bake(moto, "mark", "c3")
    assert len(own_snapshots(gate, "mark")) == 2
    remove_images(gate, "mark")
    assert (own_images(gate, "mark"), own_snapshots(gate, "mark")) == ([], [])
    assert [image.id for image in own_images(gate, "mark-2")] == [other]
    assert len(own_snapshots(gate, "mark-2")) == 1


def test_images_that_are_left_are_named(gate: Gate, moto: MotoServer) -> None:
    bake(moto, "mark", "c1")
    (image,) = own_images(gate, "mark")
    times = iter(range(0, 1000, 100))
    found = leftovers(gate, "mark", pause=lambda _: None, monotonic=lambda: next(times))
    assert found == sorted([image.id, *image.snapshots])
