"""Fig. 3.10 of Crankshaw's thesis: 630 users of eight dialects, and a selection with a context for each of them.

    python benchmarks/selection/contexts.py [--users 630] [--data mnist]

Prints the error by the number of a user's feedbacks, and the microseconds a query. Exits with 1 if the error after 50
feedbacks is above the target (10.5 %, for MNIST-5k).
"""

from __future__ import annotations

import argparse
import sys
import time

from mark_papers.clipper.dialects import BINS, dialects, user_errors

TARGET = 0.105


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=630)
    parser.add_argument("--data", default="mnist")
    args = parser.parse_args()
    found = dialects(args.data)
    print(f"{args.data}: own dialect's model {found.error_of_own:.2%}, one for all {found.error_for_all:.2%}")
    for name, by_key in (("a context for each user", True), ("one context", False)):
        began = time.perf_counter()
        errors = user_errors(found, args.users, by_key=by_key)
        us = 1e6 * (time.perf_counter() - began) / errors.size
        shown = ", ".join(f"{low} to {high}: {errors[:, low:high].mean():.2%}" for low, high in BINS)
        print(f"exp4, {name}: errors by feedbacks {shown}; {us:.0f} us a query")
        if by_key:
            after = float(errors[:, BINS[-1][0] :].mean())
    print(f"after 50 feedbacks {after:.2%}, target {TARGET:.1%}")
    return int(args.data == "mnist" and after > TARGET)


if __name__ == "__main__":
    sys.exit(main())
