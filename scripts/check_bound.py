#!/usr/bin/env python3
"""Check a certificate of `mark bound --certificate FILE`, without mark: compute what its numbers prove.

    python scripts/check_bound.py FILE [--digest SHA256]

The digest that `mark bound --json` printed shows that no number was changed since. docs/bound.md ("Blocks") has the
proof. Needs numpy only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import sys

import numpy as np

GRID = 20_000
SAFE = 1e-11  # raises capacities and lowers prices, so that rounding never lifts the bound
MOST_BYTES = 64_000_000


def thinned(usd, requests, most):
    """Groups of neighbours, each at its lowest price and highest capacity."""
    size = -(-len(usd) // most)
    first = np.concatenate(([0], np.arange(1, len(usd), size)))
    return usd[first], requests[np.append(first[1:], len(usd)) - 1]


def mixes(usd, requests, top):
    """Whole numbers of instances that no cheaper mix serves as much with, up to the first that serves `top`."""
    front = np.zeros(1), np.zeros(1)
    for i in np.argsort(usd / requests, kind="stable"):
        count = np.arange(int(np.ceil(top / requests[i])) + 1)
        one = thinned(usd[i] * count, requests[i] * count, 500)
        both = [(a[:, None] + b).ravel() for a, b in zip(front, one, strict=True)]
        order = np.lexsort((-both[1], both[0]))
        most = np.maximum.accumulate(both[1][order])
        order = order[np.concatenate(([True], both[1][order][1:] > most[:-1]))]
        reach = np.nonzero(both[1][order] >= top)[0]
        order = order[: reach[0] + 1] if len(reach) else order
        front = thinned(both[0][order], both[1][order], 1000)
    return front


def left_over(counts, rooms):
    """Requests of each block that constant rooms leave; one is served in its bin or the next, the last bin carries."""
    carried = total = np.zeros((len(counts), len(rooms)))
    for arrived in counts.T[:, :, None]:
        beyond = np.maximum(0.0, carried + arrived - rooms)
        carried = np.minimum(beyond, arrived)
        total = total + (beyond - carried)
    return total


def event_costs(prices, rps, start_usd, width_s, late_usd, requests):
    """Dollars by number of requests: instances that start or end in the block, one of them in part; or `late_usd`."""
    front_usd, front_requests = mixes(prices * width_s + start_usd / 2, rps * width_s, requests[-1])
    cost = late_usd * requests
    for usd, served in zip(front_usd, front_requests, strict=True):
        rest = np.maximum(0.0, requests - served)
        cost = np.minimum(cost, usd + late_usd * rest)
        for price, each, start in zip(prices, rps, start_usd, strict=True):
            part = usd + (rest > 0.0) * start / 2 + price / each * rest
            cost = np.minimum(cost, np.where(rest <= each * width_s * (1.0 + 1e-9), part, np.inf))
    return np.minimum.accumulate(cost[::-1])[::-1]


def proven(head, counts, prices, pattern):
    """What the numbers prove, before late requests are taken off: the sum of the cheapest ways through the blocks."""
    offers, bins, bin_s = head["offers"], head["block_bins"], head["bin_s"]
    width_s, blocks = bins * bin_s, len(counts) // bins
    rps = np.array([o["rps"] for o in offers]) * (1.0 + SAFE)
    boot_s = np.array([o["billed_boot_s"] for o in offers])
    start_usd = np.array([o["usd_per_s"] for o in offers]) * boot_s / (1.0 + SAFE)
    free_rps, late_usd = head["free_rps"] * (1.0 + SAFE), head["late_usd"]
    # The first fleet of a warm start has no boot to pay for: its payments are moved on by so many blocks.
    skipped = max(1, math.ceil(boot_s.max() / 2 / width_s)) if head["warm_start"] else 0
    counts, pattern = counts[: blocks * bins].reshape(blocks, bins).astype(float)[skipped:], pattern[skipped:]
    most = left_over(counts, np.array([free_rps * bin_s])).max(initial=0.0)
    requests = np.linspace(0.0, most * (1.0 + SAFE) + 1e-9, GRID)
    total = 0.0
    for p in np.unique(pattern):
        there = np.isfinite(prices[p])
        usd, served = mixes(prices[p][there], rps[there], counts.max(initial=0.0) / bin_s)
        cost = event_costs(prices[p][there], rps[there], start_usd[there], width_s, late_usd, requests)
        rows, rooms = counts[pattern == p], (served + free_rps) * bin_s
        for start in range(0, len(rows), 2048):
            part = rows[start : start + 2048]
            # The first mix that can serve any two bins at once leaves nothing, and larger ones cost more.
            needed = np.searchsorted(rooms, (part[:, 1:] + part[:, :-1]).max(initial=part.max()), side="left") + 1
            at = np.floor(left_over(part, rooms[:needed]) / requests[1] * (1.0 - SAFE)).astype(int)
            total += (usd[:needed] * width_s + cost[at]).min(axis=1).sum()
    return total * (1.0 - 1e-9)


def refusal(head, counts, prices, pattern):
    """Why these numbers prove nothing, or None."""
    positive = [o[k] for o in head["offers"] for k in ("usd_per_s", "rps")] + [head["bin_s"], head["block_bins"]]
    numbers = [head[k] for k in ("usd", "late_usd", "late_allowed", "rt_max_s", "free_rps")] + positive
    numbers += [o["billed_boot_s"] for o in head["offers"]] + [head["function_usd"] or 0.0]
    if not all(type(n) in (int, float) and math.isfinite(n) and n >= 0.0 for n in numbers) or not all(positive):
        return "a number is negative or not finite, or a price or a capacity is zero"
    forms = [array.dtype.kind + str(array.ndim) for array in (counts, prices, pattern)]
    if head["format"] != 1 or type(head["warm_start"]) is not bool or forms != ["u1", "f2", "u1"]:
        return "its data are not of format 1"
    if head["function_usd"] is not None and head["late_usd"] > head["function_usd"]:
        return "a late request is dearer than a function"
    if head["bin_s"] < head["rt_max_s"] - 1e-9 or head["bin_s"] < 1e-9:
        return "bins are narrower than RT_max"
    if not 2 <= head["block_bins"] <= len(counts) or len(counts) // head["block_bins"] != len(pattern):
        return "blocks do not fit the counts"
    lowest = np.array([o["usd_per_s"] for o in head["offers"]])
    if prices.shape != (len(np.unique(pattern)), len(lowest)) or not (prices >= lowest * (1.0 - 1e-9)).all():
        return "a price of a block is below the lowest price"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--digest", help="SHA-256 of the file, as `mark bound --json` printed it")
    args = parser.parse_args()
    try:
        with open(args.file, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            sys.exit(f"{args.file}: refused: longer than {MOST_BYTES:,} bytes")
        digest = hashlib.sha256(content).hexdigest()
        if args.digest is not None and digest != args.digest.lower():
            sys.exit(f"{args.file}: refused: its digest is {digest}, not {args.digest}")
        with np.load(io.BytesIO(content), allow_pickle=False) as data:
            head = json.loads(text := bytes(data["head"]))
            arrays = [data[name] for name in ("counts", "prices", "pattern")]
        if json.dumps(head, sort_keys=True).encode() != text:
            raise ValueError("a key is repeated or out of order")
        why = refusal(head, *arrays)
        usd = None if why else proven(head, *arrays) - head["late_usd"] * head["late_allowed"]
    except Exception as error:  # numpy, zipfile, zlib and json raise many kinds for files of others
        sys.exit(f"{args.file}: refused: no certificate ({type(error).__name__}: {error})")
    if why or not abs(usd - head["usd"]) <= 1e-7 * head["usd"]:  # also of sums that are not finite
        sys.exit(f"{args.file}: refused: " + (why or f"it proves {usd:.9f} dollars and claims {head['usd']:.9f}"))
    print(f"proven: no policy pays less than ${usd:.4f}, balancer, data and commitments left out; digest {digest}")


if __name__ == "__main__":
    main()
