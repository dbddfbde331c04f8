"""Two models of handwritten digits: a small one that is mostly right, and a large one.

Both train when they load, in a second, on half of scikit-learn's digits (`pip install scikit-learn`). A query is an
image of 64 numbers, 0 to 1; an answer is `{"label": 7, "score": 0.98}`. While the file `BROKEN` lies beside this one,
the large model answers at random: to see a selection leave it.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import mark

BROKEN = Path(__file__).with_name("BROKEN")


def halves() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to train on, images and labels to ask with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels, half = images[order] / 16.0, labels[order], len(labels) // 2
    return images[:half], labels[:half], images[half:], labels[half:]


class Digits(mark.Model):
    """The answer is the likeliest digit, the score its lead before the second."""

    def load(self) -> None:
        images, labels, _, _ = halves()
        self.model = self.untrained().fit(images, labels)

    def untrained(self):
        raise NotImplementedError

    def predict(self, batch: list) -> list:
        chances = self.chances(np.asarray(batch, float).reshape(len(batch), -1))
        ranked = np.sort(chances, axis=1)
        return [
            {"label": int(one), "score": float(lead)}
            for one, lead in zip(chances.argmax(1), ranked[:, -1] - ranked[:, -2], strict=True)
        ]

    def chances(self, images: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(images)


class Small(Digits):
    def untrained(self):
        return LogisticRegression(C=0.01, max_iter=300)


class Large(Digits):
    def untrained(self):
        return SVC(C=3, gamma=0.05)

    def chances(self, images: np.ndarray) -> np.ndarray:
        if BROKEN.exists():
            return np.random.default_rng().random((len(images), 10))
        votes = self.model.decision_function(images)
        chances = np.exp(votes - votes.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)
