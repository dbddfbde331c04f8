"""The versions that belong to a release: of its launch templates and of its function.

A controller is configured with the newest release's versions only. The store keeps the versions of earlier releases,
because a roll-back launches from them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from mark.control.controller import known_rollout
from mark.control.ports import Store
from mark_infra.aws.site import SiteService

TEMPLATES, PLATFORMS, FUNCTIONS = "templates", "platforms", "functions"  # keys in the store
MOST = 20  # remembered releases, besides the releases that a roll-out needs


T = TypeVar("T")
TemplatesByPlatform = Mapping[str, Mapping[str, str]]  # for one release


@dataclass(frozen=True, slots=True)
class ReleaseVersions:
    """By release: version of the first launch template, templates of its platforms, NAME:VERSION of its function.

    Releases older than platforms are missing in `platforms`, releases without a function in `functions`.
    """

    templates: Mapping[str, str] = field(default_factory=dict)
    platforms: Mapping[str, TemplatesByPlatform] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)


def know_release(there: SiteService, kept: Store, store: Store) -> ReleaseVersions:
    """Return the known versions, including the newest release; changes from `kept` are written to `store`.

    Without releases the result is empty.
    """
    if not there.release:
        return ReleaseVersions()
    rollout = known_rollout(kept)
    needed = set() if rollout is None else {rollout.release, rollout.before, rollout.candidate}
    platforms = {name: asdict(one) for name, one in there.platforms.items()} or None
    newest = {TEMPLATES: there.launch_template_version, PLATFORMS: platforms, FUNCTIONS: there.function}
    found: dict[str, Any] = {}
    for key, version in newest.items():
        before = dict(kept.get(key) or {})
        found[key] = with_release(before, there.release, version, needed)
        if found[key] != before:
            store.put(key, found[key])
    return ReleaseVersions(**found)


def with_release(known: Mapping[str, T], release: str, version: T | None, needed: Collection[str]) -> dict[str, T]:
    """Return `known` (oldest first) with this release last, or without it if its version is None.

    The oldest releases are dropped, except the needed ones.
    """
    if known.get(release) == version:
        return dict(known)
    others = [name for name in known if name != release]
    old = [name for name in others if name not in needed][: 1 - MOST]
    found = {name: known[name] for name in others if name not in old}
    if version is not None:
        found[release] = version
    return found
