"""A registry's version unpacked into a folder: the reference `version:FOLDER` needs no registry.

FOLDER is named by the version's hash and holds `version.json`, `files/` and, if the version has one, `profile.csv`.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path

from mark.domain.errors import BadInput
from mark.models.registry import ModelVersion, Registry, hash_of, parse_version, version_text

PREFIX = "version:"
FILES = "files"
_VERSION, _PROFILE, _PROFILES = "version.json", "profile.csv", "profiles"


def cache_folder() -> Path:
    """Return the folder of unpacked versions. All users of a machine can share one."""
    base = os.environ.get("MARK_CACHE_DIR")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mark-serving")
    return Path(base, "models").absolute()


def unpack(registry: Registry, version: ModelVersion, cache: Path, *, files: bool = True) -> Path:
    """Return the version's folder in `cache`, and fetch it unless it exists and is unchanged.

    Without `files` only the profile is unpacked, into a separate folder, because planning needs no weights.
    """
    folder = (cache if files else cache / _PROFILES) / version.id
    if folder.is_dir():
        try:
            _check(folder, files)
            return folder
        except BadInput:  # a file was changed or lost: fetch the version again
            _set_aside(folder, str(version))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".unfinished-") as work:
            made = Path(work, "made")
            (made / FILES).mkdir(parents=True)
            for name in version.content.files if files else ():
                to = _inside(made / FILES, name, str(version))
                to.parent.mkdir(parents=True, exist_ok=True)
                registry.fetch(version, name, to)
            registry.fetch_profile(version, made / _PROFILE)
            (made / _VERSION).write_bytes(version_text(version))
            with suppress(OSError):  # another process was quicker
                made.rename(folder)
    except OSError as error:
        raise BadInput(f"cannot be unpacked ({error.strerror})", str(version), str(cache)) from error
    _check(folder, files)
    return folder


def check(folder: Path) -> ModelVersion:
    """Return the version in the folder. Raises BadInput if a file of it differs from the registered one.

    Unregistered files that Python could import are refused too, including bytecode. A model may write other data.
    """
    version = _named(folder)
    for name, (hashed, _) in version.content.files.items():
        _check_file(folder, _inside(folder / FILES, name, str(folder)), hashed)
    for path in (folder / FILES).rglob("*"):
        name = path.relative_to(folder / FILES).as_posix()
        if name not in version.content.files and path.name.endswith(tuple(all_suffixes())):
            raise BadInput("a file in it was never registered", f"{PREFIX}{folder}", name)
    return version


def _set_aside(folder: Path, where: str) -> None:
    """Remove the folder in one step, so that no process sees half of it and two can remove it at the same time."""
    try:
        with (
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=".damaged-", ignore_cleanup_errors=True) as work,
            suppress(FileNotFoundError),  # another process was quicker
        ):
            folder.rename(Path(work, "it"))
    except OSError as error:
        raise BadInput(f"is damaged and cannot be replaced ({error.strerror})", where, str(folder)) from error


def profile_in(folder: Path) -> tuple[Path, str] | None:
    """Return an unpacked version's profile file and the name of the model in it; None if it was registered without.

    Raises BadInput if the file differs from the registered one. The model's own files are not read.
    """
    content = _named(folder).content
    if content.profile is None:
        return None
    _check_file(folder, folder / _PROFILE, content.profile)
    return folder / _PROFILE, content.profiled


def _check(folder: Path, files: bool) -> None:
    if files:
        check(folder)
    profile_in(folder)


def _named(folder: Path) -> ModelVersion:
    """Return the version in the folder, after checking that the folder's name is its hash."""
    where = f"{PREFIX}{folder}"
    try:
        version = parse_version("", (folder / _VERSION).read_bytes(), where)
    except OSError as error:
        raise BadInput(f"is no unpacked version ({error.strerror})", where) from None
    if version.id != folder.name:
        raise BadInput("is not the version that its folder is named by", where)
    return version


def _check_file(folder: Path, path: Path, hashed: str) -> None:
    name = path.relative_to(folder).as_posix()
    try:
        found = hash_of(path)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", f"{PREFIX}{folder}", name) from None
    if found != hashed:
        raise BadInput("a file differs from the registered one", f"{PREFIX}{folder}", name)


def _inside(folder: Path, name: str, where: str) -> Path:
    """Return the path of an untrusted name in the folder. Raises BadInput if it leads out of it."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise BadInput("a file's name leads out of the model's folder", where, name)
    return folder / path
