"""Instances with workers of several stages: the processors beside a GPU instance's GPU are paid for already.

Every worker takes fixed shares of the vCPUs and GPUs of its instance, as a pod's requests do. The times of its profile
are assumed to hold whatever runs beside it. Whole instances are bought.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mark.domain.errors import BadInput
from mark.domain.offer import Offer
from mark.domain.profile import Profile

# vCPUs that a worker takes beside its GPU, to feed the GPU and to answer
VCPUS_OF_GPU_WORKER = 1.0
_EXACT = 1e-9
# Number of orders of the stages on one host that are tried: all orders of up to four stages
_ORDERS = 24


@dataclass(frozen=True, slots=True)
class Host:
    """An instance type that workers of several stages may share."""

    instance: str
    usd_per_hour: float
    vcpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Placement:
    """The share of an instance that one worker of a stage takes. Raises BadInput for more than it has, and for
    nothing.
    """

    host: Host
    vcpus: float
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for what, takes, has in (("vcpus", self.vcpus, self.host.vcpus), ("gpus", self.gpus, self.host.gpus)):
            if not 0.0 <= takes <= has + _EXACT:
                raise BadInput(f"must be 0 to {has:g}", f"{what} of a worker on {self.host.instance}", takes)
        if self.vcpus + self.gpus <= 0.0:
            raise BadInput("takes nothing", f"a worker on {self.host.instance}")


@dataclass(frozen=True, slots=True)
class Pack:
    """`count` instances of a type, each with these workers, in the order of the stages."""

    instance: str
    count: int
    workers: tuple[int, ...]
    usd_per_hour: float  # of all these instances


def packs(placed: Sequence[tuple[Placement, int]]) -> tuple[Pack, ...]:
    """Return instances for the workers of each stage; stages on different types are packed separately.

    Each instance is filled first with the workers that take most of its GPUs, then of its vCPUs, until nothing fits
    (first fit decreasing, all instances of one kind together). If the sum of the shares says that fewer instances might
    do, other orders of the stages are tried. `tests/planning/graphs/test_packing.py` compares small cases with every
    way to pack them.
    """
    found = []
    for host in dict.fromkeys(placement.host for placement, _ in placed):
        workers = tuple((one.vcpus, one.gpus, count) if one.host == host else (0.0, 0.0, 0) for one, count in placed)
        found += [
            Pack(host.instance, count, pattern, count * host.usd_per_hour) for pattern, count in _filled(host, workers)
        ]
    return tuple(found)


def packed_usd_per_hour(placed: Sequence[tuple[Placement, int]]) -> float:
    """Return the dollars of the instances that `packs` buys."""
    by_host: dict[Host, list[tuple[float, float, int]]] = {}
    for placement, count in placed:
        by_host.setdefault(placement.host, []).append((placement.vcpus, placement.gpus, count))
    return sum(
        host.usd_per_hour * sum(count for _, count in _filled(host, tuple(workers)))
        for host, workers in by_host.items()
    )


def resource_usd_per_hour(host: Host, usd_per_vcpu_hour: float) -> tuple[float, float]:
    """Return the prices of a vCPU and of a GPU of a host, so that all of them together cost the host's price.

    A vCPU costs as much as elsewhere and the GPUs cost the remainder (InferLine, SoCC '20, section 6), if there is one.
    With any such prices the sum over workers is a lower bound of the price of whole instances that hold them.
    """
    if not host.gpus:
        return host.usd_per_hour / host.vcpus, 0.0
    of_vcpu = min(usd_per_vcpu_hour, host.usd_per_hour / host.vcpus)
    return of_vcpu, (host.usd_per_hour - of_vcpu * host.vcpus) / host.gpus


def placement_of(offer: Offer, profile: Profile, without_gpu: bool) -> Placement:
    """Return the share of an instance of this offer that one of the profile's `workers` takes, which together keep it
    busy.

    Its share of the vCPUs is at least its share of the memory, so that memory is never sold twice.
    """
    host = Host(offer.instance, offer.usd_per_hour, offer.vcpu, offer.gpus)
    part, gpus = 1.0 / profile.workers, 0.0
    vcpus = offer.vcpu * part
    if offer.gpus and not without_gpu:
        beside = VCPUS_OF_GPU_WORKER if profile.vcpus is None else profile.vcpus
        vcpus, gpus = min(beside, vcpus), offer.gpus * part
    if offer.memory_gib:
        vcpus = max(vcpus, offer.vcpu * min(1.0, profile.memory_mb * 1e6 / (offer.memory_gib * 2.0**30)))
    return Placement(host, vcpus, gpus)


def placed_usd_per_hour(placement: Placement, usd_per_vcpu_hour: float) -> float:
    """Return the price of one worker's share, at the prices of its instance's resources (`resource_usd_per_hour`)."""
    of_vcpu, of_gpu = resource_usd_per_hour(placement.host, usd_per_vcpu_hour)
    return placement.vcpus * of_vcpu + placement.gpus * of_gpu


@lru_cache(maxsize=65536)
def _filled(host: Host, workers: tuple[tuple[float, float, int], ...]) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Return the patterns of workers and how many instances have each, for `workers` as (vcpus, gpus, number)."""
    there = [s for s, (_, _, count) in enumerate(workers) if count]
    decreasing = sorted(there, key=lambda s: (-workers[s][1], -workers[s][0], s))
    at_least = max(
        math.ceil(sum(one[resource] * one[2] for one in workers) / has - _EXACT) if has else 0
        for resource, has in enumerate((host.vcpus, host.gpus))
    )
    best: tuple[tuple[tuple[int, ...], int], ...] | None = None
    for order in itertools.islice(itertools.permutations(decreasing), _ORDERS):
        found = tuple(_in_order(host, workers, order))
        if best is None or _count(found) < _count(best):
            best = found
        if _count(best) <= at_least:
            break
    assert best is not None
    return best


def _count(patterns: tuple[tuple[tuple[int, ...], int], ...]) -> int:
    return sum(count for _, count in patterns)


def _in_order(
    host: Host, workers: Sequence[tuple[float, float, int]], order: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], int]]:
    left = [count for _, _, count in workers]
    while any(left):
        vcpus, gpus = host.vcpus + _EXACT, host.gpus + _EXACT
        pattern = [0] * len(workers)
        for s in order:
            takes_vcpus, takes_gpus, _ = workers[s]
            fits = min(vcpus / takes_vcpus if takes_vcpus else math.inf, gpus / takes_gpus if takes_gpus else math.inf)
            pattern[s] = min(left[s], int(fits))
            vcpus -= pattern[s] * takes_vcpus
            gpus -= pattern[s] * takes_gpus
        times = min(left[s] // pattern[s] for s in order if pattern[s])
        yield tuple(pattern), times
        left = [count - times * taken for count, taken in zip(left, pattern, strict=True)]
