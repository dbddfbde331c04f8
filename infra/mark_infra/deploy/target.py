"""The target of a deployment, and the access to AWS there."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput, CloudError
from mark_infra.aws.gate import Gate
from mark_infra.aws.session import environment_keys, open_session
from mark_infra.aws.site import Site, load_site
from mark_infra.aws.teardown import caller
from mark_infra.deploy.keys import SiteKeys
from mark_infra.deploy.remembered import recall
from mark_infra.deploy.whereabouts import remembered

_SITE = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """A deployment's target and options. Without a certificate, clients use plain HTTP, from named networks only."""

    name: str = "mark"
    region: str = ""  # default: the session's, AWS_REGION, AWS_DEFAULT_REGION, the profile's, the site's
    zones: tuple[str, ...] = ()  # default: the region's first three
    cidr: str | None = None  # a /16 for the VPC; default: the site's own, at first 10.42.0.0/16
    certificate: str | None = None  # ARN, of ACM
    domain: str | None = None  # name in that certificate, used by clients
    hosted_zone: str | None = None  # id of its zone in Route 53; default: its owner lets it point to the balancer
    clients: tuple[str, ...] = ("0.0.0.0/0",)
    grpc_port: int | None = None  # needs a certificate
    alarm_email: str | None = None
    budget_usd: float | None = None
    state: Path | None = None  # folder; default: .mark-deploy/NAME
    state_bucket: str | None = None  # of Terraform's own state; default: a file in the folder
    profile: str | None = None  # in AWS's configuration; default: AWS_PROFILE, as for AWS's SDKs
    session: Any = field(default=None, repr=False)  # boto3's, instead of a profile
    cpu_index: str | None = None  # index of wheels without GPU code, for services without GPUs
    max_disk_gib: int | None = None  # per instance; default: the size needed
    newest_images: bool = False  # Amazon's newest, instead of the site's present ones
    bake: bool = False  # bake images with the packages
    emulated: bool = False  # AWS_ENDPOINT_URL names an emulator: leave out services that it lacks

    @property
    def folder(self) -> Path:
        return (self.state or Path(".mark-deploy", self.name)).absolute()


def checked(target: DeployTarget) -> tuple[DeployTarget, Gate]:
    """Return the target with its region, and a gate to AWS there. Raises BadInput."""
    if not _SITE.fullmatch(target.name):
        raise BadInput("must be 1 to 20 small letters, digits and dashes, a letter first", "name", target.name)
    if f"{target.name}-".startswith("internal-"):
        raise BadInput("load balancers of this name are refused by AWS: internal-... is its own", "name", target.name)
    if importlib.util.find_spec("boto3") is None:
        raise BadInput("needs boto3 (pip install 'mark-serving[aws]')", "mark deploy")
    if target.profile is not None and target.session is not None:
        raise BadInput("has a profile itself: give one of the two", "session", target.profile)
    region = target.region or (os.environ.get("AWS_REGION") if target.session is None else None)
    session = open_session(target.profile, region) if target.session is None else target.session
    region = region or session.region_name or os.environ.get("AWS_REGION") or ""
    if not region:
        region = next(iter(remembered(target.folder).regions), "")
    if not region:
        raise BadInput("say in which region of AWS: `region`, or AWS_REGION", "region")
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", region):
        raise BadInput("is no name of a region, as eu-west-1", "region", region)
    site = Site(target.name, region, f"dynamodb:{target.name}-state")
    return replace(target, region=region), Gate(site, session=session)


def credentials(target: DeployTarget) -> Callable[[], Mapping[str, str]] | None:
    """Return Terraform's variables for the same credentials; None: Terraform finds them itself.

    A profile is passed by name. A session's keys are read again for every command, because they may have been renewed.
    """
    if target.profile is not None:
        named = {"AWS_PROFILE": target.profile}
        return lambda: named
    if target.session is None:
        return None

    return lambda: environment_keys(target.session)


def check_endpoint(target: DeployTarget) -> None:
    """Raise BadInput if only an environment variable decides whether requests go to AWS."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and not target.emulated:
        raise BadInput(
            "requests would not go to AWS: unset it, or say that it is `emulated`", "AWS_ENDPOINT_URL", endpoint
        )
    if target.emulated and not endpoint:
        raise BadInput("must be where the emulator is", "AWS_ENDPOINT_URL")


def known(account: Callable[[], str]) -> str:
    """Return the caller's account. Raises BadInput if AWS does not know the caller."""
    try:
        return account()
    except CloudError as error:
        raise BadInput(f"AWS does not know the caller: {error}", "credentials") from None


def keys_of(target: DeployTarget, gate: Gate) -> SiteKeys:
    """Return the keys of the target's site, with the copy in its folder."""
    return SiteKeys(gate, target.name, target.folder / "keys")


def check_remembered(target: DeployTarget, gate: Gate) -> None:
    """Raise BadInput if the target's folder has a site in another region or account."""
    there = remembered(target.folder)
    if there.regions:
        there.check(target.name, target.region, known(lambda: caller(gate)) if there.accounts else None)


def site_there(target: DeployTarget) -> tuple[Site, Gate]:
    """Return the deployed site, and a gate to it.

    Raises BadInput if its state is missing, and for a region or account other than the site's.
    """
    target, gate = checked(target)
    if target.state_bucket is not None:
        recall(gate, target.state_bucket, target.name, target.folder)
    site_file = target.folder / "site.toml"
    if not site_file.is_file():
        raise BadInput(f"nothing was deployed from here as {target.name}", "state", str(target.folder))
    check_remembered(target, gate)
    return load_site(site_file), gate
