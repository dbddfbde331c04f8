"""The pace at which the target groups of a site are read.

DescribeTargetHealth answers for one group, and all programs of an account share 10 ELBv2 reads a second in a region.
So each kind of read has a fixed rate for the whole site, and each group waits longer the more groups there are.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from threading import Lock


class LookKind(Enum):
    """The reason to read a group again."""

    SOON = "soon"  # a target is about to become healthy, or has just stopped being healthy
    WATCH = "watch"  # its share depends on few targets, or a target has long been unhealthy
    REST = "rest"  # another program may have changed the targets


# Reads a second of all groups of a site together.
PER_S = {LookKind.SOON: 3.0, LookKind.WATCH: 3.0, LookKind.REST: 2.0}


class LookPace:
    """The pace shared by the balancers of a site. Thread-safe."""

    def __init__(self) -> None:
        self._kinds: dict[str, LookKind] = {}
        self._counts: Counter[LookKind] = Counter()
        self._lock = Lock()

    def least_s(self, group: str, kind: LookKind) -> float:
        """Return the shortest time between two reads of a group whose kind is `kind` from now on."""
        with self._lock:
            if (before := self._kinds.get(group)) is not kind:
                self._kinds[group] = kind
                self._counts[kind] += 1
                if before is not None:
                    self._counts[before] -= 1
            return self._counts[kind] / PER_S[kind]
