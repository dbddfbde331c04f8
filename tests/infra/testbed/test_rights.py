"""The right that each AWS request needs: no caller gets further than its policies, over the served cloud."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from mark_infra.testbed.account import account_of
from mark_infra.testbed.aws_request import AwsRequest, LaunchedPool, launch_rights, read_request, rights
from mark_infra.testbed.iam import IamPolicy

from tests.infra.testbed.conftest import Aws
from tests.infra.testbed.test_launches import LARGE_A, fleet, ids, run, template

QUICK = replace(account_of("strict"), fleets_take_s=(0.0, 0.0))
EC2, ACCOUNT = "arn:aws:ec2:us-east-1:1", "1"
FUNCTION = "arn:aws:lambda:us-east-1:1:function:f"
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


class There:
    """An account in which each resource has its own ARN as a tag."""

    region, account = "us-east-1", ACCOUNT

    def tags(self, arn: str) -> Mapping[str, str]:
        return {"of": arn}

    def template_id(self, name: str) -> str:
        return f"lt-{name}"


def needs(service: str, action: str, **parameters: Any) -> list[tuple[str, str]]:
    request = AwsRequest(service, action, {key.replace("__", "."): value for key, value in parameters.items()})
    return [(call.action, call.resource) for call in rights(request, There())]


def json_call(prefix: str, service: str, action: str, **body: Any) -> AwsRequest:
    headers = {"x-amz-target": f"{prefix}.{action}", "content-type": "application/x-amz-json-1.0"}
    return read_request(service, "K", "POST", "/?", headers, json.dumps(body).encode())


def test_rights_to_repositories_are_by_their_names() -> None:
    words = "arn:aws:ecr:us-east-1:1:repository/mark/mark/words"
    assert needs("ecr", "PutLifecyclePolicy", repositoryName="mark/mark/words") == [("ecr:PutLifecyclePolicy", words)]
    named = needs("ecr", "DescribeRepositories", repositoryNames=["mark/mark/words"])
    assert named == [("ecr:DescribeRepositories", words)]
    assert needs("ecr", "DescribeRepositories") == [("ecr:DescribeRepositories", "*")]


def test_requests_are_read_in_every_protocol() -> None:
    query = read_request("ec2", "K", "POST", "/?", FORM, b"Action=StopInstances&InstanceId.1=i-1&InstanceId.2=i-2")
    assert (query.name, query.key_id, query.members("InstanceId")) == ("ec2:StopInstances", "K", ["i-1", "i-2"])
    assert json_call("AmazonSQS", "sqs", "DeleteMessageBatch", QueueUrl="u").name == "sqs:DeleteMessage"
    cases = [
        ("lambda", "POST", "/2015-03-31/functions/f/invocations?", b"no json", "lambda:InvokeFunction"),
        ("lambda", "POST", "/2015-03-31/functions/?", b"{}", "lambda:CreateFunction"),
        ("lambda", "PUT", "/2017-10-31/functions/f/concurrency?", b"{}", "lambda:PutFunctionConcurrency"),
        ("s3", "GET", "/b/k/l?versionId=1", b"", "s3:GetObjectVersion"),
        ("s3", "GET", "/b/k?", b"", "s3:GetObject"),
        ("s3", "PUT", "/b/k?", b"", "s3:PutObject"),
        ("s3", "GET", "/b?list-type=2", b"", "s3:ListBucket"),
        ("s3", "GET", "/b?policy", b"", "s3:GetBucketPolicy"),
        ("s3", "DELETE", "/b/k?", b"", "s3:DeleteObject"),
        ("monitoring", "POST", "/service/G/operation/PutMetricData?", b"", "cloudwatch:PutMetricData"),
    ]  # fmt: skip
    for service, method, url, body, name in cases:
        assert read_request(service, "", method, url, {}, body).name == name


def test_versions_of_functions_have_no_tags() -> None:
    for url, resource, tags in (("?", "f", {"aws:ResourceTag/of": FUNCTION}), ("?Qualifier=7", "f:7", {})):
        one = read_request("lambda", "", "POST", f"/2015-03-31/functions/f/invocations{url}", {}, b"")
        (call,) = rights(one, There())
        assert (call.resource, call.context) == (f"arn:aws:lambda:us-east-1:1:function:{resource}", tags)


def put_metrics(protocol: str, body: bytes, **headers: str) -> AwsRequest:
    target = {"x-amz-target": "GraniteServiceVersion20100801.PutMetricData"} if protocol == "json" else {}
    url = "/service/G/operation/PutMetricData?" if protocol == "cbor" else "/?"
    form = FORM if protocol == "query" else {}
    return read_request("monitoring", "", "POST", url, {**target, **form, **headers}, body)


def test_a_namespace_is_read_in_every_protocol() -> None:
    form = b"Action=PutMetricData&Namespace=mark"
    for one in (
        put_metrics("query", form),
        put_metrics("query", gzip.compress(form), **{"content-encoding": "gzip"}),
        put_metrics("json", b'{"Namespace": "mark"}'),
        put_metrics("cbor", b"\xa1\x69Namespace\x64mark"),
    ):
        assert [call.context for call in rights(one, There())] == [{"cloudwatch:namespace": "mark"}]
    assert [call.resource for call in rights(put_metrics("cbor", b"\xff no cbor"), There())] == ["*"]


def test_each_resource_of_a_request_is_asked_about() -> None:
    assert needs("ec2", "DescribeInstances") == [("ec2:DescribeInstances", "*")]
    assert needs("ec2", "TerminateInstances", InstanceId__1="i-1", InstanceId__2="i-2") == [
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1"),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-2"),
    ]
    tagged = {"ResourceId__1": "i-1", "ResourceId__2": "vol-1", "Tag__1__Key": "k", "Tag__1__Value": "v"}
    assert needs("ec2", "CreateTags", **tagged) == [
        ("ec2:CreateTags", f"{EC2}:instance/i-1"),
        ("ec2:CreateTags", f"{EC2}:volume/vol-1"),
    ]
    assert needs("elasticloadbalancing", "RegisterTargets", TargetGroupArn="g") == [
        ("elasticloadbalancing:RegisterTargets", "g")
    ]
    assert needs("sqs", "ReceiveMessage", QueueUrl="http://h/1/q") == [
        ("sqs:ReceiveMessage", "arn:aws:sqs:us-east-1:1:q")
    ]
    for name in ("/mark/keys", "/mark/keys:3"):
        assert needs("ssm", "GetParameter", Name=name) == [
            ("ssm:GetParameter", "arn:aws:ssm:us-east-1:1:parameter/mark/keys")
        ]
    config = "LaunchTemplateConfigs__1__LaunchTemplateSpecification__LaunchTemplateName"
    assert ("ec2:CreateFleet", f"{EC2}:launch-template/lt-own") in needs("ec2", "CreateFleet", **{config: "own"})
    assert needs("logs", "PutLogEvents", logGroupName="/g", logStreamName="s") == [
        ("logs:PutLogEvents", "arn:aws:logs:us-east-1:1:log-group:/g:log-stream:s")
    ]
    assert needs("sts", "GetCallerIdentity") == []
    assert needs("iam", "CreateUser") == [("iam:CreateUser", "*")]


def test_a_transaction_needs_the_right_to_each_part() -> None:
    items = [{"Put": {"TableName": "t"}}, {"ConditionCheck": {"TableName": "t"}}, {"Put": {"TableName": "t"}}]
    table = "arn:aws:dynamodb:us-east-1:1:table/t"
    assert needs("dynamodb", "TransactWriteItems", TransactItems=items) == [
        ("dynamodb:PutItem", table),
        ("dynamodb:ConditionCheckItem", table),
    ]
    assert needs("dynamodb", "Query", TableName="t", IndexName="i") == [("dynamodb:Query", f"{table}/index/i")]


def test_metrics_say_their_namespace() -> None:
    (call,) = rights(AwsRequest("monitoring", "PutMetricData", {"Namespace": "mark"}), There())
    assert (call.action, call.context) == ("cloudwatch:PutMetricData", {"cloudwatch:namespace": "mark"})


def test_a_launch_needs_the_right_to_all_its_parts() -> None:
    pool = LaunchedPool("c5.large", True, "ami-1", "subnet-1", ["sg-1"], "lt-1", "role", {"instance": {"a": "b"}})
    calls = {(call.action, call.resource): call.context for call in launch_rights(pool, There())}
    assert set(calls) == {
        *(
            ("ec2:RunInstances", f"{EC2}:{one}")
            for one in ("launch-template/lt-1", "subnet/subnet-1", "security-group/sg-1")
        ),
        *(("ec2:RunInstances", f"{EC2}:{one}/*") for one in ("network-interface", "instance", "volume")),
        ("ec2:RunInstances", "arn:aws:ec2:us-east-1::image/ami-1"),
        ("ec2:CreateTags", f"{EC2}:instance/*"),
        ("iam:PassRole", "role"),
    }
    instance = calls["ec2:RunInstances", f"{EC2}:instance/*"]
    assert (instance["ec2:InstanceMarketType"], instance["aws:RequestTag/a"]) == ("spot", "b")
    assert calls["ec2:CreateTags", f"{EC2}:instance/*"]["ec2:CreateAction"] == "RunInstances"
    assert calls["iam:PassRole", "role"] == {"iam:PassedToService": "ec2.amazonaws.com"}


# Over the served cloud

LAUNCH = {"Effect": "Allow", "Action": "ec2:RunInstances"}
OWN = {"StringEquals": {"aws:ResourceTag/mark:site": "mark"}}
CONTROLLER: list[dict[str, Any]] = [
    {"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"},
    {"Effect": "Allow", "Action": "ec2:CreateFleet", "Resource": "arn:aws:ec2:*:*:*"},
    {**LAUNCH, "Resource": "arn:aws:ec2:*:*:launch-template/*", "Condition": OWN},
    *(
        {**LAUNCH, "Resource": f"arn:aws:ec2:*:*:{one}/*"}
        for one in ("instance", "volume", "network-interface", "subnet", "image", "security-group")
    ),
    {
        "Effect": "Allow",
        "Action": "ec2:CreateTags",
        "Resource": "arn:aws:ec2:*:*:*/*",
        "Condition": {"StringEquals": {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}},
    },
    {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "arn:aws:ec2:*:*:instance/*", "Condition": OWN},
]  # fmt: skip


def of_role(aws: Aws, service: str, statements: list[dict[str, Any]], name: str = "controller") -> Any:
    """Return a client that has assumed a role with this policy."""
    iam = aws.client("iam")
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    iam.put_role_policy(
        RoleName=name, PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statements})
    )
    said = aws.client("sts").assume_role(RoleArn=made, RoleSessionName="test")["Credentials"]
    return boto3.client(
        service, endpoint_url=aws.url, region_name="us-east-1", aws_access_key_id=said["AccessKeyId"],
        aws_secret_access_key=said["SecretAccessKey"], aws_session_token=said["SessionToken"],
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip


def tag(key: str, value: str, kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value}]}]


def test_a_role_launches_from_its_own_templates_only(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK)
    own, other = template(aws), ""
    other = aws.client("ec2").create_launch_template(
        LaunchTemplateName="other", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "c5.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    aws.client("ec2").create_tags(Resources=[own], Tags=[{"Key": "mark:site", "Value": "mark"}])
    aws.clients["ec2"], deployer = of_role(aws, "ec2", CONTROLLER), aws.client("ec2")
    try:
        assert len(ids(fleet(aws, own, 1, LARGE_A, spot=False))) == 1
        answer = fleet(aws, other, 1, LARGE_A, token="u", spot=False)
        assert (ids(answer), answer["Errors"][0]["ErrorCode"]) == ([], "UnauthorizedOperation")
        assert f"launch-template/{other}" in answer["Errors"][0]["ErrorMessage"]
        with pytest.raises(ClientError) as error:
            run(aws, LaunchTemplate={"LaunchTemplateName": "other"})
        assert f"launch-template/{other}" in str(error.value)
        assert len(run(aws, LaunchTemplate={"LaunchTemplateName": "test"})) == 1
    finally:
        aws.clients["controller"] = aws.clients["ec2"]
        aws.clients["ec2"] = deployer


def test_a_role_ends_its_own_instances_only(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK)
    mine, yours = (run(aws, TagSpecifications=tag("mark:site", site, "instance"))[0] for site in ("mark", "mark-2"))
    controller = aws.clients["controller"] = of_role(aws, "ec2", CONTROLLER)
    controller.terminate_instances(InstanceIds=[mine])
    for several in ([yours], [mine, yours]):
        with pytest.raises(ClientError) as error:
            controller.terminate_instances(InstanceIds=several)
        assert error.value.response["Error"]["Code"] == "UnauthorizedOperation"
    with pytest.raises(ClientError) as error:
        controller.stop_instances(InstanceIds=[mine])
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert aws.state(yours) != "shutting-down"


def test_each_service_denies_in_its_own_words(make_aws: Callable[..., Aws]) -> None:
    aws = make_aws(account=QUICK)
    calls: list[tuple[str, Callable[[Any], object], str]] = [
        ("ec2", lambda c: c.describe_instances(), "UnauthorizedOperation"),
        ("elbv2", lambda c: c.describe_load_balancers(), "AccessDenied"),
        ("s3", lambda c: c.list_buckets(), "AccessDenied"),
        ("sqs", lambda c: c.receive_message(QueueUrl=f"{aws.url}/1/q"), "AccessDeniedException"),
        ("dynamodb", lambda c: c.get_item(TableName="t", Key={"k": {"S": "v"}}), "AccessDeniedException"),
        ("ssm", lambda c: c.get_parameter(Name="/mark/keys"), "AccessDeniedException"),
        ("lambda", lambda c: c.invoke(FunctionName="f"), "AccessDeniedException"),
        ("iam", lambda c: c.list_users(), "AccessDenied"),
        ("cloudwatch", lambda c: c.put_metric_data(Namespace="x", MetricData=[]), "AccessDenied"),
    ]
    nothing = [{"Effect": "Allow", "Action": "a:b", "Resource": "*"}]
    for service, call, code in calls:
        client = aws.clients[f"{service} of nothing"] = of_role(aws, service, nothing, f"nothing-{service}")
        with pytest.raises(ClientError) as error:
            call(client)
        assert error.value.response["Error"]["Code"] == code, service
    assert len(aws.cloud.rules.denied) == len(calls)


def test_policies_may_be_handed_over_by_key(make_aws: Callable[..., Aws]) -> None:
    useless = IamPolicy({"Statement": {"Effect": "Allow", "Action": "a:b", "Resource": "*"}})
    aws = make_aws(account=QUICK, policies={"test": [useless]})
    with pytest.raises(ClientError):
        aws.instances()
    assert aws.cloud.rules.denied == ["ec2:DescribeInstances *"]


def test_a_generous_account_asks_for_no_rights(make_aws: Callable[..., Aws]) -> None:
    useless = IamPolicy({"Statement": {"Effect": "Allow", "Action": "a:b", "Resource": "*"}})
    aws = make_aws(policies={"test": [useless]})
    assert aws.instances() == []
