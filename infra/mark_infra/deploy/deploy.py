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

import importlib.util
import json
import math
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mark.catalog.tables import load_catalog
from mark.config.pipeline_file import PipelineConfig, load_pipeline, names_pipeline
from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.cells import read_text
from mark.domain.errors import BadInput, CloudError, MarkError
from mark.domain.service import ResolvedService, ServiceConfig
from mark.models.files import shipped_files, walk
from mark.models.registry_place import PREFIX as REGISTRY
from mark.models.registry_unpacked import FILES, check
from mark.models.registry_unpacked import PREFIX as UNPACKED
from mark.pipelines.sited_group import sited_group
from mark.reporting.monthly import CostLine, ServiceCost, monthly
from mark.reporting.quotas import QuotaLine
from mark.rules.capacity_classes import capacity_classes
from mark.simulation.inputs import looked_up, open_service
from mark.simulation.request import RunRequest
from mark_infra.aws.gate import Gate
from mark_infra.aws.machine_images import own_images, remove_images
from mark_infra.aws.platforms import Platform, platform_of
from mark_infra.aws.session import environment_keys, open_session
from mark_infra.aws.site import Site, dump_site, load_site
from mark_infra.aws.teardown import caller, end_instances, end_strays, leftovers
from mark_infra.deploy.addresses import addresses, zone_numbers
from mark_infra.deploy.artifacts import archive, libraries, size_of
from mark_infra.deploy.bake import Bakery, ImageWanted, builder_place, types_of
from mark_infra.deploy.baked_images import content_of, newest_image, tidy, usable
from mark_infra.deploy.boots import (
    PlatformBoot,
    ServiceBoots,
    boot_timeout_of,
    first_platform,
    image_parameter,
    of_platform,
    platforms_of,
)
from mark_infra.deploy.checkout import boot_script, constraints, terraform_modules
from mark_infra.deploy.conductor_releases import ConductorReleases
from mark_infra.deploy.conductors import PackedConductors, pack_conductors
from mark_infra.deploy.deployer import deployer_policies
from mark_infra.deploy.disk import disk_gib
from mark_infra.deploy.function_image import FunctionImage, repository_of
from mark_infra.deploy.function_package import function_contents
from mark_infra.deploy.image_repositories import ImageRepositories
from mark_infra.deploy.images import PinnedImages, pinned
from mark_infra.deploy.imports import absent_imports
from mark_infra.deploy.keys import SiteKeys, key_file
from mark_infra.deploy.limits import check_said
from mark_infra.deploy.offerings import here
from mark_infra.deploy.own_wheel import wheel
from mark_infra.deploy.places import Place, default_service, placed
from mark_infra.deploy.quotas import needed, read, reservations, unreserved
from mark_infra.deploy.releases import SiteReleases
from mark_infra.deploy.remembered import VARIABLES, recall, remember, standing_in
from mark_infra.deploy.sent_function import SentFunction, push, send
from mark_infra.deploy.terraform import Progress, ResourceChange, Terraform
from mark_infra.deploy.wheelhouse import PackagesWanted, wheelhouse
from mark_infra.store.store import open_table

_BOUNCERS_OWN = "/var/lib/mark"  # by the unit in terraform/modules/fleet/bouncer.sh.tftpl
_SITE = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")
_VERSIONS = "versions"  # of a registry, in the archive
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INSTANCES = r"""^[ \t]*instances[ \t]*=[ \t]*\[(?:\s|,|#[^\n]*|"[^"\n]*"|'[^'\n]*')*\]"""  # of a service file
# What a model that is a file needs, by the kind of its reference.
GRPC_PACKAGES = ("grpcio", "protobuf")  # what a bouncer needs besides to speak it
_FILES = {"torch": "torch", "sklearn": "scikit-learn", "onnx": "onnxruntime"}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """Where to deploy, and for whom. Without a certificate clients are met by plain HTTP, from named networks only."""

    name: str = "mark"
    region: str = ""  # default: the session's own, AWS_REGION, AWS_DEFAULT_REGION, the profile's
    zones: tuple[str, ...] = ()  # default: the region's first three
    cidr: str | None = None  # of the VPC: a /16; default: the site's own, at first 10.42.0.0/16
    certificate: str | None = None  # ARN, of ACM
    domain: str | None = None  # name in that certificate, by which clients come
    hosted_zone: str | None = None  # id of Route 53's zone for it; default: its owner lets it point to the balancer
    clients: tuple[str, ...] = ("0.0.0.0/0",)
    grpc_port: int | None = None  # needs a certificate
    alarm_email: str | None = None
    budget_usd: float | None = None
    state: Path | None = None  # folder; default: .mark-deploy/NAME
    state_bucket: str | None = None  # of Terraform's own state; default: a file in the folder
    profile: str | None = None  # of AWS's configuration; default: AWS_PROFILE, as AWS's SDKs have it
    session: Any = field(default=None, repr=False)  # boto3's, instead of a profile
    cpu_index: str | None = None  # of wheels for processors alone, for services without GPUs
    max_disk_gib: int | None = None  # of an instance; default: what it needs
    newest_images: bool = False  # Amazon's, instead of those that the site has
    bake: bool = False  # images with the packages on them, for instances to boot from
    emulated: bool = False  # AWS_ENDPOINT_URL names an emulator: leave out what it lacks

    @property
    def folder(self) -> Path:
        return (self.state or Path(".mark-deploy", self.name)).absolute()


@dataclass(frozen=True, slots=True)
class Shipment:
    """A service as it is sent: its files by name, `service.toml` among them. Stages of a pipeline have its files."""

    deployment: ResolvedService
    files: dict[str, Path | bytes]
    kept_back: list[str] = field(default_factory=list)  # files that may hold a secret
    pipeline: PipelineConfig | None = None  # of which it is a stage

    @property
    def service(self) -> ServiceConfig:
        return self.deployment.service

    @property
    def folder(self) -> str:
        """Name of what is sent as a whole: the service's, or its pipeline's."""
        return self.service.name if self.pipeline is None else self.pipeline.name


@dataclass(frozen=True, slots=True)
class PackedService:
    """A service with all that its instances and its function boot from, as files."""

    shipment: Shipment
    archive: Path
    boots: ServiceBoots
    sent: SentFunction | None

    @property
    def name(self) -> str:
        return self.shipment.service.name

    def described(self, path: Callable[[Path], str], reserved: Mapping[str, int | None]) -> dict[str, Any]:
        """As Terraform's variable has it, without its place; `path` tells how a file is named there."""
        service = self.shipment.service
        described: dict[str, Any] = {
            "slo_ms": service.slo.rt_max_s * 1e3,
            "slo_attainment": service.slo.attainment,
            "max_usd_per_hour": service.max_usd_per_hour,
            "archive": path(self.archive),
            **self.boots.described(path),
        }
        if self.shipment.pipeline is not None:
            described |= {"pipeline": self.shipment.pipeline.name, "stage": service.stage}
        if service.together:
            described["together"] = list(service.together)
        if self.sent is not None and self.shipment.deployment.function is not None:
            function = self.shipment.deployment.function.offer
            described["function"] = {
                "zip": None if self.sent.file is None else path(self.sent.file),
                "image_uri": self.sent.image_uri,
                "architecture": "arm64" if function.arm64 else "x86_64",
                "memory_mb": function.memory_mb,
                "environment": environment_of(service, function.name),
                "max_usd_per_hour": _finite(service.max_function_usd_per_hour),
                "reserved_concurrency": reserved[self.name],
            }
        return described

    def images_wanted(self) -> list[ImageWanted]:
        """What is to be baked, or was before."""
        wanted = []
        for boot in self.boots.of.values():
            if boot.content:
                types = types_of(of_platform(self.shipment.deployment, boot.platform))
                wanted.append(ImageWanted(self.name, boot.content, types, boot.platform.name))
        return wanted

    def cost(self) -> ServiceCost:
        """What it may come to."""
        deployment, service = self.shipment.deployment, self.shipment.service
        cheapest = min(deployment.offers, key=lambda offer: (offer.usd_per_hour, offer.name), default=None)
        disks = {name: float(boot.disk_gib) for name, boot in self.boots.of.items()}
        own = min(disks) if cheapest is None else platform_of(cheapest.instance, cheapest.gpus).name
        function = deployment.function
        return ServiceCost(
            name=service.name,
            cheapest=cheapest.name if cheapest is not None else "instance (none suits)",
            usd_per_hour=cheapest.usd_per_hour if cheapest is not None else 0.0,
            max_usd_per_hour=service.max_usd_per_hour,
            disk_gib=disks[own],
            other_disks_gib={name: gib for name, gib in disks.items() if name != own},
            function=function.offer.name if function is not None else None,
            function_usd_per_million=function.usd_per_request * 1e6 if function is not None else 0.0,
            max_function_usd_per_hour=_finite(service.max_function_usd_per_hour),
            image_gb=self.sent.image_gb if self.sent is not None else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Deployed:
    """A site that is there."""

    site_file: Path
    address: str  # where clients send requests, as far as services are on the first load balancer
    keys_file: Path
    addresses: Mapping[str, str] = field(default_factory=dict)  # of each service and pipeline, by its name
    cnames: Mapping[str, str] = field(default_factory=dict)  # domain -> what its owner lets it point to
    balancers: Mapping[str, str] = field(default_factory=dict)  # own name of each one's load balancer
    services: tuple[str, ...] = ()  # that have releases: stages are, and pipelines are not, among them


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
            raise MarkError("what is to be changed is not what it was before the images were pushed: deploy again")
        (self.target.folder / "plan.txt").write_text(self.terraform.text(), encoding="utf-8")

    def _repositories(self) -> set[str]:
        """Those of services with a function, also where it is a zip now: the release before may have had an image."""
        variables = json.loads((self.target.folder / VARIABLES).read_text(encoding="utf-8"))
        with_function = (name for name, service in variables["services"].items() if service.get("function"))
        return {repository_of(self.target.name, name) for name in with_function}

    def _remember(self) -> None:
        if self.target.state_bucket is not None:
            remember(self.gate, self.target.state_bucket, self.target.name, self.target.folder)


def shipment(service_file: str, search: Path | None = None) -> Shipment:
    """A service with the files that it needs. `search`: where its model's code is, unless beside the service file.

    Raises BadInput, or Infeasible where no type keeps the SLO.
    """
    deployment = _deployment(service_file)
    service = deployment.service
    source = Path(service.source).resolve()
    files: dict[str, Path | bytes] = {}
    kept_back: list[str] = []
    text = source.read_text(encoding="utf-8")
    if service_file not in SERVICE_NAMES:
        folder = search or source.parent
        found, kept_back = shipped_files(folder)
        files |= found
        text = _with_tables(text, {"profile": service.profile_file, "catalog": service.catalog}, folder, files)
        text = _with_versions(text, service, files)
        _check_models(service, folder, files)
    files["service.toml"] = text.encode()
    return Shipment(deployment, files, kept_back)


def shipments(file: str) -> list[Shipment]:
    """What is to be sent by a service file, or by a pipeline file, whose stages are services each.

    Raises BadInput, also for stages that do not say their part of RT_max; Infeasible where no type keeps a stage's SLO.
    """
    if not names_pipeline(file):
        return [shipment(file)]
    config = load_pipeline(file)
    config.check_visits()
    services = config.bought_services()
    source = Path(config.source).resolve()
    found, kept_back = shipped_files(source.parent)
    files: dict[str, Path | bytes] = {**found}
    tables = {"profile": config.profile_file, "catalog": config.fleet.catalog}
    text = _with_tables(source.read_text(encoding="utf-8"), tables, source.parent, files)
    for model in [stage.model for stage in config.stages] + ([config.driver] if config.driver else []):
        _check_model(model, source.parent, files)
    files["service.toml"] = text.encode()
    made = [Shipment(_looked_up(config, service), files, kept_back, config) for service in services]
    for one in made:
        names = _stages_of(one.service)
        where = f"{config.source} [stage.{names[0]}]"
        models = [stage.model for stage in config.stages if stage.name in names]
        if one.service.versions or any(model.startswith((UNPACKED, REGISTRY)) for model in models):
            raise BadInput("a stage's model is not sent from a registry: name code, or a file", f"{where} model")
        if not _SERVICE.fullmatch(one.service.name):
            raise BadInput("with its pipeline's name it has more than 63 characters", where, one.service.name)
    return made


def _stages_of(service: ServiceConfig) -> tuple[str, ...]:
    """Of a pipeline, that are bought as this service."""
    return service.together or (service.stage,)


def _looked_up(config: PipelineConfig, service: ServiceConfig) -> ResolvedService:
    """A stage, or those that are bought together, with what it may buy."""
    if service.together:
        return sited_group(config, service, load_catalog(service.catalog)).resolved
    return looked_up(service, RunRequest(trace="", service=service.source), model_files=True)


def plan(shipments: Sequence[Shipment], target: DeployTarget, say: Say) -> Planned:
    """Build what instances boot from, and ask Terraform what it would do. Changes nothing on AWS.

    Raises BadInput for what is missing here (Terraform, credentials, a region), MarkError for what fails.
    """
    target, gate = _checked(target)
    _check_endpoint(target)
    _check_wishes(shipments, target)
    pipelines = {one.pipeline.name: one.pipeline for one in shipments if one.pipeline is not None}
    stages = [one.service.name for one in shipments if one.pipeline is not None]
    named = [one.service.name for one in shipments if one.pipeline is None] + list(pipelines)  # by clients
    terraform = _terraform(target, say)
    account = _known(lambda: caller(gate))
    say(f"account {account}, {target.region}, site {target.name}")
    repositories = ImageRepositories(gate, target.name, target.region, account)
    site_keys = _site_keys(target, gate)
    keys = site_keys.to_deploy(conductors=bool(pipelines))
    terraform.give("keys", key_file(keys))
    for config in pipelines.values():
        _say_what_stages_lack(config, target, say)
    for one in shipments:
        _say_what_functions_lack(one.deployment, say)
    found = here([one.deployment for one in shipments], gate, target.zones, say)
    shipments = _as_found(shipments, found)
    conductors = {name: config.conductors for name, config in pipelines.items()}
    quotas = read(gate, needed(found, conductors), say)
    reserved = reservations(found, quotas, say, unreserved(gate, target.name, found, say))
    built = target.folder / "artifacts"
    say("building the wheel of mark, and what the services need")
    pins, own = built / "constraints.txt", wheel(built)
    shutil.copyfile(constraints(), pins)
    for_controller = PackagesWanted("controller", {}, machine="aarch64", extras=("aws", "serve"))
    on_controller = wheelhouse(for_controller, own, pins, built / "controller" / "wheels")
    terraform.init()
    there = terraform.outputs()
    classes = {one.service.name: classes_of(one.deployment) for one in shipments}
    before = there.get("places", {})
    places = placed(named, before, classes, grpc=target.grpc_port is not None)
    stage_places = placed(stages, before, classes)  # behind balancers of their own
    numbers = zone_numbers(there)
    packer = _Packer(target, gate, repositories, own, pins, there.get("images", {}), say)
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
        "controller_wheels": path(on_controller.file),
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
    say("asking Terraform what is to be done")
    changes = terraform.plan()
    say_who_is_told(changes, target.alarm_email, say)
    (target.folder / "plan.txt").write_text(terraform.text(), encoding="utf-8")
    for change in changes:
        if change.kind == "aws_lambda_function" and change.action == "replace":
            say(f"{change.address} is replaced: instances of the release before have no function from then on")
    charges = monthly(
        [replace(one.cost(), image=target.bake) for one in packed],
        len({*numbers, *target.zones}) or 3,  # one that was left keeps the balancer's address
        balancers=len({place["balancer"] for place in places.values()} | {0}),
        stage_balancers=len({place["balancer"] for place in stage_places.values()}),
        conductors=[one.cost() for one in conducted],
        controller_disk_gib=variables["controller_disk_gb"],
    )
    to_bake = tuple(one for one in wanted if one not in baked)
    to_push = tuple(one.sent.to_push for one in packed if one.sent is not None and one.sent.to_push is not None)

    def admit() -> None:
        site_keys.admit(keys, time.time())

    return Planned(changes, charges, target, terraform, gate, repositories, say, quotas, to_bake, to_push, admit=admit)


@dataclass(frozen=True, slots=True)
class _Packer:
    """Makes the files that services boot from, below the site's folder. `before` is Terraform's output of images."""

    target: DeployTarget
    gate: Gate
    repositories: ImageRepositories
    own: Path  # the wheel of mark
    pins: Path
    before: Mapping[str, Any]
    say: Say

    def images(self, shipments: Sequence[Shipment]) -> PinnedImages:
        parameters = {one.service.name: [*map(image_parameter, platforms_of(one.deployment))] for one in shipments}
        return pinned(parameters, self.before, newest=self.target.newest_images)

    def archives(self, shipments: Sequence[Shipment]) -> dict[str, Path]:
        """By the name of what is sent as a whole; a pipeline's stages have one. Raises MarkError."""
        of: dict[str, list[Shipment]] = {}
        for one in shipments:
            of.setdefault(one.folder, []).append(one)
        made = {}
        for folder, sent in of.items():
            made[folder] = archive(sent[0].files, self.target.folder / "artifacts" / f"{folder}.tar.gz")
            _check_archive(made[folder], *sent)
            if kept_back := sent[0].kept_back:
                self.say(f"{folder}: not sent, because they may hold a secret: {', '.join(kept_back[:10])}")
        return made

    def pack(self, one: Shipment, images: Mapping[str, str | None], to: Path) -> PackedService:
        """Of one service, whose `images` are by their parameters, and its archive. Raises BadInput, MarkError."""
        name, built = one.service.name, self.target.folder / "artifacts"
        platforms = platforms_of(one.deployment)
        before = self.before.get("services", {}).get(name)
        first = first_platform([platform.name for platform in platforms], before)
        sizes = (to.stat().st_size, size_of(one.files))
        boots = {}
        for platform in platforms:
            # The files of the first are where they were before there were others.
            folder = built if platform.name == first else built / platform.name
            boots[platform.name] = self._boot(one, platform, images[image_parameter(platform)], sizes, folder)
        return PackedService(one, to, ServiceBoots(first, boots), self._function(one))

    def _boot(
        self, one: Shipment, platform: Platform, image: str | None, sizes: tuple[int, int], folder: Path
    ) -> PlatformBoot:
        name, kinds = one.service.name, libraries_of(one)
        grpc = self.target.grpc_port is not None and one.pipeline is None
        on_instances = (*kinds, *GRPC_PACKAGES) if grpc else kinds
        # With GPUs the index of wheels without is not for instances.
        cpu_index = None if platform.gpus else self.target.cpu_index
        wanted = PackagesWanted(name, one.files, on_instances, platform.machine, platform.gpus, cpu_index)
        packages = wheelhouse(wanted, self.own, self.pins, folder / "wheels")
        _check_imports(one, packages.modules)
        log_bytes = 0 if one.service.feedback is None else one.service.feedback.disk_bytes
        disk = disk_gib(name, packages, *sizes, gpus=platform.gpus, limit=self.target.max_disk_gib, log_bytes=log_bytes)
        content = ""
        if self.target.bake:
            # What is baked must be of the image that is planned, and not of one that Amazon publishes meanwhile.
            image = image or newest_image(self.gate, image_parameter(platform))
            content = content_of(image, packages.file, boot_script(), disk)
        timeout_s = boot_timeout_of(of_platform(one.deployment, platform))
        return PlatformBoot(platform, image, packages, disk, timeout_s, content)

    def conductors(self, config: PipelineConfig, files: Mapping[str, Path | bytes], to: Path) -> PackedConductors:
        """Of a pipeline whose archive is there. Raises BadInput, MarkError."""
        target, built = self.target, self.target.folder / "artifacts" / "conductors"
        return pack_conductors(
            config, files, to, self.own, self.pins, built, cpu_index=target.cpu_index, max_disk_gib=target.max_disk_gib
        )

    def _function(self, one: Shipment) -> SentFunction | None:
        if one.deployment.function is None:
            return None
        built = self.target.folder / "artifacts"
        machine = "aarch64" if one.deployment.function.offer.arm64 else "x86_64"
        needs = libraries(one.files, libraries_of(one), built / "libraries", self.pins, self.target.cpu_index, machine)
        contents = function_contents(one.files, needs)
        return send(one.service.name, contents, machine, built, self.repositories, self.say)


def destroy(target: DeployTarget, say: Say, progress: Progress | None = None) -> list[str]:
    """End everything of a site: first its controller, then its instances, then what Terraform made.

    Returns what is left, by id: nothing, unless it was made elsewhere. Repeatable, and from any machine that is told
    the bucket of the state. Raises BadInput where there is no state of this site, MarkError for what fails.
    """
    target, gate = _checked(target)
    _check_endpoint(target)
    if target.state_bucket is not None:
        recall(gate, target.state_bucket, target.name, target.folder)
    if not (target.folder / VARIABLES).is_file():
        raise BadInput(f"nothing was deployed from here as {target.name}", "state", str(target.folder))
    terraform = _terraform(target, say)
    account = _known(lambda: caller(gate))
    say(f"account {account}, {target.region}, site {target.name}")
    repositories = ImageRepositories(gate, target.name, target.region, account)
    terraform.give("keys", key_file(_site_keys(target, gate).to_destroy()))
    terraform.init()
    # Where an apply broke off there are no outputs, and perhaps a controller.
    group = terraform.outputs().get("controller_group", f"{target.name}-controller")
    say("ending the controller, then the instances that it launched")
    ended = end_instances(gate, target.name, group)
    say(f"{ended} instances ended; now what Terraform made")
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
    site, gate = _site_there(target)
    return SiteReleases(site, open_table(site.store, gate))


def site_conductors(target: DeployTarget) -> ConductorReleases:
    """The conductors of a site that was deployed. Raises BadInput where there is no state of it."""
    return ConductorReleases(*_site_there(target))


def _site_there(target: DeployTarget) -> tuple[Site, Gate]:
    target, gate = _checked(target)
    if target.state_bucket is not None:
        recall(gate, target.state_bucket, target.name, target.folder)
    site_file = target.folder / "site.toml"
    if not site_file.is_file():
        raise BadInput(f"nothing was deployed from here as {target.name}", "state", str(target.folder))
    return load_site(site_file), gate


def policies(target: DeployTarget) -> dict[str, Any]:
    """What IAM must allow a deployer of the target, by name. Raises BadInput as `plan`."""
    target, gate = _checked(target)
    return deployer_policies(
        target.name,
        target.region,
        _known(lambda: caller(gate)),
        state_bucket=target.state_bucket,
        hosted_zone=target.hosted_zone,
        domain=target.domain,
    )


def site_keys(target: DeployTarget) -> SiteKeys:
    """The keys of a site that is there, or is to be. Raises BadInput as `plan`."""
    target, gate = _checked(target)
    return _site_keys(target, gate)


def say_who_is_told(changes: Sequence[ResourceChange], alarm_email: str | None, say: Say) -> None:
    """Say where alarms go: to no address, or to one that has yet to be confirmed."""
    if alarm_email is None:
        say("no address for alarms: they are only seen in CloudWatch's console")
    elif any(one.kind == "aws_sns_topic_subscription" and one.action in ("create", "replace") for one in changes):
        say(f"AWS will ask {alarm_email} by mail to confirm the address, and sends no alarm before that")


def classes_of(deployment: ResolvedService) -> int:
    """How many classes of capacity the types have that it may buy: as many target groups it needs."""
    pairs = zip(deployment.offers, deployment.candidates, strict=True)
    return 1 + max(capacity_classes({offer.name: one.capacity_rps for offer, one in pairs}).values(), default=0)


def libraries_of(sent: Shipment) -> tuple[str, ...]:
    """What the service's models need that are files: no code says so, and perhaps no requirements.txt."""
    kinds = {reference.partition(":")[0] for reference, _ in _models(sent)}
    return tuple(sorted({_FILES[kind] for kind in kinds if kind in _FILES}))


def environment_of(service: ServiceConfig, size: str) -> dict[str, str]:
    """What the handler of a function of this size (`lambda:MEMORY_MB`) reads: of several versions, the heaviest."""
    model, version = service.model, "1"
    if service.versions:
        most = max(service.versions, key=lambda version: version.weight)
        model, version = _shipped(most.model), most.name
    elif ":" not in model:
        profile = f"&profile=service/{Path(service.profile_file).name}" if service.profile_file else ""
        model = f"mark.profiling.replay:Replay?model={model}&instance={size}{profile}"
    name = service.stage or service.name  # as its bouncers call it
    return {"MARK_MODEL": model, "MARK_MODEL_PATH": "service", "MARK_NAME": name, "MARK_VERSION": version}


def _with_tables(text: str, tables: Mapping[str, str | None], folder: Path, files: dict[str, Path | bytes]) -> str:
    """Adds `tables`, by their keys in the service file, to `files`; the file names them as they are there."""
    for key, path in tables.items():
        if path is None or not Path(path).is_file():
            continue  # shipped with mark
        inside = Path(path).resolve()
        name = inside.relative_to(folder).as_posix() if inside.is_relative_to(folder) else f"{key}-{inside.name}"
        files[name] = inside
        # The file is named as it is found from the folder's top, where service.toml will be.
        text = _said_anew(text, key, name)
    return text


def _with_versions(text: str, service: ServiceConfig, files: dict[str, Path | bytes]) -> str:
    """Adds what a registry has for the service to `files`; the service file names it as it is found there.

    So an instance asks no registry, and all instances of a site serve the same bytes until the next deployment.
    """
    registered = [version for version in service.versions if version.model.startswith(UNPACKED)]
    said = load_service(service.source).versions
    if registered and not said:  # `model` itself names a version
        (version,) = registered
        line = f'"{version.name}" = {{ model = "{_shipped(version.model)}", weight = 1.0 }}'
        text = f"{text.rstrip()}\n\n[service.versions]\n{line}\n"
    needs: list[str] = []
    for version in registered:
        folder = Path(version.model.removeprefix(UNPACKED))
        files |= {f"{_VERSIONS}/{folder.name}/{name}": path for path, name in walk(folder, folder)}
        if (own := folder / FILES / "requirements.txt").is_file():
            needs.append(read_text(own).strip())
    for before, version in zip(said, service.versions, strict=False):
        if version in registered:
            quoted = rf"""(["']){re.escape(before.model)}\1"""  # whole: one reference may be the beginning of another
            text = re.sub(quoted, json.dumps(_shipped(version.model)), text)
    if needs and "requirements.txt" not in files:
        files["requirements.txt"] = ("\n".join(dict.fromkeys(needs)) + "\n").encode()
    return text


def _shipped(model: str) -> str:
    """The reference where the archive is unpacked."""
    return f"{UNPACKED}{_VERSIONS}/{Path(model).name}" if model.startswith(UNPACKED) else model


def _as_found(shipments: Sequence[Shipment], found: Sequence[ResolvedService]) -> list[Shipment]:
    """The shipments with the types that can be had. The file of a pipeline is one for all of its stages."""
    texts: dict[str, str] = {}
    for one, deployment in zip(shipments, found, strict=True):
        if one.pipeline is not None and deployment is not one.deployment:
            text = one.files["service.toml"]
            assert isinstance(text, bytes)
            for stage in _stages_of(one.service):
                before = texts.get(one.folder, text.decode())
                texts[one.folder] = _with_stage_instances(before, stage, deployment.service.instances)
    files = {
        one.folder: {**one.files, "service.toml": texts[one.folder].encode()} if one.folder in texts else one.files
        for one in shipments
    }
    return [
        _of_these(one, deployment)
        if one.pipeline is None
        else replace(one, deployment=deployment, files=files[one.folder])
        for one, deployment in zip(shipments, found, strict=True)
    ]


def _of_these(sent: Shipment, deployment: ResolvedService) -> Shipment:
    """The shipment of a service some of whose types were left out; its file names the others."""
    if deployment is sent.deployment:
        return sent
    text = sent.files["service.toml"]
    assert isinstance(text, bytes)
    named = _with_instances(text.decode(), deployment.service.instances).encode()
    return replace(sent, deployment=deployment, files={**sent.files, "service.toml": named})


def _with_instances(text: str, instances: Sequence[str]) -> str:
    """A service file that may buy these types."""
    line = f"instances = {json.dumps(list(instances))}"
    changed, count = re.subn(_INSTANCES, lambda _: line, text, count=1, flags=re.M)
    if count:
        return changed
    changed, count = re.subn(r"^[ \t]*\[fleet\][^\n]*$", lambda head: f"{head[0]}\n{line}", text, count=1, flags=re.M)
    return changed if count else f"{text.rstrip()}\n\n[fleet]\n{line}\n"


def _with_stage_instances(text: str, stage: str, instances: Sequence[str]) -> str:
    """A pipeline file one of whose stages may buy these types."""
    line = f"instances = {json.dumps(list(instances))}"
    head = rf"""^[ \t]*\[[ \t]*stage[ \t]*\.[ \t]*(["']?){re.escape(stage)}\1[ \t]*\][^\n]*$"""
    found = re.search(head, text, flags=re.M)
    if found is None:  # written otherwise: what arrives is compared with what was checked
        return text
    after = re.search(r"^[ \t]*\[", text[found.end() :], flags=re.M)
    end = len(text) if after is None else found.end() + after.start()
    section = re.sub(_INSTANCES, "", text[found.end() : end], count=1, flags=re.M)
    return f"{text[: found.end()]}\n{line}{section}{text[end:]}"


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


def _finite(usd_per_hour: float) -> float | None:
    return usd_per_hour if math.isfinite(usd_per_hour) else None


def _said_anew(text: str, key: str, value: str) -> str:
    """A service file in which the line of `key` says `value`."""
    return re.sub(rf"^(\s*{key}\s*=\s*).*$", lambda line: line[1] + json.dumps(value), text, count=1, flags=re.M)


def _checked(target: DeployTarget) -> tuple[DeployTarget, Gate]:
    """With its region, and the way to AWS there. Raises BadInput."""
    if not _SITE.fullmatch(target.name):
        raise BadInput("must be 1 to 20 small letters, digits and dashes, a letter first", "name", target.name)
    if f"{target.name}-".startswith("internal-"):
        raise BadInput("load balancers of this name are refused by AWS: internal-... is its own", "name", target.name)
    if importlib.util.find_spec("boto3") is None:
        raise BadInput("needs boto3: pip install 'mark-serving[aws]'", "mark deploy")
    if target.profile is not None and target.session is not None:
        raise BadInput("has a profile itself: give one of the two", "session", target.profile)
    region = target.region or (os.environ.get("AWS_REGION") if target.session is None else None)
    session = open_session(target.profile, region) if target.session is None else target.session
    region = region or session.region_name or os.environ.get("AWS_REGION") or ""
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", region):
        raise BadInput("say in which region of AWS: `region`, or AWS_REGION", "region", region or None)
    site = Site(target.name, region, f"dynamodb:{target.name}-state")
    return replace(target, region=region), Gate(site, session=session)


def _credentials(target: DeployTarget) -> Callable[[], Mapping[str, str]] | None:
    """What Terraform finds the same credentials by; None: it finds them as we do.

    A profile is handed on by its name. What a session has is told anew for every command, as it may be renewed between.
    """
    if target.profile is not None:
        named = {"AWS_PROFILE": target.profile}
        return lambda: named
    if target.session is None:
        return None

    return lambda: environment_keys(target.session)


def _terraform(target: DeployTarget, say: Say) -> Terraform:
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
        s3 = {"bucket": target.state_bucket, "key": key, "region": target.region, "encrypt": True, "use_lockfile": True}
        emulated = {"use_path_style": True, "skip_credentials_validation": True} if target.emulated else {}
        backend = {"s3": s3 | emulated}
    (root / "backend.tf.json").write_text(json.dumps({"terraform": {"backend": backend}}), encoding="utf-8")
    return Terraform(root, _credentials(target), say)


def _site_keys(target: DeployTarget, gate: Gate) -> SiteKeys:
    return SiteKeys(gate, target.name, target.folder / "keys")


def _from_root(path: Path, target: DeployTarget) -> str:
    """As Terraform is told of a file: from its own folder, so that it is the same on every machine."""
    return os.path.relpath(path, (target.folder / VARIABLES).parent)


def _check_endpoint(target: DeployTarget) -> None:
    """Raises BadInput where a variable of the environment alone decides whether this is AWS."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and not target.emulated:
        raise BadInput(
            "requests would not go to AWS: unset it, or say that it is `emulated`", "AWS_ENDPOINT_URL", endpoint
        )
    if target.emulated and not endpoint:
        raise BadInput("must be where the emulator is", "AWS_ENDPOINT_URL")


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


def _known(account: Callable[[], str]) -> str:
    try:
        return account()
    except CloudError as error:
        raise BadInput(f"AWS does not know the caller: {error}", "credentials") from None


def _deployment(service_file: str) -> ResolvedService:
    return open_service(RunRequest(trace="", service=service_file), model_files=True)


def _check_models(service: ServiceConfig, folder: Path, files: dict[str, Path | bytes]) -> None:
    """Raises BadInput for a model that would not be found where the archive is unpacked."""
    for model in [version.model for version in service.versions] or [service.model]:
        _check_model(model, folder, files)


def _check_model(model: str, folder: Path, files: Mapping[str, Path | bytes]) -> None:
    """Raises BadInput as `_check_models`, also of a driver."""
    kind, colon, rest = model.partition(":")
    if not colon or kind in ("http", "https", "version"):
        return
    if kind in _FILES:
        if rest.partition("?")[0] not in files:
            raise BadInput("is not in the service's folder, which is what is sent", f"{folder}", model)
        return
    top = kind.partition(".")[0]
    here = f"{top}.py" in files or any(name.startswith(f"{top}/") for name in files)
    if not here and top != "mark" and "requirements.txt" not in files:
        raise BadInput("its module is not in the folder, and no requirements.txt brings it", f"{folder}", model)


def _models(sent: Shipment) -> Iterator[tuple[str, str]]:
    """References to the service's models, each with the folder of the archive in which it is to be looked up."""
    service = sent.service
    if sent.pipeline is not None and service.together:
        yield from ((stage.model, "") for stage in sent.pipeline.stages if stage.name in service.together)
        return
    for model in [version.model for version in service.versions] or [service.model]:
        if model.startswith(UNPACKED):
            folder = Path(model.removeprefix(UNPACKED))
            yield check(folder).content.model, f"{_VERSIONS}/{folder.name}/{FILES}"
        else:
            yield model, ""


def _check_imports(sent: Shipment, provided: Collection[str]) -> None:
    """Raises BadInput for code that no instance could import."""
    for reference, folder in _models(sent):
        for file, name in absent_imports(reference.partition(":")[0], sent.files, provided, folder):
            raise BadInput(
                "imports what instances will not have: name its package in requirements.txt", f"{file}", name
            )


def _write(variables: Mapping[str, Any], file: Path) -> None:
    file.write_text(json.dumps(variables, indent=2) + "\n", encoding="utf-8")


def _boot_from(services: Mapping[str, dict[str, Any]], images: Mapping[ImageWanted, str]) -> None:
    """Says in Terraform's variable for the services which images have been baked."""
    for one, image in images.items():
        service = services[one.service]
        service["more_platforms"].get(one.platform, service)["baked_image_id"] = image


def _check_archive(path: Path, *shipped: Shipment) -> None:
    """Raises MarkError where what arrives is not what was checked here: a service, or the stages of a pipeline."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path) as tar:
        read = [m for m in tar.getmembers() if m.name.endswith((".toml", ".csv")) or m.name.startswith(f"{_VERSIONS}/")]
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        tar.extractall(folder, members=read)
        file = str(Path(folder, "service.toml"))
        if shipped[0].pipeline is None:
            arrived = [_deployment(file)]
        else:
            config = load_pipeline(file)
            arrived = [_looked_up(config, service) for service in config.bought_services()]
    for one, there in zip(shipped, arrived, strict=True):
        if (there.offers, there.skipped) != (one.deployment.offers, one.deployment.skipped):
            raise MarkError(f"{one.service.name}: what would be sent is not what the service file says")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", name).lower()
