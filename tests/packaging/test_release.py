"""The release script: its refusals, its output, and the files that a release leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_GIT = {f"GIT_{role}_{what}": "test@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Checkout:
    """A repository with the few files that a release changes."""

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
        self.write("packaging/build.sh", "mkdir -p $1; cp mark/domain/version.py $1")  # the real one takes minutes
        (folder / "packaging/build.sh").chmod(0o755)
        (folder / ".gitignore").write_text("dist/\n")
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

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def commit(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", subject)

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
    assert 'VERSION = "9.9.0"' in checkout.read("dist/version.py")  # set before the wheel is built
    assert 'VERSION = "9.9.0"' in checkout.read("mark/domain/version.py")
    assert not (checkout.folder / "changelog.d/sails.added.md").exists()
    assert (checkout.folder / "changelog.d/README.md").exists()
    assert checkout.git("status", "--porcelain") == ""
    assert checkout.git("tag").split() == ["v9.9.0"]


def add_unreleased(checkout: Checkout, version: str) -> None:
    """Write notes of `version` into the changelog in advance."""
    marker = "<!-- towncrier: releases below -->\n"
    before, after = checkout.read("CHANGELOG.md").split(marker)
    checkout.write("CHANGELOG.md", f"{before}{marker}\n## {version} (unreleased)\n\n- Ships have keels.\n{after}")
    checkout.commit("Notes in the changelog")


def test_fragments_join_notes_that_stand_in_the_changelog(checkout: Checkout) -> None:
    add_unreleased(checkout, "3.0.0")
    assert checkout.release("3.0.0", "--run").returncode == 0
    notes = checkout.read("CHANGELOG.md")
    assert notes.count("## 3.0.0 (") == 1
    assert notes.index("## 3.0.0 (2") < notes.index("- Ships have sails.") < notes.index("- Ships have keels.")


def test_notes_in_the_changelog_are_released_without_fragments(checkout: Checkout) -> None:
    checkout.git("rm", "-q", "changelog.d/sails.added.md")
    add_unreleased(checkout, "3.0.0")
    shown = checkout.release("3.0.0")
    assert shown.returncode == 0, shown.stderr
    assert "Ships have keels." in shown.stdout
    assert "## 0.1.0" not in shown.stdout
    assert checkout.release("3.0.0", "--run").returncode == 0
    assert re.search(r"^## 3\.0\.0 \(\d{4}-\d\d-\d\d\)$", checkout.read("CHANGELOG.md"), re.M)
    assert checkout.git("tag").split() == ["v3.0.0"]


def test_wheel_that_does_not_work_stops_the_release(checkout: Checkout) -> None:
    checkout.write("packaging/build.sh", "echo 'build: mark compare fails' >&2; exit 1")
    checkout.commit("A wheel that does not work")
    before = checkout.git("rev-parse", "HEAD")
    done = checkout.release("9.9.0", "--run")
    assert done.returncode == 1
    assert "mark compare fails" in done.stderr
    assert "nothing is tagged" in done.stderr
    assert (checkout.git("tag"), checkout.git("rev-parse", "HEAD")) == ("", before)
    assert checkout.git("status", "--porcelain") == ""
    assert (checkout.folder / "changelog.d/sails.added.md").exists()


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0rc1"])
def test_version_older_than_the_last_tag_is_refused(checkout: Checkout, version: str) -> None:
    checkout.git("tag", "v1.0.0")
    assert f"{version} is not newer than the last tag" in checkout.release(version).stderr


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
