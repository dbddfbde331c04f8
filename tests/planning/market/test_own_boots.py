from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.fleet import Instance, Phase
from mark.domain.offer import Delay
from mark.planning.market.own_boots import MOST, PRIOR, OwnBoots

BOOTS = {"small": Delay(60.0, 120.0), "certain": Delay(60.0, 60.0)}


def ready(number: int, boot_s: float, at_s: float, offer: str = "small") -> Instance:
    return Instance(number, offer, Phase.READY, at_s - boot_s, at_s)


def test_catalogue_counts_until_boots_are_seen() -> None:
    assert OwnBoots().scale == 1.0
    assert OwnBoots().seen([ready(1, 60.0, 100.0)], BOOTS, resumed=False).scale == 1.0


def test_scale_approaches_what_own_boots_take() -> None:
    """After PRIOR boots, the scale lies half-way between the catalogue's and the observed one."""
    slow = [ready(n, 120.0, 100.0 + n) for n in range(int(PRIOR))]
    assert OwnBoots().seen(slow, BOOTS, resumed=False).scale == pytest.approx(1.5)


def test_each_boot_counts_once() -> None:
    seen = OwnBoots().seen([ready(1, 90.0, 100.0)], BOOTS, resumed=False)
    assert seen.count == 1.0
    assert seen.seen([ready(1, 90.0, 100.0)], BOOTS, resumed=False) == seen
    assert seen.seen([ready(1, 90.0, 100.0), ready(2, 90.0, 130.0)], BOOTS, resumed=False).count == 2.0


@pytest.mark.parametrize(
    "instance",
    [
        ready(1, 0.0, 100.0),
        ready(1, 90.0, 100.0, "certain"),
        ready(1, 90.0, 100.0, "unknown"),
        replace(ready(1, 90.0, 100.0), phase=Phase.PENDING),
        replace(ready(1, 90.0, 100.0), ready_s=None),
        replace(ready(1, 90.0, 100.0), resumed=True),
    ],
)
def test_only_boots_that_were_watched_count(instance: Instance) -> None:
    assert OwnBoots().seen([instance], BOOTS, resumed=False) == OwnBoots()


def test_resumes_are_counted_apart_from_boots() -> None:
    resumed = replace(ready(1, 120.0, 100.0), resumed=True)
    assert OwnBoots().seen([resumed], BOOTS, resumed=True).scale > 1.0


def test_old_boots_fade() -> None:
    """Boots that became as fast as the catalogue says are believed after a few hundred."""
    slow = [ready(n, 120.0, 1.0 + n) for n in range(200)]
    seen = OwnBoots().seen(slow, BOOTS, resumed=False)
    assert seen.count == pytest.approx(MOST)
    assert seen.scale == pytest.approx((PRIOR + 2.0 * MOST) / (PRIOR + MOST))
    assert seen.seen([ready(n, 60.0, 1000.0 + n) for n in range(500)], BOOTS, resumed=False).scale < 1.02


def test_reboot_by_the_cloud_shifts_little() -> None:
    assert OwnBoots().seen([ready(1, 1e6, 2e6)], BOOTS, resumed=False).scale < 1.2
