"""Machine images of a site: what was taken once stays until somebody asks for newer ones.

Amazon publishes a new image every other week. If each deployment took it, deploying the same thing again would replace
every instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FORMER = 5  # images of earlier releases, which a roll-back may need


@dataclass(frozen=True, slots=True)
class PinnedImages:
    """Image ids that Terraform is given; None: the newest. `former`: those of releases that a roll-back may need."""

    controller: str | None
    services: Mapping[str, str | None]
    former: tuple[str, ...]


def pinned(parameters: Mapping[str, str], before: Mapping[str, Any], *, newest: bool) -> PinnedImages:
    """`parameters` name each service's image; `before` is what Terraform gave out as `images`, empty at first."""
    had: Mapping[str, Mapping[str, str]] = before.get("services", {})
    kept = {
        name: had[name]["id"] if name in had and had[name]["parameter"] == parameter and not newest else None
        for name, parameter in parameters.items()
    }
    gone = [one["id"] for name, one in sorted(had.items()) if kept.get(name) != one["id"]]
    former = [id for id in dict.fromkeys([*gone, *before.get("former", ())]) if id not in kept.values()]
    return PinnedImages(None if newest else before.get("controller"), kept, tuple(former[:_FORMER]))
