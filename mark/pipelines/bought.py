"""What the choices of a pipeline buy: instances by what is on them, and each stage's part of their dollars."""

from __future__ import annotations

from mark.pipelines.estimate import Choices
from mark.pipelines.packs import Pack, packs


def bought(choices: Choices) -> tuple[Pack, ...]:
    """All instances; what has a stage to itself in the order of the stages, then what stages share."""
    stages = range(len(choices))
    alone = [
        Pack(
            choice.option.hardware,
            choice.replicas,
            tuple(choice.option.workers if at == stage else 0 for at in stages),
            choice.usd_per_hour,
        )
        for stage, choice in enumerate(choices)
        if choice.option.placement is None
    ]
    placed = [
        (stage, choice.option.placement, choice.replicas)
        for stage, choice in enumerate(choices)
        if choice.option.placement is not None
    ]
    shared = []
    for pack in packs([(placement, replicas) for _, placement, replicas in placed]):
        workers = dict(zip((stage for stage, _, _ in placed), pack.workers, strict=True))
        by_stage = tuple(workers.get(stage, 0) for stage in stages)
        shared.append(Pack(pack.instance, pack.count, by_stage, pack.usd_per_hour))
    return (*alone, *shared)


def usd_by_stage(choices: Choices) -> tuple[float, ...]:
    """Dollars per hour that sum to the bill: shared instances in proportion to what workers take, at resources' prices.

    What nothing takes is paid by those that are there.
    """
    usd = [0.0] * len(choices)
    for pack in bought(choices):
        takes = [workers * choice.option.usd_per_hour for workers, choice in zip(pack.workers, choices, strict=True)]
        if not sum(takes):
            takes = [float(workers) for workers in pack.workers]
        for stage, taken in enumerate(takes):
            usd[stage] += pack.usd_per_hour * taken / sum(takes)
    return tuple(usd)
