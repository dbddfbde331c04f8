"""A registry in a bucket: the contract on moto, long lists, and S3's ways to say no."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.store.s3 import TRIES, S3Objects, open_bucket

from mark.domain.errors import BadInput, MarkError
from tests.infra.conftest import REGION, MotoServer
from tests.models.registry_contract import ObjectStoreContract, Open


def gate(moto: MotoServer) -> Gate:
    return Gate(Site("test", REGION, ""), options=moto.options)


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    name = f"mark-{uuid4()}"
    moto.client("s3").create_bucket(Bucket=name)
    return name


class TestS3Objects(ObjectStoreContract):
    @pytest.fixture
    def opened(self, moto: MotoServer, bucket: str) -> Open:
        return lambda: S3Objects(gate(moto), bucket, "team/registry/")


class Answering:
    """A client of S3 that answers with errors as long as it has some, and counts."""

    def __init__(self, client: Any, *codes: str) -> None:
        self._client, self._codes = client, list(codes)
        self.puts = 0

    def put_object(self, **arguments: Any) -> Any:
        self.puts += 1
        if self._codes:
            said = {"Error": {"Code": self._codes.pop(0), "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 409}}
            raise ClientError(said, "PutObject")  # type: ignore[arg-type]
        return self._client.put_object(**arguments)

    def list_objects_v2(self, **arguments: Any) -> Any:
        return self._client.list_objects_v2(**arguments, MaxKeys=2)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._client, method)


class AnsweringGate(Gate):
    def __init__(self, moto: MotoServer, *codes: str) -> None:
        super().__init__(Site("test", REGION, ""), options=moto.options)
        self.answering = Answering(super().client("s3"), *codes)

    def client(self, service: str) -> Any:
        return self.answering


def test_more_keys_than_one_answer_holds_are_all_listed(moto: MotoServer, bucket: str) -> None:
    """A thousand, and here two."""
    objects = S3Objects(AnsweringGate(moto), bucket, "r")
    for n in range(5):
        objects.create(f"k/{n}", b"x")
    assert objects.keys("k/") == [f"k/{n}" for n in range(5)]


def test_a_conflict_of_two_writers_is_tried_again(moto: MotoServer, bucket: str) -> None:
    """S3's 409: another write of the key was under way, and may have failed."""
    busy = AnsweringGate(moto, "ConditionalRequestConflict", "ConditionalRequestConflict")
    assert S3Objects(busy, bucket).create("a", b"x")
    assert busy.answering.puts == 3
    always = AnsweringGate(moto, *["ConditionalRequestConflict"] * TRIES)
    with pytest.raises(MarkError, match="ConditionalRequestConflict"):
        S3Objects(always, bucket).create("b", b"x")


def test_a_file_that_is_there_is_not_sent_again(moto: MotoServer, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    counting = AnsweringGate(moto)
    objects = S3Objects(counting, bucket)
    assert [objects.create("a", tmp_path / "file") for _ in range(2)] == [True, False]
    assert counting.answering.puts == 1


def test_a_bucket_that_is_not_there_is_one_line(moto: MotoServer) -> None:
    objects = S3Objects(gate(moto), "nobody-has-it", "r")
    for action in (lambda: objects.read("a"), lambda: objects.keys(""), lambda: objects.create("a", b"x")):
        with pytest.raises(BadInput, match=r"registry: cannot be used \(NoSuchBucket.*: s3://nobody-has-it/r/"):
            action()


def test_a_bucket_is_opened_by_its_name(moto: MotoServer, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Region, credentials and endpoint are found as AWS's SDKs find them."""
    for variable, value in {
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(variable, value)
    open_bucket(f"//{bucket}/some/where").create("a", b"x")
    assert S3Objects(gate(moto), bucket).keys("") == ["some/where/a"]
    with pytest.raises(BadInput, match="must be s3://BUCKET"):
        open_bucket("//")
