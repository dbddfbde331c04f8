"""Check that the confidence of an ensemble is a probability: expected calibration error (ECE) from 1,000 labels on.

    python benchmarks/selection/confidence.py [--seeds 5] [--queries 20000] [--data mnist,digits]

Exp4 answers held-out images, drawn at random. It learns the label after each answer, for all queries or only for the
first 1,000, and the answers to the later queries are judged. ECE is the mean absolute difference of confidence and
share of correct answers over ten bins of confidence, weighted by the queries of a bin (Guo et al. 2017).
Exits with 1 if ECE is above 2 %.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import numpy.typing as npt
from mark_papers.clipper.asking import AskedLearner
from models import Classified, classified

from mark.selection.settings import SelectionSettings

TARGET, LABELS, BINS = 0.02, 1000, 10


def confidences(
    data: Classified, queries: int, seed: int, *, goes_on: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return, for each query after the first 1,000, the confidence and whether the answer was correct, 0 or 1.

    Labels of these queries are told as well if feedback `goes_on`.
    """
    learner = AskedLearner(data.names, SelectionSettings("exp4"), seed)
    said, right = [], []
    for at, image in enumerate(np.random.default_rng(seed).integers(0, len(data.labels), queries).tolist()):
        label = int(data.labels[image])
        decision = learner.ask(data.answers[image].tolist(), label if at < LABELS or goes_on else None)
        if at >= LABELS:
            assert decision.calibrated
            assert decision.confidence is not None
            said.append(decision.confidence)
            right.append(float(decision.choice.label == label))
    return np.array(said), np.array(right)


def calibration_error(said: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> float:
    """Return the expected calibration error (ECE), 0 to 1."""
    place = np.minimum((said * BINS).astype(int), BINS - 1)
    return float(sum(abs((said[place == one] - right[place == one]).sum()) for one in range(BINS)) / len(said))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--data", default="mnist,digits")
    args = parser.parse_args()
    worst = 0.0
    for name in args.data.split(","):
        data = classified(name)
        for goes_on, words in ((True, "feedback goes on"), (False, f"{LABELS} labels and no more")):
            errors = [
                calibration_error(*confidences(data, args.queries, seed, goes_on=goes_on)) for seed in range(args.seeds)
            ]
            worst = max(worst, float(np.mean(errors)))
            print(f"{name}, {words}: ECE {np.mean(errors):.2%}, at most {max(errors):.2%}; target {TARGET:.0%}")
        agree = (data.answers == data.answers[:, :1]).all(1)
        wrong = (data.answers[agree, 0] != data.labels[agree]).mean()
        print(f"  all {len(data.names)} models agree on {agree.mean():.1%} of the images; {wrong:.2%} wrong there")
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())
