"""Machine images of a site: what was taken once stays until newer ones are asked for.

Amazon publishes a new image every other week. If each deployment took it, deploying the same thing again would replace
every instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_FORMER = 5  # images of earlier releases, which a roll-back may need,
_MORE_FORMER = 8  # of up to four platforms, if there is room
_MOST = 20  # of a site: terraform/modules/controller


@dataclass(frozen=True, slots=True)
class PinnedImages:
    """Image ids that Terraform is given; None: the newest. `former`: those of releases that a roll-back may need."""

    controller: str | None
    services: Mapping[str, Mapping[str, str | None]]  # by the parameters that name them
    former: tuple[str, ...]


def pinned(parameters: Mapping[str, Collection[str]], before: Mapping[str, Any], *, newest: bool) -> PinnedImages:
    """`parameters` name each service's images; `before` is what Terraform gave out as `images`, empty at first."""
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
    """A service's image ids by their parameters. Sites of before there were platforms have one."""
    return {one["parameter"]: one["id"] for one in (service, *service.get("more", {}).values())}
