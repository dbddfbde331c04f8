"""Repositories of functions' images, on an emulated ECR."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy.image_repositories import KEPT_IMAGES, ImageRepositories
from moto import mock_aws

from mark.domain.errors import CloudError, NotFoundError
from tests.infra.deploy.stubbed import REGION, StubbedSession

ACCOUNT = "123456789012"
WORDS = "mark/mark/words"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.Session("test", "test", region_name=REGION)


def of(session: boto3.Session | StubbedSession, site: str = "mark") -> ImageRepositories:
    return ImageRepositories(Gate(Site(site, REGION, "sqlite:none"), session=session), site, REGION, ACCOUNT)


def names(session: boto3.Session) -> set[str]:
    found = session.client("ecr").describe_repositories()["repositories"]
    return {str(one["repositoryName"]) for one in found}


def test_a_new_one_is_tagged_scanned_and_immutable(session: boto3.Session) -> None:
    of(session).make(WORDS)
    ecr = session.client("ecr")
    (made,) = ecr.describe_repositories()["repositories"]
    assert made["imageTagMutability"] == "IMMUTABLE"
    assert made["imageScanningConfiguration"] == {"scanOnPush": True}
    assert made["repositoryUri"] == of(session).address(WORDS)
    assert ecr.list_tags_for_resource(resourceArn=made["repositoryArn"])["tags"] == [
        {"Key": "mark:site", "Value": "mark"}
    ]


def test_old_images_end_and_lambda_alone_may_read(session: boto3.Session) -> None:
    of(session).make(WORDS)
    ecr = session.client("ecr")
    first, rule = json.loads(ecr.get_lifecycle_policy(repositoryName=WORDS)["lifecyclePolicyText"])["rules"]
    assert first["selection"]["tagPrefixList"] == ["serves-"]
    assert first["rulePriority"] < rule["rulePriority"]
    assert rule["selection"] == {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES}
    (allowed,) = json.loads(ecr.get_repository_policy(repositoryName=WORDS)["policyText"])["Statement"]
    assert allowed["Principal"] == {"Service": "lambda.amazonaws.com"}
    assert allowed["Condition"]["StringLike"] == {"aws:SourceArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:mark_*"}


def test_making_one_again_mends_its_policies(session: boto3.Session) -> None:
    of(session).make(WORDS)
    session.client("ecr").delete_repository_policy(repositoryName=WORDS)
    of(session).make(WORDS)
    assert session.client("ecr").get_repository_policy(repositoryName=WORDS)["policyText"]


def test_an_image_is_found_by_its_tag(session: boto3.Session) -> None:
    assert of(session).digest(WORDS, "1") is None
    of(session).make(WORDS)
    assert of(session).digest(WORDS, "1") is None
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"})
    put = session.client("ecr").put_image(repositoryName=WORDS, imageTag="1", imageManifest=manifest)
    assert of(session).digest(WORDS, "1") == put["image"]["imageId"]["imageDigest"]


def test_the_password_is_what_docker_is_told() -> None:
    session = StubbedSession()
    data = {"authorizationData": [{"authorizationToken": "QVdTOnNlY3JldA=="}]}
    session.answers("ecr", "get_authorization_token", data)
    assert of(session).password() == "secret"


def test_only_the_sites_own_are_removed(session: boto3.Session) -> None:
    for name in (WORDS, "mark/mark/echo", "mark/mark-2/words", "others"):
        of(session).make(name)
    of(session).remove_others({WORDS})
    assert names(session) == {WORDS, "mark/mark-2/words", "others"}
    of(session).remove_others()
    assert names(session) == {"mark/mark-2/words", "others"}


def test_all_pages_are_looked_at() -> None:
    session = StubbedSession()
    one, two = ({"repositories": [{"repositoryName": f"mark/mark/{name}"}]} for name in ("a", "b"))
    session.answers("ecr", "describe_repositories", {**one, "nextToken": "more"}, {})
    session.answers("ecr", "describe_repositories", two, {"nextToken": "more"})
    for name in ("a", "b"):
        session.answers("ecr", "delete_repository", {}, {"repositoryName": f"mark/mark/{name}", "force": True})
    of(session).remove_others()
    assert session.all_asked()


def test_without_the_right_to_look_nothing_is_removed() -> None:
    session = StubbedSession()
    session.refuses("ecr", "describe_repositories", "AccessDeniedException")
    of(session).remove_others()
    session.refuses("ecr", "describe_repositories", "ServerException")
    with pytest.raises(CloudError):
        of(session).remove_others()


def test_china_has_addresses_of_its_own(session: boto3.Session) -> None:
    there = ImageRepositories(Gate(Site("mark", REGION, "sqlite:none"), session=session), "mark", "cn-north-1", ACCOUNT)
    assert there.address(WORDS) == f"{ACCOUNT}.dkr.ecr.cn-north-1.amazonaws.com.cn/{WORDS}"


def pushed(session: boto3.Session, tag: str) -> str:
    """Push an image with unique contents and return its digest."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "annotations": {"n": tag},
    }
    text = json.dumps(manifest)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"  # moto would draw one of a hundred
    session.client("ecr").put_image(repositoryName=WORDS, imageTag=tag, imageManifest=text, imageDigest=digest)
    return digest


class Serving:
    """A gate whose function's alias runs the serving image; with None the function is missing."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self.uri = gate, ""

    def call(self, method: Any, **asked: Any) -> Any:
        if method != "get_function":
            return self._gate.call(method, **asked)
        assert asked == {"FunctionName": "mark_words-overflow", "Qualifier": "balancer"}
        if not self.uri:
            raise NotFoundError("there is no such function")
        return {"Code": {"ResolvedImageUri": self.uri}}

    def client(self, name: str) -> Any:
        return SimpleNamespace(get_function="get_function") if name == "lambda" else self._gate.client(name)


def test_image_that_serves_is_marked_and_no_other(session: boto3.Session) -> None:
    gate = Serving(Gate(Site("mark", REGION, "sqlite:none"), session=session))
    images = ImageRepositories(cast("Gate", gate), "mark", REGION, ACCOUNT)
    images.make(WORDS)
    digests = [pushed(session, f"{n:064x}") for n in range(3)]
    assert len(set(digests)) == 3

    def marked() -> dict[str, str]:
        there = session.client("ecr").describe_images(repositoryName=WORDS)["imageDetails"]
        return {str(one["imageDigest"]): tag for one in there for tag in one["imageTags"] if tag.startswith("serves-")}

    images.keep_serving(WORDS, "mark_words-overflow")  # there is no function yet
    assert marked() == {}
    for digest in (digests[0], digests[0], digests[2], digests[0]):
        gate.uri = f"{images.address(WORDS)}@{digest}"
        images.keep_serving(WORDS, "mark_words-overflow")
        assert set(marked()) == {digest}
    gate.uri = "another.registry/mark/words@sha256:1"
    images.keep_serving(WORDS, "mark_words-overflow")
    assert set(marked()) == {digests[0]}
    assert [images.digest(WORDS, f"{n:064x}") for n in range(3)] == digests  # all are kept
