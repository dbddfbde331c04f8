"""Launch like EC2, beyond moto: tokens, capacity, choice among pools, and the whole launch template.

`Launches` replaces moto's RunInstances and CreateFleet.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import convert_tag_spec, random_fleet_id

from mark.domain.offer import Market
from mark_infra.testbed.account import AccountRefusal, CloudAccount
from mark_infra.testbed.aws_request import LaunchedPool
from mark_infra.testbed.supply import Supply

RunInstances = Callable[..., Any]


class LaunchRules(Protocol):
    """The account's limits of launches."""

    @property
    def account(self) -> CloudAccount: ...
    def launch_refusal(self, pool: LaunchedPool) -> AccountRefusal | None: ...
    def image_refusal(self, instance: str, image: str, disk_gib: int | None) -> AccountRefusal | None: ...
    def role_of_profile(self, name_or_arn: str) -> str: ...


class InstanceLauncher(Protocol):
    """The cloud's part in a launch."""

    supply: Supply

    @property
    def rules(self) -> LaunchRules: ...
    def quota_room(self, index: int, count: int, taken: Mapping[int, int]) -> int: ...
    def room(self, index: int, count: int, planned: int = 0) -> int: ...
    def usd_per_hour(self, index: int) -> float: ...
    def launched(
        self, instance: Any, index: int, reservation: str, *, persistent: bool, unlimited: bool | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Pool:
    """One override of a fleet request: a type in a subnet, in one market."""

    spec: Mapping[str, Any]  # LaunchTemplateSpecification
    override: Mapping[str, Any]
    instance: str
    zone: str
    index: int | None  # index of its offer; None: not sold there
    spot: bool
    made_of: LaunchedPool
    disk_gib: int | None  # size of its root device; None: the image's


class Launches:
    """Answers RunInstances and CreateFleet. Calls must not overlap."""

    def __init__(
        self,
        launcher: InstanceLauncher,
        moto_run: RunInstances,
        moto_answer: Callable[[Any], ActionResult],
        moto_fleet: Callable[[Any], ActionResult],
    ) -> None:
        self._launcher, self._moto_run, self._moto_answer, self._moto_fleet = (
            launcher,
            moto_run,
            moto_answer,
            moto_fleet,
        )
        # The calls with a token: (action, token) -> (parameters, answer).
        self._answers: dict[tuple[str, str], tuple[str, ActionResult]] = {}
        self._most = 0  # MaxCount of the present RunInstances,
        self._market: Mapping[str, Any] = {}  # its InstanceMarketOptions,
        self._unlimited: bool | None = None  # and its CreditSpecification

    def run_instances(self, response: Any) -> ActionResult:
        """Answer RunInstances in place of moto."""
        response.error_on_dryrun()

        def answer() -> ActionResult:
            fewest = int(response._get_param("MinCount", if_none="1"))
            self._most = int(response._get_param("MaxCount", if_none=str(fewest)))
            if not 1 <= fewest <= self._most:
                raise EC2ClientError("InvalidParameterValue", "MinCount must be at least 1 and at most MaxCount.")
            self._market = response._get_param("InstanceMarketOptions", {}) or {}
            self._unlimited = _unlimited(response._get_param("CreditSpecification", {}))
            try:
                return self._moto_answer(response)
            finally:
                self._most, self._market, self._unlimited = 0, {}, None

        return self.once("RunInstances", response, answer)

    def run(self, backend: Any, image_id: str, count: int, user_data: Any, groups: list[str], **what: Any) -> Any:
        """Launch instances in place of moto; all of moto's launches call this."""
        spec = what.get("launch_template") or {}
        version = backend._get_template_from_args(spec) if spec else None
        template, template_id = ({}, "") if version is None else (version.data, str(version.template.id))
        if what.get("is_instance_type_default") and template.get("InstanceType"):
            what["instance_type"], what["is_instance_type_default"] = template["InstanceType"], False
        options = self._market or template.get("InstanceMarketOptions") or {}
        asked = what.get("instance_market_options") or options.get("MarketType")
        spot = asked == "spot"
        what["instance_market_options"] = "spot" if spot else {}
        if not what.get("subnet_id") and not what.get("nics") and template.get("NetworkInterfaces"):
            first = template["NetworkInterfaces"][0]
            what["subnet_id"] = first.get("SubnetId")
            what["security_group_ids"] = what.get("security_group_ids") or first.get("Groups") or []
        what["placement"] = what.get("placement") or (template.get("Placement") or {}).get("AvailabilityZone")
        what["metadata_options"] = {**(template.get("MetadataOptions") or {}), **(what.get("metadata_options") or {})}
        if what.get("subnet_id"):
            zone = backend.get_subnet(what["subnet_id"]).availability_zone
        else:
            zone = what["placement"] or f"{backend.region_name}a"
        index = self._offer(what["instance_type"], spot, zone, backend.region_name)
        if self._most:
            # Check rights for RunInstances only. A fleet has checked already, and AWS's own launches have other rights.
            groups_of = [*groups, *(what.get("security_group_ids") or ())]
            made_of = self._made_of(
                template, template_id, what["instance_type"], spot, image_id,
                what.get("subnet_id") or "", groups_of, what.get("tags") or {},
                what.get("iam_instance_profile_name") or what.get("iam_instance_profile_arn") or "",
            )  # fmt: skip
            _raise(self._launcher.rules.launch_refusal(made_of))
        image = image_id or str(template.get("ImageId", ""))
        disk_gib = _disk_gib(what.get("block_device_mappings") or template.get("BlockDeviceMappings"))
        _raise(self._launcher.rules.image_refusal(what["instance_type"], image, disk_gib))
        of_quota = self._launcher.quota_room(index, max(count, self._most), {})
        if of_quota < count:
            _raise(self._launcher.rules.account.over_quota(self._launcher.supply.offers[index]))
        room = self._launcher.room(index, min(max(count, self._most), of_quota))
        if room < count:
            raise EC2ClientError(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {what['instance_type']} capacity in the Availability Zone you "
                f"requested ({zone}).",
            )
        reservation = self._moto_run(backend, image_id, room, user_data, groups, **what)
        explicit = what.get("iam_instance_profile_name"), what.get("iam_instance_profile_arn")
        unlimited = self._unlimited
        if unlimited is None:
            unlimited = _unlimited(template.get("CreditSpecification"))
        persistent = (options.get("SpotOptions") or {}).get("SpotInstanceType") == "persistent"
        profile = template.get("IamInstanceProfile") or {}
        for i, instance in enumerate(reservation.instances):
            name, arn = explicit if any(explicit) else (profile.get("Name"), profile.get("Arn"))
            # moto itself adds an explicit profile to the first instance later.
            if (name or arn) and not (any(explicit) and i == 0):
                backend.associate_iam_instance_profile(
                    instance_id=instance.id, iam_instance_profile_name=name, iam_instance_profile_arn=arn
                )
            self._launcher.launched(instance, index, reservation.id, persistent=persistent, unlimited=unlimited)
        return reservation

    def create_fleet(self, response: Any) -> ActionResult:
        """Answer CreateFleet in place of moto, except for maintained and request fleets."""
        response.error_on_dryrun()
        if response._get_param("Type", if_none="maintain") != "instant":
            return self._moto_fleet(response)
        return self.once("CreateFleet", response, lambda: ActionResult(self._fleet(response)))

    def _fleet(self, response: Any) -> dict[str, Any]:
        backend, fleet_id = response.ec2_backend, random_fleet_id()
        target = response._get_param("TargetCapacitySpecification", {})
        on_demand, spot = int(target.get("OnDemandTargetCapacity", 0)), int(target.get("SpotTargetCapacity", 0))
        rest = int(target["TotalTargetCapacity"]) - on_demand - spot
        if target.get("DefaultTargetCapacityType") == "spot":
            spot += max(0, rest)
        else:
            on_demand += max(0, rest)
        tags = convert_tag_spec(response._get_param("TagSpecifications", []) or [])
        planned: list[tuple[_Pool, int]] = []
        errors: list[dict[str, Any]] = []
        taken: Counter[int] = Counter()
        for wanted, is_spot, key in ((on_demand, False, "OnDemandOptions"), (spot, True, "SpotOptions")):
            if wanted <= 0:
                continue
            how = response._get_param(key, {}) or {}
            plan = self._plan(self._pools(response, backend, is_spot, how, tags), wanted, taken, errors)
            if sum(count for _, count in plan) >= int(how.get("MinTargetCapacity", 0)):
                planned += plan
        tags = {"instance": {**tags.get("instance", {}), "aws:ec2:fleet-id": fleet_id}}
        instances = [self._start(backend, pool, count, tags) for pool, count in planned]
        return {"FleetId": fleet_id, "Errors": errors, "Instances": instances}

    def _pools(
        self, response: Any, backend: Any, spot: bool, how: Mapping[str, Any], tags: Mapping[str, Mapping[str, str]]
    ) -> list[_Pool]:
        """Return the request's pools in the order of its allocation strategy."""
        pools = []
        for config in response._get_param("LaunchTemplateConfigs", []):
            spec = config["LaunchTemplateSpecification"]
            version = backend._get_template_from_args(spec)
            template = version.data
            for override in config.get("Overrides") or [{}]:
                instance = override.get("InstanceType") or template.get("InstanceType")
                subnet = override.get("SubnetId") or (template.get("NetworkInterfaces") or [{}])[0].get("SubnetId")
                zone = override.get("AvailabilityZone") or f"{backend.region_name}a"
                if subnet:
                    zone = backend.get_subnet(subnet).availability_zone
                index = None
                if self._launcher.rules.account.offered(instance, backend.region_name, zone):
                    index = self._launcher.supply.offer_index(instance, spot, zone)
                made_of = self._made_of(
                    template, str(version.template.id), instance, spot,
                    str(override.get("ImageId", "")), subnet or "", (), tags, "",
                )  # fmt: skip
                disk_gib = _disk_gib(override.get("BlockDeviceMappings") or template.get("BlockDeviceMappings"))
                pools.append(_Pool(spec, override, instance, zone, index, spot, made_of, disk_gib))
        strategy = how.get("AllocationStrategy", "")
        if strategy in ("prioritized", "capacity-optimized-prioritized"):
            return sorted(pools, key=lambda pool: float(pool.override.get("Priority", "inf")))
        if strategy == "capacity-optimized":
            # A pool's depth is its remaining capacity; a pool without a limit is the deepest.
            return sorted(pools, key=lambda pool: (-self._depth(pool), self._price(pool)))
        return sorted(pools, key=self._price)

    def _price(self, pool: _Pool) -> float:
        return float("inf") if pool.index is None else self._launcher.usd_per_hour(pool.index)

    def _depth(self, pool: _Pool) -> int:
        return 0 if pool.index is None else self._launcher.room(pool.index, 1_000_000)

    def _plan(
        self, pools: list[_Pool], wanted: int, taken: Counter[int], errors: list[dict[str, Any]]
    ) -> list[tuple[_Pool, int]]:
        plan = []
        for pool in pools:
            if wanted <= 0:
                break
            count, why = 0, ("InvalidFleetConfiguration", _not_sold(pool.instance, pool.zone))
            highest = float(pool.override.get("MaxPrice") or "inf")
            rules = self._launcher.rules
            refused = rules.launch_refusal(pool.made_of)
            refused = refused or rules.image_refusal(pool.instance, pool.made_of.image, pool.disk_gib)
            if refused is not None:
                why = (refused.code, refused.message)
            elif pool.index is not None and pool.spot and self._price(pool) > highest:
                why = ("SpotMaxPriceTooLow", f"Your Spot request price of {highest:g} is lower than the minimum.")
            elif pool.index is not None and not (of_quota := self._launcher.quota_room(pool.index, wanted, taken)):
                refused = rules.account.over_quota(self._launcher.supply.offers[pool.index])
                why = (refused.code, refused.message)
            elif pool.index is not None:
                count = self._launcher.room(pool.index, of_quota, taken[pool.index])
                taken[pool.index] += count
                kind = "Spot " if pool.spot else ""
                text = f"There is no {kind}capacity available that matches your request."
                why = ("InsufficientInstanceCapacity", text)
                if count == of_quota < wanted:
                    refused = rules.account.over_quota(self._launcher.supply.offers[pool.index])
                    why = (refused.code, refused.message)
            if count:
                plan.append((pool, count))
            if count < wanted:
                errors.append({**_said(pool), "ErrorCode": why[0], "ErrorMessage": why[1]})
            wanted -= count
        return plan

    def _start(self, backend: Any, pool: _Pool, count: int, tags: dict[str, dict[str, str]]) -> dict[str, Any]:
        own_disks = pool.override.get("BlockDeviceMappings")
        reservation = self.run(
            backend, pool.override.get("ImageId", ""), count, None, [],
            launch_template=dict(pool.spec), instance_type=pool.instance,
            is_instance_type_default=False, region_name=backend.region_name, subnet_id=pool.override.get("SubnetId"),
            placement=pool.override.get("AvailabilityZone"), tags=tags,
            instance_market_options="spot" if pool.spot else {},
            **({"block_device_mappings": own_disks} if own_disks else {}),
        )  # fmt: skip
        ids = [instance.id for instance in reservation.instances]
        return {**_said(pool), "InstanceIds": ids, "InstanceType": pool.instance}

    def _made_of(
        self,
        template: Mapping[str, Any],
        template_id: str,
        instance: str,
        spot: bool,
        image: str,
        subnet: str,
        groups: Iterable[str],
        tags: Mapping[str, Mapping[str, str]],
        profile: str,
    ) -> LaunchedPool:
        """Return the launch's parts, with the launch template's values where the request omits them."""
        nic = (template.get("NetworkInterfaces") or [{}])[0]
        of_template = template.get("IamInstanceProfile") or {}
        profile = profile or str(of_template.get("Name") or of_template.get("Arn") or "")
        said = convert_tag_spec(template.get("TagSpecifications") or [])
        return LaunchedPool(
            instance, spot, image or str(template.get("ImageId", "")), subnet,
            tuple(groups) or tuple(template.get("SecurityGroupIds") or nic.get("Groups") or ()), template_id,
            self._launcher.rules.role_of_profile(profile) if profile else "",
            {kind: {**said.get(kind, {}), **tags.get(kind, {})} for kind in ("instance", "volume")},
        )  # fmt: skip

    def _offer(self, instance: str, spot: bool, zone: str, region: str) -> int:
        supply = self._launcher.supply
        index = supply.offer_index(instance, spot, zone)
        if index is not None and self._launcher.rules.account.offered(instance, region, zone):
            return index
        if not supply.sells(instance):
            raise EC2ClientError("InvalidParameterValue", f"Invalid value '{instance}' for InstanceType.")
        raise EC2ClientError("Unsupported", _not_sold(instance, zone))

    def once(self, action: str, response: Any, answer: Callable[[], ActionResult]) -> ActionResult:
        """Return the answer to a call, or the earlier answer if its token was used before."""
        token = response._get_param("ClientToken")
        if not token:
            return answer()
        parameters = json.dumps(
            {key: value for key, value in sorted(response.data.items()) if key not in ("ClientToken", "Action")},
            default=str,
        )
        known = self._answers.get((action, token))
        if known is None:
            known = self._answers[action, token] = (parameters, answer())
        if known[0] != parameters:
            raise EC2ClientError(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
            )
        return known[1]


def _raise(refused: AccountRefusal | None) -> None:
    if refused is not None:
        raise EC2ClientError(refused.code, refused.message)


def _said(pool: _Pool) -> dict[str, Any]:
    which = {"LaunchTemplateSpecification": pool.spec, "Overrides": pool.override}
    return {"LaunchTemplateAndOverrides": which, "Lifecycle": Market.SPOT.value if pool.spot else "on-demand"}


def _disk_gib(mappings: Iterable[Mapping[str, Any]] | None) -> int | None:
    """Return the size of the root device, by its name in Amazon's images."""
    sizes = (one.get("Ebs", {}).get("VolumeSize") for one in mappings or () if one.get("DeviceName") == "/dev/xvda")
    return next((int(size) for size in sizes if size), None)


def _unlimited(specification: Mapping[str, Any] | None) -> bool | None:
    asked = (specification or {}).get("CpuCredits")
    return None if asked is None else asked == "unlimited"


def _not_sold(instance: str, zone: str) -> str:
    return f"Your requested instance type ({instance}) is not supported in your requested Availability Zone ({zone})."
