"""Train parity models of a network, as in Kosaian et al., ParM, SOSP '19, sections 4 and 5.1.

A parity model has the architecture of the network, without its final softmax, and separately trained weights. Its
queries are encoded groups of the network's queries, and it learns the weighted sum of the network's outputs to them.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.errors import BadInput
from mark.domain.extras import module_of
from mark.domain.percent import percent
from mark.insurance.codes import ParityCode, check_shape, fits_grid
from mark.insurance.insurance_settings import CODES, CONCAT, SUM
from mark.models.from_torch import TorchModel
from mark.models.loading import in_one_line

EPOCHS = 50
LEAST_ITEMS = 100
_HELD_OUT = 0.2  # share of the items for measuring accuracy; no parity model is trained on them
_BATCH = 32
_LEAST_GROUPS = 4000  # of an epoch: few items can make many groups
_RATE, _DECAY = 1e-3, 1e-5  # of Adam
_TEST_ROUNDS = 4  # groupings of the held-out items: each item is reconstructed this often
_TIMINGS = 51
_ALIKE = 1e-3  # a sum of probabilities may differ from 1 by this much
_WHERE = "mark insure train"


@dataclass(frozen=True, slots=True)
class TrainedCode:
    """A code with its trained parity models."""

    code: ParityCode
    degraded_accuracy: float  # A_d: of reconstructions of one missing output, averaged over the parity models
    train_s: float
    networks: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ParityTraining:
    """The results of `train_parity`. `codes` are in the order of the request."""

    available_accuracy: float  # A_a: of the network itself
    chance: float  # accuracy of always giving the most frequent answer
    labelled: bool  # whether labels are known; otherwise the network's own answers count as right
    codes: tuple[TrainedCode, ...]

    @property
    def chosen(self) -> TrainedCode:
        """The code with the best reconstructions; of equal ones the first."""
        return max(self.codes, key=lambda one: one.degraded_accuracy)


@dataclass(frozen=True, slots=True)
class ParityData:
    """Items (n, ...) and, if known, their labels (n,)."""

    items: FloatArray
    labels: IntArray | None
    file: str


def read_data(file: str) -> ParityData:
    """Return the arrays x and y of an .npz file; y may be missing. Raises BadInput."""
    try:
        with open(file, "rb") as data:
            if not zipfile.is_zipfile(data):
                raise BadInput("must be an .npz file with x, and y if labels are known", "--data", file)
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name in ("x", "y")}
    except FileNotFoundError:
        raise BadInput("no such file", "--data", file) from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"cannot be read as .npz: {in_one_line(error)}", "--data", file) from None
    if "x" not in arrays:
        raise BadInput("has no array x with the items, one a row", "--data", file)
    items = arrays["x"]
    if items.ndim < 2 or len(items) < LEAST_ITEMS:
        raise BadInput(f"x must hold {LEAST_ITEMS} items or more, one a row", f"{file} x", items.shape)
    if not (np.issubdtype(items.dtype, np.number) and np.isrealobj(items)):
        raise BadInput("x must hold numbers, because queries are added up", f"{file} x", items.dtype)
    items = items.astype(np.float32)
    if not np.isfinite(items).all():
        row = int(np.argwhere(~np.isfinite(items))[0, 0])
        raise BadInput("x has a value that is not finite: leave that item out", f"{file} x", f"row {row}")
    labels = arrays.get("y")
    if labels is not None:
        if labels.shape != (len(items),) or not np.issubdtype(labels.dtype, np.integer):
            what = f"y must be {len(items)} whole numbers, the class of each item"
            raise BadInput(what, f"{file} y", f"{labels.dtype} {labels.shape}")
        labels = labels.astype(np.int64)
    return ParityData(items, labels, file)


def codes_for(names: Sequence[str] | None, groups: Sequence[int], r: int, shape: Sequence[int]) -> list[ParityCode]:
    """Return the codes to train, by group size; without `names`, every code that the items' shape allows.

    Raises BadInput.
    """
    for name in names or ():
        if name not in CODES:
            raise BadInput(f"must be {' or '.join(CODES)}", "--codes", name)
    found = []
    for k in groups:
        for name in names or (SUM, CONCAT) if fits_grid(shape, k) else names or (SUM,):
            code = ParityCode(name, k, r)
            check_shape(code, shape, "--codes")
            found.append(code)
    return found


def train_parity(
    model: Path,
    data: ParityData,
    codes: Sequence[ParityCode],
    *,
    seed: int = 0,
    epochs: int = EPOCHS,
    progress: Callable[[float], None] | None = None,
) -> ParityTraining:
    """Train the parity models of each code for the network in the file. Raises BadInput if that is impossible."""
    torch = module_of("torch", _WHERE)
    served = TorchModel(model, str(model), {})
    served.load()
    _check_inputs(served, data)
    outputs = _outputs(served, data, str(model))
    classes = outputs.shape[1]
    if data.labels is not None and not 0 <= data.labels.min() <= data.labels.max() < classes:
        what = f"y must be classes from 0 to {classes - 1}, because the model gives {classes} scores"
        raise BadInput(what, f"{data.file} y", int(data.labels.max() if data.labels.min() >= 0 else data.labels.min()))
    labels = outputs.argmax(axis=1) if data.labels is None else data.labels
    probabilities = bool((outputs >= 0.0).all()) and bool((np.abs(outputs.sum(axis=1) - 1.0) < _ALIKE).all())
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    held = max(int(len(order) * _HELD_OUT), 2 * max(code.k for code in codes))
    test, train = order[:held], order[held:]
    trained = []
    for place, code in enumerate(codes):
        began_s = time.perf_counter()
        networks = []
        for p in range(code.r):
            network = _architecture(torch, model, served.platform, probabilities)
            _reset(torch, network, seed + p)
            for epoch, step in enumerate(
                _epochs(torch, network, code, p, data.items[train], outputs[train], rng, epochs)
            ):
                step()
                if progress is not None:
                    done = (p + (epoch + 1) / epochs) / code.r
                    progress((place + done) / len(codes))
            networks.append(network)
        took_s = time.perf_counter() - began_s
        accuracy = _degraded_accuracy(torch, networks, code, data.items[test], outputs[test], labels[test], seed)
        trained.append(TrainedCode(code, accuracy, took_s, tuple(networks)))
    return ParityTraining(
        available_accuracy=float((outputs[test].argmax(axis=1) == labels[test]).mean()),
        chance=float(np.bincount(labels[test]).max() / held),
        labelled=data.labels is not None,
        codes=tuple(trained),
    )


def write_parity(found: ParityTraining, model: Path, data: ParityData, folder: Path) -> dict[str, Any]:
    """Write the chosen code's networks and `parity.json` into the folder, and return the latter's content.

    Raises BadInput if reconstructions are no better than chance, and if the folder cannot be written.
    """
    torch = module_of("torch", _WHERE)
    best = found.chosen
    if best.degraded_accuracy <= found.chance:
        what = f"reconstructions are no better than guessing ({percent(found.chance)}): give more items, or a smaller k"
        raise BadInput(what, f"A_d of {best.code.name}, k = {best.code.k}", percent(best.degraded_accuracy))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        models = [_write(torch, network, folder, p, data.items) for p, network in enumerate(best.networks, start=1)]
        encode_ms, decode_ms = _times_ms(best.code, data.items, _run(torch, best.networks[0], data.items[:1]))
        content = {
            "schema": 1,
            "code": best.code.name,
            "k": best.code.k,
            "r": best.code.r,
            "models": models,
            "input": {"shape": list(data.items.shape[1:]), "dtype": "float32"},
            "output": {"shape": list(_run(torch, best.networks[0], data.items[:1]).shape[1:])},
            "encode_ms": round(encode_ms, 4),
            "decode_ms": round(decode_ms, 4),
            "available_accuracy": found.available_accuracy,
            "degraded_accuracy": best.degraded_accuracy,
            "chance": found.chance,
            "model_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        }
        (folder / "parity.json").write_text(json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", "--out", str(folder)) from None
    return content


def _check_inputs(served: TorchModel, data: ParityData) -> None:
    specs, shape = served.inputs or [], data.items.shape[1:]
    if len(specs) > 1:
        raise BadInput(
            "has several inputs; a parity query is encoded from one", "MODEL", ", ".join(s.name for s in specs)
        )
    for spec in specs:
        fits = len(spec.shape) == len(shape) and all(a in (-1, b) for a, b in zip(spec.shape, shape, strict=True))
        if not fits or spec.datatype != "FP32":
            what = f"the model takes {spec.datatype} {list(spec.shape)}; x must hold such items, and FP32 ones"
            raise BadInput(what, f"{data.file} x", list(shape))


def _outputs(served: TorchModel, data: ParityData, model: str) -> FloatArray:
    """Return the network's scores for all items, (n, classes)."""
    found = []
    for first in range(0, len(data.items), _BATCH):
        try:
            answers = served.predict(list(data.items[first : first + _BATCH]))
        except (RuntimeError, TypeError) as error:
            what = f"the model cannot answer items of this shape: {in_one_line(error)}"
            raise BadInput(what, f"{data.file} x", list(data.items.shape[1:])) from None
        if isinstance(answers, list) and answers and isinstance(answers[0], dict):
            raise BadInput("has several outputs; a reconstruction is of one", model, ", ".join(answers[0]))
        found.append(np.asarray(answers))
    outputs = np.concatenate(found)
    if not np.issubdtype(outputs.dtype, np.floating) or outputs.ndim != 2 or outputs.shape[1] < 2:
        what = "gives labels and not scores: a parity model needs a float for each class, two at least"
        raise BadInput(what, model, f"{outputs.dtype} {list(outputs.shape[1:])}")
    if not np.isfinite(outputs).all():
        row = int(np.argwhere(~np.isfinite(outputs))[0, 0])
        raise BadInput("gives a score that is not finite", model, f"row {row} of {data.file}")
    return outputs.astype(np.float64)


def _architecture(torch: Any, model: Path, platform: str, probabilities: bool) -> Any:
    """Load the network again without its final softmax, because sums of outputs lie outside its range."""
    if platform != "pytorch_export":
        if probabilities:
            what = "ends in a softmax, which cannot be taken out of TorchScript: give it as torch.export.save writes it"
            raise BadInput(what, "MODEL", str(model))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(str(model), map_location="cpu")
    network = torch.export.load(str(model)).module()
    if probabilities:
        aten = torch.ops.aten
        (end,) = (node for node in network.graph.nodes if node.op == "output")
        last = end.all_input_nodes[0]
        if last.target not in (aten.softmax.int, aten._softmax.default):
            raise BadInput("gives probabilities, but its last step is no softmax to leave out", "MODEL", str(model))
        last.replace_all_uses_with(last.args[0])
        network.graph.erase_node(last)
        network.recompile()
    return network


def _reset(torch: Any, network: Any, seed: int) -> None:
    """Reset the weights to untrained ones: Xavier's for matrices and kernels, 1 for other scales, 0 for biases."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.ndim >= 2:
                torch.nn.init.xavier_uniform_(weights, generator=generator)
            else:
                weights.fill_(0.0 if name.endswith("bias") else 1.0)
            weights.requires_grad_(True)
        for name, buffer in network.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.fill_(float(name.endswith("running_var")))


def _epochs(
    torch: Any,
    network: Any,
    code: ParityCode,
    parity: int,
    items: FloatArray,
    outputs: FloatArray,
    rng: np.random.Generator,
    epochs: int,
) -> Iterator[Callable[[], None]]:
    """Yield one training step for each epoch, of at least as many groups as there are items, drawn for each epoch."""
    rounds = -(-max(len(items), _LEAST_GROUPS) // (len(items) // code.k))
    adam = torch.optim.Adam(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    loss_of = torch.nn.MSELoss()

    def epoch() -> None:
        for groups in _groups(rng, len(items), code.k, rounds):
            for first in range(0, len(groups), _BATCH):
                group = groups[first : first + _BATCH]
                queries = code.encode([items[group[:, c]] for c in range(code.k)])[parity]
                targets = code.targets(outputs[group])[parity].astype(np.float32)
                adam.zero_grad()
                loss = loss_of(network(torch.from_numpy(queries)), torch.from_numpy(targets))
                loss.backward()
                adam.step()

    for _ in range(epochs):
        yield epoch


def _groups(rng: np.random.Generator, items: int, k: int, rounds: int) -> Iterator[IntArray]:
    """Yield groupings of the items, (items // k, k) each; remaining items are left out."""
    for _ in range(rounds):
        yield rng.permutation(items)[: items // k * k].reshape(-1, k)


def _degraded_accuracy(
    torch: Any,
    networks: Sequence[Any],
    code: ParityCode,
    items: FloatArray,
    outputs: FloatArray,
    labels: IntArray,
    seed: int,
) -> float:
    """Return the share of items whose reconstruction from the other outputs of a group has the right class."""
    right = tried = 0
    for group in _groups(np.random.default_rng(seed), len(items), code.k, _TEST_ROUNDS):
        queries = code.encode([items[group[:, c]] for c in range(code.k)])
        for p, network in enumerate(networks):
            parity = _run(torch, network, queries[p])
            for missing in range(code.k):
                known = {c: outputs[group[:, c]] for c in range(code.k) if c != missing}
                scores = code.decode(known, {p: parity})[missing]
                right += int((scores.argmax(axis=1) == labels[group[:, missing]]).sum())
                tried += len(group)
    return right / tried


def _run(torch: Any, network: Any, queries: FloatArray) -> FloatArray:
    with torch.no_grad():
        found: FloatArray = network(torch.from_numpy(np.ascontiguousarray(queries))).numpy().astype(np.float64)
    return found


def _write(torch: Any, network: Any, folder: Path, number: int, items: FloatArray) -> str:
    """Write the network as a file for `torch:` references, and return its name."""
    if isinstance(network, torch.jit.ScriptModule):
        name = f"torch:parity-{number}.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(network, str(folder / f"parity-{number}.pt"))
        return name
    example = torch.from_numpy(np.ascontiguousarray(items[:2]))
    program = torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, str(folder / f"parity-{number}.pt2"))
    return f"parity-{number}.pt2"


def _times_ms(code: ParityCode, items: FloatArray, parity: FloatArray) -> tuple[float, float]:
    """Return the median times of encoding one group and of decoding one missing output."""
    queries, output = [items[c] for c in range(code.k)], parity[0]
    known = dict.fromkeys(range(1, code.k), output)
    actions: tuple[Callable[[], object], ...] = (
        lambda: code.encode(queries),
        lambda: code.decode(known, {0: output}),
    )
    found = []
    for action in actions:
        spans = []
        for _ in range(_TIMINGS):
            began_s = time.perf_counter()
            action()
            spans.append(time.perf_counter() - began_s)
        found.append(float(np.median(spans)) * 1e3)
    return found[0], found[1]
