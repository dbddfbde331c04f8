"""Look for a key in all data that a service with [personal] keeps, to prove its deletion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from mark.domain.errors import BadInput
from mark.launch.running_server import running_key
from mark.models.registry import ObjectStore
from mark.models.registry_place import open_objects
from mark.serving.learned.facts import Fact, facts_in
from mark.serving.learned.shared import snapshot_in
from mark.serving.personal.erasing import keys_of_line
from mark.serving.personal.notes import fact_in, key_name
from mark.studies.report.personal_reports import KeyScan

_JOURNAL, _SNAPSHOT = "learned-*.jsonl", "learned.snapshot"


def scan_key(
    key: str,
    logs: Sequence[Path] = (),
    stores: Sequence[tuple[str, str]] = (),
    addresses: Sequence[str] = (),
    key_file: Path | None = None,
) -> KeyScan:
    """Look for a key in folders of feedback logs, in object stores (each with the name of the service), and servers.

    Raises BadInput if one of them cannot be read.
    """
    if not key:
        raise BadInput("must not be empty", "KEY")
    found = KeyScan(key)
    for address in addresses:
        found.servers += 1
        known = running_key(address, key, key_file)
        if known is not None:
            found.note(address, "observations in memory", int(known["observations"]))
    for folder in logs:
        if not folder.is_dir():
            raise BadInput("no such folder", "--log", str(folder))
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if not any(path.suffix == ".jsonl" or path.name == _SNAPSHOT for path in files):
            raise BadInput("holds no feedback log, so that a scan proves nothing", "--log", str(folder))
        for path in files:
            try:
                _scan_file(path, found)
            except OSError as error:
                raise BadInput(f"cannot be read ({error.strerror})", "--log", str(path)) from None
    for place, service in stores:
        _scan_store(open_objects(place, "--store"), place, service, found)
    return found


def _scan_file(path: Path, found: KeyScan) -> None:
    found.files += 1
    if path.match(_JOURNAL):
        with path.open("rb") as lines:
            found.note(str(path), "learned facts", sum(_facts_about(line, found.key) for line in lines))
    elif path.name == _SNAPSHOT:
        found.note(str(path), "a snapshot of heads", _snapshot_about(path.read_bytes(), found.key))
    elif path.suffix == ".jsonl":
        with path.open("rb") as lines:
            found.note(str(path), "lines of the feedback log", sum(_is_about(line, found.key) for line in lines))
    else:
        found.note(str(path), "rows", _count(path.read_bytes(), found.key))


def _scan_store(objects: ObjectStore, place: str, service: str, found: KeyScan) -> None:
    prefix = f"learned/{service}/"
    for name in objects.keys(prefix):
        data = objects.read(name) or b""
        found.objects += 1
        where = f"{place.rstrip('/')}/{name}"
        if name.startswith(f"{prefix}snapshots/"):
            found.note(where, "a snapshot of heads", _snapshot_about(data, found.key))
        elif name.startswith(f"{prefix}aside/"):
            found.note(where, "items used most", _count(data, found.key))
        else:
            found.note(where, "learned facts", sum(_facts_about(line, found.key) for line in data.splitlines()))


def _count(data: bytes, key: str) -> int:
    """Return how often data that is no JSON has the key, or its name in the state."""
    return data.count(key_name(key).encode()) + data.count(orjson.dumps(key))


def _facts_about(line: bytes, key: str) -> int:
    return sum(_is_fact_about(fact, key) for fact in _facts(line))


def _facts(line: bytes) -> Iterator[Fact]:
    try:
        yield from facts_in(line.rstrip(b"\n"))
    except ValueError:
        return  # a crash cut the line off, so readers cannot find a fact in it either


def _is_fact_about(fact: Fact, key: str) -> bool:
    try:
        found = fact_in(fact.content)
    except ValueError:
        return key_name(key).encode() in fact.content
    return found is not None and found.reward is not None and found.key == key_name(key)


def _snapshot_about(data: bytes, key: str) -> int:
    """Return 1 if the snapshot has rows of the key, else 0. A deletion that it remembers does not count."""
    try:
        _, _, heads = snapshot_in(data).state.partition(b"\n")
        said = orjson.loads(heads) if heads else {}
        return int(key_name(key) in said.get("keys", {}))
    except (ValueError, AttributeError, TypeError):
        return data.count(key_name(key).encode())


def _is_about(line: bytes, key: str) -> bool:
    try:
        said = orjson.loads(line)
    except ValueError:
        return key_name(key).encode() in line or orjson.dumps(key) in line
    return key_name(key) in keys_of_line(said)
