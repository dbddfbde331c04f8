"""The instances that choices need: every worker is on an instance, and the stages' parts add up to the bill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.planning.graphs.estimate import StageChoice, StageOption, usd_per_hour
from mark.planning.graphs.fleet_cost import bought, usd_by_stage
from mark.planning.graphs.packing import Host, Placement
from tests.planning.graphs.planned import option

GPU = Host("gpu", 0.6, 4.0, 1.0)


def placed(placement: Placement, usd_per_hour: float) -> StageOption:
    return replace(option(placement.host.instance, usd_per_hour, 0.0, 0.01), placement=placement)


CLASSIFY, DECODE = placed(Placement(GPU, 1.0, 1.0), 0.45), placed(Placement(GPU, 1.0), 0.05)
ALONE = option("cpu", 0.1, 0.0, 0.02, workers=2)


def test_stages_that_share_and_one_that_does_not() -> None:
    choices = StageChoice(DECODE, 1, 4), StageChoice(ALONE, 1, 3), StageChoice(CLASSIFY, 1, 2)
    found = bought(choices)
    assert [(pack.instance, pack.count, pack.workers) for pack in found] == [
        ("cpu", 3, (0, 2, 0)),
        ("gpu", 1, (3, 0, 1)),
        ("gpu", 1, (1, 0, 1)),
    ]
    assert usd_per_hour(choices) == pytest.approx(3 * 0.1 + 2 * 0.6) == pytest.approx(sum(usd_by_stage(choices)))
    decode, alone, classify = usd_by_stage(choices)
    assert alone == pytest.approx(0.3)
    assert decode == pytest.approx(0.6 * (0.15 / 0.6 + 0.05 / 0.5))  # its share of each instance, idle vCPUs included
    assert classify == pytest.approx(1.2 - decode)


def test_workers_without_a_price_share_by_number() -> None:
    free = placed(Placement(GPU, 1.0), 0.0)
    assert usd_by_stage((StageChoice(free, 1, 1), StageChoice(free, 1, 3))) == pytest.approx((0.15, 0.45))


def test_a_stage_on_two_types_is_billed_as_one() -> None:
    small = Host("small", 0.1, 2.0, 0.0)
    decode = StageChoice(placed(Placement(small, 1.0), 0.05), 1, 2, ((DECODE, 3),))
    choices = decode, StageChoice(CLASSIFY, 1, 1)
    assert [(pack.instance, pack.workers) for pack in bought(choices)] == [("small", (2, 0)), ("gpu", (3, 1))]
    assert usd_per_hour(choices) == pytest.approx(0.7)
    assert usd_by_stage(choices) == pytest.approx((0.1 + 0.15, 0.45))
    assert decode.workers == 5
    assert decode.calls_per_s == pytest.approx(5 * 100.0)
