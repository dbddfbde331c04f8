"""Put the cloud over moto: moto's missing and wrong parts are replaced (see Patches), the others stay moto's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instance_types import InstanceTypeOfferingBackend
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateBackend
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, filter_dict_attribute_mapping, get_prefix
from moto.elbv2.exceptions import DuplicateLoadBalancerName
from moto.elbv2.models import ELBv2Backend, FakeHealthStatus, FakeTargetGroup
from moto.events.utils import EventTemplateParser
from moto.fis.models import FISBackend

from mark.cloud.ec2.lifecycle import State
from mark_infra.testbed.account import offerings as account_offerings
from mark_infra.testbed.balancer import GatewaySupervisor
from mark_infra.testbed.emulated_prices import page_of, spot_history
from mark_infra.testbed.instances import InstanceLifecycle, NotInState
from mark_infra.testbed.launches import InstanceLauncher, Launches
from mark_infra.testbed.moto_app import ACCOUNT, Patches

_PAGE = 1000


class OverlaidCloud(InstanceLauncher, Protocol):
    """The cloud, as moto's models use it."""

    lifecycle: InstanceLifecycle
    balancer: GatewaySupervisor | None

    @property
    def began_s(self) -> float: ...
    def now(self) -> float: ...
    def interrupt_these(self, instance_ids: Sequence[str]) -> None: ...


def lay_over(cloud: OverlaidCloud, patches: Patches) -> None:
    """Replace moto's EC2, target groups and events by the cloud's, until the patches are undone."""
    launches = Launches(
        cloud, InstanceBackend.run_instances, InstanceResponse.run_instances, Fleets.create_fleet
    )  # saved before they are replaced
    _lay_over_launches(launches, patches)
    _lay_over_instances(cloud, patches)
    _lay_over_offers(cloud, patches)
    _lay_over_templates(launches, patches)
    _lay_over_groups(patches)
    _lay_over_faults(cloud, patches)
    _lay_over_balancers(cloud.balancer, patches)
    patches.put(TaggedEC2Resource, "get_tags", _tags_of)
    template = EventTemplateParser.DEFAULT_EVENT_INPUT_TEMPLATE
    patches.put(
        EventTemplateParser,
        "DEFAULT_EVENT_INPUT_TEMPLATE",
        template.replace('"region"', f'"account": "{ACCOUNT}", "region"'),
    )


def _lay_over_launches(launches: Launches, patches: Patches) -> None:
    patches.put(InstanceBackend, "run_instances", lambda backend, *args, **what: launches.run(backend, *args, **what))
    patches.put(InstanceResponse, "run_instances", lambda response: launches.run_instances(response))
    patches.put(Fleets, "create_fleet", lambda response: launches.create_fleet(response))


def _lay_over_instances(cloud: OverlaidCloud, patches: Patches) -> None:
    lifecycle = cloud.lifecycle

    def each(act: Callable[[str, float], State]) -> Callable[[Any, list[str]], list[Any]]:
        def all_of(backend: Any, instance_ids: list[str]) -> list[Any]:
            instances = backend.get_multi_instances_by_id(instance_ids)
            now, done = cloud.now(), []
            for instance in instances:
                try:
                    before = act(instance.id, now)
                except NotInState as error:
                    raise EC2ClientError(error.code, str(error)) from None
                done.append((instance, {"Name": before.value, "Code": before.code}))
            return done

        return all_of

    def reboot(backend: Any, instance_ids: list[str]) -> list[Any]:
        instances: list[Any] = backend.get_multi_instances_by_id(instance_ids)
        for instance in instances:
            if instance.state != "running":
                text = f"The instance '{instance.id}' is not in a state from which it can be rebooted."
                raise EC2ClientError("IncorrectInstanceState", text)
        return instances

    def start(backend: Any, instance_ids: list[str]) -> list[Any]:
        starting: Counter[int] = Counter()
        for instance in backend.get_multi_instances_by_id(instance_ids):
            one = lifecycle.instances[instance.id]
            if one.state is not State.STOPPED:
                continue
            if not cloud.quota_room(one.index, 1, starting):
                refused = cloud.rules.account.over_quota(one.offer)
                raise EC2ClientError(refused.code, refused.message)
            starting[one.index] += 1
        return start_each(backend, instance_ids)

    start_each = each(lifecycle.start)

    def credit_specifications(response: Any) -> ActionResult:
        instances = response.ec2_backend.get_multi_instances_by_id(response._get_param("InstanceIds", []))
        found = [(instance.id, lifecycle.instances[instance.id].credits) for instance in instances]
        said = [
            {"InstanceId": instance_id, "CpuCredits": "unlimited" if account.unlimited else "standard"}
            for instance_id, account in found
            if account is not None
        ]
        return ActionResult({"InstanceCreditSpecifications": said})

    patches.put(InstanceBackend, "start_instances", start)
    patches.put(InstanceBackend, "stop_instances", each(lifecycle.stop))
    patches.put(InstanceBackend, "terminate_instances", each(lifecycle.terminate))
    patches.put(InstanceBackend, "reboot_instances", reboot)
    patches.put(InstanceResponse, "describe_instance_credit_specifications", credit_specifications)
    patches.put(filter_dict_attribute_mapping, "instance-lifecycle", "lifecycle")
    patches.put(filter_dict_attribute_mapping, "client-token", "client_token")


def _lay_over_offers(cloud: OverlaidCloud, patches: Patches) -> None:
    moto_offerings = InstanceTypeOfferingBackend.describe_instance_type_offerings

    def offerings(backend: Any, location_type: str | None = None, filters: Any = None) -> list[Any]:
        """Return the offerings that launches accept: sold ones, with the region's zones."""
        found: list[Any] = moto_offerings(backend, location_type, filters)
        sold, region = cloud.supply.sells, backend.region_name
        if not cloud.rules.account.enforces:
            return found
        return [one for one in found if sold(one["InstanceType"]) and one["InstanceType"] in account_offerings(region)]

    def spot_price_history(response: Any) -> ActionResult:
        asked = response._filters_from_querystring()
        start, end = response._get_param("StartTime"), response._get_param("EndTime")
        zone = response._get_param("AvailabilityZone")
        rows = spot_history(
            cloud.supply,
            cloud.began_s,
            cloud.lifecycle.scale,
            cloud.now(),
            instances=response._get_param("InstanceTypes", []) or asked.get("instance-type", []),
            zones=[zone] if zone else asked.get("availability-zone", []),
            products=response._get_param("ProductDescriptions", []) or asked.get("product-description", []),
            start_s=_unix_s(start),
            end_s=_unix_s(end),
        )
        page, token = page_of(rows, response._get_param("NextToken"), int(response._get_param("MaxResults", _PAGE)))
        return ActionResult({"SpotPriceHistory": list(page), "NextToken": token})

    patches.put(InstanceTypeOfferingBackend, "describe_instance_type_offerings", offerings)
    patches.put(SpotInstances, "describe_spot_price_history", spot_price_history)


def _lay_over_templates(launches: Launches, patches: Patches) -> None:
    moto_delete_template = LaunchTemplateBackend.delete_launch_template

    def delete_template(backend: Any, name: str, tid: str | None) -> LaunchTemplate:
        """Delete a template, with an error for a missing id.

        moto's own error names no id, so a caller that repeats a deletion would not see that the template is gone.
        """
        if tid and tid not in backend.launch_templates:
            text = f"The specified launch template, with template ID {tid}, does not exist."
            raise EC2ClientError("InvalidLaunchTemplateId.NotFound", text)
        return moto_delete_template(backend, name, tid)

    moto_create_template = LaunchTemplates.create_launch_template

    def create_template(response: Any) -> ActionResult:
        """Create a template once for each token, because a caller that lost the answer asks again."""
        return launches.once("CreateLaunchTemplate", response, lambda: moto_create_template(response))

    patches.put(LaunchTemplates, "create_launch_template", create_template)
    patches.put(LaunchTemplateBackend, "delete_launch_template", delete_template)
    # moto keeps a copy from the template's creation, so later tags would be missing.
    patches.put(LaunchTemplate, "tags", property(_tags_of, lambda template, made: None))


def _lay_over_groups(patches: Patches) -> None:
    refreshes: dict[str, list[dict[str, Any]]] = {}

    def start_refresh(response: Any) -> ActionResult:
        """Refresh a group of instances. It succeeds immediately, because the cloud runs no instances for groups."""
        group = str(response._get_param("AutoScalingGroupName"))
        response.autoscaling_backend.describe_auto_scaling_groups([group])
        done = {
            "InstanceRefreshId": f"refresh-{len(refreshes.setdefault(group, [])) + 1}",
            "AutoScalingGroupName": group,
            "Status": "Successful",
            "PercentageComplete": 100,
        }
        refreshes[group].insert(0, done)
        return ActionResult({"InstanceRefreshId": done["InstanceRefreshId"]})

    def describe_refreshes(response: Any) -> ActionResult:
        return ActionResult({"InstanceRefreshes": refreshes.get(str(response._get_param("AutoScalingGroupName")), [])})

    # Without AWS's default, which moto does not tell, Terraform's provider cannot change a group.
    preference = {"CapacityReservationPreference": "default"}
    patches.put(FakeAutoScalingGroup, "capacity_reservation_specification", preference)
    patches.put(AutoScalingResponse, "start_instance_refresh", start_refresh)
    patches.put(AutoScalingResponse, "describe_instance_refreshes", describe_refreshes)


def _lay_over_faults(cloud: OverlaidCloud, patches: Patches) -> None:
    moto_experiment = FISBackend.start_experiment

    def start_experiment(backend: Any, *args: Any, **what: Any) -> Any:
        """Start an experiment of fault injection. moto stores it without interrupting its named targets."""
        made = moto_experiment(backend, *args, **what)
        for action in made["actions"].values():
            if action.get("actionId") == "aws:ec2:send-spot-instance-interruptions":
                target = made["targets"][action["targets"]["SpotInstances"]]
                cloud.interrupt_these([arn.rpartition("/")[2] for arn in target.get("resourceArns", [])])
        return made

    patches.put(FISBackend, "start_experiment", start_experiment)


def _lay_over_balancers(balancer: GatewaySupervisor | None, patches: Patches) -> None:
    moto_create_balancer = ELBv2Backend.create_load_balancer

    def create_balancer(backend: Any, **what: Any) -> Any:
        """Create a balancer, as AWS does: a repeated call returns the existing one, where moto would make another."""
        for one in backend.load_balancers.values():
            if one.name == what["name"]:
                mappings = what["subnet_mappings"] or []
                asked = {*what["subnet_ids"], *(mapping["SubnetId"] for mapping in mappings)}
                if asked == {subnet.id for subnet in one.subnets} and one.scheme == what["scheme"]:
                    return one
                raise DuplicateLoadBalancerName()
        return moto_create_balancer(backend, **what)

    patches.put(ELBv2Backend, "create_load_balancer", create_balancer)
    if balancer is None:
        return
    moto_health = FakeTargetGroup.health_for

    def health_for(group: Any, target: dict[str, Any], backend: Any) -> FakeHealthStatus:
        registered = group.targets.get(target["Id"])
        if registered is None:
            return moto_health(group, target, backend)
        status, reason = balancer.health(group.arn, target["Id"])
        return FakeHealthStatus(registered["Id"], registered["Port"], group.health_check_port, status, reason, reason)

    patches.put(FakeTargetGroup, "health_for", health_for)


def _tags_of(resource: Any) -> list[dict[str, str]]:
    # moto itself searches the tags of all resources for each one: minutes for a thousand instances.
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "") if resource.id else ""
    tags = resource.ec2_backend.tags.get(resource.id) or {}
    return [{"resource_id": resource.id, "key": k, "value": v, "resource_type": kind} for k, v in tags.items()]


def _unix_s(time: Any) -> float | None:
    """Return the Unix time of moto's value: a text in ISO 8601, or a datetime in UTC."""
    if not time:
        return None
    at = datetime.fromisoformat(time.replace("Z", "+00:00")) if isinstance(time, str) else time
    return float((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
