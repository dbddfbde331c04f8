"""Programs with defaults or drawn from a seed, and the reference: the best of all plans there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.planning.solver.program import Program, with_least


def covering(
    load_rps: Sequence[float], usd_per_rps: float = 1.0, levels: int = 10, top_rps: float = 10.0
) -> FloatArray:
    """Return the overflow cost of a load known for sure.

    The overflow is the load beyond the capacity, at a price for each request/s and step.
    """
    capacity = np.linspace(0.0, top_rps, levels + 1)
    return np.asarray(usd_per_rps * np.maximum(0.0, np.asarray(load_rps, dtype=np.float64)[:, None] - capacity))


def program(
    usd: Sequence[float] = (1.0,),
    rps: Sequence[float] = (2.0,),
    load_rps: Sequence[float] = (4.0,) * 4,
    *,
    launch: float | Sequence[float] = 0.0,
    boot: int | Sequence[int] = 0,
    running: int | Sequence[int] = 0,
    most: int | Sequence[int] = 1_000,
    usd_per_rps: float = 1.0,
    **more: object,
) -> Program:
    """Return a program of one offer of 2 requests/s at 1 $ a step, for a load of 4 through four steps."""

    def each(value: float | Sequence[float], kind: type) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(value), (len(usd),)), dtype=kind)

    return Program(
        usd_per_step=np.array(usd, dtype=np.float64),
        launch_usd=each(launch, float),
        capacity_rps=np.array(rps, dtype=np.float64),
        boot_steps=each(boot, int),
        running=each(running, int),
        most=each(most, int),
        overflow_usd=covering(load_rps, usd_per_rps),
        spacing_rps=1.0,
        **more,  # type: ignore[arg-type]
    )


def drawn(
    seed: int,
    offers: int = 2,
    steps: int = 3,
    most: int = 2,
    *,
    limits: bool = False,
    first: bool = False,
    least: int = 0,
) -> Program:
    """Draw any program: convex overflow, some offers running, different boots, a load like their capacities.

    Of every other one launches have leads and prices by step. `least` instances must serve wherever they can.
    """
    rng = np.random.default_rng(seed)
    levels = 8
    slopes = -np.sort(-rng.uniform(0.0, 1.0, (steps, levels)) * rng.integers(0, 2, (steps, levels)), axis=1)
    saved = np.concatenate([np.zeros((steps, 1)), np.cumsum(slopes, axis=1)], axis=1)
    overflow = saved[:, -1:] - saved + rng.uniform(0.0, 0.2, (steps, 1))
    size = rng.uniform(0.5, 4.0, offers)
    usd = rng.uniform(0.1, 0.6, offers) * size
    found = Program(
        usd_per_step=usd,
        launch_usd=usd * rng.uniform(0.0, 2.0, offers),
        capacity_rps=size,
        boot_steps=rng.integers(0, 3, offers),
        running=rng.integers(0, most + 1, offers) * rng.integers(0, 2, offers),
        most=rng.integers(1, most + 1, offers),
        overflow_usd=overflow,
        spacing_rps=1.0,
        max_instances=int(rng.integers(0, 4)) if limits else 2**40,
        max_usd_per_step=float(rng.uniform(0.0, 3.0)) if limits else math.inf,
        first=first,
    )
    if seed % 2:
        latest = np.maximum(np.arange(steps), found.boot_steps[:, None])
        leads = rng.integers(found.boot_steps[:, None], latest, endpoint=True)
        found = replace(found, late_usd=usd[:, None] * rng.uniform(0.0, 1.0, (offers, steps)), lead_steps=leads)
    return with_least(found, least)


def cloud(seed: int, offers: int = 8, steps: int = 20, load_rps: float = 60.0, **more: object) -> Program:
    """Return too many offers to try out: from 2 to 40 requests/s, spot at a third, a load that goes up and down."""
    rng = np.random.default_rng(seed)
    size = np.geomspace(2.0, 40.0, offers) * rng.uniform(0.9, 1.1, offers)
    usd = 1e-3 * size**1.05 * rng.uniform(0.8, 1.2, offers) * np.where(rng.uniform(size=offers) < 0.4, 0.35, 1.0)
    load = load_rps * (1.0 + 0.5 * np.sin(np.arange(steps) / 3.0 + rng.uniform(0.0, 6.0)))
    capacity = np.linspace(0.0, 3.0 * load_rps, 49)
    spread = 0.05 + 0.3 * np.sqrt(np.arange(1, steps + 1) / steps)
    excess = np.mean(
        [np.maximum(0.0, (load * (1.0 + z * spread))[:, None] - capacity) for z in np.linspace(-1.0, 1.0, 9)], axis=0
    )
    usual = Program(
        usd_per_step=usd,
        launch_usd=2.5 * usd,
        capacity_rps=size,
        boot_steps=np.full(offers, 3),
        running=rng.integers(0, 4, offers) * (rng.uniform(size=offers) < 0.4),
        most=np.full(offers, 10_000),
        overflow_usd=5e-3 * excess,
        spacing_rps=float(capacity[1]),
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def least_usd(of: Program, boots_count: bool = True) -> float:
    """Return the price of the best of all plans; without `boots_count` limits apply to serving instances only.

    Without limits, only plans that have the least number of instances in all steps count.
    """
    offers, steps = of.offers, of.steps
    every = np.indices([int(n) + 1 for n in np.repeat(of.most, steps)])
    counts = every.reshape(offers * steps, -1).T.reshape(-1, offers, steps)
    before = counts[:, :, :1] if of.first else np.broadcast_to(of.running[:, None], (len(counts), offers, 1))
    rises = np.maximum(np.diff(np.concatenate([before, counts], axis=2), axis=2), 0)
    can = np.ones(len(counts), dtype=np.bool_)
    within = counts.astype(np.float64)
    launch_usd = of.launch_usd[:, None] + (np.zeros((offers, steps)) if of.late_usd is None else of.late_usd)
    for j in range(offers):
        for t in range(steps):
            if t < of.boot_steps[j]:
                can &= rises[:, j, t] == 0
            elif boots_count:
                lead = int(of.boot_steps[j] if of.lead_steps is None else of.lead_steps[j, t])
                within[:, j, t - lead : t] += rises[:, j, t : t + 1]
    can &= (within.sum(axis=1) <= of.max_instances).all(axis=1)
    can &= (np.einsum("j,njt->nt", of.usd_per_step, within) <= of.max_usd_per_step + 1e-9).all(axis=1)
    missing = of.missing(counts.sum(axis=1)).sum(axis=1)
    if math.isinf(of.max_usd_per_step) and of.max_instances == 2**40:
        can &= missing == 0
    usd = missing * of.missing_usd
    usd = usd + np.einsum("j,njt->n", of.usd_per_step, counts) + np.einsum("jt,njt->n", launch_usd, rises)
    levels = np.arange(of.levels + 1) * of.spacing_rps
    for t in range(steps):
        usd = usd + np.interp(counts[:, :, t] @ of.capacity_rps, levels, of.overflow_usd[t])
    return float(usd[can].min())
