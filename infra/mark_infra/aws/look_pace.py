"""How often the target groups of a site are looked at.

DescribeTargetHealth answers for one group, and an account has 10 reads of ELBv2 a second in a region, whatever makes
them. So what all groups of a site that want the same have together is fixed, and each waits the longer the more there
are.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from threading import Lock


class LookKind(Enum):
    """Why a group is looked at again."""

    SOON = "soon"  # a target is about to become healthy, or has just ceased to be
    WATCH = "watch"  # its share rests on few targets, or a target has not been healthy for long
    REST = "rest"  # others may have changed what is registered


# Looks a second that all groups of a site have together.
PER_S = {LookKind.SOON: 3.0, LookKind.WATCH: 3.0, LookKind.REST: 2.0}


class LookPace:
    """Shared by the balancers of a site. Thread-safe."""

    def __init__(self) -> None:
        self._kinds: dict[str, LookKind] = {}
        self._counts: Counter[LookKind] = Counter()
        self._lock = Lock()

    def least_s(self, group: str, kind: LookKind) -> float:
        """The least time between two looks at a group that wants `kind` from now on."""
        with self._lock:
            if (before := self._kinds.get(group)) is not kind:
                self._kinds[group] = kind
                self._counts[kind] += 1
                if before is not None:
                    self._counts[before] -= 1
            return self._counts[kind] / PER_S[kind]
