"""The stages of a pipeline that are bought together: the grouping whose instances cost least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mark.domain.errors import Infeasible
from mark.planning.graphs.group_split import SharedSplit
from mark.planning.graphs.stage_group import shared_types

# A grouping must save this share, because each further instance is bought for the whole group.
WORTH = 0.03


def chosen_groups(alone: SharedSplit) -> list[tuple[int, ...]]:
    """Return the groups of stages that are bought together; empty if that saves less than 3 % of stages by themselves.

    A group holds places of stages. `alone` is the split without groups. Dollars are those by which RT_max is split
    among stages and groups (`SharedSplit`). Stages with functions stay by themselves. Raises Infeasible if the stages
    by themselves have no split.
    """
    best: list[tuple[int, ...]] = []
    least = math.inf
    for groups in _partitions(range(len(alone.stages))):
        together = [group for group in groups if len(group) > 1]
        if not all(_fits(alone, group) for group in together):
            continue
        split = replace(alone, groups=together)
        try:
            usd = split.usd_per_hour(split.found())
        except Infeasible:
            if not together:
                raise
            continue
        limit = least * (1.0 - 1e-9) if best else least * (1.0 - WORTH)
        if not together or usd < limit:
            best, least = together, usd
    return best


def _fits(alone: SharedSplit, group: Sequence[int]) -> bool:
    stages = [alone.stages[at] for at in group]
    return not any(stage.resolved.service.functions for stage in stages) and bool(shared_types(stages))


def _partitions(places: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield all ways to group the places; the first way has each by itself."""
    if not places:
        yield []
        return
    first = places[0]
    for others in _partitions(places[1:]):
        yield [(first,), *others]
    for others in _partitions(places[1:]):
        for at, group in enumerate(others):
            yield [*others[:at], (first, *group), *others[at + 1 :]]
