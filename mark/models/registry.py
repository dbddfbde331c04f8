"""A registry of models: immutable versions named by their content, and aliases that move between them.

Its objects, in a folder or under a prefix of a bucket:

    blobs/sha256/HEX                     a file of a version, or its profile
    models/NAME/versions/HEX.json        a version; written after everything that it names
    models/NAME/aliases/ALIAS/N.json     the Nth move of an alias; the last one holds

Objects are never overwritten or removed: each step creates one new object, completely or not at all. So an interrupted
registration leaves at worst blobs without a version, and of two that move an alias at the same time only one can create
the next number.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from mark.domain.errors import BadInput

NONE = "none"  # stands for the version of an alias before its first move
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH = re.compile(r"sha256:[0-9a-f]{6,64}")
_SHOWN = 12  # digits of a hash
_CHUNK = 1 << 20


class ObjectStore(Protocol):
    """Objects by key, as in a bucket. Every method may be repeated.

    Each raises BadInput if the place does not exist or may not be used, and MarkError if it cannot be reached.
    """

    def read(self, key: str) -> bytes | None:
        """Return the object, or None."""
        ...

    def fetch(self, key: str, to: Path) -> bool:
        """Write the object into a file. Returns False if it does not exist."""
        ...

    def create(self, key: str, content: bytes | Path) -> bool:
        """Put bytes or a file's content under a new key, completely or not at all. Returns False if the key exists."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix in ascending order; all keys created before the call are included."""
        ...


class AliasConflict(BadInput):
    """The alias names another version than expected, and was not moved. Read it again before the next try."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content that names a version: its files' hashes, its reference, profile, metrics and parent.

    `files` holds SHA-256 and bytes by the path in the model's folder. `profile` is the hash of a profile file with rows
    of the model `profiled`. `parent` is the version that this one was made from.
    """

    model: str  # reference, as in a service file, to one of the files
    files: Mapping[str, tuple[str, int]]
    profile: str | None = None
    profiled: str = ""
    metrics: Mapping[str, float] | None = None
    parent: str | None = None

    @property
    def id(self) -> str:
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def canonical(self) -> str:
        """Return the same text for the same content on every machine."""
        said = {
            "model": self.model,
            "files": {name: {"sha256": digest, "bytes": size} for name, (digest, size) in self.files.items()},
            "profile": None if self.profile is None else {"sha256": self.profile, "model": self.profiled},
            "metrics": dict(self.metrics or {}),
            "parent": self.parent,
        }
        return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A registered version.

    Its creator and time are not part of the content, so registering it again changes nothing.
    """

    name: str
    content: Content
    created_at: str
    created_by: str

    @property
    def id(self) -> str:
        return self.content.id

    @property
    def full(self) -> str:
        return f"sha256:{self.id}"

    @property
    def short(self) -> str:
        """The shortened hash for display; `find` accepts both forms."""
        return shown(self.id)

    def __str__(self) -> str:
        return f"{self.name}@{self.short}"


@dataclass(frozen=True, slots=True)
class AliasMove:
    """Move number `number` of an alias. A roll-back returns to the move `below`, if any."""

    alias: str
    number: int
    version: str
    below: int | None
    at: str
    by: str


class Registry:
    """Versions and aliases over a store of objects. Raises BadInput, and whatever the store raises.

    `by` is the user that registers and promotes, `unix_s` the clock, `place` the registry's place in error messages.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        by: str | None = None,
        unix_s: Callable[[], float] = time.time,
        place: str = "",
    ) -> None:
        self._objects, self._by, self._unix_s = objects, by, unix_s
        self._where = f"registry {place}" if place else "registry"

    def register(
        self,
        name: str,
        model: str,
        files: Mapping[str, Path],
        *,
        profile: tuple[str, bytes] | None = None,
        metrics: Mapping[str, float] | None = None,
        parent: str | None = None,
        alias: str | None = None,
        tried: Callable[[Path], None] = lambda folder: None,
    ) -> ModelVersion:
        """Keep the files of a model as a version of `name`. The same content gives the same version.

        `profile` is a profile file's bytes and the name of the model in it. `parent` names a version of `name`, by hash
        or alias. `alias` is then moved to the new version, as by `promote`. `tried` is called with a folder of the
        files before any is kept; an error from it ends the registration.
        """
        # Check everything before the first file is copied or sent, because a late refusal could waste gigabytes.
        check_said(name, model, profile[0] if profile is not None else "", metrics, alias)
        for path in files:
            if not path.isprintable():
                raise BadInput("a file's name must be printable UTF-8", "files", ascii(path))
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise BadInput("a file's name leads out of the model's folder", "files", path)
        above = None if parent is None else self.find(name, parent).id
        with tempfile.TemporaryDirectory(prefix="mark-register-") as folder:
            # Copy the files, because a file that changes between hashing and upload would be kept under a wrong hash.
            copies = {path: _copied(source, Path(folder, path)) for path, source in files.items()}
            tried(Path(folder))
            for path, (copy, hashed) in copies.items():
                if hash_of(copy) != hashed:
                    raise BadInput("the model changes this file while it loads", "files", path)
            digest = None if profile is None else hashlib.sha256(profile[1]).hexdigest()
            content = Content(
                model=model,
                files={path: (hashed, copy.stat().st_size) for path, (copy, hashed) in copies.items()},
                profile=digest,
                profiled="" if profile is None else profile[0],
                metrics={metric: float(value) for metric, value in (metrics or {}).items()},
                parent=above,
            )
            for copy, hashed in copies.values():  # many exist already from earlier versions
                self._objects.create(_blob_key(hashed), copy)
            if profile is not None and digest is not None:
                self._objects.create(_blob_key(digest), profile[1])
        version = ModelVersion(name, content, self._now(), self._who())
        if not self._objects.create(_version_key(name, version.id), version_text(version)):
            version = self._version(name, version.id)
        if alias is not None:
            self.promote(name, version.full, alias)
        return version

    def names(self) -> list[str]:
        """Return the models that have a version."""
        found = (key.split("/") for key in self._objects.keys("models/"))
        return sorted({parts[1] for parts in found if parts[2:3] == ["versions"]})

    def versions(self, name: str, damaged: Callable[[BadInput], None] | None = None) -> list[ModelVersion]:
        """Return all versions of a model, the oldest first.

        `damaged` gets the error of each unreadable version, which is then left out; without it the error is raised.
        """
        found = []
        for id in self._ids(name):
            try:
                found.append(self._version(name, id))
            except BadInput as error:
                if damaged is None:
                    raise
                damaged(error)
        return sorted(found, key=lambda one: (one.created_at, one.id))

    def _ids(self, name: str) -> list[str]:
        """Return the hashes of a model's versions. Raises BadInput for a model without versions."""
        _check_name(name, "name")
        ids = [Path(key).stem for key in self._objects.keys(f"models/{name}/versions/")]
        if not ids:
            raise BadInput("has no such model", self._where, name, known=self.names())
        return ids

    def aliases(self, name: str) -> dict[str, AliasMove]:
        """Return the current move of each alias of a model."""
        _check_name(name, "name")
        last = {key.split("/")[3]: key for key in self._objects.keys(f"models/{name}/aliases/")}
        return {alias: self._read_move(key) for alias, key in last.items()}

    def history(self, name: str, alias: str) -> list[AliasMove]:
        """Return every move of an alias, the first one first."""
        _check_name(name, "name")
        return [self._read_move(key) for key in self._objects.keys(_moves(name, _checked_alias(alias)))]

    def find(self, name: str, which: str) -> ModelVersion:
        """Return a version by its alias, or by `sha256:` and enough digits to be unique."""
        _check_name(name, "name")
        where = f"{name}@{which}"
        if not which.startswith("sha256:"):
            move = self._now_at(name, _checked_alias(which))
            if move is None:
                self._ids(name)  # report an unknown model first
                raise BadInput("no such alias", where, which, known=self.aliases(name))
            return self._version(name, move.version)
        if not _HASH.fullmatch(which):
            raise BadInput("a version is an alias, or sha256: and at least six hex digits", where)
        prefix = f"models/{name}/versions/"
        ids = [Path(key).stem for key in self._objects.keys(prefix + which.removeprefix("sha256:"))]
        if len(ids) != 1:
            if not ids:
                self._ids(name)
            raise BadInput("several versions begin so" if ids else "no such version", where)
        return self._version(name, ids[0])

    def promote(self, name: str, which: str, alias: str, expect: str | None = None) -> AliasMove:
        """Move the alias to this version; do nothing if it names the version already.

        Raises AliasConflict if the alias names another version than `expect` (a version, or `none`), and if it was
        moved by another process at the same time.
        """
        _checked_alias(alias)
        version = self.find(name, which)
        now = self._now_at(name, alias)
        self._check_expected(name, alias, now, expect)
        if now is not None and now.version == version.id:
            return now
        return self._move(name, alias, now, version.id, None if now is None else now.number)

    def rollback(self, name: str, alias: str, expect: str | None = None) -> AliasMove:
        """Return the alias to its version before the last promotion; repeated calls go further back.

        Raises like `promote`.
        """
        _check_name(name, "name")
        now = self._now_at(name, _checked_alias(alias))
        if now is None:
            raise BadInput("no such alias", f"{name}@{alias}", alias, known=self.aliases(name))
        self._check_expected(name, alias, now, expect)
        if now.below is None:
            raise BadInput("has named nothing before", f"{name}@{alias}", shown(now.version))
        before = self._read_move(_move_key(name, alias, now.below))
        return self._move(name, alias, now, before.version, before.below)

    def fetch(self, version: ModelVersion, path: str, to: Path) -> None:
        """Write one file of a version to `to`."""
        self._fetch(version, version.content.files[path][0], to)

    def fetch_profile(self, version: ModelVersion, to: Path) -> bool:
        """Write the version's registered profile file to `to`. Returns False if it lacks one."""
        if version.content.profile is None:
            return False
        self._fetch(version, version.content.profile, to)
        return True

    def _fetch(self, version: ModelVersion, digest: str, to: Path) -> None:
        if not self._objects.fetch(_blob_key(digest), to) or hash_of(to) != digest:
            raise BadInput("the registry is damaged: a file is missing, or another one", str(version), digest)

    def _version(self, name: str, id: str) -> ModelVersion:
        version = parse_version(name, self._objects.read(_version_key(name, id)), f"{name}@{shown(id)}")
        if version.id != id:
            raise BadInput(
                "the registry is damaged: the version differs from the registered one", f"{name}@{shown(id)}"
            )
        return version

    def _now_at(self, name: str, alias: str) -> AliasMove | None:
        moves = self._objects.keys(_moves(name, alias))
        return self._read_move(moves[-1]) if moves else None

    def _read_move(self, key: str) -> AliasMove:
        _, name, _, alias, number = key.removesuffix(".json").split("/")
        try:
            said = json.loads(self._objects.read(key) or b"")
            version, below = said["version"].removeprefix("sha256:"), said["below"]
            return AliasMove(alias, int(number), version, below, said["at"], said["by"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"the registry is damaged: no move of an alias ({error})", f"{name}@{alias}", key) from None

    def _check_expected(self, name: str, alias: str, now: AliasMove | None, expect: str | None) -> None:
        if expect is None:
            return
        wanted = None if expect == NONE else self.find(name, expect).id
        if wanted != (None if now is None else now.version):
            raise AliasConflict(f"is not at {expect} but {_told(now)}; nothing was moved", f"{name}@{alias}")

    def _move(self, name: str, alias: str, now: AliasMove | None, version: str, below: int | None) -> AliasMove:
        number = 1 if now is None else now.number + 1
        move = AliasMove(alias, number, version, below, self._now(), self._who())
        said = {"schema": 1, "version": f"sha256:{version}", "below": below, "at": move.at, "by": move.by}
        text = _json(said | {"token": secrets.token_hex(8)})
        key = _move_key(name, alias, number)
        # If the answer to a create was lost and the call repeated, it meets its own object, recognised by the token.
        if self._objects.create(key, text) or self._objects.read(key) == text:
            return move
        there = self._read_move(key)
        raise AliasConflict(f"was moved at the same time: {_told(there)}; look, then say it again", f"{name}@{alias}")

    def _now(self) -> str:
        return datetime.fromtimestamp(self._unix_s(), UTC).isoformat(timespec="microseconds")

    def _who(self) -> str:
        if self._by is None:
            try:
                self._by = getpass.getuser()
            except (KeyError, OSError):  # a container's user may lack a name
                self._by = "unknown"
        return self._by


def shown(id: str) -> str:
    """Return a version's shortened hash for display; `Registry.find` accepts it."""
    return f"sha256:{id[:_SHOWN]}"


def version_text(version: ModelVersion) -> bytes:
    """Return the text of a version's file, in the registry and beside unpacked files."""
    created = {"name": version.name, "at": version.created_at, "by": version.created_by}
    return _json({"schema": 1, "content": json.loads(version.content.canonical()), "created": created})


def parse_version(name: str, text: bytes | None, where: str) -> ModelVersion:
    """Return the version that `version_text` wrote. Raises BadInput."""
    try:
        said = json.loads(text or b"")
        content, profile = said["content"], said["content"]["profile"]
        return ModelVersion(
            name,
            Content(
                model=content["model"],
                files={path: (one["sha256"], one["bytes"]) for path, one in content["files"].items()},
                profile=None if profile is None else profile["sha256"],
                profiled="" if profile is None else profile["model"],
                metrics=content["metrics"],
                parent=content["parent"],
            ),
            said["created"]["at"],
            said["created"]["by"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"the registry is damaged: no version ({error})", where) from None


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copied(source: Path, to: Path) -> tuple[Path, str]:
    digest = hashlib.sha256()
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file, to.open("wb") as copy:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                copy.write(chunk)
    except OSError as error:
        raise BadInput(f"cannot be copied ({error.strerror})", "file", str(source)) from error
    return to, digest.hexdigest()


def _told(move: AliasMove | None) -> str:
    return "at no version" if move is None else f"at {shown(move.version)}, by {move.by} at {move.at}"


def _json(said: Mapping[str, Any]) -> bytes:
    return (json.dumps(said, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def check_said(name: str, model: str, profiled: str, metrics: Mapping[str, float] | None, alias: str | None) -> None:
    """Check the arguments of a registration. Raises BadInput."""
    _check_name(name, "name")
    if alias is not None:
        _check_name(alias, "alias")
    _check_text(model, "model")
    _check_text(profiled, "profile")
    for metric, value in (metrics or {}).items():
        _check_text(str(metric), "metrics")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise BadInput("a metric is a number", f"metric {metric}", value)


def _check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadInput("must be 1 to 63 letters, digits, dots, dashes or underscores", where, name)


def _check_text(text: str, where: str) -> None:
    """Raise BadInput unless the text can be written as UTF-8; a command line may contain undecodable bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("must be UTF-8", where, ascii(text)) from None


def _checked_alias(alias: str) -> str:
    _check_name(alias, "alias")
    return alias


def _blob_key(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _version_key(name: str, id: str) -> str:
    return f"models/{name}/versions/{id}.json"


def _moves(name: str, alias: str) -> str:
    return f"models/{name}/aliases/{alias}/"


def _move_key(name: str, alias: str, number: int) -> str:
    return f"{_moves(name, alias)}{number:08}.json"  # the width makes keys sort like numbers
