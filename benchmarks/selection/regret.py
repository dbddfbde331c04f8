"""Fig. 3.8 of Crankshaw's thesis: policies while the best model is broken for a quarter of 20,000 queries.

    python benchmarks/selection/regret.py [--seeds 20] [--data mnist,digits] [--policies exp4,thompson,...]

Each query is one of the held-out images, drawn at random; between query 5,000 and 10,000 the best model answers at
random. The label is told after each answer. Errors in percent: before, while broken, after, and over all queries.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from models import Classified, classified

from mark.selection.policies import policy_of
from mark.selection.policy import Reply
from mark.selection.query import Selection
from mark.selection.replay import LoggedQuery, replay
from mark.selection.settings import SelectionSettings
from mark.selection.state import Judge, SelectionState

QUERIES, BROKEN, MENDED = 20_000, 5_000, 10_000


def queries(data: Classified, seed: int) -> list[LoggedQuery]:
    """The scenario's queries."""
    generator = np.random.default_rng(seed)
    best = int(data.errors.argmin())
    index = generator.integers(0, len(data.labels), QUERIES)
    answers = data.answers[index].copy()
    answers[BROKEN:MENDED, best] = generator.integers(0, 10, MENDED - BROKEN)
    usd = [0.0] * len(data.names)
    return [
        LoggedQuery(int(label), [Reply(one, one) for one in row], usd)
        for label, row in zip(data.labels[index].tolist(), answers.tolist(), strict=True)
    ]


def errors(policy: str, names: tuple[str, ...], asked: list[LoggedQuery], seed: int) -> list[float]:
    """Errors in percent: before, broken, after, all."""
    settings = SelectionSettings(policy)
    state = SelectionState(names, settings)
    generator = np.random.default_rng(seed + 1)
    selection = Selection(policy_of(settings, len(names), generator), state, settings, generator.random)
    found = replay(asked, selection, Judge(state, None), window=BROKEN)
    losses = [100.0 * one.loss / one.queries for one in found.windows]
    return [losses[0], losses[1], float(np.mean(losses[2:])), 100.0 * found.error]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", default="mnist,digits")
    parser.add_argument("--policies", default="exp4,exp4:thesis,thompson,exp3,split")
    args = parser.parse_args()
    for name in args.data.split(","):
        data = classified(name)
        print(name, ", ".join(f"{m} {100 * e:.2f} %" for m, e in zip(data.names, data.errors, strict=True)))
        worlds = [queries(data, seed) for seed in range(args.seeds)]
        for policy in args.policies.split(","):
            began = time.perf_counter()
            rows = np.array([errors(policy, data.names, world, seed) for seed, world in enumerate(worlds)])
            us = 1e6 * (time.perf_counter() - began) / (len(worlds) * QUERIES)
            before, broken, after, whole = rows.mean(0)
            print(
                f"  {policy:12} before {before:5.2f}  broken {broken:5.2f}  after {after:5.2f}  all {whole:5.2f} "
                f"(sd {rows[:, 3].std():.2f}), {us:.0f} us a query with feedback"
            )


if __name__ == "__main__":
    main()
