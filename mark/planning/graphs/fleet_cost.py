"""The instances that the choices of a pipeline buy, and each stage's part of their dollars."""

from __future__ import annotations

from mark.planning.graphs.estimate import Choices
from mark.planning.graphs.packing import Pack, packs


def bought(choices: Choices) -> tuple[Pack, ...]:
    """Return all instances: first those of one stage, in the order of the stages, then those that stages share."""
    stages = range(len(choices))
    parts = [(stage, option, replicas) for stage in stages for option, replicas in choices[stage].parts]
    alone = [
        Pack(
            option.hardware,
            replicas,
            tuple(option.workers if at == stage else 0 for at in stages),
            replicas * option.usd_per_hour,
        )
        for stage, option, replicas in parts
        if option.placement is None
    ]
    placed = [(stage, option.placement, n) for stage, option, n in parts if option.placement is not None]
    shared = []
    for pack in packs([(placement, replicas) for _, placement, replicas in placed]):
        workers = [0] * len(choices)
        for (stage, _, _), count in zip(placed, pack.workers, strict=True):
            workers[stage] += count
        shared.append(Pack(pack.instance, pack.count, tuple(workers), pack.usd_per_hour))
    return (*alone, *shared)


def usd_by_stage(choices: Choices) -> tuple[float, ...]:
    """Split the bill (dollars per hour) among the stages; of shared instances by the price of the resources workers
    take.

    Room that no worker takes is paid by the stages on the instance.
    """
    usd = [0.0] * len(choices)
    prices = [{option.hardware: option.usd_per_hour for option, _ in choice.parts} for choice in choices]
    for pack in bought(choices):
        takes = [n * of.get(pack.instance, 0.0) for n, of in zip(pack.workers, prices, strict=True)]
        if not sum(takes):
            takes = [float(workers) for workers in pack.workers]
        for stage, taken in enumerate(takes):
            usd[stage] += pack.usd_per_hour * taken / sum(takes)
    return tuple(usd)
