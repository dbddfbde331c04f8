"""What a release is launched from and answers with: versions of the launch template, and of the function.

A controller is told those of the newest release only. Of the ones before it remembers what earlier controllers were
told: a roll-back launches from them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mark.control.controller import known_rollout
from mark.control.ports import Store
from mark_infra.aws.site import SiteService

TEMPLATES, FUNCTIONS = "templates", "functions"  # keys in the store
MOST = 20  # releases that are remembered, apart from those that a roll-out needs


def know_release(there: SiteService, kept: Store, store: Store) -> tuple[dict[str, str], dict[str, str]]:
    """By release: version of the launch template, and NAME:VERSION of the function (of those that have one).

    With the newest release, which is written to `store` where `kept` does not know it. Empty without releases.
    """
    if not there.release:
        return {}, {}
    rollout = known_rollout(kept)
    needed = set() if rollout is None else {rollout.release, rollout.before, rollout.candidate}
    found = []
    for key, version in ((TEMPLATES, there.launch_template_version), (FUNCTIONS, there.function)):
        before = dict(kept.get(key) or {})
        known = with_release(before, there.release, version, needed)
        if known != before:
            store.put(key, known)
        found.append(known)
    return found[0], found[1]


def with_release(
    known: Mapping[str, str], release: str, version: str | None, needed: Collection[str]
) -> dict[str, str]:
    """`known`, oldest first, with this release last; None: it has none. Old ones that nothing needs are forgotten."""
    if known.get(release) == version:
        return dict(known)
    others = [name for name in known if name != release]
    old = [name for name in others if name not in needed][: 1 - MOST]
    found = {name: known[name] for name in others if name not in old}
    if version is not None:
        found[release] = version
    return found
