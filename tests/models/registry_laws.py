"""Laws of a registry at any moment, even after processes were killed in the middle of a change."""

from __future__ import annotations

import hashlib

from mark.models.registry import ObjectStore, Registry


def check_registry(objects: ObjectStore) -> Registry:
    """Check that each version is complete and named by its content, and that each alias always names a version."""
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
