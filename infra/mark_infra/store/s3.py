"""A registry's objects in a bucket of S3."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput, CloudError, DeniedError, MarkError, NotFoundError
from mark.models.registry import ObjectStore
from mark_infra.aws.gate import Gate
from mark_infra.aws.session import open_session
from mark_infra.aws.site import Site

READ_S = 60.0  # because a part of a large file may take this long
# Pauses before each retry of a create that conflicted with another write. They double, so that a large file of the
# other process has time to arrive. They need no jitter, because one of the conflicting writers always succeeds.
PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0)
_THERE = "PreconditionFailed"
_BUSY = ("ConditionalRequestConflict", "OperationAborted")  # another write of the same key is in progress
_NO_KEY = "NoSuchKey"
_OF_THE_USER = (
    *("NoSuchBucket", "InvalidBucketName", "ParamValidationError", "InvalidToken", "EntityTooLarge"),
    *("AllAccessDisabled", "AccountProblem", "NotSignedUp"),
    *("PermanentRedirect", "AuthorizationHeaderMalformed"),  # the bucket is in another region
    "RequestTimeTooSkewed",  # this machine's clock is wrong
    "NotImplemented",  # an S3-compatible store without `If-None-Match`
)
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")  # the names that the SDK accepts; S3 checks the rest


class S3Objects:
    """The port ObjectStore below `prefix` of an existing bucket. Objects may have 5 GB, S3's limit for one PUT.

    Creating is a PUT with `If-None-Match: *`, which S3 grants to only one of several writers. `sleep` waits between
    tries.
    """

    def __init__(
        self, gate: Gate, bucket: str, prefix: str = "", *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._gate, self._bucket, self._client, self._sleep = gate, bucket, gate.client("s3"), sleep
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def read(self, key: str) -> bytes | None:
        answer = self._get(key)
        return None if answer is None else self._call("read", answer["Body"].read)

    def fetch(self, key: str, to: Path) -> bool:
        answer = self._get(key)
        if answer is None:
            return False
        with to.open("wb") as file:
            self._call("read", lambda: shutil.copyfileobj(answer["Body"], file, 1 << 20))
        return True

    def create(self, key: str, content: bytes | Path) -> bool:
        for pause_s in (*PAUSES_S, None):
            if isinstance(content, Path) and key in self.keys(key):
                return False  # otherwise S3 would refuse only after reading the whole file
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
                if not _says(error, *_BUSY):
                    raise self._translated("written", error) from error
                if pause_s is None:
                    raise MarkError(
                        f"registry {self._where}: another write of {key} was under way at each of {len(PAUSES_S) + 1} "
                        f"tries in {sum(PAUSES_S):.0f} s; say it again later ({error})"
                    ) from error
                # The other write may create the key, or fail, in which case this process must create it.
                self._sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        more: dict[str, Any] = {}
        while True:
            answer = self._call(
                "listed",
                self._client.list_objects_v2,
                Bucket=self._bucket,
                Prefix=self._prefix + prefix,
                **more,
            )
            found += [one["Key"].removeprefix(self._prefix) for one in answer.get("Contents", ())]
            if "NextContinuationToken" not in answer:
                return found  # S3 lists keys in the order of their bytes
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _put(self, key: str, body: Any) -> None:
        # Not `_call`, because the caller handles a failed condition.
        self._gate.call(
            self._client.put_object, Bucket=self._bucket, Key=self._prefix + key, Body=body, IfNoneMatch="*"
        )

    def _get(self, key: str) -> Any | None:
        try:
            return self._gate.call(self._client.get_object, Bucket=self._bucket, Key=self._prefix + key)
        except CloudError as error:
            if _says(error, _NO_KEY):
                return None
            raise self._translated("read", error) from error

    def _call(self, what: str, method: Any, **arguments: Any) -> Any:
        try:
            return self._gate.call(method, **arguments)
        except CloudError as error:
            raise self._translated(what, error) from error

    @property
    def _where(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def _translated(self, what: str, error: CloudError) -> MarkError:
        """Return the error to raise. `what` names the operation, because S3 may say only `Access Denied`."""
        said = " ".join(str(error).split())
        if isinstance(error, (DeniedError, NotFoundError)) or _says(error, *_OF_THE_USER):
            return BadInput(f"cannot be {what} ({said})", "registry", self._where)
        return MarkError(f"registry {self._where}: cannot be {what} ({said})")


def open_bucket(place: str) -> S3Objects:
    """Open `BUCKET/PREFIX` with the region and credentials that AWS's SDKs find."""
    where = f"registry s3:{place}"
    bucket, _, prefix = place.removeprefix("//").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise BadInput("must be s3://BUCKET or s3://BUCKET/PREFIX", where)
    session = open_session()
    if session.region_name is None:
        raise BadInput("needs a region: set AWS_DEFAULT_REGION", where)
    gate = Gate(Site(name="", region=session.region_name, store=""), session=session, read_s=READ_S)
    try:
        return S3Objects(gate, bucket, prefix)
    except CloudError as error:  # an invalid region or endpoint
        raise BadInput(f"cannot be used ({error})", where) from None


def _says(error: CloudError, *codes: str) -> bool:
    return str(error).startswith(tuple(f"{code}:" for code in codes))


_: type[ObjectStore] = S3Objects
