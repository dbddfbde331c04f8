"""Networks of torch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.answering import answer, warm_up
from mark.models.loading import load
from tests.late_imports import bring
from tests.models.calls import oip, one, outputs, tensor

if TYPE_CHECKING:
    import torch


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    pytest.importorskip("torch", reason="install mark with [torch]")
    bring(globals(), "torch")


def _two() -> Any:
    class Two(torch.nn.Module):  # type: ignore[misc]
        # TorchScript reads the annotations.
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + y, x * 2

    return Two()


def _scripted(network: Any, file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(network).save(str(file))


def _exported(network: Any, file: Path, *examples: Any, dynamic: bool) -> None:
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in examples) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch about itself
        torch.export.save(torch.export.export(network, examples, dynamic_shapes=shapes), str(file))


@pytest.fixture
def linear() -> Any:
    """x -> (x0 + 2 x1)."""
    network = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 2.0]]))
    return network


def test_torchscript(tmp_path: Path, linear: Any) -> None:
    """Several requests through one call of the network; binary rows, which are read-only, too."""
    _scripted(linear, tmp_path / "m.pt")
    model = load("torch:m.pt", tmp_path)
    binary = oip(tensor(parameters={"binary_data_size": 8}), tail=np.array([5, 6], dtype=np.float32).tobytes())
    replies = answer(model, [oip(tensor(shape=[2, 2], data=[1, 2, 3, 4])), binary])
    assert [outputs(reply)[0]["data"] for reply in replies] == [[5, 11], [17]]
    assert outputs(replies[0])[0]["shape"] == [2, 1]


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    """Inputs follow their order in TorchScript; a tuple gives output_0, output_1."""
    _scripted(_two(), tmp_path / "m.pt")
    call = oip(tensor("x", data=[1, 2]), tensor("y", data=[10, 20]))
    found = outputs(one(load("torch:m.pt", tmp_path), call))
    assert [(each["name"], each["data"]) for each in found] == [("output_0", [11, 22]), ("output_1", [2, 4])]


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False], ids=["any batch", "batch of one"])
def test_an_exported_program_knows_its_inputs(tmp_path: Path, linear: Any, dynamic: bool) -> None:
    """A batch fixed at one is run item by item."""
    _exported(linear, tmp_path / "m.pt2", torch.zeros(2 if dynamic else 1, 2), dynamic=dynamic)
    model = load("torch:m.pt2", tmp_path)
    warm_up(model)
    assert model.inputs == [mark.TensorSpec("input", "FP32", (2,))]
    assert outputs(one(model, oip(tensor("input", [2, 2], data=[1, 2, 3, 4]))))[0]["data"] == [5, 11]


@pytest.mark.slow
def test_an_exported_program_of_two_inputs(tmp_path: Path) -> None:
    """Requests may name them in any order."""
    _exported(_two(), tmp_path / "m.pt2", torch.zeros(3, 2), torch.zeros(3, 2), dynamic=True)
    call = oip(tensor("y", data=[10, 20]), tensor("x", data=[1, 2]))
    found = outputs(one(load("torch:m.pt2", tmp_path), call))
    assert [each["data"] for each in found] == [[11, 22], [2, 4]]


def test_another_fixed_batch_is_refused(tmp_path: Path, linear: Any) -> None:
    """It could only be filled with invented items."""
    _exported(linear, tmp_path / "m.pt2", torch.zeros(4, 2), dynamic=False)
    with pytest.raises(BadInput, match="make it dynamic"):
        load("torch:m.pt2", tmp_path)


def test_weights_and_pickles_are_refused_with_what_to_do(tmp_path: Path, linear: Any) -> None:
    """Weights contain no network, and a pickle may run any code."""
    torch.save(linear.state_dict(), tmp_path / "state.pt")
    torch.save(linear, tmp_path / "pickle.pt")
    for name in ("state.pt", "pickle.pt"):
        with pytest.raises(BadInput, match=r"torch\.export\.save"):
            load(f"torch:{name}", tmp_path)
