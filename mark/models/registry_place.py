"""The places of registries, and references into them: `registry:NAME@ALIAS` or `registry:NAME@sha256:HEX`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mark.config import plugins
from mark.domain.errors import BadInput
from mark.domain.service import ServiceConfig, Version
from mark.models.registry import ObjectStore, Registry
from mark.models.registry_folder import FolderObjects
from mark.models.registry_unpacked import FILES, cache_folder, check, profile_in, unpack
from mark.models.registry_unpacked import PREFIX as UNPACKED

PREFIX = "registry:"
DEFAULT = ".mark-registry"
FILE_KINDS = ("torch", "sklearn", "onnx")  # kinds of references that name a file


def open_registry(place: str | None = None, beside: Path | None = None) -> Registry:
    """Return the registry in a folder or at `s3://BUCKET/PREFIX`.

    The default place is MARK_REGISTRY's, else `.mark-registry`. `.mark-registry` is in the folder `beside` (a service
    file's), or in the current one. Raises BadInput.
    """
    place = place_of(place, beside)
    objects = open_objects(place, "registry")
    return Registry(objects, place=str(Path(place).absolute()) if isinstance(objects, FolderObjects) else place)


def open_objects(place: str, where: str) -> ObjectStore:
    """Return the objects in a folder, or at `s3://BUCKET/PREFIX`. Raises BadInput, which names the setting `where`."""
    scheme, colon, rest = place.partition(":")
    if not colon or not rest.startswith("//"):
        return FolderObjects(Path(place))
    if scheme not in (known := plugins.names(plugins.OBJECT_STORES)):
        raise BadInput(f"must be a folder, or one of {', '.join(known)}", where, place)
    opened: ObjectStore = plugins.load(plugins.OBJECT_STORES, scheme, where)(rest)
    return opened


def place_of(place: str | None, beside: Path | None = None) -> str:
    """Return the requested place, else MARK_REGISTRY's, else the default."""
    return place or os.environ.get("MARK_REGISTRY") or str((beside or Path()) / DEFAULT)


def pinned(
    service: ServiceConfig, registry: Callable[[], Registry] | None = None, *, files: bool = True
) -> ServiceConfig:
    """Return the service with each registry reference resolved to a version, which is unpacked and checked.

    So all workers of a process serve the same version, even if they start after an alias has moved. A registry `model`
    becomes the service's only version, named by the first digits of its hash. A service without such references is
    returned unchanged. Without `files` the versions can be planned with but not served. Raises BadInput.
    """
    versions = service.versions
    if not versions and service.model.startswith(PREFIX):
        versions = (Version("", service.model, 1.0),)
    if not any(version.model.startswith(PREFIX) for version in versions):
        return service
    opened = open_registry(beside=Path(service.source).parent) if registry is None else registry()
    return replace(service, versions=tuple(_pinned(version, opened, service, files) for version in versions))


def located(reference: str, registry: Callable[[], Registry] | None = None, *, beside: Path | None = None) -> str:
    """Return a reference that needs no registry: a `registry:` one's version is unpacked, others stay unchanged."""
    if not reference.startswith(PREFIX):
        return reference
    folder, _ = _unpacked(reference, open_registry(beside=beside) if registry is None else registry(), "model")
    return f"{UNPACKED}{folder}"


def registered_profile(reference: str, beside: Path) -> tuple[Path, str]:
    """Return the profile file of a `registry:` reference's version, and the name of the model in it. Raises BadInput.

    `beside` is the folder of the service file, where a registry without a place of its own is looked for.
    """
    folder, _ = _unpacked(reference, open_registry(beside=beside), "model", files=False)
    if (found := profile_in(folder)) is None:
        what = "was registered without a profile: `mark models register` keeps one with --profile"
        raise BadInput(what, "model", reference)
    return found


def model_hashes(reference: str, search: Path) -> frozenset[str]:
    """Return the SHA-256 hashes that identify a model: of its file, and its registry version's id. Empty for code.

    A registry reference must name an unpacked version (`pinned`). Raises BadInput if that is damaged.
    """
    kind, _, rest = reference.partition(":")
    if f"{kind}:" == UNPACKED:
        folder = search / rest
        return model_hashes(check(folder).content.model, folder / FILES) | {folder.name}
    file = search / rest.partition("?")[0]
    if kind not in FILE_KINDS or not file.is_file():
        return frozenset()
    with file.open("rb") as opened:
        return frozenset((hashlib.file_digest(opened, "sha256").hexdigest(),))


def parse_reference(text: str, where: str) -> tuple[str, str]:
    """Return name and alias, or hash, of `NAME@WHICH`. Raises BadInput."""
    name, at, which = text.partition("@")
    if not name or not at or not which:
        raise BadInput("must be NAME@ALIAS or NAME@sha256:HEX", where, text)
    return name, which


def _pinned(version: Version, registry: Registry, service: ServiceConfig, files: bool) -> Version:
    if not version.model.startswith(PREFIX):
        return version
    folder, id = _unpacked(version.model, registry, f"{service.source or service.name} model", files)
    return replace(version, name=version.name or id[:12], model=f"{UNPACKED}{folder}")


def _unpacked(reference: str, registry: Registry, where: str, files: bool = True) -> tuple[Path, str]:
    name, which = parse_reference(reference.removeprefix(PREFIX), where)
    found = registry.find(name, which)
    return unpack(registry, found, cache_folder(), files=files), found.id
