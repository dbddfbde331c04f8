"""From service files to a site on AWS and back: what `mark deploy` and `mark.ServiceConfig.deploy` do.

state folder (default .mark-deploy/SITE)
  terraform/            the modules as applied; terraform.tfvars.json in examples/complete
  terraform.tfstate     what there is (or in a bucket)
  artifacts/            what instances and functions boot from
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
from pathlib import Path
from typing import Any

from mark.config.pipeline_file import PipelineConfig
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

_BOUNCERS_OWN = "/var/lib/mark"  # by the unit in terraform/modules/fleet/bouncer.sh.tftpl


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Planned:
    """What `apply` would change, what the whole site then costs a month, and what its limits need of the account.

    `to_push` are functions' images that are not in their repositories yet: until they are, `changes` name them by tag.
    `to_bake` are instances' images that are baked before what serves is changed.
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
    pause: Callable[[float], object] = time.sleep  # between looks at what is being baked
    admit: Callable[[], None] = lambda: None  # has a site that is there accept keys that it lacks

    def apply(self, progress: Progress | None = None) -> Deployed:
        """Make it so. Raises MarkError with Terraform's first error; then deploy again, or destroy.

        Raises MarkError, too, for an image that could not be baked: nothing that serves has changed then.
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
        # Of the copy here the keys are here, too.
        site_file.write_text(dump_site(replace(load_site(site_file), key_file=folder / "keys")), encoding="utf-8")
        self._remember()
        site = load_site(site_file)
        self._tidy(site)
        self.repositories.remove_others(self._repositories())
        return Deployed(
            site_file,
            str(outputs["address"]),
            folder / "keys",
            dict(outputs["addresses"]),
            dict(outputs["cname"]),
            dict(outputs.get("balancer_names", {})),  # of an older state there are none
            tuple(sorted(site.services)),
        )

    def _change(self, changes: Sequence[ResourceChange], progress: Progress | None) -> None:
        if changes:
            self.terraform.apply(sum(2 if change.action == "replace" else 1 for change in changes), progress)

    def _with_images(self, progress: Progress | None) -> list[ResourceChange]:
        """Bake what is missing, and plan with it. What builders need is made first; the controller hears of nothing."""
        names = dict.fromkeys(one.service for one in self.to_bake)
        targets = [f"module.fleet[{json.dumps(name)}]" for name in names]
        if "site_toml" not in self.terraform.outputs():  # nothing was applied to its end yet
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
        """Images that no release needs go. It is no failure of the deployment where they cannot."""
        try:
            gone = tidy(self.gate, site, SiteReleases(site, open_table(site.store, self.gate)))
        except CloudError as error:
            self.say(f"images that nothing boots from any more are left for the next time: {error}")
        else:
            if gone:
                self.say(f"removed images that nothing boots from any more: {', '.join(gone)}")

    def _push(self) -> None:
        """Push the images, and plan again with their digests: nothing else may have changed meanwhile."""
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
        """Those of services with a function, also where it is a zip now: the release before may have had an image."""
        variables = json.loads((self.target.folder / VARIABLES).read_text(encoding="utf-8"))
        with_function = (name for name, service in variables["services"].items() if service.get("function"))
        return {repository_of(self.target.name, name) for name in with_function}

    def _remember(self) -> None:
        if self.target.state_bucket is not None:
            remember(self.gate, self.target.state_bucket, self.target.name, self.target.folder)


def plan(shipments: Sequence[Shipment], target: DeployTarget, say: Say) -> Planned:
    """Build what instances boot from, and ask Terraform what it would do. Changes nothing on AWS.

    Raises BadInput for what is missing here (Terraform, credentials, a region), MarkError for what fails.
    """
    target, gate = checked(target)
    check_endpoint(target)
    _check_wishes(shipments, target)
    pipelines = {one.pipeline.name: one.pipeline for one in shipments if one.pipeline is not None}
    stages = [one.service.name for one in shipments if one.pipeline is not None]
    named = [one.service.name for one in shipments if one.pipeline is None] + list(pipelines)  # by clients
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
    stage_places = placed(stages, before, classes)  # behind balancers of their own
    numbers = zone_numbers(there)
    packer = Packer(target, gate, repositories, own, pins, there.get("images", {}), say)
    on_controller = packer.for_controller()
    images = packer.images(shipments)
    archives = packer.archives(shipments)
    packed = [packer.pack(one, images.services[one.service.name], archives[one.folder]) for one in shipments]
    files = {one.folder: one.files for one in shipments}
    conducted = [packer.conductors(config, files[name], archives[name]) for name, config in pipelines.items()]

    def path(file: Path) -> str:
        return _from_root(file, target)

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
        # Besides its own 8 GiB each service's folder, and one archive as it is unpacked.
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
        len({*numbers, *target.zones}) or 3,  # one that was left keeps the balancer's address
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
    """End everything of a site: first its controller, then its instances, then what Terraform made.

    Returns what is left, by id: nothing, unless it was made elsewhere. Repeatable, and from any machine that is told
    the bucket of the state. Raises BadInput where there is no state of this site, and for another region or account
    than the site's; MarkError for what fails.
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
    # The state knows it for certain. An empty one belongs to a site that is gone, of which the files still tell.
    there = of_resources(terraform.resources())
    (there if there.regions else remembered(target.folder)).check(target.name, target.region, account)
    _end_in(target)
    repositories = ImageRepositories(gate, target.name, target.region, account)
    terraform.give("keys", key_file(keys_of(target, gate).to_destroy()))
    # Where an apply broke off there are no outputs, and perhaps a controller.
    group = terraform.outputs().get("controller_group", f"{target.name}-controller")
    say("ending the controller, then the instances that it launched")
    ended = end_instances(gate, target.name, group)
    say(f"{ended} instances ended; now Terraform's resources")
    with standing_in(target.folder):
        changes = terraform.plan(destroy=True)
        if changes:
            terraform.apply(len(changes), progress)
    remove_images(gate, target.name)
    end_strays(gate, target.name)
    repositories.remove_others()
    return leftovers(gate, target.name)


def site_releases(target: DeployTarget) -> SiteReleases:
    """The releases of a site that was deployed. Raises BadInput where there is no state of it, CloudError."""
    site, gate = site_there(target)
    return SiteReleases(site, open_table(site.store, gate))


def site_conductors(target: DeployTarget) -> ConductorReleases:
    """The conductors of a site that was deployed. Raises BadInput where there is no state of it."""
    return ConductorReleases(*site_there(target))


def policies(target: DeployTarget) -> dict[str, Any]:
    """What IAM must allow a deployer of the target, by name. Raises BadInput as `plan`."""
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
    """The keys of a site that is there, or is to be. Raises BadInput as `plan`."""
    target, gate = checked(target)
    check_remembered(target, gate)
    return keys_of(target, gate)


def say_who_is_told(changes: Sequence[ResourceChange], alarm_email: str | None, say: Say) -> None:
    """Say where alarms go: to no address, or to one that has yet to be confirmed."""
    if alarm_email is None:
        say("no address for alarms: they are only seen in CloudWatch's console")
    elif any(one.kind == "aws_sns_topic_subscription" and one.action in ("create", "replace") for one in changes):
        say(f"AWS will ask {alarm_email} by mail to confirm the address, and sends no alarm before that")


def check_kinds(shipments: Sequence[Shipment], made: Collection[str]) -> None:
    """Raises BadInput for a pipeline whose conductors would come, or go, under its name.

    `made` are the addresses of what there is. Both kinds need the same rule of the load balancer, and AWS refuses a
    second rule of one priority.
    """
    for one in shipments:
        config, other = (one.pipeline, "fleet") if one.pipeline is not None else (one.whole, "conductors")
        if config is not None and any(name.startswith(f'module.{other}["{config.name}"].') for name in made):
            before = "without conductors" if other == "fleet" else "with conductors"
            what = f"{config.name} is deployed {before}: give this one another name, and leave that one out afterwards"
            raise BadInput(what, f"{config.source} [conductors] count", config.conductors)


def classes_of(deployment: ResolvedService) -> int:
    """How many classes of capacity the types have that it may buy: as many target groups it needs."""
    pairs = zip(deployment.offers, deployment.candidates, strict=True)
    return 1 + max(capacity_classes({offer.name: one.capacity_rps for offer, one in pairs}).values(), default=0)


def _of_one_group(place: Place) -> dict[str, int]:
    """The place of conductors, which are all alike."""
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
    """Have Terraform end the site in the target's region: a dry run may have left variables of another one."""
    file = target.folder / VARIABLES
    variables = json.loads(file.read_text(encoding="utf-8"))
    if variables.get("region") != target.region:
        _write({**variables, "region": target.region}, file)


def _terraform(target: DeployTarget, gate: Gate, say: Say) -> Terraform:
    """With its folder in order: modules as they are now, state where it is to be."""
    modules = terraform_modules()
    target.folder.mkdir(parents=True, exist_ok=True)
    (target.folder / ".gitignore").write_text("*\n", encoding="utf-8")
    there = target.folder / "terraform"
    for part in ("modules", "examples"):
        # Not the whole folder: Terraform keeps its provider in it.
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


def _from_root(path: Path, target: DeployTarget) -> str:
    """As Terraform is told of a file: from its own folder, so that it is the same on every machine."""
    return os.path.relpath(path, (target.folder / VARIABLES).parent)


def _check_feedback(service: ServiceConfig | PipelineConfig) -> None:
    """Raises BadInput for a log where a bouncer on an instance may not write: it would not start."""
    if service.feedback is not None and not Path(service.feedback.log).is_relative_to(_BOUNCERS_OWN):
        what = f"must be below {_BOUNCERS_OWN}, where bouncers on instances may write"
        raise BadInput(what, f"{service.source} [feedback] log", service.feedback.log)


def _check_wishes(shipments: Sequence[Shipment], target: DeployTarget) -> None:
    """Raises BadInput for what AWS or we would refuse of them, before anything is asked."""
    pipelines = {one.folder: one.pipeline for one in shipments if one.pipeline is not None}
    names = [one.service.name for one in shipments] + list(pipelines)
    if not names:
        raise BadInput("say which services", "SERVICE")
    if len({_slug(name) for name in names}) < len(names):
        raise BadInput("two services with one name, as AWS writes names", "SERVICE", ", ".join(names))
    for one in shipments:
        check_said(one.deployment)
        _check_feedback(one.service if one.pipeline is None else one.pipeline)
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
    """Says in Terraform's variable for the services which images have been baked."""
    for one, image in images.items():
        service = services[one.service]
        service["more_platforms"].get(one.platform, service)["baked_image_id"] = image


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name).lower()
