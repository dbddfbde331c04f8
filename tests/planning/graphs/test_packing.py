"""Workers of several stages on whole instances: all are placed, no instance is overfull, and no packing needs fewer."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.offer import Delay, Market, Offer
from mark.domain.profile import Profile, ProfileRow
from mark.planning.graphs.packing import (
    Host,
    Placement,
    packed_usd_per_hour,
    packs,
    placement_of,
    resource_usd_per_hour,
)

CPU, GPU = Host("cpu", 0.1, 2.0, 0.0), Host("gpu", 0.6, 4.0, 1.0)
FOUR_GPUS = Host("gpus", 2.0, 16.0, 4.0)

placements = st.one_of(
    st.builds(Placement, st.just(CPU), st.sampled_from([0.5, 1.0, 2.0])),
    st.builds(Placement, st.just(GPU), st.sampled_from([0.5, 1.0, 2.0, 4.0])),
    st.builds(Placement, st.just(GPU), st.just(1.0), st.sampled_from([0.5, 1.0])),
    st.builds(Placement, st.just(FOUR_GPUS), st.sampled_from([1.0, 4.0]), st.sampled_from([0.0, 1.0, 2.0])),
)
placed = st.lists(st.tuples(placements, st.integers(0, 40)), max_size=5)


@given(placed)
def test_every_worker_has_its_place_and_no_instance_overflows(asked: list[tuple[Placement, int]]) -> None:
    found = packs(asked)
    hosts = {host.instance: host for host in (CPU, GPU, FOUR_GPUS)}
    for stage, (placement, count) in enumerate(asked):
        assert sum(pack.count * pack.workers[stage] for pack in found) == count
        for pack in found:
            assert pack.workers[stage] == 0 or pack.instance == placement.host.instance
    for pack in found:
        on_it = [(one, n) for (one, _), n in zip(asked, pack.workers, strict=True)]
        host = hosts[pack.instance]
        assert 0.0 < sum(n * one.vcpus for one, n in on_it) <= host.vcpus + 1e-6
        assert sum(n * one.gpus for one, n in on_it) <= host.gpus + 1e-6
        assert pack.usd_per_hour == pytest.approx(pack.count * host.usd_per_hour)
    assert packed_usd_per_hour(asked) == pytest.approx(sum(pack.usd_per_hour for pack in found))


@given(placed, st.floats(0.0, 0.2))
def test_prices_of_resources_are_a_lower_bound_of_whole_instances(
    asked: list[tuple[Placement, int]], usd_per_vcpu_hour: float
) -> None:
    by_the_worker = 0.0
    for placement, count in asked:
        of_vcpu, of_gpu = resource_usd_per_hour(placement.host, usd_per_vcpu_hour)
        assert min(of_vcpu, of_gpu) >= 0.0
        by_the_worker += count * (placement.vcpus * of_vcpu + placement.gpus * of_gpu)
    assert by_the_worker <= packed_usd_per_hour(asked) + 1e-9


def test_all_resources_of_an_instance_are_its_price() -> None:
    assert resource_usd_per_hour(GPU, 0.05) == pytest.approx((0.05, 0.4))
    assert resource_usd_per_hour(GPU, 9.0) == pytest.approx((0.15, 0.0))  # its processors alone would be dearer
    assert resource_usd_per_hour(CPU, 0.01) == pytest.approx((0.05, 0.0))


def test_what_a_gpu_leaves_of_its_processors_costs_nothing() -> None:
    classify, decode = Placement(GPU, 1.0, 1.0), Placement(GPU, 1.0)
    assert packed_usd_per_hour([(classify, 3), (decode, 9)]) == pytest.approx(3 * 0.6)
    assert [(pack.count, pack.workers) for pack in packs([(classify, 3), (decode, 10)])] == [(3, (1, 3)), (1, (0, 1))]


@pytest.mark.parametrize("sizes", list(itertools.product([1, 2, 3], repeat=3)))
def test_no_way_to_pack_a_few_workers_needs_fewer_instances(sizes: tuple[int, int, int]) -> None:
    """Three stages with up to three workers each, beside every way to put them on instances with six vCPUs."""
    host = Host("six", 1.0, 6.0, 1.0)
    # One stage needs half of the GPU, so that two fit, and the rest vCPUs.
    takes = [(float(size), 0.5 if stage == 0 else 0.0) for stage, size in enumerate(sizes)]
    patterns = [
        pattern
        for pattern in itertools.product(range(4), repeat=3)
        if any(pattern)
        and sum(n * vcpus for n, (vcpus, _) in zip(pattern, takes, strict=True)) <= 6.0
        and sum(n * gpus for n, (_, gpus) in zip(pattern, takes, strict=True)) <= 1.0
    ]

    @cache
    def fewest(left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        after = {tuple(max(0, has - n) for has, n in zip(left, pattern, strict=True)) for pattern in patterns}
        return 1 + min(fewest(rest) for rest in after if rest != left)

    for counts in itertools.product(range(4), repeat=3):
        asked = [(Placement(host, *of), n) for of, n in zip(takes, counts, strict=True)]
        assert packed_usd_per_hour(asked) == fewest(counts)


def test_a_worker_takes_something_and_no_more_than_there_is() -> None:
    with pytest.raises(BadInput, match="vcpus of a worker on cpu: must be 0 to 2: 3"):
        Placement(CPU, 3.0)
    with pytest.raises(BadInput, match="gpus of a worker on cpu: must be 0 to 0: 1"):
        Placement(CPU, 1.0, 1.0)
    with pytest.raises(BadInput, match="a worker on cpu: takes nothing"):
        Placement(CPU, 0.0)


@pytest.mark.parametrize(
    ("row", "gpus", "takes"),
    [
        (ProfileRow(1, 1.0), 0, (4.0, 0.0)),  # its use is unknown
        (ProfileRow(1, 1.0, workers=4, vcpus=0.9, memory_mb=100.0), 0, (1.0, 0.0)),
        (ProfileRow(1, 1.0, workers=4, vcpus=0.9, memory_mb=4294.967296), 0, (2.0, 0.0)),  # half of the memory
        (ProfileRow(1, 1.0, workers=4, memory_mb=1e6), 0, (4.0, 0.0)),
        (ProfileRow(1, 1.0), 2, (1.0, 2.0)),
        (ProfileRow(1, 1.0, vcpus=2.5), 2, (2.5, 2.0)),  # it feeds its GPU with more than one
        (ProfileRow(1, 1.0, vcpus=0.25, workers=2), 2, (0.25, 1.0)),
    ],
)
def test_a_worker_takes_what_was_measured_of_it(row: ProfileRow, gpus: int, takes: tuple[float, float]) -> None:
    offer = Offer("x", Market.ON_DEMAND, 1.0, Delay(60.0, 90.0), vcpu=4.0, memory_gib=8.0, gpus=gpus)
    found = placement_of(offer, Profile("m", "x", (row,)), without_gpu=False)
    assert (found.vcpus, found.gpus) == pytest.approx(takes)
