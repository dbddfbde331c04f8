"""ONNX graphs, run by ONNX Runtime; such a file contains no code."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.errors import BadInput
from mark.models.columns import columns, rows
from mark.models.loading import in_one_line, library, only
from mark.models.model import Model, TensorSpec
from mark.models.tensors import NAMES, Array

_TYPES = {
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(float16)": "FP16",
    "tensor(bool)": "BOOL",
    "tensor(string)": "BYTES",
} | {f"tensor({sign}int{bits})": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


# A map from class to number for each item, as ZipMap returns it.
_MAPS = {
    f"seq(map({key},tensor({number})))": np.dtype(dtype)
    for key in ("int64", "string")
    for number, dtype in (("float", "<f4"), ("double", "<f8"))
}
_log = logging.getLogger(__name__)


class OnnxModel(Model):
    """A model from an ONNX file. Names, datatypes and shapes come from the graph.

    The probabilities by class from scikit-learn's converter (ZipMap) become a vector in the order of the classes. Other
    outputs that are not tensors are left out, which is logged. A graph with a fixed batch length of 1 gets its items
    one by one.
    """

    platform = "onnx_onnxv1"

    def __init__(self, file: Path, reference: str, options: dict[str, str]) -> None:
        only(options, {}, reference)
        self._file, self._reference = file, reference

    def load(self) -> None:
        """Load the graph. Raises BadInput if the file is not a graph, or not one that takes a batch."""
        runtime = library("onnxruntime", self._reference)
        try:
            session = runtime.InferenceSession(self._file, providers=runtime.get_available_providers())
        except Exception as error:  # the library's errors lack a common base
            raise BadInput(f"cannot be read: {in_one_line(error)}", self._reference) from error
        inputs = session.get_inputs()
        outputs = [each for each in session.get_outputs() if each.type in _TYPES or each.type in _MAPS]
        for each in session.get_outputs():
            if each not in outputs:
                _log.warning("%s: output %s is left out: it is a %s", self._reference, each.name, each.type)
        if not outputs or not inputs or not all(each.type in _TYPES and each.shape for each in inputs):
            raise BadInput("every input, and one output at least, must be a tensor with a batch", self._reference)
        fixed = {each.shape[0] for each in inputs if isinstance(each.shape[0], int)}
        if fixed - {1}:
            raise BadInput("has a batch of another fixed length than 1: make it dynamic", self._reference)
        self._single = bool(fixed)
        self.inputs = [_spec(each) for each in inputs]
        self.outputs = [_spec(each) for each in outputs]
        self._session, self._kinds = session, {each.name: each.type for each in outputs}

    def predict(self, batch: list[Any]) -> Any:
        """Run all items together, or one by one."""
        tensors = columns(batch, [spec.name for spec in self.inputs])
        for spec in self.inputs:
            if spec.datatype == "BYTES":
                tensors[spec.name] = _text(tensors[spec.name])
        if self._single:
            each = [self._run({name: t[i : i + 1] for name, t in tensors.items()}) for i in range(len(batch))]
            return rows({name: np.concatenate([one[name] for one in each]) for name in each[0]}, len(batch), ())
        return rows(self._run(tensors), len(batch), self.outputs)

    def _run(self, tensors: dict[str, Array]) -> dict[str, Array]:
        names = [spec.name for spec in self.outputs]
        made = self._session.run(names, tensors)
        return {
            name: np.array([list(each.values()) for each in one], _MAPS[kind])
            if (kind := self._kinds[name]) in _MAPS
            else one
            for name, one in zip(names, made, strict=True)
        }


def _spec(each: Any) -> TensorSpec:
    if each.type in _MAPS:
        return TensorSpec(each.name, NAMES[_MAPS[each.type]], (-1,))
    return TensorSpec(each.name, _TYPES[each.type], tuple(n if isinstance(n, int) else -1 for n in each.shape[1:]))


def _text(tensor: Array) -> Array:
    text = np.empty_like(tensor)
    text.ravel()[:] = [each.decode() for each in tensor.ravel()]
    return text
