"""PyTorch networks: TorchScript and exported programs."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.errors import BadInput
from mark.models.columns import columns, rows
from mark.models.loading import in_one_line, library, only
from mark.models.model import Model, TensorSpec
from mark.models.tensors import NAMES


class TorchModel(Model):
    """A network from `torch.jit.save` or `torch.export.save`, on the GPU if there is one.

    A state dict does not contain the network, and a pickled module runs any code: both are refused with advice.
    """

    platform = "pytorch_torchscript"

    def __init__(self, file: Path, reference: str, options: dict[str, str]) -> None:
        only(options, {}, reference)
        self._file, self._reference = file, reference
        self._single = False

    def load(self) -> None:
        """Load the network. Raises BadInput if the file contains neither form."""
        self._torch = torch = library("torch", self._reference)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        if not zipfile.is_zipfile(self._file):
            raise BadInput("is neither TorchScript nor an exported program", self._reference)
        with zipfile.ZipFile(self._file) as archive:
            names = {name.partition("/")[2] for name in archive.namelist()}
        if "archive_format" in names:
            self._load_exported(torch)
        elif "constants.pkl" in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch deprecates TorchScript
                try:
                    network = torch.jit.load(str(self._file), map_location=self._device)
                except RuntimeError as error:
                    raise BadInput(f"cannot be read: {in_one_line(error)}", self._reference) from error
            self._network = network.eval()
        else:
            how = "export the network with torch.export.save, or load its state in the load() of a mark.Model"
            raise BadInput(f"holds weights or a pickle, but no network: {how}", self._reference)

    def predict(self, batch: list[Any]) -> Any:
        """Run all items together, or one by one if the program was exported for a batch of one."""
        names = [spec.name for spec in self.inputs]
        torch = self._torch
        with torch.inference_mode():
            tensors = [torch.from_numpy(each).to(self._device) for each in columns(batch, names).values()]
            if self._single:
                each = [self._run([tensor[i : i + 1] for tensor in tensors]) for i in range(len(batch))]
                outputs = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
            else:
                outputs = self._run(tensors)
        return rows(outputs, len(batch), self.outputs)

    def _run(self, tensors: list[Any]) -> dict[str, Any]:
        made = self._network(*tensors)
        if isinstance(made, tuple | list):
            made = {f"output_{i}": each for i, each in enumerate(made)}
        elif not isinstance(made, dict):
            made = {"output": made}
        return {name: each.cpu().numpy() for name, each in made.items()}

    def _load_exported(self, torch: Any) -> None:
        self.platform = "pytorch_export"
        try:
            program = torch.export.load(str(self._file))
        except Exception as error:  # a damaged archive can raise any exception
            raise BadInput(f"cannot be read: {in_one_line(error)}", self._reference) from error
        if self._device != "cpu":
            program = library("torch.export.passes", self._reference).move_to_device_pass(program, self._device)
        wanted = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
        inputs = [(name, wanted[name]) for name in program.graph_signature.user_inputs]
        lengths = [tensor.shape[0] if tensor.ndim else 0 for _, tensor in inputs]
        fixed = [length for length in lengths if isinstance(length, int)]  # the other lengths are symbols
        if fixed and set(fixed) != {1}:
            raise BadInput("was exported for a batch of another length than 1: make it dynamic", self._reference)
        self._single = bool(fixed)
        self.inputs = [TensorSpec(name, _datatype(tensor), _shape(tensor)) for name, tensor in inputs]
        self._network = program.module()


def _datatype(tensor: Any) -> str:
    return NAMES[np.dtype(str(tensor.dtype).removeprefix("torch."))]


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(length if isinstance(length, int) else -1 for length in tensor.shape[1:])
