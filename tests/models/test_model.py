"""Models as their authors write them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.model import FunctionModel


def test_a_function_becomes_a_model_and_stays_a_function() -> None:
    """Tests of one's own can still call it."""

    @mark.model(version="2", inputs=[mark.TensorSpec("x", "INT64")])
    def double(batch: list[int]) -> list[int]:
        """Twice."""
        return [2 * item for item in batch]

    assert isinstance(double, mark.Model)
    assert (double.name, double.version, double.inputs[0].name, double.__doc__) == ("double", "2", "x", "Twice.")
    assert double([1, 2]) == double.predict([1, 2]) == [2, 4]


def test_a_class_becomes_a_model() -> None:
    """The class may be a model already or only have `predict`; its own load is used."""

    class Plain:
        def load(self) -> None:
            self.factor = 3

        def predict(self, batch: list[Any]) -> list[Any]:
            return [self.factor * item for item in batch]

    for made in (mark.model(Plain), mark.model(type("Derived", (Plain, mark.Model), {}), version="7")):
        instance = made()
        assert isinstance(instance, mark.Model)
        instance.load()
        assert instance.predict([2]) == [6]
    assert instance.version == "7"
    assert instance.name == "Derived"


def test_without_parentheses_too() -> None:
    """`@mark.model` alone is the usual form."""

    @mark.model
    def same(batch: list[Any]) -> list[Any]:
        return batch

    assert isinstance(same, FunctionModel)


def test_what_is_no_model_is_refused() -> None:
    """A class without predict, and an attribute that no model has."""
    with pytest.raises(BadInput, match="no predict"):
        mark.model(type("Empty", (), {}))
    with pytest.raises(BadInput, match="unknown attribute"):
        mark.model(input=[])(lambda batch: batch)
    with pytest.raises(NotImplementedError):
        mark.Model().predict([1])


@pytest.mark.parametrize(("datatype", "shape"), [("BF16", ()), ("FP32", (-2,)), ("FP32", (1.5,)), ("float", (1,))])
def test_a_spec_checks_itself(datatype: str, shape: tuple[Any, ...]) -> None:
    """Datatypes are the protocol's, lengths whole numbers or -1."""
    with pytest.raises(BadInput):
        mark.TensorSpec("x", datatype, shape)


def test_a_spec_fits_shapes() -> None:
    """-1 stands for any length, not for any number of lengths."""
    spec = mark.TensorSpec("x", "FP32", [-1, 3])  # type: ignore[arg-type]
    assert spec.shape == (-1, 3)
    assert spec.fits([5, 3])
    assert spec.fits([0, 3])
    assert not spec.fits([5, 4])
    assert not spec.fits([3])


def test_importing_mark_stays_light() -> None:
    """The names for models exist, but numpy and the models' package are not loaded until one is used."""
    code = (
        "import sys, mark\n"
        "assert 'numpy' not in sys.modules and 'mark.models' not in sys.modules\n"
        "assert mark.Model and mark.model and mark.TensorSpec\n"
        "import mark.models.call, mark.models.items\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mark.nothing
