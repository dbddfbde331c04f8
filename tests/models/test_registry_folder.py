"""A registry in a folder: the contract, processes that are killed, and processes that meet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.registry import Registry
from mark.models.registry_folder import FolderObjects
from tests.models.registry_contract import ObjectStoreContract, Open
from tests.models.registry_laws import check_registry

ROOT = Path(__file__).parents[2]
PROMOTE = """
import sys
from pathlib import Path
from mark.models.registry import AliasConflict, Registry
from mark.models.registry_folder import FolderObjects

class Waiting(FolderObjects):
    def create(self, key, content):
        print("looked", flush=True)
        sys.stdin.readline()
        return super().create(key, content)

try:
    Registry(Waiting(Path(sys.argv[1])), by=sys.argv[2]).promote("m", sys.argv[3], "production")
    print("won")
except AliasConflict as error:
    print(error)
"""


class TestFolderObjects(ObjectStoreContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        return lambda: FolderObjects(tmp_path / "registry")


@pytest.mark.slow
def test_killed_before_any_step_the_folder_stays_readable(tmp_path: Path) -> None:
    """A real process and a real SIGKILL, before each change of the folder in turn."""
    model, step, unnamed = tmp_path / "model", 0, 0
    model.mkdir()
    (model / "ranker.py").write_text("class Ranker: ...\n")
    (model / "weights.bin").write_bytes(bytes(1000))
    while True:
        step += 1
        folder = tmp_path / f"registry-{step}"
        command = [sys.executable, "-m", "tests.models.registry_steps", str(folder), str(model), str(step)]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        registry = check_registry(FolderObjects(folder))
        if process.returncode == 0:
            break
        assert process.returncode == -9, process.stderr
        unnamed += not registry.names()
    assert step == int(process.stdout) + 1
    assert registry.names() == ["ranker"]
    assert registry.aliases("ranker").keys() == {"production"}
    assert step > 20  # folders, files, links: five objects
    assert 10 < unnamed < step - 5  # most steps come before the version exists, some after it


def test_of_two_processes_that_promote_at_once_one_wins(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    registry = Registry(FolderObjects(tmp_path / "registry"), by="first")
    ids = []
    for text in "abc":
        file.write_text(text)
        ids.append(registry.register("m", "m:M", {"m.py": file}).short)
    registry.promote("m", ids[0], "production")
    chosen = {"ann": ids[1], "bob": ids[2]}
    processes = {
        user: subprocess.Popen(
            [sys.executable, "-c", PROMOTE, str(tmp_path / "registry"), user, version],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for user, version in chosen.items()
    }
    assert {process.stdout.readline() for process in processes.values()} == {"looked\n"}
    for process in processes.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {user: process.communicate(timeout=60)[0].strip() for user, process in processes.items()}
    winner, loser = sorted(said, key=lambda user: said[user] != "won")
    assert said[winner] == "won"
    assert said[loser].startswith(f"m@production: was moved at the same time: at {chosen[winner]}, by {winner} at ")
    assert registry.find("m", "production").short == chosen[winner]
    registry.promote("m", chosen[loser], "production")
    assert registry.find("m", "production").short == chosen[loser]


def test_objects_cannot_be_written_over(tmp_path: Path) -> None:
    FolderObjects(tmp_path).create("a", b"x")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o444
    assert list((tmp_path / ".unfinished").iterdir()) == []


def test_a_place_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"registry: cannot be used \(Not a directory\): .*file"):
        FolderObjects(tmp_path / "file").read("a")
    with pytest.raises(BadInput, match="registry: cannot be used"):
        FolderObjects(tmp_path / "file").create("a", b"")


def test_a_registry_that_was_never_made_is_empty(tmp_path: Path) -> None:
    assert FolderObjects(tmp_path / "nothing").keys("models/") == []


def test_what_is_no_folder_is_not_an_empty_one(tmp_path: Path) -> None:
    """This covers the registry's folder and folders in it: the error names the folder and the reason."""
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=rf"^registry: cannot be read \(Not a directory\): {tmp_path}/file"):
        Registry(FolderObjects(tmp_path / "file")).names()
    (tmp_path / "registry" / "models" / "m" / "aliases").mkdir(parents=True)
    (tmp_path / "registry" / "models" / "m" / "aliases" / "production").touch()
    with pytest.raises(BadInput, match=r"cannot be read \(Not a directory\): .*/models/m/aliases/production"):
        Registry(FolderObjects(tmp_path / "registry")).history("m", "production")


@pytest.mark.parametrize(
    ("target", "reason"), [("versions", "Too many levels of symbolic links"), ("lost", "No such file or directory")]
)
def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path: Path, target: str, reason: str) -> None:
    """A link to itself, or to a disk that is not mounted: a failure that root meets, too."""
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "versions").symlink_to(target)
    registry = Registry(FolderObjects(tmp_path))
    with pytest.raises(BadInput, match=rf"^registry: cannot be read \({reason}\): .*/models/m/versions$"):
        registry.names()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_without_permission_is_not_an_empty_one(tmp_path: Path) -> None:
    FolderObjects(tmp_path).create("models/m/versions/a.json", b"")
    folder = tmp_path / "models" / "m"
    folder.chmod(0)
    try:
        with pytest.raises(BadInput, match=rf"^registry: cannot be read \(Permission denied\): {folder}"):
            FolderObjects(tmp_path).keys("models/")
    finally:
        folder.chmod(0o755)


def test_a_model_on_another_disk_is_found_through_its_link(tmp_path: Path) -> None:
    """An unfinished file is not listed as a key."""
    FolderObjects(tmp_path / "disk").create("versions/a.json", b"x")
    objects = FolderObjects(tmp_path / "registry")
    objects.create("models/n/versions/b.json", b"x")
    (tmp_path / "registry" / "models" / "m").symlink_to(tmp_path / "disk")
    (tmp_path / "registry" / ".unfinished" / "tmp").touch()
    assert {"models/m/versions/a.json", "models/n/versions/b.json"} <= set(objects.keys(""))
    assert not any(key.startswith(".unfinished") for key in objects.keys(""))
    assert objects.keys("models/m/versions/") == ["models/m/versions/a.json"]
