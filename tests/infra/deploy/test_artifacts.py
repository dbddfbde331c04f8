"""The artifacts that instances and functions boot from."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from mark_infra.deploy import artifacts

from mark.domain.errors import BadInput
from mark.models.files import sorted_out


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_no_secret_is_sent(tmp_path: Path) -> None:
    here = folder(
        tmp_path,
        *("model.py", "weights/a.onnx", "requirements.txt", "keyboard.py"),
        *(".git/config", ".env", "tls.pem", "server.key", "keys", "prod.env", "credentials.json", "my_secrets.txt"),
        *("__pycache__/m.pyc", "venv/bin/python", "terraform.tfstate", "site.tfvars.json", "id_rsa"),
    )
    files, kept_back = sorted_out(here)
    assert sorted(files) == ["keyboard.py", "model.py", "requirements.txt", "weights/a.onnx"]
    assert "server.key" in kept_back
    assert "keys" in kept_back


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    here = folder(tmp_path, "model.py")
    (here / "loop").symlink_to(here)
    assert list(sorted_out(here)[0]) == ["model.py"]


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    here = folder(tmp_path / "in", "a.py", "b/c.py")
    files: dict[str, Path | bytes] = {**sorted_out(here)[0], "service.toml": b"[service]"}
    first = artifacts.archive(files, tmp_path / "1.tar.gz").read_bytes()
    os.utime(here / "a.py", (1, 1))
    again = artifacts.archive(dict(reversed(files.items())), tmp_path / "2.tar.gz").read_bytes()
    assert first == again
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        assert tar.getnames() == ["a.py", "b/c.py", "service.toml"]
        assert {member.uid for member in tar.getmembers()} == {0}


def test_what_a_function_imports_is_kept(tmp_path: Path) -> None:
    pins = tmp_path / "pins"
    pins.write_text("numpy==2.2.0\n")
    there = tmp_path / "cache" / artifacts.libraries_name(b"torch\n", pins)
    there.mkdir(parents=True)
    assert artifacts.libraries({"requirements.txt": b"torch\n"}, (), tmp_path / "cache", pins) == there
    assert artifacts.libraries_name(b"", pins) != there.name
    assert artifacts.libraries_name(b"torch\n", pins, machine="aarch64") != there.name


def test_a_function_has_no_libraries_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def installs(*arguments: str) -> None:
        folder = Path(arguments[arguments.index("--target") + 1])
        for name in ("nvidia_cublas-13.0.dist-info", "nvidia_cudnn-9.0.dist-info", "torch-2.9.dist-info"):
            (folder / name).mkdir(parents=True)

    monkeypatch.setattr(artifacts, "run_pip", installs)
    pins = tmp_path / "pins"
    pins.write_text("")
    with pytest.raises(BadInput, match=r"no function has.*`cpu_index`.*nvidia_cublas-13\.0 and 1 more"):
        artifacts.libraries({}, ("torch",), tmp_path / "cache", pins)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == []


def test_an_arm64_function_has_wheels_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def installs(*arguments: str) -> None:
        asked.extend(arguments)
        Path(arguments[arguments.index("--target") + 1]).mkdir()

    monkeypatch.setattr(artifacts, "run_pip", installs)
    pins = tmp_path / "pins"
    pins.write_text("")
    artifacts.libraries({}, (), tmp_path / "cache", pins, machine="aarch64")
    assert "--platform=manylinux2014_aarch64" in asked
    assert not any("x86_64" in one for one in asked)


def test_what_is_packed_already_is_not_compressed(tmp_path: Path) -> None:
    here = folder(tmp_path / "in", "a.whl")
    made = artifacts.archive({"a.whl": here / "a.whl", "b": b"text"}, tmp_path / "out" / "wheels.tar")
    assert b"text" in made.read_bytes()
    with tarfile.open(made, "r:") as tar:
        assert tar.getnames() == ["a.whl", "b"]
