"""The guard's detection times and false alarms (`mark.selection.guard`), with outcomes drawn at random.

    python benchmarks/selection/guard.py [--runs 300] [--alarms 400] [--requests 100000]

A champion is wrong in 5 % of its answers. Each request goes to the challenger with the stated probability, or to both.
The target is the median of the prototype for a tenth of the requests: 16,090 requests for 7 %, 2,990 for 10 %, 570 for
20 % and 70 for 90 %, within 20 %. At most 1 % of challengers that are not worse may be switched off.
"""

from __future__ import annotations

import argparse

import numpy as np

from mark.selection.guard import Duel, switches_off

CHAMPION = 0.05
TARGETS = {0.07: 16_090, 0.1: 2_990, 0.2: 570, 0.9: 70}


def detected(worse: float, share: float | None, requests: int, seed: int) -> int | None:
    """Return after how many requests the challenger is off, or None; with `share` None both answer each request."""
    generator, duel, evidence = np.random.default_rng(seed), Duel(), 0.0
    draws = generator.random((requests, 3))
    to_challenger = (draws[:, 0] < (share or 0.0)).tolist()
    wrong = (draws[:, 1] < CHAMPION).tolist(), (draws[:, 2] < worse).tolist()
    for at, (challenger, a, b) in enumerate(zip(to_challenger, *wrong, strict=True), 1):
        if share is None:
            evidence += duel.pair(a, b)
        else:
            evidence += duel.alone(challenger=challenger, loss=b if challenger else a, share=share)
        if switches_off(evidence, 1):
            return at
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--alarms", type=int, default=400)
    parser.add_argument("--requests", type=int, default=100_000)
    args = parser.parse_args()
    for worse, target in TARGETS.items():
        for share in (0.1, 0.5, None):
            found = [detected(worse, share, 25 * target, seed) for seed in range(args.runs)]
            after = sorted(one for one in found if one is not None)
            name = "both asked" if share is None else f"share {share:g}"
            ratio = f", {np.median(after) / target:.2f} of the prototype's" if share == 0.1 else ""
            print(
                f"{CHAMPION:g} against {worse:g}, {name:10}: off in {100 * len(after) / args.runs:.0f} % of runs, "
                f"after {np.median(after):.0f} requests in the median, 90 % after {np.quantile(after, 0.9):.0f}{ratio}",
                flush=True,
            )
    for share in (0.1, 0.5, None):
        alarms = sum(detected(CHAMPION, share, args.requests, seed) is not None for seed in range(args.alarms))
        name = "both asked" if share is None else f"share {share:g}"
        print(
            f"alike, {args.requests} requests, {name}: {alarms} of {args.alarms} runs switched off wrongly", flush=True
        )


if __name__ == "__main__":
    main()
