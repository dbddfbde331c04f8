"""Bake a machine image from an instance that boots like a service's instances; the instance is always terminated.

The builder is launched from the service's own launch template. Its tag mark:service is `echo/image` for a service
`echo`, a name that no service can have. By this tag the boot script recognises a builder: it fetches no keys, waits
until its bouncer is ready, wipes secrets and everything specific to the instance, and reports in the service's log. The
controller counts the builder for no service, and the sweep of orphans ignores instances that no controller launched.
Destroying the site finds the builder by the site's tag. A builder without a deployer terminates itself after an hour,
unless it was stopped already; then the next bake terminates it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mark.domain.errors import CapacityError, CloudError, MarkError, NotFoundError
from mark.domain.offer import Market
from mark.domain.service import ResolvedService
from mark_infra.aws.gate import Gate, launch_refusal
from mark_infra.aws.inventory import SERVICE, SITE
from mark_infra.aws.machine_images import CONTENT, MachineImage, own_images, remove_image
from mark_infra.aws.termination import terminate

TO_BAKE = "/image"  # suffix of a service's name, recognised by terraform/modules/fleet/bouncer.sh.tftpl
BUILDER = "mark:builder"  # tag with the id of the run that launched it
BAKED = "baked"  # a builder's last report
LOOK_S = 5.0
BOOT_S = 1800.0  # enough for large packages and models; the script waits ten minutes for the bouncer
STOP_S, IMAGE_S = 600.0, 3600.0
PROFILE_S = 60.0  # EC2 may need this long to know an instance profile that IAM has just created
FORSAKEN_S = 2 * 3600.0  # an older builder belongs to a killed run
_AT_ONCE = 5  # builders, because a new account may run 32 vCPUs
_THERE = ["pending", "running", "stopping", "stopped"]
_ENDED = ("shutting-down", "terminated", "")


@dataclass(frozen=True, slots=True)
class ImageWanted:
    """An image to bake. `types` are the service's own types at a fixed price, the cheapest first.

    All types are of one platform, and the image is for this platform's launch template.
    """

    service: str
    content: str
    types: tuple[str, ...]
    platform: str

    def __str__(self) -> str:
        return f"{self.service} ({self.platform})"


@dataclass(frozen=True, slots=True)
class BuilderPlace:
    """The launch template, subnets and log group of a builder."""

    launch_template: str
    version: str
    subnets: tuple[str, ...]
    log_group: str


@dataclass(frozen=True, slots=True)
class Builder:
    """An instance that becomes an image."""

    id: str
    wanted: ImageWanted
    place: BuilderPlace


class Bakery:
    """Bakes images for one site. `say` gets the progress. Waiting uses `pause` only."""

    def __init__(
        self,
        gate: Gate,
        site: str,
        say: Callable[[str], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._gate, self._site, self._say = gate, site, say
        self._monotonic, self._pause = monotonic, pause
        self._run = uuid.uuid4().hex[:16]
        self._running: list[str] = []  # ids of builders that are not terminated yet

    def bake(self, wanted: Sequence[tuple[ImageWanted, BuilderPlace]]) -> dict[ImageWanted, str]:
        """Return the ids of the images. Raises MarkError with the service, and the reason why its builder did not boot.

        After an error or an interrupt, no builder and no incomplete image is left. Complete images are kept, and the
        next run finds them by their content.
        """
        made: dict[ImageWanted, str] = {}
        with self._ended_anyway():
            for start in range(0, len(wanted), _AT_ONCE):
                made |= self._bake_some(wanted[start : start + _AT_ONCE])
        return made

    def _bake_some(self, wanted: Sequence[tuple[ImageWanted, BuilderPlace]]) -> dict[ImageWanted, str]:
        builders = [self._launch(one, place) for one, place in wanted]
        self._each(builders, self._has_booted, BOOT_S, "did not finish to boot")
        ec2 = self._gate.client("ec2")
        self._gate.call(ec2.stop_instances, InstanceIds=[builder.id for builder in builders])
        self._each(builders, self._has_stopped, STOP_S, "was not stopped")
        with self._whole_or_gone() as images:
            for builder in builders:
                images[builder.wanted] = self._create_image(builder)
            self._each(builders, lambda one: self._is_made(images[one.wanted]), IMAGE_S, "gave no image")
        self._end()
        return images

    # -- a builder -----------------------------------------------------------------------------------------------------

    def _launch(self, wanted: ImageWanted, place: BuilderPlace) -> Builder:
        """Launch a builder on the cheapest available type, in any zone that has it. Raises MarkError."""
        refused: CloudError = CapacityError("it has no type with a fixed price")
        for kind in wanted.types:
            for subnet in place.subnets:
                try:
                    id = self._launched(wanted, place, kind, subnet)
                except CloudError as error:
                    refused = launch_refusal(error)
                    if not isinstance(refused, CapacityError):
                        raise
                    continue
                self._running.append(id)
                self._say(f"{wanted}: baking an image on a {kind} ({id})")
                return Builder(id, wanted, place)
        raise MarkError(f"{wanted}: no instance to bake an image on: {refused}")

    def _launched(self, wanted: ImageWanted, place: BuilderPlace, kind: str, subnet: str) -> str:
        tags = {SITE: self._site, SERVICE: wanted.service + TO_BAKE, BUILDER: self._run}
        described = [{"Key": key, "Value": value} for key, value in tags.items()]
        until_s, token = self._monotonic() + PROFILE_S, uuid.uuid4().hex
        ec2 = self._gate.client("ec2", patient=True)
        while True:
            try:
                answer = self._gate.call(
                    ec2.run_instances,
                    patient=True,
                    LaunchTemplate={"LaunchTemplateId": place.launch_template, "Version": place.version},
                    InstanceType=kind,
                    SubnetId=subnet,
                    MinCount=1,
                    MaxCount=1,
                    ClientToken=token,
                    TagSpecifications=[{"ResourceType": "instance", "Tags": described}],
                )
                return str(answer["Instances"][0]["InstanceId"])
            except CloudError as error:
                if "instance profile" not in str(error).lower() or self._monotonic() > until_s:
                    raise
                self._pause(LOOK_S)

    def _has_booted(self, builder: Builder) -> bool:
        """Return whether the builder has booted. Raises MarkError with the reason if it cannot."""
        state = self._state(builder)  # before the log, because an ended builder writes no more
        said = outcome(self._words(builder), state)
        if said:
            raise MarkError(f"{builder.wanted}: its image was not baked: {said}")
        return said is not None

    def _has_stopped(self, builder: Builder) -> bool:
        state = self._state(builder)
        if state in _ENDED:
            raise MarkError(f"{builder.wanted}: its image was not baked: {builder.id} was ended by another")
        return state == "stopped"

    def _state(self, builder: Builder) -> str:
        """Return EC2's state of the builder; pending if EC2 does not show it yet."""
        try:
            ec2 = self._gate.client("ec2")
            answer = self._gate.call(ec2.describe_instances, InstanceIds=[builder.id])
        except NotFoundError:
            return "pending"
        return str(next((i["State"]["Name"] for r in answer["Reservations"] for i in r["Instances"]), ""))

    def _words(self, builder: Builder) -> list[str]:
        """Return the reports of the boot script; empty before the first."""
        try:
            answer = self._gate.call(
                self._gate.client("logs").get_log_events,
                logGroupName=builder.place.log_group,
                logStreamName=f"boot/{builder.id}",
                startFromHead=True,
            )
        except NotFoundError:
            return []
        return [event["message"] for event in answer["events"]]

    # -- its image -----------------------------------------------------------------------------------------------------

    def _create_image(self, builder: Builder) -> str:
        wanted = builder.wanted
        tags = {SITE: self._site, SERVICE: wanted.service, CONTENT: wanted.content, BUILDER: self._run}
        described = [{"Key": key, "Value": value} for key, value in tags.items()]
        ec2 = self._gate.client("ec2", patient=True)
        answer = self._gate.call(
            ec2.create_image,
            patient=True,
            InstanceId=builder.id,
            Name=f"{self._site}-{wanted.service}-{wanted.content}-{self._run[:8]}",
            TagSpecifications=[{"ResourceType": kind, "Tags": described} for kind in ("image", "snapshot")],
        )
        return str(answer["ImageId"])

    def _is_made(self, id: str) -> bool:
        image = next((one for one in self._images() if one.id == id), None)
        if image is not None and image.state not in ("pending", "available"):
            raise MarkError(f"{image.service}: its image is {image.state}: {image.reason or 'AWS does not say why'}")
        return image is not None and image.usable

    @contextmanager
    def _whole_or_gone(self) -> Iterator[dict[ImageWanted, str]]:
        """Collect the images begun in the block; after an error, remove the incomplete ones."""
        begun: dict[ImageWanted, str] = {}
        try:
            yield begun
        except BaseException:
            for image in self._images():
                if image.id in begun.values() and not image.usable:
                    try:
                        remove_image(self._gate, image)
                    except CloudError as error:  # the next deployment removes it
                        self._say(f"{image.id} is left for the next time: {error}")
            raise

    def _images(self) -> list[MachineImage]:
        return own_images(self._gate, self._site)

    # -- the end -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _ended_anyway(self) -> Iterator[None]:
        """After the block, terminate all builders of this run and of killed runs."""
        try:
            yield
        finally:
            try:
                self._end()  # first without asking, because EC2 may not show new launches yet
            finally:
                self._running = self._left()
                self._end()

    def _left(self) -> list[str]:
        """Return the builders to terminate: of launches without an answer, and of killed runs."""
        filters = [
            {"Name": f"tag:{SITE}", "Values": [self._site]},
            {"Name": "tag-key", "Values": [BUILDER]},
            {"Name": "instance-state-name", "Values": _THERE},
        ]
        ec2 = self._gate.client("ec2")
        pages = self._gate.pages(ec2.describe_instances, Filters=filters)
        instances = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return to_end(instances, self._run, time.time())

    def _end(self) -> None:
        if self._running:
            terminate(self._gate, self._running)
            self._running = []

    def _each(self, builders: Iterable[Builder], done: Callable[[Builder], bool], longest_s: float, else_: str) -> None:
        """Wait until each builder is done. Raises MarkError if that takes too long."""
        until_s = self._monotonic() + longest_s
        waiting = list(builders)
        while waiting := [builder for builder in waiting if not done(builder)]:
            if self._monotonic() > until_s:
                names = ", ".join(str(builder.wanted) for builder in waiting)
                raise MarkError(f"{names}: the builder {else_} within {longest_s:.0f} s")
            self._pause(LOOK_S)


def types_of(deployment: ResolvedService) -> tuple[str, ...]:
    """Return the service's types at a fixed price, the cheapest first; for a spot-only service all types."""
    fixed = [offer for offer in deployment.offers if offer.market is not Market.SPOT] or deployment.offers
    priced = sorted(fixed, key=lambda offer: (offer.usd_per_hour, offer.name))
    return tuple(dict.fromkeys(offer.instance for offer in priced))


def builder_place(there: Mapping[str, Mapping[str, Any]], wanted: ImageWanted) -> BuilderPlace:
    """Return where to launch the builder, from Terraform's resources (address -> attributes).

    Raises MarkError if they lack something.
    """
    fleet = f"module.fleet[{json.dumps(wanted.service)}]"
    first = there.get(f"{fleet}.aws_launch_template.this")
    template = there.get(f"{fleet}.aws_launch_template.more[{json.dumps(wanted.platform)}]", first)
    log = there.get(f"{fleet}.aws_cloudwatch_log_group.this")
    subnet = "module.network.aws_subnet.private["
    subnets = [one["id"] for address, one in sorted(there.items()) if address.startswith(subnet)]
    if template is None or log is None or not subnets:
        raise MarkError(f"{wanted}: Terraform has made no launch template to bake an image by")
    return BuilderPlace(template["id"], str(template["latest_version"]), tuple(subnets), log["name"])


def outcome(words: Sequence[str], state: str) -> str | None:
    """Return the result of a builder's boot: "" if it succeeded, the reason if it failed, None if it still boots.

    `words` are the boot script's reports in the service's log, `state` is EC2's.
    """
    for said in words:
        return "" if said.strip() == BAKED else _last_lines(said)
    return "its instance ended without a word" if state in _ENDED else None


def to_end(instances: Iterable[dict[str, Any]], run: str, now_unix_s: float) -> list[str]:
    """Return the ids of this run's builders, and of builders too old for another run that is still active."""
    found = []
    for instance in instances:
        of = next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == BUILDER)
        if of == run or now_unix_s - instance["LaunchTime"].timestamp() > FORSAKEN_S:
            found.append(str(instance["InstanceId"]))
    return found


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return " / ".join(lines[-6:]) or "it did not say why"
