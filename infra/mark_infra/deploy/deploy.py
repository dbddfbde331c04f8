"""From service files to a site on AWS and back: what `mark deploy` and `mark.ServiceConfig.deploy` do.

state folder (default .mark-deploy/SITE)
  terraform/            the modules as applied; terraform.tfvars.json in examples/complete
  terraform.tfstate     Terraform's state (or in a bucket)
  artifacts/            the files from which instances and functions boot
  keys                  a copy of the site's keys (`mark_infra.deploy.keys`)
  site.toml             for `mark controller --site`
  .gitignore            of all this: it belongs in no repository
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from mark.config.pipeline_config import PipelineConfig
from mark.domain.deployed import Deployed
from mark.domain.errors import BadInput, CloudError, MarkError
from mark.domain.rules.capacity_classes import capacity_classes
from mark.domain.service import ResolvedService, ServiceConfig
from mark.models.files import listed
from mark.studies.report.monthly import CostLine, monthly
from mark.studies.report.quotas import QuotaLine
from mark_infra.aws.gate import Gate
from mark_infra.aws.machine_images import own_images, remove_images
from mark_infra.aws.site import Site, dump_site, load_site
from mark_infra.aws.teardown import caller, end_instances, end_strays, leftovers
from mark_infra.deploy.addresses import addresses, zone_numbers
from mark_infra.deploy.artifacts import size_of
from mark_infra.deploy.bake import Bakery, ImageWanted, builder_place
from mark_infra.deploy.baked_images import tidy, usable
from mark_infra.deploy.checkout import constraints, terraform_modules
from mark_infra.deploy.conductor_releases import ConductorReleases
from mark_infra.deploy.deployer import deployer_policies
from mark_infra.deploy.function_image import FunctionImage, repository_of
from mark_infra.deploy.image_repositories import ImageRepositories
from mark_infra.deploy.keys import SiteKeys, key_file
from mark_infra.deploy.limits import check_said
from mark_infra.deploy.offerings import here, offers_there
from mark_infra.deploy.own_wheel import wheel
from mark_infra.deploy.packed_services import Packer
from mark_infra.deploy.places import Place, default_service, placed
from mark_infra.deploy.quotas import needed, read, reservations, unreserved
from mark_infra.deploy.releases import SiteReleases
from mark_infra.deploy.remembered import VARIABLES, bucket_region, recall, remember, standing_in
from mark_infra.deploy.sent_function import push
from mark_infra.deploy.shipments import Shipment, as_found
from mark_infra.deploy.target import (
    DeployTarget,
    check_endpoint,
    check_remembered,
    checked,
    credentials,
    keys_of,
    known,
    site_there,
)
from mark_infra.deploy.terraform import Progress, ResourceChange, Terraform
from mark_infra.deploy.whereabouts import check_name_is_free, of_resources, remembered
from mark_infra.store.store import open_table

_BOUNCERS_OWN = "/var/lib/mark"  # the bouncers' state folder, from the unit in terraform/modules/fleet/bouncer.sh.tftpl


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Planned:
    """A deployment's changes, the whole site's monthly cost afterwards, and the quotas that its limits need.

    `to_push` are functions' images missing from their repositories; until they are pushed, `changes` name them by tag.
    `to_bake` are instances' images that are baked before the serving resources change.
    """

    changes: list[ResourceChange]
    charges: list[CostLine]
    target: DeployTarget
    terraform: Terraform
    gate: Gate
    repositories: ImageRepositories
    say: Say
    quotas: list[QuotaLine] = field(default_factory=list)
    to_bake: tuple[ImageWanted, ...] = ()
    to_push: tuple[FunctionImage, ...] = ()
    pause: Callable[[float], object] = time.sleep  # between checks of baking images
    admit: Callable[[], None] = lambda: None  # makes an existing site accept new keys

    def apply(self, progress: Progress | None = None) -> Deployed:
        """Apply the changes. Raises MarkError with Terraform's first error; then deploy again, or destroy.

        Also raises MarkError if an image could not be baked; then no serving resource has changed.
        """
        self._remember()
        self.admit()
        if self.to_push:
            self._push()
            self._remember()
        changes = self._with_images(progress) if self.to_bake else self.changes
        self._change(changes, progress)
        outputs = self.terraform.outputs()
        folder = self.target.folder
        site_file = folder / "site.toml"
        site_file.write_text(str(outputs["site_toml"]), encoding="utf-8")
        # The copy of the keys is beside this site file.
        site_file.write_text(dump_site(replace(load_site(site_file), key_file=folder / "keys")), encoding="utf-8")
        self._remember()
        site = load_site(site_file)
        self._tidy(site)
        try:
            self.repositories.remove_others(self._repositories())
        except CloudError as error:  # does not fail the deployment
            self.say(f"repositories that nothing uses any more are left for the next time: {error}")
        return Deployed(
            site_file,
            str(outputs["address"]),
            folder / "keys",
            dict(outputs["addresses"]),
            dict(outputs["cname"]),
            dict(outputs.get("balancer_names", {})),  # missing in an older state
            tuple(sorted(site.services)),
        )

    def _change(self, changes: Sequence[ResourceChange], progress: Progress | None) -> None:
        if changes:
            self.terraform.apply(sum(2 if change.action == "replace" else 1 for change in changes), progress)

    def _with_images(self, progress: Progress | None) -> list[ResourceChange]:
        """Bake the missing images, and plan with them.

        The builders' resources are created first; the controller sees no change.
        """
        names = dict.fromkeys(one.service for one in self.to_bake)
        targets = [f"module.fleet[{json.dumps(name)}]" for name in names]
        if "site_toml" not in self.terraform.outputs():  # no apply has finished yet
            targets += ["module.network", "module.state"]
        self._change(self.terraform.plan(targets=targets), progress)
        there = self.terraform.resources()
        wanted = [(one, builder_place(there, one)) for one in self.to_bake]
        baked = Bakery(self.gate, self.target.name, self.say, pause=self.pause).bake(wanted)
        file = self.target.folder / VARIABLES
        variables = json.loads(file.read_text(encoding="utf-8"))
        _boot_from(variables["services"], baked)
        _write(variables, file)
        return self.terraform.plan()

    def _tidy(self, site: Site) -> None:
        """Remove images that no release needs. A failure does not fail the deployment."""
        try:
            gone = tidy(self.gate, site, SiteReleases(site, open_table(site.store, self.gate)))
        except CloudError as error:
            self.say(f"images that nothing boots from any more are left for the next time: {error}")
        else:
            if gone:
                self.say(f"removed images that nothing boots from any more: {', '.join(gone)}")

    def _push(self) -> None:
        """Push the images, and plan again with their digests; no other change is allowed in between."""
        file = self.target.folder / VARIABLES
        variables = json.loads(file.read_text(encoding="utf-8"))
        for image in self.to_push:
            uri = push(image, self.repositories, self.target.folder / "artifacts", self.say)
            variables["services"][image.service]["function"]["image_uri"] = uri
        _write(variables, file)
        if self.terraform.plan() != self.changes:
            raise MarkError("the planned changes differ from those before the images were pushed: deploy again")
        (self.target.folder / "plan.txt").write_text(self.terraform.text(), encoding="utf-8")

    def _repositories(self) -> set[str]:
        """Return the repositories of all services with a function.

        A function that is a zip now may have had an image in its last release.
        """
        variables = json.loads((self.target.folder / VARIABLES).read_text(encoding="utf-8"))
        with_function = (name for name, service in variables["services"].items() if service.get("function"))
        return {repository_of(self.target.name, name) for name in with_function}

    def _remember(self) -> None:
        if self.target.state_bucket is not None:
            remember(self.gate, self.target.state_bucket, self.target.name, self.target.folder)


def plan(shipments: Sequence[Shipment], target: DeployTarget, say: Say) -> Planned:
    """Build the files from which instances boot, and ask Terraform for the changes. Changes nothing on AWS.

    Raises BadInput for a missing local requirement (Terraform, credentials, a region), MarkError for failures.
    """
    target, gate = checked(target)
    check_endpoint(target)
    _check_wishes(shipments, target)
    pipelines = {one.pipeline.name: one.pipeline for one in shipments if one.pipeline is not None}
    stages = [one.service.name for one in shipments if one.pipeline is not None]
    named = [one.service.name for one in shipments if one.pipeline is None] + list(pipelines)  # named by clients
    terraform = _terraform(target, gate, say)
    for one in {one.folder: one for one in shipments}.values():
        say(f"{one.folder}: sends {listed(one.files)}")
        if one.kept_back:
            say(f"{one.folder}: never sent, as logs or possible secrets: {', '.join(one.kept_back[:10])}")
    account = known(lambda: caller(gate))
    say(f"account {account}, {target.region}, site {target.name}")
    terraform.init()
    made = terraform.resources()
    of_resources(made).check(target.name, target.region, account)
    check_name_is_free(target.name, made, gate)
    check_kinds(shipments, made)
    repositories = ImageRepositories(gate, target.name, target.region, account)
    site_keys = keys_of(target, gate)
    learning = [one for one in (*pipelines.values(), *(each.whole for each in shipments)) if one and one.learns]
    keys = site_keys.to_deploy(conductors=bool(pipelines or learning))
    terraform.give("keys", key_file(keys))
    for config in pipelines.values():
        _say_what_stages_lack(config, target, say)
    for one in shipments:
        _say_what_functions_lack(one.deployment, say)
    found = here([one.deployment for one in shipments], gate, target.zones, say)
    shipments = as_found(shipments, found)
    offers = offers_there(found, gate, target.region, target.zones, say)
    conductors = {name: config.conductors for name, config in pipelines.items()}
    quotas = read(gate, needed(found, conductors), say)
    reserved = reservations(found, quotas, say, unreserved(gate, target.name, found, say))
    built = target.folder / "artifacts"
    say("building the wheel of mark and the services' requirements")
    pins, own = built / "constraints.txt", wheel(built)
    shutil.copyfile(constraints(), pins)
    there = terraform.outputs()
    classes = {one.service.name: classes_of(one.deployment) for one in shipments}
    before = there.get("places", {})
    places = placed(named, before, classes, grpc=target.grpc_port is not None)
    stage_places = placed(stages, before, classes)  # behind other balancers
    numbers = zone_numbers(there)
    packer = Packer(target, gate, repositories, own, pins, there.get("images", {}), say)
    on_controller = packer.for_controller()
    images = packer.images(shipments)
    archives = packer.archives(shipments)
    packed = [packer.pack(one, images.services[one.service.name], archives[one.folder]) for one in shipments]
    files = {one.folder: one.files for one in shipments}
    conducted = [packer.conductors(config, files[name], archives[name]) for name, config in pipelines.items()]

    def path(file: Path) -> str:
        # From Terraform's folder, so that it is the same on every machine.
        return os.path.relpath(file, (target.folder / VARIABLES).parent)

    variables: dict[str, Any] = {
        "site": target.name,
        "region": target.region,
        "zones": list(target.zones) or None,
        "zone_numbers": numbers,
        "controller_wheels": path(on_controller),
        "cidr": addresses(target.cidr, there),
        "certificate_arn": target.certificate,
        "domain": target.domain,
        "hosted_zone_id": target.hosted_zone,
        "client_cidrs": list(target.clients),
        "grpc_port": target.grpc_port,
        "alarm_email": target.alarm_email,
        "monthly_budget_usd": target.budget_usd,
        "emulated": target.emulated,
        "controller_image_id": images.controller,
        "former_image_ids": list(images.former),
        # Besides its own 8 GiB: each service's unpacked folder and one archive.
        "controller_disk_gb": 8 + math.ceil(1.5 * sum(size_of(one) for one in files.values()) / 1024**3),
        "default_service": default_service(named, there.get("default_service")),
        "services": {
            one.name: {**one.described(path, reserved), **(places | stage_places)[one.name]} for one in packed
        },
        "pipelines": {one.name: {**one.described(path), **_of_one_group(places[one.name])} for one in conducted},
    }
    wanted = [image for one in packed for image in one.images_wanted()]
    baked = usable(own_images(gate, target.name), wanted) if wanted else {}
    _boot_from(variables["services"], baked)
    _write(variables, target.folder / VARIABLES)
    say("asking Terraform for the changes")
    changes = terraform.plan()
    say_who_is_told(changes, target.alarm_email, say)
    (target.folder / "plan.txt").write_text(terraform.text(), encoding="utf-8")
    for change in changes:
        if change.kind == "aws_lambda_function" and change.action == "replace":
            say(f"{change.address} is replaced: instances of the release before have no function from then on")
    charges = monthly(
        [replace(one.cost(offers[one.name]), image=target.bake) for one in packed],
        len({*numbers, *target.zones}) or 3,  # a former zone keeps the balancer's address
        balancers=len({place["balancer"] for place in places.values()} | {0}),
        stage_balancers=len({place["balancer"] for place in stage_places.values()}),
        conductors=[one.cost() for one in conducted],
        controller_disk_gib=variables["controller_disk_gb"],
        learners=len(learning),
    )
    to_bake = tuple(one for one in wanted if one not in baked)
    to_push = tuple(one.sent.to_push for one in packed if one.sent is not None and one.sent.to_push is not None)

    def admit() -> None:
        site_keys.admit(keys, time.time())

    return Planned(changes, charges, target, terraform, gate, repositories, say, quotas, to_bake, to_push, admit=admit)


def destroy(target: DeployTarget, say: Say, progress: Progress | None = None) -> list[str]:
    """Destroy a site: first its controller, then its instances, then Terraform's resources.

    Returns the ids of remaining resources, which were created elsewhere. Repeatable, on any machine if the state is in
    a bucket. Raises BadInput if the site's state is missing, and for a region or account other than the site's;
    MarkError for failures.
    """
    target, gate = checked(target)
    check_endpoint(target)
    if target.state_bucket is not None:
        recall(gate, target.state_bucket, target.name, target.folder)
    if not (target.folder / VARIABLES).is_file():
        raise BadInput(f"nothing was deployed from here as {target.name}", "state", str(target.folder))
    account = known(lambda: caller(gate))
    terraform = _terraform(target, gate, say)
    say(f"account {account}, {target.region}, site {target.name}")
    terraform.init()
    # The state is reliable. But it is empty when the site is gone; then the files still have the account and region.
    there = of_resources(terraform.resources())
    (there if there.regions else remembered(target.folder)).check(target.name, target.region, account)
    _end_in(target)
    repositories = ImageRepositories(gate, target.name, target.region, account)
    terraform.give("keys", key_file(keys_of(target, gate).to_destroy()))
    # A failed apply leaves no outputs, but perhaps a controller.
    group = terraform.outputs().get("controller_group", f"{target.name}-controller")
    say("ending the controller, then the instances that it launched")
    ended = end_instances(gate, target.name, group)
    say(f"{ended} instances ended; now Terraform's resources")
    with standing_in(target.folder):
        changes = terraform.plan(destroy=True)
        if changes:
            terraform.apply(len(changes), progress)
    end_strays(gate, target.name)  # before images, whose refused removal must not leave a balancer running
    remove_images(gate, target.name)
    repositories.remove_others()
    return leftovers(gate, target.name)


def site_releases(target: DeployTarget) -> SiteReleases:
    """Return the releases of a deployed site. Raises BadInput if its state is missing, CloudError."""
    site, gate = site_there(target)
    return SiteReleases(site, open_table(site.store, gate))


def site_conductors(target: DeployTarget) -> ConductorReleases:
    """Return the conductors of a deployed site. Raises BadInput if its state is missing."""
    return ConductorReleases(*site_there(target))


def policies(target: DeployTarget) -> dict[str, Any]:
    """Return the IAM policies, by name, that a deployer of the target needs. Raises BadInput as `plan`."""
    target, gate = checked(target)
    return deployer_policies(
        target.name,
        target.region,
        known(lambda: caller(gate)),
        state_bucket=target.state_bucket,
        hosted_zone=target.hosted_zone,
        domain=target.domain,
    )


def site_keys(target: DeployTarget) -> SiteKeys:
    """Return the keys of a site, deployed or not. Raises BadInput as `plan`."""
    target, gate = checked(target)
    check_remembered(target, gate)
    known(lambda: caller(gate))
    return keys_of(target, gate)


def say_who_is_told(changes: Sequence[ResourceChange], alarm_email: str | None, say: Say) -> None:
    """Report where alarms go: to no address, or to an address that must be confirmed first."""
    if alarm_email is None:
        say("no address for alarms: they are only seen in CloudWatch's console")
    elif any(one.kind == "aws_sns_topic_subscription" and one.action in ("create", "replace") for one in changes):
        say(f"AWS will ask {alarm_email} by mail to confirm the address, and sends no alarm before that")


def check_kinds(shipments: Sequence[Shipment], made: Collection[str]) -> None:
    """Raise BadInput for a pipeline that would change between a kind with conductors and one without, under one name.

    `made` are the addresses of existing resources. Both kinds need the same rule of the load balancer, and AWS refuses
    a second rule with the same priority.
    """
    for one in shipments:
        config, other = (one.pipeline, "fleet") if one.pipeline is not None else (one.whole, "conductors")
        if config is not None and any(name.startswith(f'module.{other}["{config.name}"].') for name in made):
            before = "without conductors" if other == "fleet" else "with conductors"
            what = f"{config.name} is deployed {before}: give this one another name, and leave that one out afterwards"
            raise BadInput(what, f"{config.source} [conductors] count", config.conductors)


def classes_of(deployment: ResolvedService) -> int:
    """Return the number of capacity classes, and so of target groups, among the service's types."""
    pairs = zip(deployment.offers, deployment.candidates, strict=True)
    return 1 + max(capacity_classes({offer.name: one.capacity_rps for offer, one in pairs}).values(), default=0)


def _of_one_group(place: Place) -> dict[str, int]:
    """Return the place of conductors, which all have the same capacity."""
    return {"balancer": place["balancer"], "priority": place["priority"]}


def _say_what_functions_lack(one: ResolvedService, say: Say) -> None:
    if one.service.functions and one.function is None:
        named = ", ".join(one.service.functions)
        say(f"{one.service.name}: has no function: no profile of {one.service.model} on {named}")


def _say_what_stages_lack(config: PipelineConfig, target: DeployTarget, say: Say) -> None:
    if target.grpc_port is not None:
        say(f"{config.name}: conductors answer by HTTP only, none by gRPC")
    if target.bake:
        say(f"{config.name}: no image is baked for its conductors: they boot from Amazon's")


def _end_in(target: DeployTarget) -> None:
    """Set the region of Terraform's variables to the target's, because a dry run may have left another region."""
    file = target.folder / VARIABLES
    variables = json.loads(file.read_text(encoding="utf-8"))
    if variables.get("region") != target.region:
        _write({**variables, "region": target.region}, file)


def _terraform(target: DeployTarget, gate: Gate, say: Say) -> Terraform:
    """Return Terraform with its folder prepared: current modules, and the state in its place."""
    modules = terraform_modules()
    target.folder.mkdir(parents=True, exist_ok=True)
    (target.folder / ".gitignore").write_text("*\n", encoding="utf-8")
    there = target.folder / "terraform"
    for part in ("modules", "examples"):
        # Keep the folder, because Terraform stores its provider in it.
        for old in (there / part).rglob("*.tf*") if (there / part).is_dir() else ():
            if old.suffix in (".tf", ".tftpl"):
                old.unlink()
        ignored = shutil.ignore_patterns("tests", ".terraform*", "*.tfstate*", "*.tfvars*", "*.tfplan")
        shutil.copytree(modules / part, there / part, dirs_exist_ok=True, ignore=ignored)
    root = there / "examples" / "complete"
    backend: dict[str, Any] = {"local": {"path": str(target.folder / "terraform.tfstate")}}
    if target.state_bucket is not None:
        key = f"mark/{target.name}/terraform.tfstate"
        region = bucket_region(gate, target.state_bucket)
        s3 = {"bucket": target.state_bucket, "key": key, "region": region, "encrypt": True, "use_lockfile": True}
        emulated = {"use_path_style": True, "skip_credentials_validation": True} if target.emulated else {}
        backend = {"s3": s3 | emulated}
    (root / "backend.tf.json").write_text(json.dumps({"terraform": {"backend": backend}}), encoding="utf-8")
    return Terraform(root, credentials(target), say)


def _check_feedback(service: ServiceConfig | PipelineConfig) -> None:
    """Raise BadInput for a log in a place where a bouncer may not write, because the bouncer would not start."""
    if service.feedback is not None and not Path(service.feedback.log).is_relative_to(_BOUNCERS_OWN):
        what = f"must be below {_BOUNCERS_OWN}, where bouncers on instances may write"
        raise BadInput(what, f"{service.source} [feedback] log", service.feedback.log)


def _check_wishes(shipments: Sequence[Shipment], target: DeployTarget) -> None:
    """Raise BadInput for invalid services or targets before any request is made."""
    pipelines = {one.folder: one.pipeline for one in shipments if one.pipeline is not None}
    names = [one.service.name for one in shipments] + list(pipelines)
    if not names:
        raise BadInput("say which services", "SERVICE")
    if len({re.sub(r"[^A-Za-z0-9-]", "-", name).lower() for name in names}) < len(names):
        raise BadInput("two services with one name, as AWS writes names", "SERVICE", ", ".join(names))
    for one in shipments:
        check_said(one.deployment)
        _check_feedback(one.service if one.pipeline is None else one.pipeline)
    for network in target.clients:
        try:
            IPv4Network(network)
        except ValueError:
            raise BadInput("must be networks of IPv4, as 192.0.2.0/24", "clients", network) from None
    if target.certificate is None and "0.0.0.0/0" in target.clients:
        raise BadInput(
            "keys would travel the internet in clear: give `certificate`, or name your clients' networks", "clients"
        )
    if target.grpc_port is not None and target.certificate is None:
        raise BadInput("a load balancer speaks gRPC by HTTPS only: give `certificate`", "grpc_port", target.grpc_port)
    if target.domain is not None and target.certificate is None:
        raise BadInput("needs its certificate", "domain", target.domain)
    if target.budget_usd is not None and target.alarm_email is None:
        raise BadInput("needs an address that is told of it: give `alarm_email`", "budget_usd", target.budget_usd)
    if target.hosted_zone is not None and target.domain is None:
        raise BadInput("say which `domain`", "hosted_zone", target.hosted_zone)


def _write(variables: Mapping[str, Any], file: Path) -> None:
    file.write_text(json.dumps(variables, indent=2) + "\n", encoding="utf-8")


def _boot_from(services: Mapping[str, dict[str, Any]], images: Mapping[ImageWanted, str]) -> None:
    """Enter the baked images in Terraform's variable of the services."""
    for one, image in images.items():
        service = services[one.service]
        service["more_platforms"].get(one.platform, service)["baked_image_id"] = image
