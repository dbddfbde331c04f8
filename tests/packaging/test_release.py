"""The release script: what it refuses, what it shows, and what a release leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_GIT = {f"GIT_{role}_{what}": "test@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Checkout:
    """A repository with the few files that a release touches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (
            "pyproject.toml",
            "CHANGELOG.md",
            "packaging/release.sh",
            "mark/domain/version.py",
            "changelog.d/README.md",
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "changelog.d/sails.added.md").write_text("Ships have sails.\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "Begin")

    def git(self, *arguments: str) -> str:
        return self._run(["git", *arguments]).stdout

    def release(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(["bash", "packaging/release.sh", *arguments], check=False)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def _run(self, command: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **_GIT, "BIN": str(Path(sys.executable).parent)}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=check)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    pytest.importorskip("towncrier", reason="changelogs are built by towncrier: install mark with [docs]")
    return Checkout(tmp_path)


def test_without_run_it_shows_notes_and_changes_nothing(checkout: Checkout) -> None:
    shown = checkout.release("9.9.0")
    assert shown.returncode == 0, shown.stderr
    assert "Ships have sails." in shown.stdout
    assert checkout.git("status", "--porcelain") == ""
    assert checkout.git("tag") == ""


def test_a_release_has_notes_version_commit_and_tag(checkout: Checkout) -> None:
    done = checkout.release("9.9.0", "--run")
    assert done.returncode == 0, done.stderr
    notes = checkout.read("CHANGELOG.md")
    assert notes.index("## 9.9.0 (") < notes.index("- Ships have sails.") < notes.index("## 0.1.0")
    assert 'VERSION = "9.9.0"' in checkout.read("mark/domain/version.py")
    assert not (checkout.folder / "changelog.d/sails.added.md").exists()
    assert (checkout.folder / "changelog.d/README.md").exists()
    assert checkout.git("status", "--porcelain") == ""
    assert checkout.git("tag").split() == ["v9.9.0"]


def test_entries_of_the_unreleased_version_join_its_release(checkout: Checkout) -> None:
    assert "## 3.0.0 (unreleased)" not in checkout.read("CHANGELOG.md")
    old = checkout.read("CHANGELOG.md").replace("## 0.1.0 (unreleased)", "## 3.0.0 (unreleased)")
    (checkout.folder / "CHANGELOG.md").write_text(old)
    checkout.git("commit", "-aqm", "Old entries")
    assert checkout.release("3.0.0", "--run").returncode == 0
    assert checkout.read("CHANGELOG.md").count("## 3.0.0 (") == 1


@pytest.mark.parametrize("arguments", [(), ("next",), ("1.0",), ("1.0.0", "--force")])
def test_a_wrong_command_line_is_refused(checkout: Checkout, arguments: tuple[str, ...]) -> None:
    assert checkout.release(*arguments).returncode == 1


def test_a_checkout_with_changes_is_refused(checkout: Checkout) -> None:
    (checkout.folder / "new.txt").write_text("new")
    assert "not committed" in checkout.release("9.9.0").stderr


def test_a_version_that_is_tagged_is_refused(checkout: Checkout) -> None:
    checkout.git("tag", "v9.9.0")
    assert "exists already" in checkout.release("9.9.0").stderr


def test_a_release_without_notes_is_refused(checkout: Checkout) -> None:
    checkout.git("rm", "-q", "changelog.d/sails.added.md")
    checkout.git("commit", "-qm", "No notes")
    assert "no note" in checkout.release("9.9.0").stderr
