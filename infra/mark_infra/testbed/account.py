"""The limits of an AWS account: quotas, offers by zone, images and types, and how long launches take.

Pure: facts and decisions. `generous` is an account without limits. `strict` refuses like AWS and has room for a fleet;
`new` refuses likewise and has the quotas of a new AWS account. docs/testbed.md names the sources.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from mark.cloud.ec2.refusal import quota_of
from mark.domain.errors import BadInput
from mark.domain.offer import Market, Offer
from mark_infra.testbed.iam import IamPolicy

NO_SPOT = "no-spot"
# An organisation's policy that forbids spot, in the usual form.
_SCPS: dict[str, Mapping[str, Any]] = {
    NO_SPOT: {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "*", "Resource": "*"},
            {
                "Sid": "NoSpot",
                "Effect": "Deny",
                "Action": "ec2:RunInstances",
                "Resource": "arn:aws:ec2:*:*:instance/*",
                "Condition": {"StringEquals": {"ec2:InstanceMarketType": "spot"}},
            },
        ],
    }
}
_QUOTA_CODES = {
    ("standard", False): ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
    ("g and vt", False): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("p", False): ("L-417A185B", "Running On-Demand P instances"),
    ("inf", False): ("L-1945791B", "Running On-Demand Inf instances"),
    ("standard", True): ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
    ("g and vt", True): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("p", True): ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("p5", True): ("L-C4BD4855", "All P5 Spot Instance Requests"),
    ("inf", True): ("L-B5D1601B", "All Inf Spot Instance Requests"),
}
_FUNCTIONS_CODE = ("L-B99A9384", "Concurrent executions")
_OFFERINGS = Path("ec2", "resources", "instance_type_offerings", "availability-zone")  # in moto
# Root disks of Amazon's images, by a part of their parameter's path.
_SNAPSHOT_GIB = {"ami-amazon-linux-latest": 8, "deeplearning": 75}
# GPUs that the deep-learning image's driver supports: T4 and newer (release notes of the base image, driver 595).
_GPUS_OF_IMAGE = ("g4dn", "g5", "g6", "gr6", "g7", "p4", "p5", "p6")


class AccountKind(StrEnum):
    """The kinds of accounts; see the module."""

    GENEROUS = "generous"
    STRICT = "strict"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class AccountRefusal:
    """An error of AWS."""

    code: str
    message: str
    status: int = 400


@dataclass(frozen=True, slots=True)
class CloudAccount:
    """An account's limits. A generous account ignores all fields.

    `vcpus` by family and whether spot, as in `mark.cloud.ec2.refusal.quota_of`; missing quotas are zero.
    """

    kind: AccountKind = AccountKind.GENEROUS
    vcpus: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    function_concurrency: int | None = None
    scps: tuple[IamPolicy, ...] = ()
    fleets_take_s: tuple[float, float] = (1.0, 15.0)  # control seconds, at least and at most

    @property
    def enforces(self) -> bool:
        return self.kind is not AccountKind.GENEROUS

    def quota(self, offer: Offer) -> int | None:
        """Return the vCPUs of the offer's quota; None: no limit."""
        return self.vcpus.get(quota_of(offer), 0) if self.enforces else None

    def room(self, offer: Offer, count: int, running: Iterable[Offer]) -> int:
        """Return how many of `count` more instances the offer's quota allows beside the running ones."""
        quota = self.quota(offer)
        if quota is None:
            return count
        bucket = quota_of(offer)
        used = sum(one.vcpu for one in running if quota_of(one) == bucket)
        return max(0, min(count, int((quota - used) // max(offer.vcpu, 1.0))))

    def over_quota(self, offer: Offer) -> AccountRefusal:
        """Return AWS's error for an exceeded quota."""
        if offer.market is Market.SPOT:
            return AccountRefusal("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        return AccountRefusal(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {self.quota(offer)} allows for the "
            "instance bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        )

    def offered(self, instance: str, region: str, zone: str) -> bool:
        """Return whether the zone offers the type; a generous account has all types everywhere."""
        return not self.enforces or zone in offerings(region).get(instance, ())

    def latency_s(self, seed: int, nth: int) -> float:
        """Return how long the `nth` CreateFleet takes, in control seconds."""
        return Random(f"{seed} {nth}").uniform(*self.fleets_take_s) if self.enforces else 0.0

    def quotas(self, service: str) -> list[dict[str, Any]]:
        """Return the answer of Service Quotas."""
        if service == "lambda" and self.function_concurrency is not None:
            return [_quota(service, *_FUNCTIONS_CODE, float(self.function_concurrency))]
        if service == "ec2" and self.enforces:
            return [_quota(service, *_QUOTA_CODES[of], float(self.vcpus.get(of, 0))) for of in _QUOTA_CODES]
        return []


def account_of(kind: str = AccountKind.GENEROUS, scps: Sequence[str] = ()) -> CloudAccount:
    """Return the account of this name; `scps` are names of policies. Raises BadInput."""
    if kind not in list(AccountKind):
        raise BadInput(f"is one of {', '.join(AccountKind)}", "account", kind)
    for name in scps:
        if name not in _SCPS:
            raise BadInput(f"is one of {', '.join(_SCPS)}", "scp", name)
    if scps and kind == AccountKind.GENEROUS:
        raise BadInput("belongs to the refusals of a strict or new account", "scp", scps[0])
    policies = tuple(IamPolicy(_SCPS[name], name) for name in scps)
    if kind == AccountKind.STRICT:
        room = {"standard": 256, "g and vt": 64, "inf": 32}
        return CloudAccount(
            AccountKind.STRICT, {(name, spot): n for name, n in room.items() for spot in (False, True)}, 1000, policies
        )
    if kind == AccountKind.NEW:
        return CloudAccount(AccountKind.NEW, {("standard", False): 5, ("standard", True): 5}, 10, policies)
    return CloudAccount()


@cache
def offerings(region: str) -> Mapping[str, frozenset[str]]:
    """Return the zones by type, as DescribeInstanceTypeOfferings listed them when this moto was published."""
    moto = find_spec("moto")  # not imported, because that takes a second
    folders = [] if moto is None else moto.submodule_search_locations or []
    file = next((Path(one) / _OFFERINGS / f"{region}.json.gz" for one in folders), None)
    if file is None or not file.is_file():
        return {}
    zones: dict[str, set[str]] = {}
    with gzip.open(file) as text:
        for row in json.load(text):
            zones.setdefault(row["InstanceType"], set()).add(row["Location"])
    return {instance: frozenset(there) for instance, there in zones.items()}


def unsupported_image(instance: str, image: Sequence[str], architectures: Sequence[str]) -> AccountRefusal | None:
    """Return why an image does not run on a type of these architectures; `image` has the parts of its parameter's path.

    The GPU checks differ from AWS, which launches a type whose GPU the image's driver does not support; there the model
    fails.
    """
    built_for = next((one for one in ("arm64", "x86_64") if any(one in part for part in image)), None)
    if built_for is not None and built_for not in architectures:
        of_type = ", ".join(architectures)
        return AccountRefusal(
            "InvalidParameterValue",
            f"The architecture '{of_type}' of the specified instance type does not match the architecture "
            f"'{built_for}' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again.",
        )
    if image and instance[0] in "gp":
        if "deeplearning" not in image:
            return AccountRefusal("InvalidParameterCombination", f"The image has no driver for the GPU of {instance}.")
        if not instance.startswith(_GPUS_OF_IMAGE):
            return AccountRefusal(
                "InvalidParameterCombination", f"The image's driver does not know the GPU of the type {instance}."
            )
    return None


def small_disk(image: Sequence[str], disk_gib: int | None) -> AccountRefusal | None:
    """Return why a root disk of this size is too small for the image's snapshot, or None if it is large enough."""
    least = next((gib for part, gib in _SNAPSHOT_GIB.items() if part in image), 0)
    if disk_gib is None or disk_gib >= least:
        return None
    return AccountRefusal(
        "InvalidBlockDeviceMapping",
        f"Volume of size {disk_gib}GB is smaller than snapshot 'snap-0123456789abcdef0', expect size >= {least}GB",
    )


def _quota(service: str, code: str, name: str, value: float) -> dict[str, Any]:
    return {
        "ServiceCode": service, "QuotaCode": code, "QuotaName": name, "Value": value, "Unit": "None",
        "Adjustable": True, "GlobalQuota": False,
    }  # fmt: skip
