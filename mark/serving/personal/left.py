"""The observations that servers left in the folder of a feedback log, read as a server reads them at its start."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

from mark.personal.learner import PersonalObservation
from mark.serving.learned.facts import Vector
from mark.serving.learned.journal import Journals
from mark.serving.learned.shared import Shared
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.served import PersonalServing

_AT_ONCE = 2000  # facts
_TRIES = 5


def observations_left(folder: Path, serving: PersonalServing) -> list[PersonalObservation]:
    """Return each observation of the table once, without those of deleted keys. Servers may run during the call."""
    heads, _ = state_left(folder, serving)
    return list(heads.logged())


def state_left(folder: Path, serving: PersonalServing) -> tuple[PersonalHeads, Vector]:
    """Return the heads, and the vector of their facts. Servers may run during the call."""
    for _ in range(_TRIES):
        heads = PersonalHeads(serving.settings, serving.version, now=time.monotonic, table=serving.table)
        shared, journals = Shared(heads, 0, 0), Journals(folder)
        for snapshot in journals.snapshots():
            with suppress(ValueError):  # of another loss or version
                if shared.adopt(snapshot):
                    break
        facts = journals.facts()
        while some := list(islice(facts, _AT_ONCE)):
            shared.take(some)
            shared.trim(())
        # A server may have deleted files that a newer snapshot covers.
        if not any(shared.vector.lacks(one.vector) for one in journals.snapshots()):
            break
    return heads, shared.vector
