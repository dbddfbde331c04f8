"""A cascade on handwritten digits: straighten, a small model, and a bigger one if the small one is unsure.

The models are trained as they are loaded, in a second or two, on the digits that scikit-learn brings along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mark

SURE = 0.95  # if the small model is at least as sure, no second opinion is asked


@mark.pipeline(slo_ms=100)
async def classify(query: dict[str, Any], models: mark.StageModels) -> dict[str, Any]:
    """The digit on an image of 8 x 8 pixels, and which model says so."""
    image = await models.deskew(query["pixels"])
    quick = await models.small(image)
    if quick["sure"] >= SURE:
        return {"digit": quick["digit"], "by": "small"}
    careful = await models.large(image)
    return {"digit": careful["digit"], "by": "large"}


class Deskew(mark.Model):
    """Straightens a digit that leans: each row is moved by how far the digit leans there."""

    inputs = (mark.TensorSpec("pixels", "FP32", (64,)),)

    def predict(self, batch: list[Any]) -> Sequence[Any]:
        return [deskewed(pixels) for pixels in batch]


class Digits(mark.Model):
    """A classifier of straightened digits: which one, and how sure."""

    inputs = (mark.TensorSpec("pixels", "FP32", (64,)),)

    def __init__(self, kind: str = "small") -> None:
        self._kind = kind

    def load(self) -> None:
        # Not above, because neither the driver nor Deskew needs them.
        from sklearn.datasets import load_digits
        from sklearn.linear_model import LogisticRegression
        from sklearn.svm import SVC

        images, digits = load_digits(return_X_y=True)
        train = slice(None, None, 2)  # every other one; the queries are of the rest
        made: Any = LogisticRegression(max_iter=2000) if self._kind == "small" else SVC(gamma=0.001, C=10.0)
        self._model = made.fit([deskewed(pixels) for pixels in images[train]], digits[train])

    def predict(self, batch: list[Any]) -> Sequence[Any]:
        rows = np.stack(batch)
        if self._kind == "small":
            shares = self._model.predict_proba(rows)
            return [{"digit": int(row.argmax()), "sure": float(row.max())} for row in shares]
        return [{"digit": int(digit), "sure": 1.0} for digit in self._model.predict(rows)]


def deskewed(pixels: Any) -> Any:
    """64 pixels, row by row, as 64 pixels whose ink has no slant."""
    image = np.asarray(pixels, dtype=np.float32).reshape(8, 8)
    rows, columns = np.mgrid[:8, :8] - 3.5
    ink = float(image.sum()) or 1.0
    row, column = (rows * image).sum() / ink, (columns * image).sum() / ink
    spread = ((rows - row) ** 2 * image).sum()
    slant = ((rows - row) * (columns - column) * image).sum() / spread if spread else 0.0
    moved = np.stack([np.interp(np.arange(8) + slant * (r - 3.5 - row), np.arange(8), image[r]) for r in range(8)])
    return moved.astype(np.float32).ravel()
