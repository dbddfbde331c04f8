"""A model as its author writes it: `load` once, `predict` on a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mark.domain.errors import BadInput

# Datatypes of the Open Inference Protocol, except BF16, which numpy does not have.
DATATYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "BYTES"),
)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of an item. `shape` excludes the batch dimension; -1 allows any length."""

    name: str
    datatype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        where = f"tensor {self.name!r}"
        if self.datatype not in DATATYPES:
            raise BadInput(f"datatype must be one of {', '.join(DATATYPES)}", where, self.datatype)
        object.__setattr__(self, "shape", tuple(self.shape))
        if not all(type(length) is int and length >= -1 for length in self.shape):
            raise BadInput("a shape holds lengths, -1 for any", where, self.shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether an item of this shape fits."""
        mine = self.shape
        return mine == tuple(shape) or (
            len(mine) == len(shape) and all(a in (b, -1) for a, b in zip(mine, shape, strict=True))
        )


class Model:
    """Base of every model.

    With `inputs`, every item is checked and converted before `predict` gets it, and an item that does not fit is
    refused alone. Without `inputs`, items are as in the request. One worker process calls one model, one batch at a
    time.
    """

    name: str = "model"
    version: str = ""
    platform: str = "python"
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    warmup: Sequence[Any] = ()  # items that are predicted once before the first request
    # Without inputs: the names of every item's values, in this order; an item may also be a list of as many values.
    columns: Sequence[str] = ()
    column_types: Sequence[str] = ()  # the columns' datatypes, which only the metadata for clients uses
    by_name: bool = False  # Open Inference's items are {input name: row} even with a single input

    def load(self) -> None:
        """Do slow preparations, such as reading weights or moving them to the device; called once in each process."""

    def predict(self, batch: list[Any]) -> Sequence[Any]:
        """Return one result for each item, in their order: a list, or an array with a row for each.

        A result is an array, a number, text, bytes, or {output name: any of these}. Items may lie in memory that the
        next batch overwrites: copy items that you keep. Results may lie in reused memory too.
        """
        raise NotImplementedError(f"{type(self).__name__} has no predict")


def predicted(model: Model, batch: list[Any]) -> Any:
    """Return the model's results for the batch.

    Raises whatever the model raises, and TypeError or ValueError unless there is one result for each item.
    """
    count = len(batch)
    results = model.predict(batch)
    if isinstance(results, dict | str | bytes):
        raise TypeError(f"predict returned a {type(results).__name__}, not one result for each item")
    if len(results) != count:
        raise ValueError(f"predict returned {len(results)} results for {count} items")
    return results


_ATTRIBUTES = ("inputs", "name", "outputs", "platform", "version", "warmup")


class FunctionModel(Model):
    """A plain function as a model; calling it calls the function."""

    def __init__(self, function: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__  # where a worker process finds it

    def predict(self, batch: list[Any]) -> Sequence[Any]:
        """Call the function with the batch."""
        return self._function(batch)

    __call__ = predict


def model(made: Callable[..., Any] | None = None, /, **attributes: Any) -> Any:
    """Make a model of a function (batch -> results) or of a class that has `predict`.

    Keywords set the attributes of `Model`: `@mark.model(inputs=[...])`. Raises BadInput for any other keyword, and for
    a class without `predict`.
    """
    if made is None:
        return lambda later: model(later, **attributes)
    where = f"mark.model on {made.__name__}"
    for key in attributes:
        if key not in _ATTRIBUTES:
            raise BadInput(f"unknown attribute, known are {', '.join(_ATTRIBUTES)}", where, key)
    if not isinstance(made, type):
        function_model = FunctionModel(made)
        vars(function_model).update(attributes)
        return function_model
    if not callable(getattr(made, "predict", None)):
        raise BadInput("the class has no predict", where)
    bases = (made,) if issubclass(made, Model) else (made, Model)
    body = {"__module__": made.__module__, "__qualname__": made.__qualname__, "__doc__": made.__doc__}
    return type(made.__name__, bases, body | {"name": made.__name__} | attributes)
