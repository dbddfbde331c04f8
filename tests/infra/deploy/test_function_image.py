"""A function as an image, and the program that builds and pushes it: here docker's stand-in."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from mark_infra.deploy.function_image import (
    FunctionImage,
    dockerfile,
    function_image,
    image_builder,
    repository_of,
    write_context,
)

from mark.domain.errors import BadInput, MarkError
from tests.infra.deploy.docker_stand_in import DockerStandIn, docker_stand_in

PASSWORD = "eyJwYXlsb2FkIjoi"
REFERENCE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mark/mark/words:1"


def image(folder: Path, machine: str = "x86_64") -> FunctionImage:
    folder.mkdir(exist_ok=True)
    (folder / "library.so").write_bytes(b"elf")
    (folder / "library.so").chmod(0o700)
    contents: dict[str, Path | bytes] = {
        "service/service.toml": b"[service]",
        "torch/lib/library.so": folder / "library.so",
    }
    return function_image("mark", "words", contents, machine)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DockerStandIn:
    return docker_stand_in(tmp_path, monkeypatch)


def test_repositories_have_names_that_ecr_takes() -> None:
    # from botocore's model of CreateRepository
    pattern = r"(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*"
    names = ["words", "Words.v3", "a--b", "a-b", "a-", "a_.c", "9", "a" * 63]
    found = [repository_of("mark", name) for name in names]
    assert all(re.fullmatch(pattern, one) for one in found), found
    assert len(set(found)) == len(found)
    assert found[0] == "mark/mark/words"


def test_the_same_files_have_the_same_tag(tmp_path: Path) -> None:
    one, again = image(tmp_path / "1"), image(tmp_path / "2")
    os.utime(tmp_path / "2" / "library.so", (1, 1))
    assert one.tag == again.tag
    assert re.fullmatch("[0-9a-f]{32}", one.tag)


def test_another_file_or_processor_has_another_tag(tmp_path: Path) -> None:
    before = image(tmp_path / "1")
    renamed = function_image("mark", "words", {"other": tmp_path / "1" / "library.so"}, "x86_64")
    changed = function_image("mark", "words", {**before.contents, "service/service.toml": b"[fleet]"}, "x86_64")
    tags = {before.tag, renamed.tag, changed.tag, image(tmp_path / "2", "aarch64").tag}
    assert len(tags) == 4


def test_another_processors_image_runs_nothing_of_its_own() -> None:
    compiled, final = dockerfile("aarch64", "x86_64").split("FROM ")[1:]
    assert compiled.startswith("--platform=linux/amd64 public.ecr.aws/lambda/python:3.12 AS compiled\n")
    assert "compileall -q -j 0 --invalidation-mode unchecked-hash /var/task" in compiled
    assert final.startswith("--platform=linux/arm64 public.ecr.aws/lambda/python:3.12\n")
    assert "RUN" not in final
    assert final.endswith('CMD ["mark_lambda.overflow.handler"]\n')


def test_a_builder_gets_files_that_lambda_can_read(tmp_path: Path, docker: DockerStandIn) -> None:
    made = image(tmp_path / "in", "aarch64")
    context = tmp_path / "context"
    context.mkdir()
    write_context(made, context)
    image_builder(made).build(context, made.machine, REFERENCE)
    (call,) = docker.calls("build")
    assert call["argv"] == ["build", "--platform", "linux/arm64", "--tag", REFERENCE, str(context)]
    assert call["files"] == {"service/service.toml": "0o644", "torch/lib/library.so": "0o755"}
    assert "FROM --platform=linux/arm64" in call["dockerfile"]
    assert not call["attested"], "Lambda takes no index of images"


def test_files_that_changed_are_not_sent(tmp_path: Path) -> None:
    made = image(tmp_path / "in")
    (tmp_path / "in" / "library.so").write_bytes(b"other")
    with pytest.raises(MarkError, match="words: files have changed since"):
        write_context(made, tmp_path / "context")


def test_the_password_is_entered_and_forgotten(tmp_path: Path, docker: DockerStandIn) -> None:
    made = image(tmp_path / "in")
    image_builder(made).push(REFERENCE, made.machine, PASSWORD)
    _, login, push, logout = docker.calls()
    registry = REFERENCE.partition("/")[0]
    assert login["argv"] == ["login", "--username", "AWS", "--password-stdin", registry]
    assert login["entered"] == PASSWORD
    assert push["argv"] == ["push", REFERENCE]
    assert logout["argv"] == ["logout", registry]
    assert not any(PASSWORD in word for call in docker.calls() for word in call["argv"])


def test_a_push_that_fails_logs_out_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = docker_stand_in(tmp_path, monkeypatch, fails="push", says="denied: no basic auth")
    made = image(tmp_path / "in")
    with pytest.raises(MarkError, match=r"^docker push: denied: no basic auth$") as said:
        image_builder(made).push(REFERENCE, made.machine, PASSWORD)
    assert docker.calls("logout")
    assert PASSWORD not in str(said.value)


def test_finch_is_told_which_platform_to_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finch = docker_stand_in(tmp_path, monkeypatch, "finch")
    monkeypatch.setenv("PATH", str(finch.bin))
    made = image(tmp_path / "in", "aarch64")
    image_builder(made).push(REFERENCE, made.machine, PASSWORD)
    assert finch.calls("push")[0]["argv"] == ["push", "--platform", "linux/arm64", REFERENCE]


def test_without_a_builder_one_line_says_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(image(tmp_path / "in"), contents={"weights": bytes(3 * 1024**2)})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    what = r'words.*none of docker, podman, finch is installed\. Without an image.*function = "none".*: 3 MiB$'
    with pytest.raises(BadInput, match=what):
        image_builder(made)


def test_a_builder_that_does_not_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = docker_stand_in(tmp_path, monkeypatch, fails="info", says="Cannot connect to the Docker daemon")
    monkeypatch.setenv("PATH", str(docker.bin))
    made = image(tmp_path / "in")
    with pytest.raises(BadInput, match="docker info: Cannot connect to the Docker daemon"):
        image_builder(made)
    podman = docker_stand_in(tmp_path, monkeypatch, "podman")
    monkeypatch.setenv("PATH", str(docker.bin))
    image_builder(made).push(REFERENCE, made.machine, PASSWORD)
    assert podman.calls("push")
    assert not docker.calls("push")
