"""Estimators of scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import joblib
import numpy as np
import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.answering import warm_up
from mark.models.loading import load
from mark.models.metadata import metadata
from tests.late_imports import bring
from tests.models.calls import oip, one, outputs, sagemaker, tensor

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder


_DATA = np.random.default_rng(0).normal(size=(40, 3))


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    bring(
        globals(),
        "sklearn.compose:ColumnTransformer",
        "sklearn.feature_extraction.text:CountVectorizer",
        "sklearn.linear_model:LinearRegression",
        "sklearn.linear_model:LogisticRegression",
        "sklearn.pipeline:make_pipeline",
        "sklearn.preprocessing:OneHotEncoder",
    )


def test_an_estimator_predicts_rows(tmp_path: Path) -> None:
    """Only rows with the number of features of its training are accepted."""
    estimator = LinearRegression().fit(_DATA, _DATA.sum(axis=1))
    joblib.dump(estimator, tmp_path / "m.joblib")
    model = load("sklearn:m.joblib?pickle=trusted", tmp_path)
    warm_up(model)
    assert model.inputs == [mark.TensorSpec("input", "FP64", (3,))]
    (output,) = outputs(one(model, oip(tensor("input", [2, 3], "FP64", data=_DATA[:2].ravel().tolist()))))
    np.testing.assert_allclose(output["data"], _DATA[:2].sum(axis=1))
    assert one(model, sagemaker(b"[1,2]")).status == 400
    with pytest.raises(BadInput, match="LinearRegression has no predict_proba"):
        load("sklearn:m.joblib?pickle=trusted&method=predict_proba", tmp_path)


def test_metadata_names_each_column_and_whether_it_is_text(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {"age": [20.0, 30.0, 40.0], "city": ["a", "b", "a"], "grade": [1, 2, 1], "note": ["x", "y z", "z"]}
    )
    parts = ColumnTransformer(
        [
            ("city", make_pipeline(OneHotEncoder()), ["city"]),
            ("grade", OneHotEncoder(), [2]),
            ("note", CountVectorizer(token_pattern=r"\w"), "note"),
        ],
        remainder="passthrough",
    )
    joblib.dump(make_pipeline(parts, LinearRegression()).fit(frame, [1.0, 2.0, 3.0]), tmp_path / "m.joblib")
    said = metadata(load("sklearn:m.joblib?pickle=trusted", tmp_path))["inputs"]
    assert [(one["name"], one["datatype"]) for one in said] == [
        ("age", "FP64"),
        ("city", "BYTES"),
        ("grade", "FP64"),
        ("note", "BYTES"),
    ]
    assert all(one["shape"] == [-1] for one in said)


def test_probabilities_by_option(tmp_path: Path) -> None:
    """`method` names the method to call."""
    estimator = LogisticRegression().fit(_DATA, _DATA[:, 0] > 0)
    joblib.dump(estimator, tmp_path / "m.joblib")
    model = load("sklearn:m.joblib?pickle=trusted&method=predict_proba", tmp_path)
    np.testing.assert_allclose(model.predict(list(_DATA[:2])), estimator.predict_proba(_DATA[:2]))


def test_columns_by_name(tmp_path: Path) -> None:
    """A pipeline trained on a data frame takes objects with its columns."""
    pandas = pytest.importorskip("pandas", reason="a data frame needs pandas")
    frame = pandas.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "town": ["a", "b", "a", "b"]})
    columns = ColumnTransformer([("town", OneHotEncoder(), ["town"])], remainder="passthrough")
    estimator = make_pipeline(columns, LinearRegression()).fit(frame, [1.0, 12.0, 3.0, 14.0])
    joblib.dump(estimator, tmp_path / "m.joblib")
    model = load("sklearn:m.joblib?pickle=trusted", tmp_path)
    assert model.inputs == ()
    reply = one(model, sagemaker(b'{"instances": [{"town": "b", "size": 6}]}', accept="text/csv"))
    assert float(bytes(reply.body)) == pytest.approx(16.0)
