"""What a release is launched from and answers with: versions of launch templates, and of the function.

A controller is told those of the newest release only. Of the ones before it remembers what earlier controllers were
told: a roll-back launches from them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from mark.control.controller import known_rollout
from mark.control.ports import Store
from mark_infra.aws.site import SiteService

TEMPLATES, PLATFORMS, FUNCTIONS = "templates", "platforms", "functions"  # keys in the store
MOST = 20  # releases that are remembered, apart from those that a roll-out needs


T = TypeVar("T")
TemplatesByPlatform = Mapping[str, Mapping[str, str]]  # of one release


@dataclass(frozen=True, slots=True)
class ReleaseVersions:
    """By release: version of the first launch template, templates of its platforms, NAME:VERSION of its function.

    A release of before there were platforms has none of these, and one without a function none of those.
    """

    templates: Mapping[str, str] = field(default_factory=dict)
    platforms: Mapping[str, TemplatesByPlatform] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)


def know_release(there: SiteService, kept: Store, store: Store) -> ReleaseVersions:
    """What is known with the newest release, which is written to `store` where `kept` has it otherwise.

    Nothing without releases.
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
    """`known`, oldest first, with this release last; None: it has none. Old ones that nothing needs are forgotten."""
    if known.get(release) == version:
        return dict(known)
    others = [name for name in known if name != release]
    old = [name for name in others if name not in needed][: 1 - MOST]
    found = {name: known[name] for name in others if name not in old}
    if version is not None:
        found[release] = version
    return found
