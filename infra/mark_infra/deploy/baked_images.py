"""The machine images that a site needs, for the new deployment and for a roll-back.

An image is identified by its content: base image, packages, boot script, disk size. The service's folder is not part of
it, because an instance fetches it at each boot. So a change of code or weights bakes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path

from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import RELEASE
from mark_infra.aws.machine_images import MachineImage, own_images, remove_image
from mark_infra.aws.site import Site, SiteService, TemplateVersion
from mark_infra.deploy.bake import ImageWanted
from mark_infra.deploy.releases import SiteReleases


def content_of(base_image: str, packages: Path, boot_script: Path, disk_gib: int) -> str:
    """Return the content id of an image that is baked from these. Raises OSError."""
    said = [base_image, _sha256(packages), _sha256(boot_script), disk_gib]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def newest_image(gate: Gate, parameter: str) -> str:
    """Return the present id in one of Amazon's public parameters. Raises CloudError."""
    return str(gate.call(gate.client("ssm").get_parameter, Name=parameter)["Parameter"]["Value"])


def usable(images: Iterable[MachineImage], wanted: Iterable[ImageWanted]) -> dict[ImageWanted, str]:
    """Return the ids of images that were baked before; of several with the same content, the newest."""
    newest = {(image.service, image.content): image.id for image in images if image.usable}
    return {one: newest[one.service, one.content] for one in wanted if (one.service, one.content) in newest}


def spare(images: Iterable[MachineImage], needed: Collection[str]) -> list[MachineImage]:
    """Return the images that no launch will use. `needed` are ids; pending images belong to another run."""
    return [image for image in images if image.id not in needed and image.state != "pending"]


def tidy(gate: Gate, site: Site, releases: SiteReleases) -> list[str]:
    """Tag each image with its release, and remove images that no release needs. Returns the removed ids.

    Needed are the images of this deployment, of the serving release, of the candidate, and of the previous release.
    Raises CloudError without having removed a needed image.
    """
    images = own_images(gate, site.name)
    if not images:
        return []
    own, needed = {image.id for image in images}, set[str]()
    for name, there in site.services.items():
        newest = templates_now(there)
        # A template that is gone, together with the last types of its platform, launches no more instances.
        kept = releases.templates(name)
        versions = {*newest, *(one for one in kept if one.launch_template in there.launch_templates)}
        found = _images_of(gate, versions)
        needed.update(found.values())
        if tagged := sorted({found[one] for one in newest} & own):
            tags = [{"Key": RELEASE, "Value": there.release}]
            gate.call(gate.client("ec2").create_tags, Resources=tagged, Tags=tags)
    gone = spare(images, needed)
    for image in gone:
        remove_image(gate, image)
    return [image.id for image in gone]


def templates_now(there: SiteService) -> frozenset[TemplateVersion]:
    """Return the templates that launch the newest release; empty for releases without names."""
    if not there.release:
        return frozenset()
    return frozenset(
        there.platforms.values() or [TemplateVersion(there.launch_template, there.launch_template_version)]
    )


def _images_of(gate: Gate, versions: Collection[TemplateVersion]) -> dict[TemplateVersion, str]:
    """Return the image of each version of launch templates. Raises CloudError, also if a version is gone."""
    ec2, found = gate.client("ec2"), {}
    for template in sorted({one.launch_template for one in versions}):
        numbers = sorted((one.version for one in versions if one.launch_template == template), key=int)
        pages = gate.pages(ec2.describe_launch_template_versions, LaunchTemplateId=template, Versions=numbers)
        for one in (one for page in pages for one in page["LaunchTemplateVersions"]):
            found[TemplateVersion(template, str(one["VersionNumber"]))] = str(one["LaunchTemplateData"]["ImageId"])
    return found


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
