"""The wheel of the installed package, put together again."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from mark_infra.deploy import own_wheel
from mark_infra.deploy.own_wheel import installed_wheel
from mark_infra.deploy.pip_program import run_pip

from mark.domain.errors import MarkError
from tests.infra.deploy.made_wheels import make_wheel


def installed(folder: Path, file: Path) -> Distribution:
    run_pip("install", "--no-deps", "--no-index", "--target", str(folder), str(file))
    (home,) = folder.glob("*.dist-info")
    return PathDistribution(home)


def unpacked(folder: Path, file: Path) -> Distribution:
    """Unpack a wheel as pip would; pip takes half a second."""
    with zipfile.ZipFile(file) as wheel:
        wheel.extractall(folder)
        listed = "".join(f"{name},,\n" for name in wheel.namelist())
    (home,) = folder.glob("*.dist-info")
    (home / "RECORD").write_text(listed)
    return PathDistribution(home)


def test_an_installation_gives_its_wheel_back(tmp_path: Path) -> None:
    given = make_wheel(tmp_path, "a-b", "2.0", tag="py2.py3-none-any")
    distribution = installed(tmp_path / "there", given)
    made = installed_wheel(distribution, tmp_path / "there")
    assert made.name == given.name
    before, after = zipfile.ZipFile(given), zipfile.ZipFile(made)
    assert set(after.namelist()) == set(before.namelist())  # no script, no bytecode, no file of pip's
    for name in before.namelist():
        assert name.endswith("/RECORD") or after.read(name) == before.read(name)
    again = made.read_bytes()
    assert installed_wheel(distribution, tmp_path / "there").read_bytes() == again
    anew = installed(tmp_path / "anew", made)
    assert anew.version == "2.0"
    for file in anew.files or ():
        if file.hash is not None and file.suffix == ".py":
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest())
            assert file.hash.value == digest.rstrip(b"=").decode()


def test_what_was_changed_is_sent_as_it_is(tmp_path: Path) -> None:
    distribution = unpacked(tmp_path / "there", make_wheel(tmp_path, "a"))
    (tmp_path / "there" / "a" / "__init__.py").write_text("ANSWER = 43\n")
    made = installed_wheel(distribution, tmp_path)
    assert zipfile.ZipFile(made).read("a/__init__.py") == b"ANSWER = 43\n"


def test_an_installation_with_a_hole_is_refused(tmp_path: Path) -> None:
    distribution = unpacked(tmp_path / "there", make_wheel(tmp_path, "a"))
    (tmp_path / "there" / "a" / "__init__.py").unlink()
    with pytest.raises(MarkError, match=r"a/__init__\.py of the installed a is gone"):
        installed_wheel(distribution, tmp_path)
    next((tmp_path / "there").glob("*.dist-info/RECORD")).unlink()
    with pytest.raises(MarkError, match="install it with pip"):
        installed_wheel(distribution, tmp_path)


def test_without_a_checkout_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = unpacked(tmp_path / "there", make_wheel(tmp_path, "mark-serving"))
    monkeypatch.setattr(own_wheel, "checkout", lambda: None)
    monkeypatch.setattr(own_wheel.metadata, "distribution", lambda name: distribution)
    (tmp_path / "mark_serving-0.0.1-py3-none-any.whl").write_bytes(b"")
    assert own_wheel.wheel(tmp_path).name == "mark_serving-1.0-py3-none-any.whl"
    assert len(list(tmp_path.glob("*.whl"))) == 1
