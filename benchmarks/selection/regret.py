"""Fig. 3.8 of Crankshaw's thesis: policies while the best model is broken for a quarter of 20,000 queries.

    python benchmarks/selection/regret.py [--seeds 20] [--data mnist,digits] [--policies exp4,thompson,...]

Each query is one of the held-out images, drawn at random; between query 5,000 and 10,000 the best model answers at
random. The policy learns the label after each answer. The table has errors in percent: before the break, while the
model is broken, afterwards, and over all queries.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from mark_papers.clipper.failure import BROKEN, QUERIES, queries, window_errors
from models import classified


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
            rows = np.array(
                [window_errors(policy, data.names, world, seed, BROKEN) for seed, world in enumerate(worlds)]
            )
            us = 1e6 * (time.perf_counter() - began) / (len(worlds) * QUERIES)
            before, broken, *_ = 100.0 * rows.mean(0)
            after, whole = 100.0 * rows[:, 2:].mean(), 100.0 * rows.mean(1)
            print(
                f"  {policy:12} before {before:5.2f}  broken {broken:5.2f}  after {after:5.2f}  "
                f"all {whole.mean():5.2f} (sd {whole.std():.2f}), {us:.0f} us a query with feedback"
            )


if __name__ == "__main__":
    main()
