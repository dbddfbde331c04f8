"""The location of a registry, and the versions that a service's references to it become."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.service import ServiceConfig, Version
from mark.models.registry import Registry
from mark.models.registry_place import located, model_hashes, open_registry, pinned
from mark.models.registry_unpacked import profile_in
from mark.testing.fakes import FakeObjects

SERVICE = '[service]\nname = "s"\nmodel = "registry:m@production"\nslo_ms = 600\nslo_attainment = 0.98\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.toml").write_text(SERVICE)
    return tmp_path


@pytest.fixture
def registry(folder: Path) -> Registry:
    """Return a registry with two versions: `old` is the first, `production` the second."""
    registry = Registry(FakeObjects(), by="ann")
    for text, alias in (("1", "old"), ("2", "production")):
        (folder / "m.py").write_text(text)
        registry.promote("m", registry.register("m", "m:M", {"m.py": folder / "m.py"}).short, alias)
    return registry


@pytest.fixture
def service(folder: Path) -> ServiceConfig:
    return load_service("service.toml")


def test_a_model_of_a_registry_is_served_as_its_version(
    service: ServiceConfig, registry: Registry, folder: Path
) -> None:
    """It is named by the digits of its hash; profiles and messages still use the name in the file."""
    id = registry.find("m", "production").id
    found = pinned(service, lambda: registry)
    assert found.versions == (Version(id[:12], f"version:{folder}/cache/models/{id}", 1.0),)
    assert replace(found, versions=()) == service
    assert (folder / "cache" / "models" / id / "files" / "m.py").read_text() == "2"
    assert pinned(found, _none) == found


def test_to_plan_no_model_s_file_is_fetched(service: ServiceConfig, folder: Path) -> None:
    """They may be gigabytes, and a plan needs the profile."""
    objects = FakeObjects()
    registry = Registry(objects, by="ann")
    (folder / "m.py").write_text("weights")
    version = registry.register("m", "m:M", {"m.py": folder / "m.py"}, profile=("m:M", b"rows"))
    registry.promote("m", version.short, "production")
    del objects.objects[f"blobs/sha256/{version.content.files['m.py'][0]}"]
    for _ in range(2):
        (found,) = pinned(service, lambda: registry, files=False).versions
        assert profile_in(Path(found.model.removeprefix("version:")))[0].read_bytes() == b"rows"
    with pytest.raises(BadInput, match="the registry is damaged"):
        pinned(service, lambda: registry)


def test_versions_of_a_registry_keep_names_and_weights(service: ServiceConfig, registry: Registry) -> None:
    short = registry.find("m", "old").short
    versions = (
        Version("code", "mine:Own", 0.5),
        Version("stable", "registry:m@production", 0.4),
        Version("new", f"registry:m@{short}", 0.1),
    )
    found = pinned(replace(service, versions=versions), lambda: registry).versions
    assert [(one.name, one.weight) for one in found] == [("code", 0.5), ("stable", 0.4), ("new", 0.1)]
    assert found[0].model == "mine:Own"
    assert found[2].model.rpartition("/")[2] == registry.find("m", "old").id


def test_model_is_known_by_the_hashes_of_its_file_and_its_version(
    service: ServiceConfig, registry: Registry, folder: Path
) -> None:
    (folder / "net.onnx").write_bytes(b"weights")
    sha = hashlib.sha256(b"weights").hexdigest()
    assert model_hashes("onnx:net.onnx?threads=1", folder) == {sha}
    assert model_hashes("onnx:other.onnx", folder) == model_hashes("mine:Own", folder) == set()
    version = registry.register("net", "onnx:net.onnx", {"net.onnx": folder / "net.onnx"})
    registry.promote("net", version.short, "production")
    (found,) = pinned(replace(service, model="registry:net@production"), lambda: registry).versions
    assert model_hashes(found.model, folder) == {sha, version.id}


def test_what_names_no_registry_opens_none(service: ServiceConfig, registry: Registry) -> None:
    other = replace(service, model="mine:Own")
    assert pinned(other, _none) is other
    assert located("mine:Own", _none) == "mine:Own"
    assert located("registry:m@old", lambda: registry).endswith(registry.find("m", "old").id)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("registry:m", r"service.toml model: must be NAME@ALIAS or NAME@sha256:HEX: m"),
        ("registry:@x", "must be NAME@ALIAS"),
        ("registry:m@staging", "m@staging: no such alias"),
        ("registry:n@production", "registry: has no such model: n"),
    ],
)
def test_a_wrong_reference_is_one_line(service: ServiceConfig, registry: Registry, model: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        pinned(replace(service, model=model), lambda: registry)


def test_a_place_is_given_or_the_environments_or_the_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(place: str | None) -> None:
        open_registry(place).register("m", "m:M", {})

    put(None)
    monkeypatch.setenv("MARK_REGISTRY", str(folder / "shared"))
    put(None)
    put("given")
    assert all((folder / name / "models").is_dir() for name in (".mark-registry", "shared", "given"))


def test_a_scheme_is_opened_by_its_entry_point(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mark.object_stores]\nown = own_store:place\n")
    (folder / "own_store.py").write_text(
        "from mark.testing.fakes import FakeObjects\nOPENED = {}\n"
        "def place(where):\n    return OPENED.setdefault(where, FakeObjects())\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    open_registry("own://there/it/is").register("m", "m:M", {})
    assert open_registry("own://there/it/is").names() == ["m"]
    assert open_registry("own://elsewhere").names() == []
    with pytest.raises(BadInput, match=r"registry: must be a folder, or one of .*own.*: ftp://x"):
        open_registry("ftp://x")


def _none() -> Registry:
    raise AssertionError("no registry is needed")
