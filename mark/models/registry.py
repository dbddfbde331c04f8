"""A registry of models: immutable versions named by their content, and aliases that move from one to the next.

Where it is kept (a folder, or a part of a bucket):

    blobs/sha256/HEX                     a file of a version, or its profile
    models/NAME/versions/HEX.json        a version; written when everything that it names is there
    models/NAME/aliases/ALIAS/N.json     the Nth move of an alias; the last one holds

Nothing is overwritten and nothing is removed: each step creates one object that was not there, whole or not at all.
What ends in the middle therefore leaves blobs without a version at worst, and of two that move an alias at once only
one creates the next number.
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

NONE = "none"  # what an alias is expected to name before its first move
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH = re.compile(r"sha256:[0-9a-f]{6,64}")
_SHOWN = 12  # digits of a hash
_CHUNK = 1 << 20


class ObjectStore(Protocol):
    """Objects by key, as a bucket has them. Every method may be repeated.

    Each raises BadInput where the place does not exist or may not be used, and MarkError where it cannot be reached.
    """

    def read(self, key: str) -> bytes | None:
        """The object; None: there is none."""
        ...

    def fetch(self, key: str, to: Path) -> bool:
        """The object into a file; False: there is none."""
        ...

    def create(self, key: str, content: bytes | Path) -> bool:
        """Put bytes, or those of a file, under a key that has none: whole or not at all. False: it has some."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, ascending; one that was created before is among them."""
        ...


class AliasConflict(BadInput):
    """The alias does not name what the caller believed; nothing was moved. Look again before the next try."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a version is named by: its files' hashes, and all else that says which model this is and how good.

    `files` holds SHA-256 and bytes by the path in the model's folder. `profile` is the hash of a profile file, whose
    rows are of `profiled`. `parent` is the version that this one was made from.
    """

    model: str  # reference, as in a service file; what it names is among the files
    files: Mapping[str, tuple[str, int]]
    profile: str | None = None
    profiled: str = ""
    metrics: Mapping[str, float] | None = None
    parent: str | None = None

    @property
    def id(self) -> str:
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def canonical(self) -> str:
        """The same text for the same content, wherever it is written."""
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
    """A registered version. By whom and when is no part of its content: registered again it is the same."""

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
        """As people read it; `find` takes both."""
        return shown(self.id)

    def __str__(self) -> str:
        return f"{self.name}@{self.short}"


@dataclass(frozen=True, slots=True)
class AliasMove:
    """The `number`th move of an alias. `below` is the move that a roll-back returns to; None: nothing is below."""

    alias: str
    number: int
    version: str
    below: int | None
    at: str
    by: str


class Registry:
    """Versions and aliases over a store of objects. Raises what the store raises, and BadInput.

    `by` is the user that registers and promotes; `unix_s` says when; `place` is where errors say that it is.
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
        """Keep the files of a model as a version of `name`. The same content again is the same version.

        `profile` is a profile file's bytes, and the model in it that its rows are of. `parent` names a version of
        `name`, by hash or alias; `alias` is then let name the new version, as `promote` does. `tried` is called with
        a folder of the files before any of them is kept; what it raises ends the registration.
        """
        # All of it before the first file is copied or sent: these may be gigabytes, and a refusal would waste them.
        check_said(name, model, profile[0] if profile is not None else "", metrics, alias)
        for path in files:
            if not path.isprintable():
                raise BadInput("a file's name must be printable UTF-8", "files", ascii(path))
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise BadInput("a file's name leads out of the model's folder", "files", path)
        above = None if parent is None else self.find(name, parent).id
        with tempfile.TemporaryDirectory(prefix="mark-register-") as folder:
            # Copies, because a file that changes between its hash and its upload would be kept under a wrong name.
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
            for copy, hashed in copies.values():  # many are there already, of the version before
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
        """The models that have a version."""
        found = (key.split("/") for key in self._objects.keys("models/"))
        return sorted({parts[1] for parts in found if parts[2:3] == ["versions"]})

    def versions(self, name: str, damaged: Callable[[BadInput], None] | None = None) -> list[ModelVersion]:
        """All versions of a model, the oldest first.

        `damaged` is told of each version that cannot be read, which is then left out; without, that is raised.
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
        """The hashes of a model's versions, of which there is one at least."""
        _check_name(name, "name")
        ids = [Path(key).stem for key in self._objects.keys(f"models/{name}/versions/")]
        if not ids:
            raise BadInput("has no such model", self._where, name, known=self.names())
        return ids

    def aliases(self, name: str) -> dict[str, AliasMove]:
        """Where each alias of a model is."""
        _check_name(name, "name")
        last = {key.split("/")[3]: key for key in self._objects.keys(f"models/{name}/aliases/")}
        return {alias: self._read_move(key) for alias, key in last.items()}

    def history(self, name: str, alias: str) -> list[AliasMove]:
        """Every move of an alias, the first one first."""
        _check_name(name, "name")
        return [self._read_move(key) for key in self._objects.keys(_moves(name, _checked_alias(alias)))]

    def find(self, name: str, which: str) -> ModelVersion:
        """A version by its alias, or by `sha256:` and digits enough that no other begins so."""
        _check_name(name, "name")
        where = f"{name}@{which}"
        if not which.startswith("sha256:"):
            move = self._now_at(name, _checked_alias(which))
            if move is None:
                self._ids(name)  # no such model: that is said first
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
        """Let the alias name this version; where it does so already, nothing happens.

        Raises AliasConflict where it names something else than `expect` (a version, or `none`), and where it was moved
        by another one in the meantime.
        """
        _checked_alias(alias)
        version = self.find(name, which)
        now = self._now_at(name, alias)
        self._check_expected(name, alias, now, expect)
        if now is not None and now.version == version.id:
            return now
        return self._move(name, alias, now, version.id, None if now is None else now.number)

    def rollback(self, name: str, alias: str, expect: str | None = None) -> AliasMove:
        """Let the alias name what it named before its last promotion; again: before the one below. As `promote`."""
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
        """One file of a version."""
        self._fetch(version, version.content.files[path][0], to)

    def fetch_profile(self, version: ModelVersion, to: Path) -> bool:
        """The profile file that the version was registered with; False: it has none."""
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
        # A create whose answer was lost and which was then repeated finds its own object: by the token it is known.
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
            except (KeyError, OSError):  # a container's user without a name
                self._by = "unknown"
        return self._by


def shown(id: str) -> str:
    """A version's hash as people read it, and as `Registry.find` takes it."""
    return f"sha256:{id[:_SHOWN]}"


def version_text(version: ModelVersion) -> bytes:
    """A version as it is written, beside its files, too."""
    created = {"name": version.name, "at": version.created_at, "by": version.created_by}
    return _json({"schema": 1, "content": json.loads(version.content.canonical()), "created": created})


def parse_version(name: str, text: bytes | None, where: str) -> ModelVersion:
    """What `version_text` wrote. Raises BadInput."""
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
    """SHA-256 of a file."""
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
    """Raises BadInput where a version cannot be registered as that."""
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
    """A command line may hold bytes that are no text, and a version is written as UTF-8."""
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
    return f"{_moves(name, alias)}{number:08}.json"  # as wide as that, so that keys sort as numbers do
