"""Baking an image, against moto: the builder, its image, and that no builder is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import Inventory
from mark_infra.aws.machine_images import own_images
from mark_infra.aws.orphans import orphans
from mark_infra.aws.site import Site
from mark_infra.aws.teardown import end_instances
from mark_infra.deploy.bake import (
    BAKED,
    BOOT_S,
    BUILDER,
    FORSAKEN_S,
    Bakery,
    BuilderPlace,
    ImageWanted,
    builder_place,
    outcome,
    to_end,
    types_of,
)

from mark.domain.errors import MarkError
from mark.domain.offer import Market
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from tests.infra.conftest import REGION, MotoServer, moto_app, serving
from tests.infra.deploy.ec2_gaps import Ec2Gaps

SITE = Site("mark", REGION, "sqlite:none")
LOG = "/mark/mark/services/echo"


@dataclass
class World:
    """AWS with a launch template of the service echo; consoles of builders show `last_words`."""

    moto: MotoServer
    gate: Gate
    wanted: ImageWanted
    place: BuilderPlace
    last_words: str = f"{BAKED}\n"
    said: list[str] = field(default_factory=list)
    now_s: float = 0.0
    longer_s: float = 0.0  # how much longer a pause lasts than it should
    at_pause: Callable[[], None] | None = None

    def bakery(self) -> Bakery:
        return Bakery(self.gate, "mark", self.said.append, monotonic=lambda: self.now_s, pause=self.pause)

    def bake(self) -> dict[ImageWanted, str]:
        return self.bakery().bake([(self.wanted, self.place)])

    def pause(self, seconds: float) -> None:
        self.now_s += seconds + self.longer_s
        if self.at_pause is not None:
            self.at_pause()
        logs = self.moto.client("logs")
        there = {one["logStreamName"] for one in logs.describe_log_streams(logGroupName=LOG)["logStreams"]}
        for instance in self.instances("running"):
            stream = f"boot/{instance['InstanceId']}"
            if self.last_words and stream not in there:
                logs.create_log_stream(logGroupName=LOG, logStreamName=stream)
                now_ms = int(datetime.now(UTC).timestamp() * 1e3)
                event = {"timestamp": now_ms, "message": self.last_words}
                logs.put_log_events(logGroupName=LOG, logStreamName=stream, logEvents=[event])

    def instances(self, *states: str) -> list[dict[str, Any]]:
        found = self.moto.client("ec2").describe_instances()["Reservations"]
        every = [i for r in found for i in r["Instances"]]
        return [i for i in every if not states or i["State"]["Name"] in states]

    def alive(self) -> list[dict[str, Any]]:
        return self.instances("pending", "running", "stopping", "stopped")

    def image_states(self) -> list[str]:
        return [image.state for image in own_images(self.gate, "mark")]


def tags_of(thing: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in thing["Tags"]}


@pytest.fixture(scope="module")
def ec2_gaps() -> Ec2Gaps:
    return Ec2Gaps(moto_app())


@pytest.fixture(scope="module")
def moto(ec2_gaps: Ec2Gaps) -> Iterator[MotoServer]:
    with serving(ec2_gaps) as found:
        yield found


@pytest.fixture
def world(moto: MotoServer, ec2_gaps: Ec2Gaps) -> World:
    moto.reset()
    ec2_gaps.sold_out.clear()
    ec2 = moto.client("ec2")
    image = ec2.register_image(Name="al2023", RootDeviceName="/dev/xvda")["ImageId"]
    tags = [{"Key": "mark:site", "Value": "mark"}, {"Key": "mark:service", "Value": "echo"}]
    described = {"ImageId": image, "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]}
    template = ec2.create_launch_template(LaunchTemplateName="mark-echo-bouncer", LaunchTemplateData=described)
    subnets = sorted(subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"])[:2]
    moto.client("logs").create_log_group(logGroupName=LOG)
    place = BuilderPlace(template["LaunchTemplate"]["LaunchTemplateId"], "1", tuple(subnets), LOG)
    gate = Gate(SITE, options=moto.options)
    return World(moto, gate, ImageWanted("echo", "0123456789abcdef", ("c5.large", "c5.xlarge"), "x86_64"), place)


def test_a_builder_that_booted_becomes_an_image(world: World) -> None:
    made = world.bake()
    (image,) = own_images(world.gate, "mark")
    assert made == {world.wanted: image.id}
    assert (image.service, image.content, image.usable) == ("echo", "0123456789abcdef", True)
    (snapshot,) = world.moto.client("ec2").describe_snapshots(SnapshotIds=list(image.snapshots))["Snapshots"]
    assert tags_of(snapshot)["mark:site"] == "mark"
    assert world.alive() == []
    (builder,) = world.instances()
    assert world.said == [f"echo (x86_64): baking an image on a c5.large ({builder['InstanceId']})"]


def test_it_is_stopped_before_its_disk_is_copied(world: World) -> None:
    states: list[str] = []

    def look(**_: Any) -> None:
        states.extend(i["State"]["Name"] for i in world.instances())

    world.gate.client("ec2", patient=True).meta.events.register("before-call.ec2.CreateImage", look)
    world.bake()
    assert states == ["stopped"]


def test_a_builder_is_no_instance_of_its_service(world: World) -> None:
    """The controller does not count it, the sweep of orphans leaves it alone, and a site's end ends it."""
    world.last_words = ""

    class Looked(Exception):
        pass

    def look() -> None:
        inventory = Inventory(world.gate, SITE)
        snapshot = inventory.snapshot()
        assert snapshot.of("echo") == ()
        assert [machine.service for machine in snapshot.of("echo/image")] == ["echo/image"]
        assert orphans(snapshot, ["echo"]) == []
        (builder,) = world.alive()
        assert tags_of(builder)["mark:site"] == "mark"
        assert end_instances(world.gate, "mark", None, pause=lambda _: None) == 1
        raise Looked

    world.at_pause = look
    with pytest.raises(Looked):
        world.bake()


@pytest.mark.parametrize("words", ["ERROR: no such package\nexit 1\n", "workers reach the metadata service\n"])
def test_a_failed_boot_says_why(world: World, words: str) -> None:
    world.last_words = words
    with pytest.raises(MarkError, match=words.split("\n")[0]):
        world.bake()
    assert world.alive() == []
    assert world.image_states() == []


def test_a_builder_that_says_nothing_is_given_up(world: World) -> None:
    world.last_words = ""
    world.longer_s = 600.0
    with pytest.raises(MarkError, match=r"^echo \(x86_64\): the builder did not finish to boot within 1800 s$"):
        world.bake()
    assert world.now_s > BOOT_S
    assert world.alive() == []


@pytest.mark.parametrize(
    "call", ["RunInstances", "DescribeInstances", "StopInstances", "CreateImage", "DescribeImages"]
)
def test_a_failure_at_any_step_leaves_no_builder(world: World, call: str) -> None:
    """The failure comes after a call was done and its answer lost, as by an interrupt from the keyboard."""
    refused: list[str] = []

    def interrupt(**_: Any) -> None:
        if not refused:
            refused.append(call)
            raise KeyboardInterrupt

    for patient in (False, True):
        events = world.gate.client("ec2", patient=patient).meta.events
        events.register(f"after-call.ec2.{call}", interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.bake()
    assert refused == [call]
    assert world.alive() == []


def test_builder_that_ec2_does_not_know_keeps_no_other_from_being_ended(world: World) -> None:
    """EC2 ends none of several instances if it does not know one of them, as it may after a launch."""

    def forget() -> None:
        first, *_ = world.moto.backend("ec2").reservations.values()
        first.instances = []

    world.at_pause, world.last_words, world.longer_s = forget, "", 600.0
    arm = replace(world.wanted, content="fedcba9876543210", platform="arm64")
    with pytest.raises(MarkError, match="did not finish to boot"):
        world.bakery().bake([(world.wanted, world.place), (arm, world.place)])
    assert [i["State"]["Name"] for i in world.instances()] == ["terminated"]


def test_an_image_that_is_not_whole_goes(world: World) -> None:
    def fail() -> None:
        for image in world.moto.backend("ec2").amis.values():
            if image.name.startswith("mark-echo"):
                image.state = "failed"

    events = world.gate.client("ec2", patient=True).meta.events
    events.register("after-call.ec2.CreateImage", lambda **_: fail())
    with pytest.raises(MarkError, match="echo: its image is failed"):
        world.bake()
    assert world.image_states() == []
    assert world.alive() == []
    snapshots = world.moto.client("ec2").describe_snapshots(OwnerIds=["self"])["Snapshots"]
    assert [one for one in snapshots if "mark:site" in tags_of({"Tags": one.get("Tags", [])})] == []


def test_an_image_that_cannot_be_removed_keeps_no_other(world: World) -> None:
    """The error says why the image was not made, and the next deployment removes the one that is left."""
    refused: list[str] = []

    def fail(**_: Any) -> None:
        for image in world.moto.backend("ec2").amis.values():
            if image.name.startswith("mark-echo"):
                image.state = "failed"

    def refuse(**_: Any) -> None:
        if not refused:
            refused.append("DeregisterImage")
            said = {"Error": {"Code": "UnauthorizedOperation"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
            raise ClientError(said, "DeregisterImage")  # type: ignore[arg-type]

    for patient in (False, True):
        events = world.gate.client("ec2", patient=patient).meta.events
        events.register("after-call.ec2.CreateImage", fail)
        events.register("before-call.ec2.DeregisterImage", refuse)
    arm = replace(world.wanted, content="fedcba9876543210", platform="arm64")
    with pytest.raises(MarkError, match="echo: its image is failed"):
        world.bakery().bake([(world.wanted, world.place), (arm, world.place)])
    assert refused
    assert world.image_states() == ["failed"]


def test_an_unavailable_type_is_passed_over(world: World, ec2_gaps: Ec2Gaps) -> None:
    ec2_gaps.sold_out.add("c5.large")
    world.bake()
    assert [i["InstanceType"] for i in world.instances()] == ["c5.xlarge"]


def test_without_any_type_the_last_refusal_is_told(world: World, ec2_gaps: Ec2Gaps) -> None:
    ec2_gaps.sold_out |= {"c5.large", "c5.xlarge"}
    with pytest.raises(MarkError, match=r"^echo \(x86_64\): no instance to bake an image on: Insufficient"):
        world.bake()


def test_a_builder_ended_by_another_gives_no_image(world: World) -> None:
    def end() -> None:
        ids = [i["InstanceId"] for i in world.alive()]
        world.moto.client("ec2").terminate_instances(InstanceIds=ids)

    world.at_pause = end
    with pytest.raises(MarkError, match=r"^echo \(x86_64\): its image was not baked: its instance ended"):
        world.bake()


def test_last_words_decide_what_became_of_a_boot() -> None:
    assert outcome([], "running") is None
    assert outcome([], "pending") is None
    assert outcome([f"{BAKED}\n"], "running") == ""
    assert outcome([f"{BAKED}\n"], "terminated") == ""
    assert outcome(["a\r\nb\n\n"], "running") == "a / b"
    assert outcome([], "shutting-down") == "its instance ended without a word"
    assert outcome(["\n"], "terminated") == "it did not say why"


def test_builders_of_other_runs_are_ended_when_forsaken() -> None:
    def builder(run: str, launched_unix_s: float) -> dict[str, Any]:
        at = datetime.fromtimestamp(launched_unix_s, UTC)
        return {"InstanceId": f"i-{run}", "LaunchTime": at, "Tags": [{"Key": BUILDER, "Value": run}]}

    now_s = 1e9
    instances = [builder("mine", now_s), builder("other", now_s - 60.0), builder("old", now_s - FORSAKEN_S - 1.0)]
    assert to_end(instances, "mine", now_s) == ["i-mine", "i-old"]


def test_the_cheapest_type_comes_first_and_spot_never() -> None:
    deployment = open_service(RunRequest(trace="", service="inception-v3-2026"))
    types = types_of(deployment)
    price = {offer.instance: offer.usd_per_hour for offer in deployment.offers if offer.market is not Market.SPOT}
    assert list(types) == sorted(price, key=lambda name: (price[name], name))


def test_each_platform_of_a_service_has_its_image(world: World) -> None:
    """Each is baked from its own launch template, on its own types, and both at the same time."""
    ec2 = world.moto.client("ec2")
    described = ec2.describe_launch_template_versions(LaunchTemplateId=world.place.launch_template)
    data = described["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    made = ec2.create_launch_template(LaunchTemplateName="mark-echo-bouncer-arm64", LaunchTemplateData=data)
    place = replace(world.place, launch_template=made["LaunchTemplate"]["LaunchTemplateId"])
    arm = ImageWanted("echo", "fedcba9876543210", ("c7g.large",), "arm64")
    images = world.bakery().bake([(world.wanted, world.place), (arm, place)])
    assert {one.id: one.content for one in own_images(world.gate, "mark")} == {
        images[one]: one.content for one in (world.wanted, arm)
    }
    assert {i["InstanceType"] for i in world.instances()} == {"c5.large", "c7g.large"}
    assert world.alive() == []


def test_a_place_is_read_from_what_terraform_made() -> None:
    there: dict[str, Any] = {
        'module.fleet["echo.slow"].aws_launch_template.this': {"id": "lt-2", "latest_version": 3},
        'module.fleet["echo.slow"].aws_launch_template.more["x86_64-gpu"]': {"id": "lt-3", "latest_version": 1},
        'module.fleet["echo.slow"].aws_cloudwatch_log_group.this': {"name": LOG},
        'module.network.aws_subnet.private["b"]': {"id": "subnet-b"},
        'module.network.aws_subnet.private["a"]': {"id": "subnet-a"},
        'module.network.aws_subnet.public["a"]': {"id": "subnet-p"},
    }
    slow, gpu = (ImageWanted("echo.slow", "", (), platform) for platform in ("x86_64", "x86_64-gpu"))
    assert builder_place(there, slow) == BuilderPlace("lt-2", "3", ("subnet-a", "subnet-b"), LOG)
    assert builder_place(there, gpu) == BuilderPlace("lt-3", "1", ("subnet-a", "subnet-b"), LOG)
    with pytest.raises(MarkError, match=r"^echo \(x86_64\): Terraform has made no launch template"):
        builder_place(there, replace(slow, service="echo"))
