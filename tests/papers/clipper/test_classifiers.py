"""The five classifiers: their answers never change, and none is for an image of their training."""

from __future__ import annotations

import numpy as np
import pytest
from mark_papers.clipper.classifiers import DIGITS, Classified, classified, data_notes, shuffled, usable


@pytest.fixture(scope="module")
def digits() -> Classified:
    return classified(DIGITS)


def test_classifiers_answer_the_second_half(digits: Classified) -> None:
    _, labels = shuffled(DIGITS)
    assert digits.labels.tolist() == labels[len(labels) // 2 :].tolist()
    assert digits.answers.shape == digits.margins.shape == (899, 5)
    assert ((digits.margins >= 0.0) & (digits.margins <= 1.0)).all()
    errors = dict(zip(digits.names, digits.errors, strict=True))
    assert errors["svm"] < 0.02 < errors["logreg"] < errors["tree"] < 0.2


def test_a_sure_answer_is_more_often_right(digits: Classified) -> None:
    at = digits.names.index("logreg")
    right = digits.answers[:, at] == digits.labels
    sure = digits.margins[:, at] >= np.median(digits.margins[:, at])
    assert right[sure].mean() > right[~sure].mean()


def test_data_that_is_not_installed_is_told() -> None:
    assert usable()[-1] == DIGITS
    assert ("left out" in data_notes()[0]) == ("mnist" not in usable())
