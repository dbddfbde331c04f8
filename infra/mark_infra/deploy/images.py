"""Machine images of a site: an image is kept until newer ones are requested.

Amazon publishes a new image every other week. If each deployment took the newest, deploying the same service again
would replace every instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_FORMER = 5  # images of earlier releases kept for a roll-back,
_MORE_FORMER = 8  # or this many for up to four platforms, if there is room
_MOST = 20  # per site: terraform/modules/controller


@dataclass(frozen=True, slots=True)
class PinnedImages:
    """Image ids for Terraform; None: the newest. `former`: images of releases that a roll-back may need."""

    controller: str | None
    services: Mapping[str, Mapping[str, str | None]]  # by the parameters that name them
    former: tuple[str, ...]


def pinned(parameters: Mapping[str, Collection[str]], before: Mapping[str, Any], *, newest: bool) -> PinnedImages:
    """Return the images of a deployment, from each service's `parameters` and Terraform's output `images`, `before`."""
    had = {name: _had(one) for name, one in sorted(before.get("services", {}).items())}
    kept = {
        name: {one: None if newest else had.get(name, {}).get(one) for one in of} for name, of in parameters.items()
    }
    gone = [id for name, ids in had.items() for id in ids.values() if id not in kept.get(name, {}).values()]
    now = [id for ids in kept.values() for id in ids.values()]
    former = [id for id in dict.fromkeys([*gone, *before.get("former", ())]) if id not in now]
    images = {id or parameter for ids in kept.values() for parameter, id in ids.items()}
    most = max(_FORMER, min(_MORE_FORMER, _MOST - len(images)))
    return PinnedImages(None if newest else before.get("controller"), kept, tuple(former[:most]))


def _had(service: Mapping[str, Any]) -> dict[str, str]:
    """Return a service's image ids by their parameters. Sites older than platforms have one."""
    return {one["parameter"]: one["id"] for one in (service, *service.get("more", {}).values())}
