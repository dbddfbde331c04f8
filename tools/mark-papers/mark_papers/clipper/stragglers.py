"""Fig. 3.9: ensembles of 1 to 16 forests whose replies are sometimes late, with and without a deadline.

No server runs here: latencies are drawn, and mark's query machine (`mark.selection.query`) decides at their times.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mark.selection.settings import EXP4, SelectionSettings
from mark_papers.clipper.asking import AskedLearner
from mark_papers.clipper.classifiers import data_notes, shuffled, usable
from mark_papers.panels import Curve, FigurePanel, PanelFigure, Row

SIZES = (1, 2, 4, 8, 12, 16)
DEADLINE_MS = 20.0  # the paper's latency objective
MEDIAN_MS, SIGMA = 8.0, 0.5  # of a reply; lognormal, so that 3.3 % come after the deadline
QUERIES = 4_000
_TREES = 10


def run_clipper_fig3_9(
    *,
    data: tuple[str, ...] | None = None,
    sizes: tuple[int, ...] = SIZES,
    queries: int = QUERIES,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> PanelFigure:
    """Compare latency, missing replies and errors by the size of the ensemble."""
    name = (usable() if data is None else data)[0]
    answers, labels = forests(name, max(sizes))
    rows = []
    for place, size in enumerate(sizes):
        rows.append(straggler_row(answers[:, :size], labels, queries, seed))
        if progress is not None:
            progress((place + 1) / len(sizes))
    x = tuple(float(size) for size in sizes)
    curves = [
        Curve(title, x, tuple(float(row[column]) for row in rows))
        for title, column in (("p99, waiting for all", "p99_all_ms"), ("p99, with the deadline", "p99_ms"))
    ]
    late = [str(row["forests"]) for row in rows if float(row["p99_ms"]) > DEADLINE_MS]
    last = rows[-1]
    return PanelFigure(
        "clipper-fig3-9",
        "Crankshaw's thesis (Clipper)",
        "Fig. 3.9 of Clipper: stragglers in larger ensembles",
        (FigurePanel(f"random forests on {name}", tuple(rows), tuple(curves), ("forests", "p99_ms")),),
        (
            f"With {last['forests']} forests p99 is {float(last['p99_all_ms']):.1f} ms where all are waited for, and "
            f"{float(last['p99_ms']):.1f} ms with a deadline of {DEADLINE_MS:g} ms.",
            f"Errors are then {100 * float(last['error']):.2f} % instead of {100 * float(last['error_all']):.2f} %.",
            f"Ensembles of {', '.join(late)} miss the deadline at p99: where no forest has replied by then, the first "
            "reply is waited for."
            if late
            else "No ensemble misses the deadline at p99.",
        ),
        (
            f"simulated: each reply takes a lognormal time of its own, median {MEDIAN_MS:g} ms, sigma {SIGMA:g}; no "
            "server runs, and load does not make replies slower, as it does in the paper",
            f"deadline {DEADLINE_MS:g} ms; {queries:,} queries; missing: replies that come after the deadline; "
            "_all: every reply is waited for",
            "answers that the awaited forests cannot change are given at once, also before the deadline",
            *data_notes(),
        ),
    )


def forests(data: str, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return answers of forests with different seeds to the held-out images, (images, forests), and the labels."""
    from sklearn.ensemble import RandomForestClassifier

    images, labels = shuffled(data)
    half = len(labels) // 2
    found = []
    for seed in range(count):
        model = RandomForestClassifier(_TREES, random_state=seed, n_jobs=1)
        found.append(model.fit(images[:half], labels[:half]).predict(images[half:]))
    return np.stack(found, 1), labels[half:]


def straggler_row(answers: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], queries: int, seed: int) -> Row:
    """Return the row of an ensemble of these forests, with and without the deadline."""
    generator = np.random.default_rng(seed)
    index = generator.integers(0, len(labels), queries)
    latencies_s = MEDIAN_MS / 1e3 * generator.lognormal(0.0, SIGMA, (queries, answers.shape[1]))
    names = [f"forest{at}" for at in range(answers.shape[1])]
    found: dict[float, tuple[list[float], float]] = {}
    for deadline_s in (DEADLINE_MS / 1e3, np.inf):
        learner, times_s, wrong = (
            AskedLearner(names, SelectionSettings(EXP4, deadline_s=deadline_s)),
            list[float](),
            0.0,
        )
        for at, image in enumerate(index.tolist()):
            late_s = latencies_s[at].tolist()
            label = int(labels[image])
            decision = learner.ask(answers[image].tolist(), label, latencies_s=late_s, told=times_s.append)
            wrong += float(decision.choice.label != label)
        found[deadline_s] = times_s, wrong / queries
    (times_s, error), (_, error_all) = found.values()
    waits_ms = 1e3 * latencies_s.max(1)
    return {
        "forests": str(len(names)),
        "mean_all_ms": float(waits_ms.mean()),
        "p99_all_ms": float(np.percentile(waits_ms, 99)),
        "mean_ms": 1e3 * float(np.mean(times_s)),
        "p99_ms": 1e3 * float(np.percentile(times_s, 99)),
        "missing": float((1e3 * latencies_s > DEADLINE_MS).mean()),
        "error_all": error_all,
        "error": error,
    }
