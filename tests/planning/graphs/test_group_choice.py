"""Stages to buy together: all groupings are tried, and a saving of few dollars is not enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.domain.profile import ProfileRow
from mark.planning.graphs.group_choice import WORTH, _partitions, chosen_groups
from mark.planning.graphs.group_split import SharedSplit
from mark.planning.graphs.stage_group import GroupedStage
from tests.planning.graphs.planned import chain
from tests.planning.graphs.test_group_split import alone
from tests.planning.graphs.test_stage_group import grouped

SMALL = (ProfileRow(1, 5.0, workers=2),)  # 200/s of a worker
WHOLE = (ProfileRow(1, 5.0),)  # takes both vCPUs


def split(rps: float, *stages: GroupedStage) -> SharedSplit:
    names = tuple("abcdef"[: len(stages)])
    every = np.ones((1, len(stages)), dtype=np.int64)
    costs = [alone(stage, rps) for stage in stages]
    return SharedSplit(chain(*names), every, stages, costs, (), 0.3, rps)


def small(name: str) -> GroupedStage:
    return grouped(name, rt_max_s=0.3, cpu=SMALL)


@pytest.mark.parametrize(("count", "ways"), [(1, 1), (2, 2), (3, 5), (4, 15), (6, 203)])
def test_each_way_to_group_stages_is_tried_once(count: int, ways: int) -> None:
    found = [frozenset(frozenset(group) for group in one) for one in _partitions(range(count))]
    assert len(found) == len(set(found)) == ways
    assert found[0] == {frozenset((at,)) for at in range(count)}


def test_small_stages_share_what_they_fill_together() -> None:
    """Two stages share an instance at a time; the third one fills a whole instance."""
    asked = split(10.0, small("a"), grouped("b", rt_max_s=0.3, cpu=WHOLE), small("c"))
    assert chosen_groups(asked) == [(0, 2)]


def test_stages_stay_by_themselves_where_nothing_is_saved() -> None:
    """If each stage fills many instances, groups save nothing."""
    asked = split(4000.0, small("a"), small("b"))
    assert chosen_groups(asked) == []
    both = SharedSplit(asked.pipeline, asked.patterns, asked.stages, asked.costs, [(0, 1)], 0.3, 4000.0)
    assert both.usd_per_hour(both.found()) > (1.0 - WORTH) * asked.usd_per_hour(asked.found())


@pytest.mark.parametrize(("rps", "chosen"), [(2000.0, [(0, 1)]), (2800.0, [])])
def test_less_than_three_percent_is_no_reason(rps: float, chosen: list[tuple[int, ...]]) -> None:
    """The groups save one of 26 instances, and one of 36."""
    asked = split(rps, small("a"), small("b"))
    both = replace(asked, groups=[(0, 1)])
    saved = 1.0 - both.usd_per_hour(both.found()) / asked.usd_per_hour(asked.found())
    assert saved == pytest.approx(1.0 / 26.0 if chosen else 1.0 / 36.0)
    assert chosen_groups(asked) == chosen
