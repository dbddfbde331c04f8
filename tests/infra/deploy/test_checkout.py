"""Files of the project, found in a checkout and in an installation."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from mark_infra.deploy import checkout
from mark_infra.deploy.own_wheel import wheel

from mark.domain.errors import MarkError


def test_constraints_and_modules_are_the_checkouts() -> None:
    assert "numpy==" in checkout.constraints().read_text()
    assert (checkout.terraform_modules() / "modules" / "fleet" / "main.tf").is_file()


@pytest.mark.slow
def test_an_installation_has_them_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(tmp_path)) as made:
        made.extractall(tmp_path / "there")
    code = (
        "from mark_infra.deploy.checkout import checkout, constraints, terraform_modules as modules;"
        "print(checkout(), constraints(), modules() / 'modules' / 'fleet' / 'bouncer.sh.tftpl')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "there", capture_output=True, text=True)
    none, *found = done.stdout.split()
    assert none == "None", done.stderr
    assert all(Path(one).is_relative_to(tmp_path) and Path(one).is_file() for one in found)


def test_what_is_nowhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "checkout", lambda: None)
    with pytest.raises(MarkError, match=r"this installation has no constraints\.txt"):
        checkout.constraints()
