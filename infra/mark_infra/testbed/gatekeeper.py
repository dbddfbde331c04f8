"""The checks in front of moto: requests that the account may not make are refused before moto sees them.

Other modules decide about rights, throttling, sizes and quotas. This one calls them for each request, with moto's data
about the account: policies of the caller's role, tags, sizes of resources.
"""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.ec2.models import ec2_backends
from moto.elbv2.models import elbv2_backends
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends
from moto.ssm.models import ssm_backends
from moto.sts.models import sts_backends

from mark_infra.testbed.account import AccountRefusal, CloudAccount, small_disk, unsupported_image
from mark_infra.testbed.aws_request import AwsRequest, LaunchedPool, launch_rights, rights
from mark_infra.testbed.iam import IamCall, IamDecision, IamPolicy, decide
from mark_infra.testbed.moto_app import ACCOUNT
from mark_infra.testbed.sizes import too_large
from mark_infra.testbed.throttle import Throttle

_PARTITION = "aws"


class Gatekeeper:
    """Decides about each request. Thread-safe, if calls to EC2 and load balancers do not overlap.

    `now_s` returns control seconds. `policies` of principals by their access key ids. A caller without an entry that
    has not assumed a role (`sts:AssumeRole`) is the deployer, whom only the organisation's policies limit.
    """

    def __init__(
        self,
        account: CloudAccount,
        region: str,
        *,
        seed: int,
        now_s: Callable[[], float],
        policies: Mapping[str, Sequence[IamPolicy]] | None = None,
    ) -> None:
        self.account, self._seed, self._now_s = account, seed, now_s
        self._there = MotoStock(region)
        self._policies = dict(policies or {})
        self._read: dict[str, IamPolicy] = {}  # by their text
        self._throttle = Throttle()
        self._lock = threading.Lock()
        self._fleets = 0
        self._caller = threading.local()
        self.denied: list[str] = []  # action and resource of each missing right, in order

    def refusal(self, request: AwsRequest) -> AccountRefusal | None:
        """Return why AWS refuses the request, or None to pass it to moto."""
        self._caller.key_id = request.key_id
        if not self.account.enforces:
            return None
        for call in rights(request, self._there):
            if (refused := self._unauthorized(request, call)) is not None:
                return refused
        with self._lock:
            refused = self._throttle.refusal(
                request.service, request.action, self._now_s(), whole=_whole(request), instances=_instances(request)
            )
        return refused or too_large(request, self._there)

    def delay_s(self, request: AwsRequest) -> float:
        """Return the control seconds that the request takes, besides moto's own time."""
        if (request.service, request.action) != ("ec2", "CreateFleet"):
            return 0.0
        with self._lock:
            self._fleets += 1
            return self.account.latency_s(self._seed, self._fleets)

    # Called by launches, on the request's thread

    def launch_refusal(self, pool: LaunchedPool) -> AccountRefusal | None:
        """Return why the caller of this request may not launch the pool."""
        if not self.account.enforces:
            return None
        request = AwsRequest("ec2", "RunInstances", {}, getattr(self._caller, "key_id", ""))
        for call in launch_rights(pool, self._there):
            if (refused := self._unauthorized(request, call)) is not None:
                return refused
        return None

    def image_refusal(self, instance: str, image: str, disk_gib: int | None) -> AccountRefusal | None:
        """Return why the image does not run on the type or the disk. An unknown image is not checked."""
        if not self.account.enforces:
            return None
        path = self._there.image_path(image)
        return unsupported_image(instance, path, self._there.architectures(instance)) or small_disk(path, disk_gib)

    def role_of_profile(self, name_or_arn: str) -> str:
        """Return the ARN of the instance profile's role; "" if it has none."""
        return self._there.role_of_profile(name_or_arn)

    def quotas(self, asked: Mapping[str, Any], one: bool) -> dict[str, Any]:
        """Return the answer of Service Quotas."""
        found = self.account.quotas(str(asked.get("ServiceCode", "")))
        if not one:
            return {"Quotas": found}
        code = asked.get("QuotaCode")
        return {"Quota": next((quota for quota in found if quota["QuotaCode"] == code), None)}

    def _unauthorized(self, request: AwsRequest, call: IamCall) -> AccountRefusal | None:
        found = self._principal(request.key_id)
        name, policies = found if found is not None else (f"arn:aws:iam::{ACCOUNT}:root", (_EVERYTHING,))
        said = decide(policies, call, self.account.scps)
        if said is IamDecision.ALLOWED:
            return None
        self.denied.append(f"{call.action} {call.resource}")
        why = (
            "with an explicit deny"
            if said is IamDecision.DENIED
            else f"because no policy allows the {call.action} action"
        )
        text = f"User: {name} is not authorized to perform: {call.action} on resource: {call.resource} {why}"
        if request.service == "ec2":
            return AccountRefusal(
                "UnauthorizedOperation", f"You are not authorized to perform this operation. {text}", 403
            )
        if request.service in ("elasticloadbalancing", "s3", "iam", "sts", "sns", "monitoring", "autoscaling"):
            return AccountRefusal("AccessDenied", text, 403)
        return AccountRefusal("AccessDeniedException", text, 403 if request.service == "lambda" else 400)

    def _principal(self, key_id: str) -> tuple[str, Sequence[IamPolicy]] | None:
        if key_id in self._policies:
            return key_id, self._policies[key_id]
        role = sts_backends[ACCOUNT][_PARTITION].get_assumed_role_from_access_key(key_id)
        return None if role is None else (role.arn, [self._policy(text) for text in _policies_of(role.role_arn)])

    def _policy(self, text: str) -> IamPolicy:
        if text not in self._read:
            self._read[text] = IamPolicy(text)
        return self._read[text]


_EVERYTHING = IamPolicy({"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}})


class MotoStock:
    """Moto's data about the account: `Resources` and `Stock`."""

    def __init__(self, region: str) -> None:
        self.region, self.account = region, ACCOUNT

    def tags(self, arn: str) -> Mapping[str, str]:
        service, name = arn.split(":", 3)[2], arn.rpartition("/")[2]
        if service == "ec2":
            return dict(ec2_backends[ACCOUNT][self.region].tags.get(name) or {})
        if service == "elasticloadbalancing":
            return dict(elbv2_backends[ACCOUNT][self.region].tagging_service.get_tag_dict_for_resource(arn))
        if service == "lambda":
            function = lambda_backends[ACCOUNT][self.region]._lambdas.get_function_by_name_with_qualifier
            try:
                return dict(function(arn.rpartition(":")[2]).tags)
            except Exception:  # moto's own error for a missing function
                return {}
        return {}

    def template_id(self, name: str) -> str:
        found = ec2_backends[ACCOUNT][self.region].launch_template_name_to_ids.get(name)
        return "" if found is None else str(found)

    def image_path(self, image: str) -> tuple[str, ...]:
        """Return the path of the image's parameter, in parts; () if unknown.

        A baked image has the path of the image that it was baked from.
        """
        parameters = ssm_backends[ACCOUNT][self.region]._parameters
        parameters.get("/aws/service/ami-amazon-linux-latest/")  # moto loads them on the first access
        for path in list(parameters):
            if path.startswith("/aws/service/") and parameters[path][-1].value == image:
                return tuple(path.split("/"))
        backend = ec2_backends[ACCOUNT][self.region]
        own = backend.amis.get(image)
        builder = None if own is None or own.instance_id is None else backend.get_instance_by_id(own.instance_id)
        return () if builder is None else self.image_path(builder.image_id)

    def architectures(self, instance: str) -> Sequence[str]:
        """Return the architectures of a type's processors; for a type unknown to moto, all."""
        for one in ec2_backends[ACCOUNT][self.region].instance_types:
            if one["InstanceType"] == instance:
                found: list[str] = one["ProcessorInfo"]["SupportedArchitectures"]
                return found
        return ("arm64", "x86_64")

    def role_of_profile(self, name_or_arn: str) -> str:
        name = name_or_arn.rpartition("/")[2]
        for profile in iam_backends[ACCOUNT][_PARTITION].instance_profiles.values():
            if profile.name == name and profile.roles:
                return str(profile.roles[0].arn)
        return ""

    def unzipped_bytes(self, bucket: str, key: str) -> int | None:
        there = s3_backends[ACCOUNT][_PARTITION]
        if bucket not in there.buckets or (found := there.get_object(bucket, key)) is None:
            return None
        try:
            with zipfile.ZipFile(io.BytesIO(found.value)) as package:
                return sum(one.file_size for one in package.infolist())
        except zipfile.BadZipFile:
            return None

    def rules(self, listener_arn: str) -> int:
        return sum(len(one.rules) - 1 for one in self._listeners(listener_arn))

    def target_groups(self, listener_arn: str) -> frozenset[str]:
        balancer = next((one.load_balancer_arn for one in self._listeners(listener_arn)), None)
        groups = elbv2_backends[ACCOUNT][self.region].target_groups.values()
        return frozenset(group.arn for group in groups if balancer is not None and balancer in group.load_balancer_arns)

    def targets(self, group_arn: str) -> int:
        groups = elbv2_backends[ACCOUNT][self.region].target_groups
        own = groups.get(group_arn)
        balancers = set() if own is None else set(own.load_balancer_arns)
        together = [one for one in groups.values() if one.arn == group_arn or balancers & set(one.load_balancer_arns)]
        return sum(len(one.targets) for one in together)

    def _listeners(self, arn: str) -> list[Any]:
        """Return all listeners of the balancer to which a listener or a rule belongs."""
        balancers = elbv2_backends[ACCOUNT][self.region].load_balancers
        for balancer in balancers.values():
            own = list(balancer.listeners.values())
            if any(one.arn == arn or arn in one.rules for one in own):
                return own
        return []


def _policies_of(role_arn: str) -> list[str]:
    """Return the documents of a role's inline and attached policies."""
    there = iam_backends[ACCOUNT][_PARTITION]
    role = next((one for one in there.roles.values() if one.arn == role_arn), None)
    if role is None:
        return []
    attached = [_document(policy) for policy in role.managed_policies.values()]
    return [*role.policies.values(), *attached]


def _document(policy: Any) -> str:
    text: str = next(one.document for one in policy.versions if one.version_id == policy.default_version_id)
    return text


def _whole(request: AwsRequest) -> bool:
    keys = request.parameters
    return not any(key.startswith(("Filter.", "InstanceId.", "VolumeId.", "MaxResults", "NextToken")) for key in keys)


def _instances(request: AwsRequest) -> int:
    if request.action == "CreateFleet":
        return int(request.parameters.get("TargetCapacitySpecification.TotalTargetCapacity", 0))
    if request.action == "RunInstances":
        return int(request.parameters.get("MaxCount", 1))
    return len(request.members("InstanceId"))
