"""What holds of a registry at any moment, whatever process was killed, and in the middle of whatever."""

from __future__ import annotations

import hashlib

from mark.models.registry import ObjectStore, Registry


def check_registry(objects: ObjectStore) -> Registry:
    """Each version is wholly there and what it is named by; each alias, now and ever, names one of them."""
    registry = Registry(objects)
    for name in registry.names():
        ids = set()
        for version in registry.versions(name):
            ids.add(version.id)
            digests = [digest for digest, _ in version.content.files.values()]
            for digest in [*digests, *([version.content.profile] if version.content.profile else [])]:
                content = objects.read(f"blobs/sha256/{digest}")
                assert content is not None, f"{version} lacks a file"
                assert hashlib.sha256(content).hexdigest() == digest
        for alias in registry.aliases(name):
            assert {move.version for move in registry.history(name, alias)} <= ids
            assert registry.find(name, alias).id in ids
    return registry
