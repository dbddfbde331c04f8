"""Unpacked versions: fetched once, checked at every use, and never another module's code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.loading import find, load
from mark.models.registry import Content, ModelVersion, Registry
from mark.models.registry_unpacked import cache_folder, check, profile_in, unpack
from mark.testing.fakes import FakeObjects

MODEL = "import mark\n\nclass Answer(mark.Model):\n    def predict(self, batch):\n        return [{} for _ in batch]\n"
MODULE = "registered_answer"


@pytest.fixture
def registry() -> Registry:
    return Registry(FakeObjects(), by="ann")


@pytest.fixture(autouse=True)
def _as_a_new_process() -> Iterator[None]:
    """Behave like a worker process, which has not imported a module of this name."""
    path, dont_write_bytecode = list(sys.path), sys.dont_write_bytecode
    yield
    sys.path[:], sys.dont_write_bytecode = path, dont_write_bytecode
    sys.modules.pop(MODULE, None)


def registered(registry: Registry, folder: Path, answer: str, profile: tuple[str, bytes] | None = None) -> ModelVersion:
    folder.mkdir(exist_ok=True)
    (folder / "model.py").write_text(MODEL.format(answer))
    files = {f"{MODULE}.py": folder / "model.py", "data/weights": folder / "model.py"}
    return registry.register("m", f"{MODULE}:Answer", files, profile=profile)


def test_a_version_answers_with_the_bytes_it_was_registered_with(registry: Registry, tmp_path: Path) -> None:
    version = registered(registry, tmp_path / "model", "41")
    folder = unpack(registry, version, tmp_path / "cache")
    (tmp_path / "model" / "model.py").write_text(MODEL.format("43"))
    assert load(f"version:{folder}", Path("anywhere")).predict([0]) == [41]
    assert load(f"version:cache/{version.id}", tmp_path).predict([0]) == [41]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [version.id]


def test_a_second_version_in_one_process_is_refused(registry: Registry, tmp_path: Path) -> None:
    """Python knows one module of a name, and it would be the first one's."""
    first, second = (
        unpack(registry, registered(registry, tmp_path / "model", answer), tmp_path / "cache") for answer in "12"
    )
    find(f"version:{first}", tmp_path)
    with pytest.raises(BadInput, match=f"its module {MODULE} is not the version's own but .*{first.name}"):
        find(f"version:{second}", tmp_path)


def test_a_changed_file_is_refused_and_fetched_again(registry: Registry, tmp_path: Path) -> None:
    version = registered(registry, tmp_path / "model", "41")
    folder = unpack(registry, version, tmp_path / "cache")
    (folder / "files" / f"{MODULE}.py").write_text(MODEL.format("666"))
    with pytest.raises(BadInput, match=f"a file differs from the registered one: files/{MODULE}.py"):
        find(f"version:{folder}", tmp_path)
    assert unpack(registry, version, tmp_path / "cache") == folder
    assert load(f"version:{folder}", tmp_path).predict([0]) == [41]
    (folder / "files" / "data" / "weights").unlink()
    with pytest.raises(BadInput, match=r"cannot be read \(No such file or directory\): files/data/weights"):
        check(folder)
    with pytest.raises(BadInput, match=r"version:here: is no unpacked version \(No such file"):
        check(Path("here"))
    folder.rename(folder.with_name("0" * 64))
    with pytest.raises(BadInput, match="is not the version that its folder is named by"):
        check(folder.with_name("0" * 64))


@pytest.mark.parametrize("name", ["json.py", "__pycache__/" + MODULE + ".cpython-311.pyc", "pack/fast.abi3.so"])
def test_what_was_never_registered_is_not_run(registry: Registry, tmp_path: Path, name: str) -> None:
    """Python would find such a file first, or take it for the compiled form of a registered one."""
    sys.dont_write_bytecode = False  # in any environment
    version = registered(registry, tmp_path / "model", "41")
    folder = unpack(registry, version, tmp_path / "cache")
    (folder / "files" / "log.txt").write_text("what a model writes is its own affair")
    check(folder)
    (folder / "files" / name).parent.mkdir(exist_ok=True)
    (folder / "files" / name).write_text("print('mine')")
    with pytest.raises(BadInput, match="a file in it was never registered: "):
        find(f"version:{folder}", tmp_path)
    unpack(registry, version, tmp_path / "cache")
    assert load(f"version:{folder}", tmp_path).predict([0]) == [41]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [version.id]
    assert [path.name for path in (folder / "files").rglob("*.pyc")] == []


def test_a_changed_profile_is_refused_and_fetched_again(registry: Registry, tmp_path: Path) -> None:
    version = registered(registry, tmp_path / "model", "41", profile=("m", b"rows"))
    folder = unpack(registry, version, tmp_path / "cache")
    (folder / "profile.csv").write_bytes(b"other rows")
    with pytest.raises(BadInput, match=r"a file differs from the registered one: profile\.csv"):
        profile_in(folder)
    unpack(registry, version, tmp_path / "cache")
    assert (folder / "profile.csv").read_bytes() == b"rows"


def test_what_is_there_needs_no_registry(registry: Registry, tmp_path: Path) -> None:
    version = registered(registry, tmp_path / "model", "41", profile=("m", b"rows"))
    folder = unpack(registry, version, tmp_path / "cache")
    assert unpack(Registry(FakeObjects()), version, tmp_path / "cache") == folder
    assert profile_in(folder) == (folder / "profile.csv", "m")
    shutil.rmtree(folder)
    with pytest.raises(BadInput, match="the registry is damaged"):
        unpack(Registry(FakeObjects()), version, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("name", ["../up", "/top", "a/../../up"])
def test_no_file_is_put_outside_the_folder(registry: Registry, tmp_path: Path, name: str) -> None:
    """A registry that others may write to says which files there are."""
    (tmp_path / "x").write_text("x")
    with pytest.raises(BadInput, match="a file's name leads out of the model's folder"):
        registry.register("m", "x:X", {name: tmp_path / "x"})
    version = ModelVersion("m", Content("x:X", {name: ("0" * 64, 1)}), "now", "another")
    with pytest.raises(BadInput, match="a file's name leads out of the model's folder"):
        unpack(registry, version, tmp_path / "cache")


def test_versions_are_kept_where_other_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path / "models"
    monkeypatch.delenv("MARK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/mark-serving/models")
