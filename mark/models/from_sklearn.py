"""scikit-learn's estimators, from a pickle that the user trusts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.errors import BadInput
from mark.models.loading import in_one_line, library, only
from mark.models.model import Model, TensorSpec


class SklearnModel(Model):
    """An estimator written by joblib or pickle. Reading a pickle runs code, so the reference must say `pickle=trusted`.

    Option `method`: `predict` (the default), `predict_proba`, `decision_function` or `transform`.
    """

    platform = "sklearn_pickle"

    def __init__(self, file: Path, reference: str, options: dict[str, str]) -> None:
        known = {
            "method": ("predict", "predict_proba", "decision_function", "transform"),
            "pickle": ("untrusted", "trusted"),
        }
        said = only(options, known, reference)
        if said["pickle"] != "trusted":
            raise BadInput("reading a pickle runs any code in it: add ?pickle=trusted, or convert to ONNX", reference)
        self._file, self._reference, self._method = file, reference, said["method"]

    def load(self) -> None:
        """Load the estimator. Raises BadInput if the file does not contain one with this method."""
        joblib = library("joblib", self._reference)
        library("sklearn", self._reference)
        try:
            estimator = joblib.load(self._file)
        except Exception as error:  # a pickle can raise any exception
            raise BadInput(f"cannot be read: {in_one_line(error)}", self._reference) from error
        self._call: Any = getattr(estimator, self._method, None)
        if self._call is None:
            raise BadInput(f"a {type(estimator).__name__} has no {self._method}", self._reference)
        features = getattr(estimator, "n_features_in_", None)
        names = getattr(estimator, "feature_names_in_", None)
        if names is not None:
            self.columns = [str(name) for name in names]
            texts = _texts(estimator, self.columns)
            self.column_types = ["BYTES" if name in texts else "FP64" for name in self.columns]
        elif features is not None:
            self.inputs = [TensorSpec("input", "FP64", (int(features),))]

    def predict(self, batch: list[Any]) -> Any:
        """Run the estimator on rows of numbers, or on objects with a key for each column of its training data frame."""
        if self.columns:
            frame = library("pandas", self._reference).DataFrame(batch, columns=list(self.columns))
            return np.asarray(self._call(frame))
        return np.asarray(self._call(np.asarray(batch)))


def _texts(step: Any, names: Sequence[str]) -> set[str]:
    """Return the columns among `names` that a fitted step encodes as text: with text categories, or a vocabulary."""
    if steps := getattr(step, "steps", None):
        return _texts(steps[0][1], names)
    if hasattr(step, "vocabulary_"):
        return set(names)
    if (parts := getattr(step, "transformers_", None)) is not None:
        found: set[str] = set()
        for _, part, chosen in parts:
            of = [chosen] if isinstance(chosen, str) else chosen
            if not all(isinstance(name, str) for name in np.atleast_1d(of)):  # numbers, a slice or a mask
                of = np.asarray(names)[of]
            found |= _texts(part, [str(name) for name in of])
        return found
    known = getattr(step, "categories_", ())
    return {name for name, values in zip(names, known, strict=False) if np.asarray(values).dtype.kind in "OUS"}
