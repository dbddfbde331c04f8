"""The keys that the services and the controller of a site accept, kept in parameters of AWS Systems Manager.

  /mark/SITE/keys/plain        the keys themselves, for the deployer
  /mark/SITE/keys/bouncers     for bouncers: digests of keys for inference and metrics
  /mark/SITE/keys/controller   for the controller: its own key, digests of the keys for its API
  /mark/SITE/keys/conductors   the inner key, of a site with pipelines or servers that learn: conductors show it to
                               stages, and servers that learn show it to each other

The first parameter decides, the others are derived from it. Terraform creates all of them once, and does not change
their values afterwards. Each is a key file (`mark.serving.frontend.auth`). A file beside Terraform's state is a copy of
the first.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput, CloudError, MarkError, NotFoundError
from mark.serving.frontend.auth import ADMIN, CONDUCTOR, CONTROLLER, INFER, METRICS, READ, SCOPES, digest_of, parse_keys
from mark_infra.aws.gate import Gate
from mark_infra.aws.key_parameter import KeyParameter

MOST_BYTES = 8192  # of an advanced parameter; AWS makes a parameter above 4096 bytes advanced
_MOST_WRITES = 10  # tries of one change, if other commands change the keys too
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_FOR_BOUNCERS, _FOR_CONTROLLER = frozenset((INFER, METRICS)), frozenset((METRICS, READ, ADMIN))


@dataclass(frozen=True, slots=True)
class SiteKey:
    """One key. A name may have two for a while: the old one until `until_unix_s`, and the new one."""

    name: str
    key: str
    scopes: tuple[str, ...]
    until_unix_s: int | None = None

    @property
    def digest(self) -> str:
        return digest_of(self.key)

    @property
    def line(self) -> str:
        end = "" if self.until_unix_s is None else f":{self.until_unix_s}"
        return f"{self.name}:{self.key}:{','.join(self.scopes)}{end}"


def first_keys() -> list[SiteKey]:
    """Return the first keys of a site."""
    made = ((CONTROLLER, METRICS), ("operator", ADMIN), ("client", INFER))
    return [SiteKey(name, new_key(), (scope,)) for name, scope in made]


def with_conductor(keys: Sequence[SiteKey]) -> list[SiteKey]:
    """Add an inner key, the last, unless one exists. Raises BadInput if the key of this name may not infer."""
    own = [key for key in keys if key.name == CONDUCTOR]
    if own and not {INFER, ADMIN} & set(own[-1].scopes):
        raise BadInput("conductors ask stages by the key of this name: it needs infer", "keys", CONDUCTOR)
    return [*keys] if own else [*keys, SiteKey(CONDUCTOR, new_key(), (INFER,))]


def new_key() -> str:
    """Return a new key in the form that clients show."""
    return secrets.token_urlsafe(32)


def added(keys: Sequence[SiteKey], name: str, scopes: Sequence[str], key: str) -> list[SiteKey]:
    """Add a key, the last. Raises BadInput for an invalid or existing name, and for unknown scopes."""
    if not _NAME.fullmatch(name):
        raise BadInput("must be letters, digits, . _ -, 40 at most, a letter or a digit first", "name of a key", name)
    if any(one.name == name for one in keys):
        raise BadInput("there is such a key: rotate it, or choose another name", "name of a key", name)
    if not scopes or not SCOPES.issuperset(scopes):
        raise BadInput(f"are some of {', '.join(sorted(SCOPES))}", "scopes", ",".join(scopes))
    return [*keys, SiteKey(name, key, tuple(sorted(set(scopes))))]


def rotated(keys: Sequence[SiteKey], name: str, ends_unix_s: int | None, key: str) -> list[SiteKey]:
    """Add `key` as the name's new key, the last. The old ones hold until `ends_unix_s`; None: no longer.

    Raises BadInput for an unknown name.
    """
    old = _named(keys, name)
    new = SiteKey(name, key, (METRICS,) if name == CONTROLLER else old[-1].scopes)
    kept = [one for one in keys if one.name != name or ends_unix_s is not None]
    for i, one in enumerate(kept):
        if one in old and ends_unix_s is not None and (one.until_unix_s is None or one.until_unix_s > ends_unix_s):
            kept[i] = replace(one, until_unix_s=ends_unix_s)
    return [*kept, new]


def revoked(keys: Sequence[SiteKey], name: str) -> list[SiteKey]:
    """Remove the keys of the name.

    Raises BadInput for an unknown name, and for the controller's and the conductors'.
    """
    if name == CONTROLLER:
        raise BadInput("the controller needs one to ask bouncers: rotate it, with no overlap", "name of a key", name)
    if name == CONDUCTOR:
        raise BadInput("conductors and servers that learn need one: rotate it", "name of a key", name)
    gone = _named(keys, name)
    return [key for key in keys if key not in gone]


def parsed(text: str, source: str) -> list[SiteKey]:
    """Return the keys of a key file, in order. Raises BadInput, which shows no key."""
    return [
        SiteKey(one.name, key, tuple(sorted(one.scopes)), None if one.until_s == float("inf") else int(one.until_s))
        for key, one in parse_keys(text, source).items()
    ]


def key_file(keys: Sequence[SiteKey]) -> str:
    """Return the text of a key file, with the controller's keys first."""
    ordered = sorted(keys, key=lambda key: key.name != CONTROLLER)
    return "".join(f"{key.line}\n" for key in ordered)


def for_bouncers(keys: Sequence[SiteKey]) -> str:
    """Return a key file of digests only: keys that may infer or read metrics, without their other rights.

    An admin key may do both.
    """
    told = [replace(key, scopes=(INFER, METRICS)) if ADMIN in key.scopes else key for key in keys]
    return key_file(_digests(told, _FOR_BOUNCERS))


def for_controller(keys: Sequence[SiteKey]) -> str:
    """Return a key file with the controller's own keys, and digests of the keys for metrics and its API."""
    own = [key for key in keys if key.name == CONTROLLER]
    return key_file([*own, *_digests([key for key in keys if key.name != CONTROLLER], _FOR_CONTROLLER)])


def for_conductors(keys: Sequence[SiteKey]) -> str:
    """Return a key file with the conductors' own keys, the newest last."""
    return key_file([key for key in keys if key.name == CONDUCTOR])


def parameters(site: str) -> dict[str, Callable[[Sequence[SiteKey]], str]]:
    """Return the names of the parameters that every site has, with their contents. The deciding one is last."""
    return {
        f"/mark/{site}/keys/bouncers": for_bouncers,
        f"/mark/{site}/keys/controller": for_controller,
        f"/mark/{site}/keys/plain": key_file,
    }


class SiteKeys:
    """The keys of a site on AWS, and their copy in `file`."""

    def __init__(self, gate: Gate, site: str, file: Path) -> None:
        self._gate, self._site, self.file = gate, site, file
        *_, self._truth = parameters(site)
        self._of_conductors = f"/mark/{site}/keys/conductors"

    def read(self) -> list[SiteKey]:
        """Return all keys. Raises BadInput for a site without keys, CloudError if AWS does not answer."""
        return self._there()[1]

    def to_deploy(self, *, conductors: bool = False) -> list[SiteKey]:
        """Return the site's keys; for a new site, create them in the file. Afterwards the file is a copy.

        `conductors` adds a key for conductors; an existing site without one gets it on AWS only in `admit`. Raises
        BadInput for a file that is not a key file, CloudError.
        """
        try:
            _, keys = self._read()
        except NotFoundError:
            keys = self._made_here()
            if conductors:
                keys = with_conductor(keys)
                self._keep(keys)
            return keys
        self._keep(keys)
        return with_conductor(keys) if conductors else keys

    def admit(self, wanted: Sequence[SiteKey], now_unix_s: float) -> None:
        """Make an existing site accept the conductors' key of `wanted`, unless it has one. Raises as `change`."""
        own = [key for key in wanted if key.name == CONDUCTOR]
        try:
            _, there = self._read()
        except NotFoundError:
            return  # Terraform writes all keys of a new site
        if own and not any(key.name == CONDUCTOR for key in there):
            self.change(lambda keys: [*keys, *own], now_unix_s)

    def to_destroy(self) -> list[SiteKey]:
        """Return any keys, because Terraform needs values: the known ones, otherwise new ones that are never used."""
        try:
            keys = self._read()[1]
        except NotFoundError:
            keys = parsed(self.file.read_text("utf-8"), str(self.file)) if _has_text(self.file) else first_keys()
        return keys if any(key.name == CONDUCTOR for key in keys) else with_conductor(keys)

    def change(self, edit: Callable[[list[SiteKey]], list[SiteKey]], now_unix_s: float) -> list[SiteKey]:
        """Apply `edit` to the keys on AWS, and to the file if there is one; ended keys are removed.

        The parameters of bouncers and controller are written first, so that an interrupted change can be repeated. AWS
        overwrites without a condition but numbers the versions. A skipped number means that another command's change
        was overwritten. It is then restored, and `edit` is applied to it. `edit` must return the same keys each time.

        Raises BadInput if the site has no keys, if a parameter would be too large, and if a simultaneous change by
        another command makes `edit` impossible; MarkError if other commands keep changing the keys.
        """
        version, before = self._there()
        known, refused = before, None
        keys = _edited(before, edit, now_unix_s)
        for _ in range(_MOST_WRITES):
            written = self._write(keys)
            others = self._overwritten(version, written, keys)
            if others is None:
                if self.file.is_file():
                    self._keep(keys)
                if refused is not None:
                    raise refused
                return keys
            before = _merged(before, known, others, keys)
            version, known = written, keys
            try:
                keys, refused = _edited(before, edit, now_unix_s), None
            except BadInput as error:  # keep the other command's change, without ours
                keys, refused = before, error
        raise MarkError(f"keys of site {self._site} are changed all the time by others: see `mark keys list`, repeat")

    def _write(self, keys: Sequence[SiteKey]) -> int:
        """Write all existing parameters; return the version of the deciding one. Raises CloudError."""
        ssm, version = self._gate.client("ssm"), 0
        texts = parameters(self._site)
        if self._has_conductors(keys):
            texts = {self._of_conductors: for_conductors, **texts}
        for name, text in texts.items():
            put: dict[str, Any] = {"Name": name, "Value": text(keys), "Type": "SecureString"}
            answer = self._gate.call(ssm.put_parameter, Overwrite=True, Tier="Intelligent-Tiering", **put)
            version = int(answer["Version"])
        return version

    def _has_conductors(self, keys: Sequence[SiteKey]) -> bool:
        """Return whether the conductors' parameter exists. Only Terraform creates it, so that it can also delete it."""
        if not any(key.name == CONDUCTOR for key in keys):
            return False
        try:
            KeyParameter(self._of_conductors, lambda: self._gate)()
        except NotFoundError:
            return False
        return True

    def _overwritten(self, version: int, written: int, keys: Sequence[SiteKey]) -> list[SiteKey] | None:
        """Return the last keys that others wrote between two versions, or None. Raises CloudError.

        A version with `keys` is ours, because a write whose answer is lost is repeated and counts twice.
        """
        for number in range(written - 1, version, -1):
            try:
                _, text = KeyParameter(f"{self._truth}:{number}", lambda: self._gate)()
            except CloudError as error:
                what = f"a command's change was overwritten and cannot be read: look at `mark keys list` ({error})"
                raise CloudError(f"keys of site {self._site}: {what}") from error
            if text != key_file(keys):
                return parsed(text, self._truth)
        return None

    def _there(self) -> tuple[int, list[SiteKey]]:
        try:
            return self._read()
        except NotFoundError:
            raise BadInput("has no keys yet: mark deploy makes the first", "name", self._site) from None

    def _read(self) -> tuple[int, list[SiteKey]]:
        version, text = KeyParameter(self._truth, lambda: self._gate)()
        return version, parsed(text, self._truth)

    def _made_here(self) -> list[SiteKey]:
        if not _has_text(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            whole = self.file.with_name(f".keys-{secrets.token_hex(8)}")
            try:
                write_secret(whole, key_file(first_keys()))
                if self.file.is_file() and not self.file.stat().st_size:
                    self.file.unlink(missing_ok=True)  # left by a process that was killed while writing
                with suppress(FileExistsError):  # another process was quicker; use its keys
                    os.link(whole, self.file)
            finally:
                whole.unlink(missing_ok=True)
        keys = parsed(self.file.read_text("utf-8"), str(self.file))
        _named(keys, CONTROLLER)
        check_size(keys)
        return keys

    def _keep(self, keys: Sequence[SiteKey]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        whole = self.file.with_name(f".keys-{secrets.token_hex(8)}")
        try:
            write_secret(whole, key_file(keys))
            os.replace(whole, self.file)
        finally:
            whole.unlink(missing_ok=True)


def check_size(keys: Sequence[SiteKey]) -> None:
    """Raise BadInput for more keys than a parameter holds."""
    largest = max(len(text(keys).encode()) for text in parameters("site").values())
    if largest > MOST_BYTES:
        what = f"{len(keys)} are {largest} bytes as they are kept, and a parameter holds {MOST_BYTES}: revoke some"
        raise BadInput(what, "keys")


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _edited(keys: list[SiteKey], edit: Callable[[list[SiteKey]], list[SiteKey]], now_unix_s: float) -> list[SiteKey]:
    """Return the edited keys without the ended ones. Raises BadInput for too many keys, and the errors of `edit`."""
    made = [key for key in edit(keys) if key.until_unix_s is None or key.until_unix_s > now_unix_s]
    check_size(made)
    return made


def _merged(
    before: Sequence[SiteKey], known: Sequence[SiteKey], others: Sequence[SiteKey], ours: Sequence[SiteKey]
) -> list[SiteKey]:
    """Return `before` with the others' changes since `known`, except changes that equal ours, which made `ours`."""
    result, was, theirs, mine = ({one.key: one for one in keys} for keys in (before, known, others, ours))
    # The others may have based their change on our first write, if it was repeated.
    of_ours = not theirs.keys().isdisjoint(mine.keys() - result.keys())
    for key in {**was, **theirs}:
        now = theirs.get(key)
        if now == was.get(key) or (of_ours and now == mine.get(key)):
            continue
        if now is None:
            result.pop(key, None)
        else:
            result[key] = now
    return list(result.values())


def _named(keys: Sequence[SiteKey], name: str) -> list[SiteKey]:
    found = [key for key in keys if key.name == name]
    if not found:
        raise BadInput("no key has it", "name of a key", name)
    return found


def _digests(keys: Sequence[SiteKey], scopes: frozenset[str]) -> list[SiteKey]:
    """Return the digests of keys with some of the scopes, limited to these scopes."""
    left = [(key, tuple(scope for scope in key.scopes if scope in scopes)) for key in keys]
    return [replace(key, key=key.digest, scopes=kept) for key, kept in left if kept]


def _has_text(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
