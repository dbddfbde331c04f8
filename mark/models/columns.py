"""Convert a batch of items to one tensor for each input, and tensors back to results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from mark.models.model import TensorSpec
from mark.models.tensors import Array, stacked


def columns(batch: Sequence[Any], names: Sequence[str]) -> dict[str, Array]:
    """Return input name -> tensor with a row for each item, in the order of `names`, or else of the first item.

    The tensors are contiguous, aligned and writable, unlike some views of a request.
    """
    first = batch[0]
    if isinstance(first, dict):
        found = {name: stacked([item[name] for item in batch], None) for name in names or first}
    else:
        found = {names[0] if names else "input": stacked(batch, None)}
    return {name: np.require(tensor, requirements=["C", "A", "W"]) for name, tensor in found.items()}


def rows(outputs: Mapping[str, Array], count: int, specs: Sequence[TensorSpec]) -> Sequence[Any]:
    """Return one result for each of `count` items. Raises ValueError if an output has another first length."""
    for name, tensor in outputs.items():
        if tensor.shape[:1] != (count,):
            raise ValueError(f"output '{name}' has shape {list(tensor.shape)} for {count} items")
    if len(outputs) == 1 and (specs or "output" in outputs):
        (only,) = outputs.values()
        return cast(Sequence[Any], only)
    return [{name: tensor[i] for name, tensor in outputs.items()} for i in range(count)]
