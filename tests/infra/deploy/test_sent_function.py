"""Sending a function: a zip directly, an image by docker's stand-in into an emulated ECR."""

from __future__ import annotations

import zipfile
from pathlib import Path

import boto3
import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.deploy import function_package, sent_function
from mark_infra.deploy.function_image import repository_of
from mark_infra.deploy.image_repositories import ImageRepositories
from mark_infra.deploy.sent_function import push, send

from mark.domain.errors import BadInput, MarkError
from tests.infra.conftest import ACCOUNT, REGION, MotoServer
from tests.infra.deploy.docker_stand_in import docker_stand_in

CONTENTS: dict[str, Path | bytes] = {"service/model.py": b"x = 1\n", "weights": bytes(2000)}


@pytest.fixture
def repositories(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> ImageRepositories:
    """Make repositories on the emulator to which the stand-in pushes."""
    moto.reset()
    monkeypatch.setattr(function_package, "MOST_ZIP_BYTES", 1000)
    for name, value in (
        ("AWS_ENDPOINT_URL", moto.url),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ):
        monkeypatch.setenv(name, value)
    gate = Gate(Site("mark", REGION, "sqlite:none"), session=boto3.Session())
    return ImageRepositories(gate, "mark", REGION, ACCOUNT)


def test_a_small_function_is_a_zip_with_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(sent_function, "FUNCTION_PYTHON", here)
    said: list[str] = []
    sent = send("words", CONTENTS, "x86_64", tmp_path, nowhere(), said.append)
    assert sent.file is not None
    assert (sent.image_uri, sent.to_push, said) == (None, None, [])
    tag = f"cpython-{here.replace('.', '')}"
    assert f"service/__pycache__/model.{tag}.pyc" in zipfile.ZipFile(sent.file).namelist()
    monkeypatch.setattr(sent_function, "FUNCTION_PYTHON", "3.99")
    sent = send("words", CONTENTS, "x86_64", tmp_path, nowhere(), said.append)
    assert sent.file is not None
    assert set(zipfile.ZipFile(sent.file).namelist()) == set(CONTENTS)
    assert said == ["words: its function starts slower, as bytecode for it needs a python3.99 here"]


def test_an_image_is_pushed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moto: MotoServer, repositories: ImageRepositories
) -> None:
    docker = docker_stand_in(tmp_path, monkeypatch, registry=True)
    said: list[str] = []
    first = send("words", CONTENTS, "x86_64", tmp_path, repositories, said.append)
    assert first.to_push is not None
    assert first.image_uri == f"{repositories.address('mark/mark/words')}:{first.to_push.tag}"
    assert moto.client("ecr").describe_repositories()["repositories"] == [], "nothing changes before it is agreed to"
    uri = push(first.to_push, repositories, tmp_path, said.append)
    (image,) = moto.client("ecr").describe_images(repositoryName="mark/mark/words")["imageDetails"]
    assert uri == f"{repositories.address('mark/mark/words')}@{image['imageDigest']}"
    again = send("words", CONTENTS, "x86_64", tmp_path, repositories, said.append)
    assert (again.image_uri, again.to_push) == (uri, None)
    assert len(docker.calls("push")) == len(docker.calls("build")) == 1
    (login,) = docker.calls("login")
    assert login["entered"] == repositories.password()
    assert not any(login["entered"] in line for line in said)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")], "the context is gone"


def test_what_is_pushed_before_needs_no_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repositories: ImageRepositories
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="none of docker, podman, finch is installed"):
        send("words", CONTENTS, "x86_64", tmp_path, repositories, print)
    with monkeypatch.context() as there:
        docker_stand_in(tmp_path / "docker", there, registry=True)
        image = send("words", CONTENTS, "x86_64", tmp_path, repositories, print).to_push
        assert image is not None
        push(image, repositories, tmp_path, print)
    assert send("words", CONTENTS, "x86_64", tmp_path, repositories, print).to_push is None


def test_a_push_that_did_not_arrive_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repositories: ImageRepositories
) -> None:
    docker_stand_in(tmp_path, monkeypatch)
    image = send("words", CONTENTS, "x86_64", tmp_path, repositories, print).to_push
    assert image is not None
    assert image.repository == repository_of("mark", "words")
    with pytest.raises(MarkError, match="is not there, though it was pushed"):
        push(image, repositories, tmp_path, print)


def nowhere() -> ImageRepositories:
    return ImageRepositories(Gate(Site("mark", REGION, "sqlite:none")), "mark", REGION, ACCOUNT)
