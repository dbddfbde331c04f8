"""Repositories of functions' images in ECR: one for each service with such an image, deleted with the service."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator
from typing import Any

from mark.domain.errors import DeniedError, NotFoundError
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import SITE
from mark_infra.deploy.deployer import partition_of

KEPT_IMAGES = 10  # beside the serving image; more than roll-backs and canaries need
ALIAS = "balancer"  # terraform/modules/overflow; the controller moves it to the serving version
_SERVES = "serves-"  # prefix of the serving image's tag; other tags are hexadecimal content ids


class ImageRepositories:
    """The repositories of one site. Every method raises CloudError."""

    def __init__(self, gate: Gate, site: str, region: str, account: str) -> None:
        self._gate, self.site, self._region, self._account = gate, site, region, account

    def address(self, repository: str) -> str:
        """Return the repository's address for functions and builders, whether it exists or not."""
        end = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        return f"{self._account}.dkr.ecr.{self._region}.{end}/{repository}"

    def digest(self, repository: str, tag: str) -> str | None:
        """Return the digest (`sha256:...`) of the image with this tag, or None if it is missing."""
        ecr = self._gate.client("ecr")
        try:
            found = self._gate.call(ecr.describe_images, repositoryName=repository, imageIds=[{"imageTag": tag}])
        except NotFoundError:
            return None
        return next((str(one["imageDigest"]) for one in found["imageDetails"]), None)

    def keep_serving(self, repository: str, function: str) -> None:
        """Tag the image that the function's alias serves, so that later pushes do not expire it.

        Does nothing without the function, or if its image is of another repository.
        """
        try:
            found = self._gate.call(self._gate.client("lambda").get_function, FunctionName=function, Qualifier=ALIAS)
        except NotFoundError:
            return
        uri = str(found["Code"].get("ResolvedImageUri") or found["Code"].get("ImageUri") or "")
        address, _, digest = uri.partition("@")
        if address != self.address(repository) or not digest:
            return
        ecr = self._gate.client("ecr")
        ids = [{"imageDigest": digest}]
        there = self._gate.call(ecr.batch_get_image, repositoryName=repository, imageIds=ids)["images"]
        if not there:
            return
        tag = _SERVES + digest.removeprefix("sha256:")[:32]
        if self.digest(repository, tag) is None:  # tags are immutable
            self._gate.call(
                ecr.put_image, repositoryName=repository, imageManifest=there[0]["imageManifest"], imageTag=tag
            )
        # Remove old tags last, so that the serving image is always tagged. Each image keeps its content's tag.
        old = [{"imageTag": one} for one in self._tags(repository) if one.startswith(_SERVES) and one != tag]
        if old:
            self._gate.call(ecr.batch_delete_image, repositoryName=repository, imageIds=old)

    def _tags(self, repository: str) -> Iterator[str]:
        ecr, asked = self._gate.client("ecr"), dict[str, Any]()
        while True:
            page = self._gate.call(ecr.list_images, repositoryName=repository, **asked)
            yield from (str(one["imageTag"]) for one in page["imageIds"] if "imageTag" in one)
            if not (token := page.get("nextToken")):
                return
            asked = {"nextToken": token}

    def make(self, repository: str) -> None:
        """Create the repository or update its settings: immutable tags, the last images kept, access for Lambda."""
        try:
            self._gate.call(self._gate.client("ecr").describe_repositories, repositoryNames=[repository])
        except NotFoundError:
            self._gate.call(
                self._gate.client("ecr").create_repository,
                repositoryName=repository,
                imageTagMutability="IMMUTABLE",
                imageScanningConfiguration={"scanOnPush": True},
                tags=[{"Key": SITE, "Value": self.site}],
            )
        self._gate.call(
            self._gate.client("ecr").put_lifecycle_policy,
            repositoryName=repository,
            lifecyclePolicyText=json.dumps(_lifecycle()),
        )
        self._gate.call(
            self._gate.client("ecr").set_repository_policy,
            repositoryName=repository,
            policyText=json.dumps(self._policy()),
        )

    def password(self) -> str:
        """Return the password with which the user AWS may push for twelve hours."""
        found = self._gate.call(self._gate.client("ecr").get_authorization_token)["authorizationData"]
        return base64.b64decode(found[0]["authorizationToken"]).decode().partition(":")[2]

    def remove_others(self, keep: Collection[str] = ()) -> None:
        """Delete all of the site's repositories except `keep`, with their images.

        Nothing is deleted if the caller may not list them.
        """
        try:
            there = list(self._names())
        except DeniedError:
            return
        for name in there:
            if name not in keep:
                self._gate.call(self._gate.client("ecr").delete_repository, repositoryName=name, force=True)

    def _names(self) -> Iterator[str]:
        ecr, token = self._gate.client("ecr"), ""
        while True:
            # ECR takes no empty token for the first page, and names it differently than EC2.
            asked: dict[str, Any] = {"nextToken": token} if token else {}
            page = self._gate.call(ecr.describe_repositories, **asked)
            names = (str(one["repositoryName"]) for one in page["repositories"])
            yield from (name for name in names if name.startswith(f"mark/{self.site}/"))
            if not (token := str(page.get("nextToken", ""))):
                return

    def _policy(self) -> dict[str, object]:
        functions = f"arn:{partition_of(self._region)}:lambda:{self._region}:{self._account}:function:{self.site}_*"
        return {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": "FunctionsOfTheSite",
                    "Effect": "Allow",
                    "Principal": {"Service": "lambda.amazonaws.com"},
                    "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
                    "Condition": {"StringLike": {"aws:SourceArn": functions}},
                }
            ],
        }


def _lifecycle() -> dict[str, object]:
    # An image selected by one rule is not expired by a later one, so this rule keeps the serving image.
    serves = {
        "rulePriority": 1,
        "description": "the running release stays",
        "selection": {
            "tagStatus": "tagged",
            "tagPrefixList": [_SERVES],
            "countType": "imageCountMoreThan",
            "countNumber": 100,
        },
        "action": {"type": "expire"},
    }
    rule = {
        "rulePriority": 2,
        "description": f"the last {KEPT_IMAGES}",
        "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES},
        "action": {"type": "expire"},
    }
    return {"rules": [serves, rule]}
