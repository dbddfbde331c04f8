"""Access to the records of a stage in compiled code.

Places are unsigned here, so that numba leaves out its treatment of negative ones, a tenth of a request's time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mark.kernel.arrays import Stage
from mark.kernel.compiled import compiled


@compiled
def of_slot(st: Stage, slot: int) -> Any:
    """Return the fields of a replica that every request needs: a record SLOT."""
    return st.slots[np.uint64(slot)]


@compiled
def of_kind(st: Stage, kind: int) -> Any:
    """Return the shared fields of replicas of a kind: a record KIND."""
    return st.kinds.rows[np.uint64(kind)]


@compiled
def of_member(st: Stage, slot: int, place: int) -> Any:
    """Return one request in a replica's open batch: a record MEMBER."""
    return st.members[np.uint64(slot), np.uint64(place)]


@compiled
def batch_s(st: Stage, kind: int, size: int) -> float:
    """Return the time of a batch of that size on a replica of that kind."""
    return st.kinds.service_s[np.uint64(kind), np.uint64(size)]
