"""A registry's objects in a bucket of S3."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput, CloudError, DeniedError, MarkError, NotFoundError
from mark.models.registry import ObjectStore
from mark_infra.aws.gate import Gate
from mark_infra.aws.session import open_session
from mark_infra.aws.site import Site

READ_S = 60.0  # a part of a large file may take that long
TRIES = 5
_THERE = "PreconditionFailed"
_BUSY = "ConditionalRequestConflict"  # another one creates the same key right now
_NO_KEY = "NoSuchKey"
_OF_THE_USER = ("NoSuchBucket", "InvalidBucketName", "ParamValidationError", "InvalidToken", "EntityTooLarge")


class S3Objects:
    """The port ObjectStore, below `prefix` of a bucket that exists. Objects of at most 5 GB, S3's limit for one PUT.

    Creating is a PUT with `If-None-Match: *`, which S3 grants to one of several writers.
    """

    def __init__(self, gate: Gate, bucket: str, prefix: str = "") -> None:
        self._gate, self._bucket, self._client = gate, bucket, gate.client("s3")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def read(self, key: str) -> bytes | None:
        answer = self._get(key)
        return None if answer is None else self._call(answer["Body"].read)

    def fetch(self, key: str, to: Path) -> bool:
        answer = self._get(key)
        if answer is None:
            return False
        with to.open("wb") as file:
            self._call(lambda: shutil.copyfileobj(answer["Body"], file, 1 << 20))
        return True

    def create(self, key: str, content: bytes | Path) -> bool:
        if isinstance(content, Path) and key in self.keys(key):
            return False  # S3 says so only when it has read all of the file
        for left in reversed(range(TRIES)):
            try:
                if isinstance(content, bytes):
                    self._put(key, content)
                else:
                    with content.open("rb") as file:
                        self._put(key, file)
                return True
            except CloudError as error:
                if _says(error, _THERE):
                    return False
                if not _says(error, _BUSY) or not left:
                    raise self._translated(error) from error
        raise AssertionError("the last try returns or raises")

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        more: dict[str, Any] = {}
        while True:
            answer = self._call(self._client.list_objects_v2, Bucket=self._bucket, Prefix=self._prefix + prefix, **more)
            found += [one["Key"].removeprefix(self._prefix) for one in answer.get("Contents", ())]
            if "NextContinuationToken" not in answer:
                return found  # which S3 lists in the order of their bytes
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _put(self, key: str, body: Any) -> None:
        # The gate's, and no `_call`: what S3 says of the condition is an answer here.
        self._gate.call(
            self._client.put_object, Bucket=self._bucket, Key=self._prefix + key, Body=body, IfNoneMatch="*"
        )

    def _get(self, key: str) -> Any | None:
        try:
            return self._gate.call(self._client.get_object, Bucket=self._bucket, Key=self._prefix + key)
        except CloudError as error:
            if _says(error, _NO_KEY):
                return None
            raise self._translated(error) from error

    def _call(self, method: Any, **arguments: Any) -> Any:
        try:
            return self._gate.call(method, **arguments)
        except CloudError as error:
            raise self._translated(error) from error

    def _translated(self, error: CloudError) -> MarkError:
        where = f"s3://{self._bucket}/{self._prefix}"
        if isinstance(error, (DeniedError, NotFoundError)) or any(_says(error, code) for code in _OF_THE_USER):
            return BadInput(f"cannot be used ({error})", "registry", where)
        return MarkError(f"registry {where}: {error}")


def open_bucket(place: str) -> S3Objects:
    """`BUCKET/PREFIX`, with region and credentials as AWS's SDKs find them."""
    where = f"registry s3:{place}"
    bucket, _, prefix = place.removeprefix("//").partition("/")
    if not bucket:
        raise BadInput("must be s3://BUCKET or s3://BUCKET/PREFIX", where)
    session = open_session()
    if session.region_name is None:
        raise BadInput("needs a region: set AWS_DEFAULT_REGION", where)
    gate = Gate(Site(name="", region=session.region_name, store=""), session=session, read_s=READ_S)
    try:
        return S3Objects(gate, bucket, prefix)
    except CloudError as error:  # of a region or an endpoint that is none
        raise BadInput(f"cannot be used ({error})", where) from None


def _says(error: CloudError, code: str) -> bool:
    return str(error).startswith(f"{code}:")


_: type[ObjectStore] = S3Objects
