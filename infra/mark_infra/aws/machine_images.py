"""Machine images that were baked for a site: found by their tags, and removed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mark.domain.errors import CloudError, NotFoundError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import SERVICE, SITE

CONTENT = "mark:content"  # tag with a hash of the image's content


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An image of the site, with the snapshots of its disks."""

    id: str
    service: str
    content: str
    state: str  # EC2's: pending, available, failed
    snapshots: tuple[str, ...]
    made: str = ""  # when, ISO 8601
    reason: str = ""  # why it failed

    @property
    def usable(self) -> bool:
        return self.state == "available"


def own_images(gate: Gate, site: str) -> list[MachineImage]:
    """Return all images of the site, in any state, the newest last. Raises CloudError."""
    filters = [{"Name": f"tag:{SITE}", "Values": [site]}]
    pages = gate.pages(gate.client("ec2").describe_images, Owners=["self"], Filters=filters)
    found = [_image(image) for page in pages for image in page["Images"]]
    return sorted(found, key=lambda image: (image.made, image.id))


def remove_image(gate: Gate, image: MachineImage) -> None:
    """Deregister the image and delete its snapshots. Repeatable. Raises CloudError."""
    ec2 = gate.client("ec2")
    try:
        gate.call(ec2.deregister_image, ImageId=image.id)
    except CloudError as error:
        if "InvalidAMIID." not in str(error):  # NotFound and Unavailable mean that it is deregistered
            raise
    for id in image.snapshots:
        _delete_snapshot(gate, id)


def remove_images(gate: Gate, site: str) -> None:
    """Remove all images of the site and the snapshots that an aborted bake or removal left. Raises CloudError."""
    for image in own_images(gate, site):
        remove_image(gate, image)
    for id in own_snapshots(gate, site):
        _delete_snapshot(gate, id)


def own_snapshots(gate: Gate, site: str) -> list[str]:
    """Return the ids of all snapshots of the site. Raises CloudError."""
    filters = [{"Name": f"tag:{SITE}", "Values": [site]}]
    pages = gate.pages(gate.client("ec2").describe_snapshots, OwnerIds=["self"], Filters=filters)
    return [snapshot["SnapshotId"] for page in pages for snapshot in page["Snapshots"]]


def _delete_snapshot(gate: Gate, id: str) -> None:
    with suppress(NotFoundError):
        gate.call(gate.client("ec2").delete_snapshot, SnapshotId=id)


def _image(image: dict[str, Any]) -> MachineImage:
    tags = {tag["Key"]: tag["Value"] for tag in image.get("Tags", ())}
    disks = [one.get("Ebs", {}).get("SnapshotId") for one in image.get("BlockDeviceMappings", ())]
    return MachineImage(
        id=image["ImageId"],
        service=tags.get(SERVICE, ""),
        content=tags.get(CONTENT, ""),
        state=image["State"],
        snapshots=tuple(id for id in disks if id),
        made=image.get("CreationDate", ""),
        reason=image.get("StateReason", {}).get("Message", ""),
    )
