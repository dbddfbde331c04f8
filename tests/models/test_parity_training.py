"""Parity models of a small network on scikit-learn's digits."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.insurance.codes import ParityCode
from mark.insurance.insurance_settings import CONCAT, SUM
from mark.insurance.parity_file import load_parity
from mark.models.loading import load
from mark.models.parity_training import ParityData, codes_for, read_data, train_parity, write_parity
from tests.late_imports import bring

if TYPE_CHECKING:
    import torch
    from sklearn import datasets


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    bring(globals(), "torch", "sklearn:datasets")


@cache
def digits() -> tuple[Any, Any]:
    found = datasets.load_digits()
    return (found.images[:, None] / 16.0).astype(np.float32), found.target.astype(np.int64)


def network(*end: Any) -> Any:
    """Return a perceptron that learned the digits for a few epochs."""
    torch.manual_seed(0)
    nn = torch.nn
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = (torch.from_numpy(each) for each in digits())
    adam = torch.optim.Adam(made.parameters(), lr=3e-3)
    for _ in range(60):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(made(x), y).backward()
        adam.step()
    return nn.Sequential(*made, *end).eval()


def exported(folder: Path, made: Any, shape: tuple[int, ...] = (1, 8, 8)) -> Path:
    file = folder / "model.pt2"
    example = torch.zeros(2, *shape)
    torch.export.save(torch.export.export(made, (example,), dynamic_shapes=({0: torch.export.Dim("n")},)), str(file))
    return file


def labelled() -> ParityData:
    return ParityData(*digits(), "digits.npz")


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "data.npz", **arrays)
    return str(folder / "data.npz")


def test_reconstructions_are_far_better_than_chance(tmp_path: Path) -> None:
    model = exported(tmp_path, network())
    found = train_parity(model, labelled(), codes_for(None, (2,), 1, (1, 8, 8)), epochs=5)
    assert [one.code.name for one in found.codes] == [SUM, CONCAT]
    assert found.available_accuracy > 0.85
    assert found.chosen.degraded_accuracy > 0.6 > 3.0 * found.chance


def test_same_seed_trains_the_same_models(tmp_path: Path) -> None:
    model, code = exported(tmp_path, network()), [ParityCode(SUM, 2)]
    first, again = (train_parity(model, labelled(), code, seed=3, epochs=1) for _ in range(2))
    assert first.chosen.degraded_accuracy == again.chosen.degraded_accuracy


def test_folder_that_is_written_can_be_served(tmp_path: Path) -> None:
    model = exported(tmp_path, network())
    found = train_parity(model, labelled(), [ParityCode(SUM, 3, 2)], epochs=4)
    content = write_parity(found, model, labelled(), tmp_path / "parity")
    assert content == json.loads((tmp_path / "parity" / "parity.json").read_text())
    settings = load_parity(tmp_path / "parity", tmp_path)
    assert (settings.code, settings.k, settings.r, settings.input_shape, settings.output_shape) == (
        *(SUM, 3, 2),
        *((1, 8, 8), (10,)),
    )
    assert settings.degraded_accuracy == found.chosen.degraded_accuracy
    items = list(digits()[0][:3])
    queries = ParityCode(SUM, 3, 2).encode(items)
    for reference, query in zip(settings.models, queries, strict=True):
        assert np.asarray(load(reference, tmp_path).predict([query, query])).shape == (2, 10)


def test_parity_model_has_no_softmax_at_its_end(tmp_path: Path) -> None:
    model = exported(tmp_path, network(torch.nn.Softmax(dim=1)))
    found = train_parity(model, labelled(), [ParityCode(SUM, 2)], epochs=8)
    scores = found.chosen.networks[0](torch.zeros(2, 1, 8, 8)).detach().numpy()
    assert abs(scores.sum() / 2.0 - 1.0) > 1e-3
    assert found.chosen.degraded_accuracy > 0.5


def test_torchscript_is_trained_and_written_as_torchscript(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.trace(network(), torch.zeros(2, 1, 8, 8)), str(model))
    found = train_parity(model, labelled(), [ParityCode(SUM, 2)], epochs=4)
    write_parity(found, model, labelled(), tmp_path / "parity")
    (reference,) = load_parity(tmp_path / "parity", tmp_path).models
    assert reference == "torch:parity/parity-1.pt"
    assert np.asarray(load(reference, tmp_path).predict(list(digits()[0][:2]))).shape == (2, 10)


def test_model_answers_count_as_right_without_labels(tmp_path: Path) -> None:
    model = exported(tmp_path, network())
    found = train_parity(model, ParityData(digits()[0], None, "x"), [ParityCode(SUM, 2)], epochs=1)
    assert found.available_accuracy == 1.0
    assert not found.labelled


def test_reconstructions_below_chance_are_not_written(tmp_path: Path) -> None:
    """Labels that never agree with the answers."""
    model, (x, y) = exported(tmp_path, network()), digits()
    data = ParityData(x, np.where(y == 0, 0, 0), "digits.npz")
    found = train_parity(model, data, [ParityCode(SUM, 2)], epochs=1)
    with pytest.raises(BadInput, match="no better than guessing"):
        write_parity(found, model, data, tmp_path / "parity")
    assert not (tmp_path / "parity").exists()


def _answering(forward: Callable[[Any], Any]) -> Any:
    class Network(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return forward(x)

    return Network()


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda x: x.flatten(1).argmax(1), "gives labels and not scores"),
        (lambda x: x.flatten(1)[:, :10] / 0.0, "not finite"),
    ],
    ids=["labels", "infinite"],
)
def test_answers_that_are_no_scores_are_refused(tmp_path: Path, forward: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        train_parity(exported(tmp_path, _answering(forward)), labelled(), [ParityCode(SUM, 2)], epochs=1)


def test_items_of_another_shape_than_the_models_are_refused(tmp_path: Path) -> None:
    data = ParityData(digits()[0][:, :, :7], None, "digits.npz")
    with pytest.raises(BadInput, match=r"takes FP32 \[1, 8, 8\]"):
        train_parity(exported(tmp_path, network()), data, [ParityCode(SUM, 2)], epochs=1)


def test_class_beyond_the_models_scores_is_refused(tmp_path: Path) -> None:
    data = ParityData(digits()[0], digits()[1] + 1, "digits.npz")
    with pytest.raises(BadInput, match="classes from 0 to 9"):
        train_parity(exported(tmp_path, network()), data, [ParityCode(SUM, 2)], epochs=1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((200, 2))}, "has no array x"),
        ({"x": np.zeros((5, 2))}, "100 items or more"),
        ({"x": np.zeros((200, 2), dtype="U1")}, "must hold numbers"),
        ({"x": np.full((200, 2), np.nan)}, "not finite"),
        ({"x": np.zeros((200, 2)), "y": np.zeros((200, 3))}, "whole numbers"),
    ],
)
def test_data_that_cannot_be_used_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_data(saved(tmp_path, **arrays))


def test_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((200, 2)))
    (tmp_path / "text.npz").write_text("no archive")
    for name, message in (("x.npy", "must be an .npz"), ("text.npz", "must be an .npz"), ("none.npz", "no such file")):
        with pytest.raises(BadInput, match=message):
            read_data(str(tmp_path / name))


def test_concatenation_needs_images() -> None:
    assert [code.name for code in codes_for(None, (2,), 1, (16,))] == [SUM]
    with pytest.raises(BadInput, match="two axes"):
        codes_for((CONCAT,), (2,), 1, (16,))


def test_unknown_code_names_its_option() -> None:
    with pytest.raises(BadInput, match=r"--codes: must be sum or concat: foo"):
        codes_for((SUM, "foo"), (2,), 1, (16,))
