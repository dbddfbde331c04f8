"""Recognise an HTTP request's AWS call, and the IAM rights that it needs, for the calls of this project.

Pure except for `Resources`, which describes existing resources. Rights follow AWS's Service Authorization Reference. A
call that no table below has needs the right to its action on "*", which no narrow policy grants.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from botocore.parsers import BaseCBORParser, ResponseParserError  # type: ignore[import-untyped]

from mark_infra.testbed.iam import IamCall

_TAG, _NEW_TAG = "aws:ResourceTag/", "aws:RequestTag/"
# IAM's prefix by the service name in the request's signature.
_PREFIX = {"monitoring": "cloudwatch", "tagging": "tag", "servicequotas": "servicequotas", "email": "ses"}
# Calls whose IAM action has another name.
_OTHERWISE = {
    ("sqs", "DeleteMessageBatch"): "DeleteMessage",
    ("sqs", "SendMessageBatch"): "SendMessage",
    ("sqs", "ChangeMessageVisibilityBatch"): "ChangeMessageVisibility",
    ("sqs", "GetQueueUrl"): "GetQueueUrl",
}
_FUNCTION = re.compile(r"/\d{4}-\d\d-\d\d/functions/([^/]+)(/[\w-]+)?")
# Actions by method and the path after the function's name.
_LAMBDA = {
    ("POST", "/invocations"): "InvokeFunction",
    ("GET", ""): "GetFunction",
    ("DELETE", ""): "DeleteFunction",
    ("PUT", "/code"): "UpdateFunctionCode",
    ("PUT", "/configuration"): "UpdateFunctionConfiguration",
    ("GET", "/configuration"): "GetFunctionConfiguration",
    ("PUT", "/concurrency"): "PutFunctionConcurrency",
    ("GET", "/concurrency"): "GetFunctionConcurrency",
    ("DELETE", "/concurrency"): "DeleteFunctionConcurrency",
    ("POST", "/versions"): "PublishVersion",
    ("POST", "/aliases"): "CreateAlias",
    ("PUT", "/aliases"): "UpdateAlias",
    ("POST", "/policy"): "AddPermission",
}
_TO_INSTANCES = ("StartInstances", "StopInstances", "TerminateInstances", "RebootInstances")
_LOOKS = ("Describe", "List", "Search")
_OF_GROUP = (
    *("RegisterTargets", "DeregisterTargets", "ModifyTargetGroup", "ModifyTargetGroupAttributes", "DeleteTargetGroup"),
)
_LISTENERS = ("ModifyListener", "DeleteListener", "CreateRule")
_RULES = ("ModifyRule", "DeleteRule")


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One call, with flat parameters (query protocol), JSON's, or those in the path (S3, Lambda)."""

    service: str  # the name in the signature
    action: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    key_id: str = ""

    @property
    def name(self) -> str:
        """The action in IAM's words."""
        prefix = _PREFIX.get(self.service, self.service)
        return f"{prefix}:{_OTHERWISE.get((self.service, self.action), self.action)}"

    def members(self, key: str) -> list[str]:
        """Return the values of a list in the query protocol, like `InstanceId.1`, `InstanceId.2`."""
        start = f"{key}."
        return [
            str(value)
            for name, value in self.parameters.items()
            if name.startswith(start) and name[len(start) :].isdigit()
        ]

    def groups(self, key: str) -> list[dict[str, str]]:
        """Return the structures of a list in the query protocol, each by the keys after its number."""
        found: dict[int, dict[str, str]] = {}
        for name, value in self.parameters.items():
            match = re.fullmatch(rf"{re.escape(key)}\.(\d+)\.(.+)", name)
            if match:
                found.setdefault(int(match[1]), {})[match[2]] = str(value)
        return [found[number] for number in sorted(found)]


@dataclass(frozen=True, slots=True)
class LaunchedPool:
    """The parts of a launch that matter for its rights."""

    instance: str
    spot: bool
    image: str = ""
    subnet: str = ""
    security_groups: Sequence[str] = ()
    template: str = ""
    role: str = ""  # ARN of the role that the instance profile passes
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by kind: instance, volume


class Resources(Protocol):
    """The account's resources."""

    region: str
    account: str

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource; empty if it does not exist."""

    def template_id(self, name: str) -> str:
        """Return the id of the launch template with the name; "" if it does not exist."""


def read_request(
    service: str, key_id: str, method: str, url: str, headers: Mapping[str, str], body: bytes
) -> AwsRequest:
    """Return the call of a request; its action is "" if unknown."""
    path, _, query = url.partition("?")
    target = headers.get("x-amz-target", "")
    content = headers.get("content-type", "")
    if headers.get("content-encoding") == "gzip":  # the SDK compresses many metrics
        body = gzip.decompress(body)
    if target:
        return AwsRequest(service, target.rpartition(".")[2], _json(body), key_id)
    if service == "s3":
        return _of_s3(method, path, query, key_id)
    if service == "lambda":
        return _of_lambda(method, path, query, body, key_id)
    if "/operation/" in path:  # Smithy's RPC in CBOR
        return AwsRequest(service, path.rpartition("/")[2], _cbor(body), key_id)
    if content.startswith("application/x-www-form-urlencoded"):
        said = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        return AwsRequest(service, said.get("Action", ""), said, key_id)
    said = dict(parse_qsl(query, keep_blank_values=True))
    return AwsRequest(
        service, said.get("Action", f"{method.title()}{path.strip('/').partition('/')[0].title()}"), said, key_id
    )


def rights(request: AwsRequest, there: Resources) -> list[IamCall]:
    """Return the rights that the caller needs; none for calls that AWS answers to every caller."""
    if request.service == "sts" and request.action == "GetCallerIdentity":
        return []
    of = _RIGHTS.get(request.service)
    found = None if of is None else of(request, there)
    return [IamCall(request.name)] if found is None else found


def launch_rights(pool: LaunchedPool, there: Resources) -> list[IamCall]:
    """Return the rights for RunInstances of one pool, also in a fleet; AWS checks each resource by itself."""
    ec2 = f"arn:aws:ec2:{there.region}:{there.account}"
    launch = {
        "ec2:InstanceType": pool.instance,
        "ec2:InstanceMarketType": "spot" if pool.spot else "on-demand",
        "ec2:IsLaunchTemplateResource": "true" if pool.template else "false",
    }
    calls = []

    def add(arn: str, context: Mapping[str, str] | None = None) -> None:
        calls.append(IamCall("ec2:RunInstances", arn, {**launch, **_tags(there.tags(arn)), **(context or {})}))

    if pool.template:
        add(f"{ec2}:launch-template/{pool.template}")
    if pool.image:
        add(f"arn:aws:ec2:{there.region}::image/{pool.image}")
    if pool.subnet:
        add(f"{ec2}:subnet/{pool.subnet}")
    for group in pool.security_groups:
        add(f"{ec2}:security-group/{group}")
    add(f"{ec2}:network-interface/*")
    for kind in ("instance", "volume"):
        tags = pool.tags.get(kind, {})
        add(f"{ec2}:{kind}/*", _tags(tags, _NEW_TAG))
        if tags:
            context = {"ec2:CreateAction": "RunInstances", **_tags(tags, _NEW_TAG)}
            calls.append(IamCall("ec2:CreateTags", f"{ec2}:{kind}/*", context))
    if pool.role:
        calls.append(IamCall("iam:PassRole", pool.role, {"iam:PassedToService": "ec2.amazonaws.com"}))
    return calls


def user_data_size(text: str) -> int:
    """Return the bytes of a request's user data."""
    try:
        return len(base64.b64decode(text, validate=True))
    except ValueError:
        return len(text)


def _of_ec2(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    ec2 = f"arn:aws:ec2:{there.region}:{there.account}"
    if request.action.startswith(_LOOKS):
        return [IamCall(request.name)]
    if request.action == "RunInstances":
        return []  # launching checks the launched resources
    if request.action in _TO_INSTANCES:
        return _each(request.name, [f"{ec2}:instance/{one}" for one in request.members("InstanceId")], there)
    if request.action in ("CreateTags", "DeleteTags"):
        new = {one["Key"]: one.get("Value", "") for one in request.groups("Tag")}
        arns = [f"{ec2}:{_KINDS.get(one.partition('-')[0], 'resource')}/{one}" for one in request.members("ResourceId")]
        return _each(request.name, arns, there, _tags(new, _NEW_TAG))
    if request.action == "CreateFleet":
        arns = [f"{ec2}:fleet/*"]
        for config in request.groups("LaunchTemplateConfigs"):
            for key, value in config.items():
                if key.endswith("LaunchTemplateId"):
                    arns.append(f"{ec2}:launch-template/{value}")
                elif key.endswith("LaunchTemplateName"):
                    arns.append(f"{ec2}:launch-template/{there.template_id(value)}")
                elif key.endswith("SubnetId"):
                    arns.append(f"{ec2}:subnet/{value}")
                elif key.endswith("ImageId"):
                    arns.append(f"arn:aws:ec2:{there.region}::image/{value}")
        calls = _each(request.name, list(dict.fromkeys(arns)), there)
        for specification in request.groups("TagSpecification"):
            if specification.get("ResourceType") == "fleet":
                tags = tag_list(specification)
                context = {"ec2:CreateAction": "CreateFleet", **_tags(tags, _NEW_TAG)}
                calls.append(IamCall("ec2:CreateTags", f"{ec2}:fleet/*", context))
        return calls
    return None


def tag_list(specification: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a TagSpecification of the query protocol."""
    return {
        value: specification.get(f"{key.removesuffix('.Key')}.Value", "")
        for key, value in specification.items()
        if key.startswith("Tag.") and key.endswith(".Key")
    }


def _of_elb(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    for actions, key in ((_OF_GROUP, "TargetGroupArn"), (_LISTENERS, "ListenerArn"), (_RULES, "RuleArn")):
        if request.action in actions:
            return _each(request.name, [str(request.parameters.get(key, ""))], there)
    return None


def _of_sqs(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    url = str(request.parameters.get("QueueUrl", ""))
    return (
        _each(request.name, [f"arn:aws:sqs:{there.region}:{there.account}:{url.rpartition('/')[2]}"], there)
        if url
        else None
    )


_TRANSACTED = {
    "ConditionCheck": "ConditionCheckItem",
    "Put": "PutItem",
    "Delete": "DeleteItem",
    "Update": "UpdateItem",
    "Get": "GetItem",
}


def _of_dynamodb(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    tables = f"arn:aws:dynamodb:{there.region}:{there.account}:table"
    if request.action in ("TransactWriteItems", "TransactGetItems"):
        items = request.parameters.get("TransactItems", [])
        parts = [(kind, what["TableName"]) for item in items for kind, what in item.items()]
        return [IamCall(f"dynamodb:{_TRANSACTED[kind]}", f"{tables}/{table}") for kind, table in dict.fromkeys(parts)]
    name = str(request.parameters.get("TableName", ""))
    index = request.parameters.get("IndexName")
    return [IamCall(request.name, f"{tables}/{name}" + (f"/index/{index}" if index else ""))] if name else None


def _of_ssm(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    names = request.parameters.get("Names", [request.parameters.get("Name", "")])
    if not all(names) or "Parameter" not in request.action:
        return None
    bare = [str(name).partition(":")[0].lstrip("/") for name in names]  # NAME:3 is a version of the parameter
    arns = [f"arn:aws:ssm:{there.region}:{there.account}:parameter/{name}" for name in bare]
    return _each(request.name, arns, there)


def _of_logs(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    group, stream = request.parameters.get("logGroupName"), request.parameters.get("logStreamName", "")
    where = f"arn:aws:logs:{there.region}:{there.account}:log-group:{group}"
    return [IamCall(request.name, f"{where}:log-stream:{stream}")] if group else None


def _of_cloudwatch(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    space = request.parameters.get("Namespace")
    return None if space is None else [IamCall(request.name, "*", {"cloudwatch:namespace": str(space)})]


def _function_rights(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    name = str(request.parameters.get("FunctionName", ""))
    if not name:
        return None
    arn = f"arn:aws:lambda:{there.region}:{there.account}:function:{name}"
    # Versions and aliases have no tags, not even their function's.
    return [IamCall(request.name, arn, {} if ":" in name else _tags(there.tags(arn)))]


def _repository_rights(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    names = request.parameters.get("repositoryNames") or [request.parameters.get("repositoryName")]
    found = [str(name) for name in names if name]
    arns = [f"arn:aws:ecr:{there.region}:{there.account}:repository/{name}" for name in found]
    return [IamCall(request.name, arn) for arn in arns or ["*"]]


def _object_rights(request: AwsRequest, there: Resources) -> list[IamCall] | None:
    bucket, key = request.parameters.get("Bucket", ""), request.parameters.get("Key", "")
    return [IamCall(request.name, f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else ""))] if bucket else None


_RIGHTS: dict[str, Callable[[AwsRequest, Resources], list[IamCall] | None]] = {
    "ec2": _of_ec2,
    "elasticloadbalancing": _of_elb,
    "sqs": _of_sqs,
    "dynamodb": _of_dynamodb,
    "ssm": _of_ssm,
    "logs": _of_logs,
    "monitoring": _of_cloudwatch,
    "lambda": _function_rights,
    "ecr": _repository_rights,
    "s3": _object_rights,
}
# EC2's resource kinds by the prefix of their ids.
_KINDS = {
    "i": "instance", "vol": "volume", "lt": "launch-template", "fleet": "fleet", "sg": "security-group",
    "subnet": "subnet", "vpc": "vpc", "eni": "network-interface", "ami": "image",
}  # fmt: skip


def _of_lambda(method: str, path: str, query: str, body: bytes, key_id: str) -> AwsRequest:
    match = _FUNCTION.match(path)
    if match is None:
        made = method == "POST" and path.rstrip("/").endswith("/functions")
        return AwsRequest("lambda", "CreateFunction" if made else f"{method.title()}Other", _json(body), key_id)
    name = unquote(match[1])
    if name.startswith("arn:"):
        name = name.split(":", 6)[6]
    if qualifier := dict(parse_qsl(query)).get("Qualifier"):
        name = f"{name}:{qualifier}"
    part = match[2] or ""
    # The body of an invocation is not AWS's.
    said = {} if part == "/invocations" else _json(body)
    action = _LAMBDA.get((method, part), f"{method.title()}{part.strip('/').title()}")
    return AwsRequest("lambda", action, {**said, "FunctionName": name}, key_id)


def _of_s3(method: str, path: str, query: str, key_id: str) -> AwsRequest:
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    kinds = {"GET": "Get", "HEAD": "Get", "PUT": "Put", "POST": "Put", "DELETE": "Delete"}
    kind = kinds.get(method, method.title())
    special = next((one for one in asked if one in _OF_BUCKETS), None)
    if not bucket:
        action = "ListAllMyBuckets"
    elif special is not None:
        action = f"{kind}{_OF_BUCKETS[special]}"
    elif key:
        action = f"{kind}Object" + ("Version" if "versionId" in asked and kind in ("Get", "Delete") else "")
    else:
        action = {"Get": "ListBucket", "Put": "CreateBucket", "Delete": "DeleteBucket"}.get(kind, f"{kind}Bucket")
    return AwsRequest("s3", action, {"Bucket": bucket, "Key": key}, key_id)


_OF_BUCKETS = {
    "policy": "BucketPolicy", "acl": "BucketAcl", "tagging": "ObjectTagging", "versioning": "BucketVersioning",
    "lifecycle": "LifecycleConfiguration", "encryption": "EncryptionConfiguration", "versions": "BucketVersions",
    "publicAccessBlock": "BucketPublicAccessBlock",
}  # fmt: skip


def _each(
    action: str, arns: Sequence[str], there: Resources, context: Mapping[str, str] | None = None
) -> list[IamCall]:
    return [IamCall(action, arn, {**_tags(there.tags(arn)), **(context or {})}) for arn in arns]


def _tags(tags: Mapping[str, str], prefix: str = _TAG) -> dict[str, str]:
    return {f"{prefix}{key}": value for key, value in tags.items()}


def _cbor(body: bytes) -> dict[str, Any]:
    parser = BaseCBORParser()
    try:
        said = parser.parse_data_item(parser.get_peekable_stream_from_bytes(body))
    except (ResponseParserError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body or b"{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
