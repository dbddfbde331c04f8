"""Section 5 of ParM: the accuracy of reconstructions (Fig. 5), of all answers (Fig. 6), and by k and code (Fig. 8).

It also has section 5.2.3. The images are digits, because the paper's image, speech and localisation data are not
available here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import IntArray
from mark.domain.extras import module_of
from mark.models.parity_training import EPOCHS, ParityTraining, codes_for, read_data, train_parity
from mark_papers.clipper.classifiers import data_notes, shuffled, usable
from mark_papers.panels import FigurePanel, PanelFigure, Row
from mark_papers.parm.latency import PAPER

GROUPS = (2, 3, 4)
_UNAVAILABLE = (0.01, 0.05, 0.1)  # shares of answers that are reconstructed
_HIDDEN = (200, 100)
_NETWORK_EPOCHS = 15


def run_parm_accuracy(
    *,
    data: tuple[str, ...] | None = None,
    groups: tuple[int, ...] = GROUPS,
    epochs: int = EPOCHS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> PanelFigure:
    """Measure accuracy with and without the model's own answer, by data, code and k."""
    names = usable() if data is None else data
    panels, said = [], []
    for place, name in enumerate(names):

        def told(done: float, place: int = place) -> None:
            if progress is not None:
                progress((place + done) / len(names))

        found = _trained(name, groups, epochs, seed, told)
        panels.append(FigurePanel(f"a network with two hidden layers, {name}", tuple(_rows(found))))
        best = found.chosen
        said.append(
            f"On {name} the best code is {best.code.name} with k = {best.code.k}: "
            f"{100 * (found.available_accuracy - best.degraded_accuracy):.1f} points below the model's own answers."
        )
    return PanelFigure(
        "parm-accuracy",
        PAPER,
        "Figs. 5, 6 and 8 of ParM, and section 5.2.3: accuracy of reconstructions",
        tuple(panels),
        (*said, "The paper: at most 6.5 points below with k = 2 (Fig. 5)."),
        (
            "A_a: the model's own answers; A_d: reconstructions of one missing answer; A_o: all answers, if that share "
            "of them is reconstructed; default: one class for all",
            f"measured on a fifth of the images, on which neither network was trained; seed {seed}; {epochs} epochs",
            *data_notes(),
        ),
    )


def _rows(found: ParityTraining) -> list[Row]:
    available = found.available_accuracy
    return [
        {
            "code": f"{one.code.name}, k = {one.code.k}",
            "A_a": available,
            "A_d": one.degraded_accuracy,
            "default": found.chance,
            **{f"A_o {100 * f:g} %": (1.0 - f) * available + f * one.degraded_accuracy for f in _UNAVAILABLE},
        }
        for one in found.codes
    ]


def _trained(
    name: str, groups: tuple[int, ...], epochs: int, seed: int, progress: Callable[[float], None]
) -> ParityTraining:
    images, labels = shuffled(name)
    side = round(images.shape[1] ** 0.5)
    x = images.astype(np.float32).reshape(-1, 1, side, side)
    with TemporaryDirectory() as folder:
        data_file, model_file = Path(folder) / "images.npz", Path(folder) / "model.pt2"
        np.savez(data_file, x=x, y=labels)
        train_network(x, labels, seed, model_file)
        data = read_data(str(data_file))
        codes = codes_for(None, groups, 1, data.items.shape[1:])
        return train_parity(model_file, data, codes, seed=seed, epochs=epochs, progress=progress)


def train_network(x: NDArray[np.float32], y: IntArray, seed: int, file: Path) -> None:
    """Train a network on the images that `train_parity` does not hold out with this seed, and export it."""
    torch: Any = module_of("torch", "mark reproduce parm-accuracy")
    nn = torch.nn
    torch.manual_seed(seed)
    first, second = _HIDDEN
    inputs, classes = int(np.prod(x.shape[1:])), int(y.max()) + 1
    network = nn.Sequential(
        *(nn.Flatten(), nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU()),
        nn.Linear(second, classes),
    )
    rng = np.random.default_rng(seed)
    train = rng.permutation(len(x))[len(x) // 5 :]
    adam, loss_of = torch.optim.Adam(network.parameters(), lr=1e-3), nn.CrossEntropyLoss()
    for _ in range(_NETWORK_EPOCHS):
        order = rng.permutation(train)
        for begin in range(0, len(order), 64):
            batch = order[begin : begin + 64]
            adam.zero_grad()
            loss_of(network(torch.from_numpy(x[batch])), torch.from_numpy(y[batch])).backward()
            adam.step()
    sizes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(network.eval(), (torch.from_numpy(x[:2]),), dynamic_shapes=sizes)
    torch.export.save(program, str(file))
